"""How a pool stops: nothing new is claimed, what is in flight gets its time, and what does not end is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

import greenroom as gr
from greenroom.persistence.tasks import Condition
from tests.tasks.scripts import POOL, Calls, Job, Steer, agents, task_of

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


async def test_a_pool_that_stops_claims_nothing_more_and_gives_its_tasks_back(database: Shared) -> None:
    calls: list[str] = []

    @gr.operation(effect=gr.Effect.SAFE)
    async def work(text: str) -> None:
        calls.append(text)
        await anyio.sleep(3)

    async def script(task: gr.Task, job: Job) -> None:
        if job.text == "waits":
            await task.receive(Steer, timeout=None)
        await task.run(work, job.text)
        await task.run(work, job.text)

    async with database.runtime(agents(script, max_running=1, shutdown=10.0)) as runtime:
        await runtime.submit(POOL, Job("waits"), task_id="waits")
        await anyio.sleep(1)
        await runtime.submit(POOL, Job("first"), task_id="first")
        await runtime.submit(POOL, Job("second"), task_id="second")
        await anyio.sleep(1)
        began = anyio.current_time()
    assert anyio.current_time() - began == pytest.approx(2.0, abs=0.2)
    assert calls == ["first"]
    async with database.open() as store:
        tasks = {name: await task_of(store, name) for name in ("waits", "first", "second")}
    assert {name: task.condition for name, task in tasks.items()} == {
        "waits": Condition.WAITING,
        "first": Condition.RUNNABLE,
        "second": Condition.RUNNABLE,
    }
    assert {task.owner for task in tasks.values()} == {None}
    assert {task.suspicions for task in tasks.values()} == {0}
    assert tasks["second"].generation == 0


async def test_the_report_says_of_each_task_how_it_was_left(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def work(text: str) -> None:
        await anyio.sleep(1000 if text == "long" else 1)

    async def script(task: gr.Task, job: Job) -> None:
        await task.run(work, job.text)

    runtime = database.runtime(agents(script, shutdown=5.0))
    async with runtime:
        for name in ("long", "short"):
            await runtime.submit(POOL, Job(name), task_id=name)
        await anyio.sleep(0.5)
    report = runtime.report
    assert report is not None
    assert f"{POOL}/long" in report.cancelled
    assert f"{POOL}/short" in report.stopped
    assert not report.stuck


@pytest.mark.parametrize("what", ["operation", "control code"])
async def test_an_activation_that_swallows_its_cancellation_is_named_in_the_report_as_stuck(
    what: str, database: Shared
) -> None:
    gate = anyio.Event()
    stubborn_for = anyio.Event()

    async def hold() -> None:
        with anyio.CancelScope(shield=True):
            stubborn_for.set()
            await gate.wait()

    @gr.operation(effect=gr.Effect.SAFE)
    async def stubborn() -> None:
        await hold()

    async def script(task: gr.Task, job: Job) -> None:
        await (task.run(stubborn) if what == "operation" else hold())

    runtime = database.runtime(agents(script, shutdown=5.0))
    stuck: list[tuple[str, ...]] = []

    async def watch() -> None:
        await runtime.wait_stopping()
        await anyio.sleep(20)
        assert runtime.report is not None
        stuck.append(runtime.report.stuck)
        gate.set()

    async with anyio.create_task_group() as group, runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await stubborn_for.wait()
        group.start_soon(watch)
        await anyio.sleep(0.1)
    assert stuck == [(f"{POOL}/T1",)]
    assert runtime.report is not None
    assert runtime.report.stuck == ()
    assert f"{POOL}/T1" in runtime.report.cancelled


async def test_a_waiting_task_is_let_go_at_once_when_its_pool_stops(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        await task.run(note, "a")
        return (await task.receive(Steer, timeout=None)).text

    async with database.runtime(agents(script)) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(1)
        began = anyio.current_time()
    assert anyio.current_time() - began < 0.1
    async with database.runtime(agents(script)) as runtime:
        await runtime.task("T1").signal(Steer("on"))
        assert await runtime.task("T1").result() == "on"
    assert calls.made == ["a"]


async def test_a_task_that_rests_goes_on_when_its_pool_is_torn_down_by_a_defect_and_begun_anew(
    database: Shared,
) -> None:
    begun = 0

    async def script(task: gr.Task, job: Job) -> str:
        nonlocal begun
        begun += 1
        return (await task.receive(Steer, timeout=None)).text

    async def fail() -> None:
        raise OSError("a defect of ours")

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="rests")
        await anyio.sleep(2)
        assert runtime._storage is not None
        (pool,) = runtime._storage.tasks.pools
        pool.spawn(fail, "defect")
        await anyio.sleep(2)
        await handle.signal(Steer("home"))
        assert await handle.result(timeout=10) == "home"
    assert begun == 2
