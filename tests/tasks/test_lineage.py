"""Where an operation belongs stays what it was: through nested branches, child tasks, restarts, and troubles of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import greenroom as gr
from greenroom.persistence import ParkReason
from greenroom.runtime.replay import CallId
from greenroom.runtime.tasks.ids import operation_key
from greenroom.testing import Away, Contention, OutcomeLost, StoreFaults
from tests.durable.helpers import settled
from tests.tasks.scripts import POOL, Calls, Job, Steer, agents

if TYPE_CHECKING:
    from greenroom.testing import Fault
    from tests.durable.helpers import Shared


async def test_k09_effects_before_a_wait_three_tasks_deep_are_not_repeated(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        await task.run(note, job.text)
        if len(job.text) < 3:
            child = await task.submit(POOL, Job(job.text + "x"))
            await task.run(note, f"{job.text} has a child")
            return str(await child.result())
        return (await task.receive(Steer, timeout=None)).text

    for _ in range(3):
        async with database.runtime(agents(script)) as runtime:
            await runtime.submit(POOL, Job("x"), task_id="T1")
            await settled()
    async with database.runtime(agents(script)) as runtime, database.client() as client:
        deepest = [
            status.task_id async for status in client.tasks() if status.waits[:1] and "receive" in status.waits[0]
        ]
        await runtime.task(deepest[0]).signal(Steer("go"))
        assert await runtime.task("T1").result() == "go"
    assert sorted(calls.made) == ["x", "x has a child", "xx", "xx has a child", "xxx"]


async def test_k09_effects_before_a_wait_three_nurseries_deep_are_not_repeated(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def level(task: gr.Task, name: str) -> None:
        await task.run(note, name)
        if len(name) == 3:
            await task.receive(Steer, timeout=None)
            return
        async with task.nursery() as branches:
            for each in "ab":
                branches.start_soon(level, task, name + each)

    async def script(task: gr.Task, job: Job) -> str:
        await level(task, "a")
        return "done"

    async with database.runtime(agents(script)) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
    for n in range(4):
        async with database.runtime(agents(script)) as runtime:
            await runtime.task("T1").signal(Steer(""), message_id=str(n))
            await settled()
    async with database.runtime(agents(script)) as runtime:
        assert await runtime.task("T1").result() == "done"
    assert len(calls.made) == len(set(calls.made)) == 7


async def test_k09_a_nested_branch_that_is_not_there_any_more_is_told_and_nothing_is_repeated(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> None:
        async with task.nursery() as branches:
            branches.start_soon(inner, task)

    async def inner(task: gr.Task) -> None:
        async with task.nursery() as branches:
            branches.start_soon(task.run, note, "deep")
        await task.receive(Steer, timeout=None)

    async def flat(task: gr.Task, job: Job) -> None:
        await task.run(note, "deep")
        await task.receive(Steer, timeout=None)

    async with database.runtime(agents(script)) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
    async with database.runtime(agents(flat)) as runtime:
        await runtime.task("T1").signal(Steer(""))
        await settled()
        status = await runtime.task("T1").status()
        assert status.parked is ParkReason.DIVERGED
        assert "root/1.1/1.1#1" in (status.parked_detail or "")
    assert calls.made == ["deep"]


@pytest.mark.parametrize(
    "faults",
    [
        [Contention(), Contention(), Contention()],
        [OutcomeLost(committed=True), OutcomeLost(committed=False), OutcomeLost(committed=True)],
        [Away(3.0), Contention(), OutcomeLost(committed=False), Away(1.0), OutcomeLost(committed=True)],
    ],
    ids=["contention", "lost outcomes", "all"],
)
async def test_k13_keys_of_operations_are_those_of_a_run_without_faults(database: Shared, faults: list[Fault]) -> None:
    sent: dict[str, str] = {}

    @gr.operation(effect=gr.Effect.KEYED)
    async def pay(op: gr.Operation) -> None:
        assert op.id not in sent, "an operation was sent twice"
        sent[op.id] = op.key

    async def script(task: gr.Task, job: Job) -> None:
        for _ in range(3):
            await task.run(pay)
        async with task.nursery() as branches:
            for _ in range(2):
                branches.start_soon(task.run, pay)

    async with (
        StoreFaults({"CommitTurn task:T1*": faults}) as storm,
        database.runtime(agents(script), source=database.source(driver=storm.wrap)) as runtime,
    ):
        await (await runtime.submit(POOL, Job(), task_id="T1")).wait()
        assert storm.left == ()
    calls = ["root#1", "root#2", "root#3", "root/4.1#1", "root/4.2#1"]
    assert sent == {call: operation_key("T1", 1, 1, CallId.read(call)) for call in calls}
