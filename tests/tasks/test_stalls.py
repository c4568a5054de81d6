"""Tasks that do not go on: found, named, and moved where that can be done (R21, C08, K03)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

import greenroom as gr
from greenroom.persistence import ParkReason, start_execution
from greenroom.persistence.task_pools import RegisterTaskPool
from greenroom.persistence.tasks import Condition, SubmitTask, TaskOutcome, TerminateTask
from tests.durable.helpers import events_of
from tests.persistence.stores import done
from tests.persistence.tasks_help import claimed, new, submit
from tests.tasks.scripts import POOL, Calls, Job, Steer, agents, task_of

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


async def test_r21_control_code_that_waits_for_what_is_not_the_tasks_is_named_and_broken_off(database: Shared) -> None:
    calls, runs, never = Calls(), 0, anyio.Event()
    note = calls.safe()

    async def hang() -> None:
        await never.wait()

    async def script(task: gr.Task, job: Job) -> str:
        nonlocal runs
        runs += 1
        text = await task.run(note, "a")
        if runs == 1:
            async with task.nursery() as branches:
                branches.start_soon(hang)
        return text

    async with database.runtime(agents(script)) as runtime:
        events = runtime.events()
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert await handle.result() == "A"
        assert 60 <= anyio.current_time() < 70
        (stall,) = events_of(gr.TaskStalled, events)
        assert (stall.path, stall.task_id, stall.seconds) == (POOL, "T1", 60.0)
        assert stall.branch is not None
        assert stall.branch != "root"
        assert "never.wait()" in stall.stack
        assert (runs, calls.made) == (2, ["a"])


async def test_r21_control_code_that_hangs_before_its_first_call_is_found_too(database: Shared) -> None:
    runs = 0

    async def script(task: gr.Task, job: Job) -> int:
        nonlocal runs
        runs += 1
        if runs == 1:
            await anyio.sleep_forever()
        return runs

    async with database.runtime(agents(script)) as runtime:
        assert await (await runtime.submit(POOL, Job())).result() == 2


async def test_a_task_that_stalls_again_and_again_is_parked_and_the_pool_goes_on(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        if job.text == "bad":
            await anyio.sleep_forever()
        return job.text

    async with database.runtime(agents(script, max_running=1, max_restarts=2, period=10.0)) as runtime:
        bad = await runtime.submit(POOL, Job("bad"))
        good = await runtime.submit(POOL, Job("good"))
        await anyio.sleep(1000)
        status = await bad.status()
        assert status.parked is ParkReason.CRASH_LOOP
        assert "3 times" in str(status.parked_detail)
        assert await good.result() == "good"


async def test_k03_a_stalled_task_that_swallows_its_cancellation_keeps_neither_its_place_nor_the_task(
    database: Shared,
) -> None:
    runs, gate = 0, anyio.Event()

    async def script(task: gr.Task, job: Job) -> str:
        nonlocal runs
        if job.text == "good":
            return "good"
        runs += 1
        if runs == 1:
            with anyio.CancelScope(shield=True):
                await gate.wait()
            await task.sleep(1)  # it can do nothing more
        return f"run {runs}"

    async with database.runtime(agents(script, max_running=1)) as runtime:
        bad = await runtime.submit(POOL, Job("bad"))
        good = await runtime.submit(POOL, Job("good"))
        assert await good.result() == "good"
        assert 60 <= anyio.current_time() < 70
        assert await bad.result() == "run 2"
        gate.set()
        await anyio.sleep(1)
    assert runtime.report is not None
    assert runtime.report.clean


async def test_a_turn_that_only_takes_long_is_no_stall(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        for _ in range(3):
            await anyio.sleep(50)
            await task.sleep(0.1)
        return "done"

    async with database.runtime(agents(script)) as runtime:
        events = runtime.events()
        assert await (await runtime.submit(POOL, Job())).result() == "done"
        assert not events_of(gr.TaskStalled, events)


async def test_waiting_on_the_task_itself_is_no_stall_however_long_it_takes(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        return (await task.receive(Steer, timeout=None)).text

    async with database.runtime(agents(script)) as runtime:
        events = runtime.events()
        handle = await runtime.submit(POOL, Job())
        await anyio.sleep(5000)
        await handle.signal(Steer("on"))
        assert await handle.result() == "on"
        assert not events_of(gr.TaskStalled, events)


async def test_c08_a_task_that_nothing_will_ever_wake_is_told_of_once(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> None:
        await task.receive(Steer, timeout=None)

    async with database.runtime(agents(script), source=database.source(sweep=10.0)) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(1)
    async with database.open() as store:
        await done(store, submit("lost", pool=POOL))
        execution = await start_execution(
            store, on_lost=lambda: None, lease=database.lease.total_seconds(), clock=database.time.store_clock
        )
        await (await claimed(store, "lost", execution_id=execution.id, pool=POOL)).let_go()
        await execution.end()
    runtime = database.runtime(agents(script), source=database.source(sweep=10.0))
    events = runtime.events()
    async with runtime:
        await anyio.sleep(65)
        assert [(event.task_id, event.branch) for event in events_of(gr.TaskStalled, events)] == [("lost", None)]
        status = await runtime.task("T1").status()
        assert status.condition is Condition.WAITING


async def test_i12_a_child_whose_parent_has_ended_without_it_is_told_to_stop(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> None:
        await task.receive(Steer, timeout=None)

    async with database.open() as store:
        await done(store, RegisterTaskPool(pool=POOL))
        await done(store, submit("parent", pool=POOL))
    async with database.runtime(agents(script), source=database.source(sweep=10.0)) as runtime:
        async with database.open() as store:
            request = await runtime.submit(POOL, Job(), task_id="model")
            record = await task_of(store, "model")
            assert isinstance(record.request, bytes)
            child = new("child", record.request, pool=POOL, parent="task:parent")
            await done(store, SubmitTask(task=child))
            await done(store, TerminateTask(address="task:parent", pool=POOL, reason="x", error=b"null"))
        assert request.id == "model"
        await anyio.sleep(60)
        assert (await runtime.task("child").status()).outcome is TaskOutcome.CANCELLED
        assert (await runtime.task("model").status()).outcome is None


async def test_tasks_of_a_pool_that_nobody_serves_are_told_of(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> None: ...

    async with database.open() as store:
        await done(store, RegisterTaskPool(pool="service/others"))
        await done(store, submit("t1", pool="service/others"))
    runtime = database.runtime(agents(script), source=database.source(sweep=10.0))
    events = runtime.events()
    async with runtime:
        await anyio.sleep(60)
        assert [(event.path, event.runnable) for event in events_of(gr.PoolUnserved, events)] == [("service/others", 1)]


async def test_a_row_that_cannot_be_read_is_quarantined_and_the_pool_goes_on(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        return job.text

    async with database.open() as store:
        await done(store, RegisterTaskPool(pool=POOL))
        await done(store, submit("poison", pool=POOL))
    await database.change("UPDATE tasks SET restarts = 'no list' WHERE address = 'task:poison'")
    async with database.runtime(agents(script)) as runtime:
        assert await (await runtime.submit(POOL, Job("good"))).result() == "good"
        await anyio.sleep(30)
    await database.change(
        "UPDATE tasks SET restarts = '[]' WHERE address = 'task:poison'"
    )  # so that it can be looked at
    async with database.open() as store:
        assert (await task_of(store, "poison")).parked is ParkReason.UNDECODABLE


async def test_a_request_that_cannot_be_decoded_parks_its_task_at_once(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> None: ...

    async with database.open() as store:
        await done(store, RegisterTaskPool(pool=POOL))
        await done(store, submit("bad", b"not json", pool=POOL))
    async with database.runtime(agents(script)) as runtime:
        await anyio.sleep(60)
        status = await runtime.task("bad").status()
        assert (status.parked, status.restarts) == (ParkReason.UNDECODABLE, 0)


def test_a_stall_is_a_misuse_that_says_what_to_do() -> None:
    error = gr.Stalled("root/0.1", 60.0)
    assert isinstance(error, gr.Misuse)
    assert "task.run" in str(error)


async def test_a_turn_that_was_cut_short_with_its_pool_is_not_taken_for_a_stall_later(database: Shared) -> None:
    calls, runs, never = Calls(), 0, anyio.Event()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        nonlocal runs
        runs += 1
        for text in "ab":  # the second one lands while its driver waits: what follows is a turn without that
            await task.run(note, text)
        if runs == 1:
            await never.wait()
        return f"run {runs}"

    async with database.runtime(agents(script)) as runtime:
        events = runtime.events()
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(1)
        service = runtime.ref("service")
        await service.terminate_child("agents")
        await service.restart_child("agents")
        assert await handle.result() == "run 2"
        await anyio.sleep(300)
        assert not events_of(gr.TaskStalled, events)
