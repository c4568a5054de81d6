"""C06: a task goes on with code that replay cannot reach, by a transform of its past, which is on record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import anyio
import pytest
from attrs import frozen

import greenroom as gr
from greenroom.persistence import ParkReason
from tests.durable.helpers import settled
from tests.tasks.scripts import POOL, Calls, Job, Steer, agents, task_of

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


@frozen
class Resumed(gr.Message[str]):
    """What the second version begins with, where the first one has been."""

    text: str
    read: tuple[str, ...]
    steers: tuple[str, ...]


pasts: list[gr.Past] = []
calls = Calls()
note = calls.safe()


async def first(task: gr.Task, job: Job) -> str:
    """The first version: reads two things, and waits twice."""
    await task.run(note, f"{job.text}1")
    await task.run(note, f"{job.text}2")
    await task.receive(Steer, timeout=None)
    return (await task.receive(Steer, timeout=None)).text


class Second(gr.Agent[Any, str]):
    """Does it in another order, which no replay could follow."""

    version: ClassVar[str] = "2"
    other_versions: ClassVar[Any] = "migrate"

    def migrate(self, past: gr.Past) -> Resumed:
        pasts.append(past)
        return Resumed(
            text=past.request.text,
            read=tuple(operation.value for operation in past.operations if operation.succeeded),
            steers=tuple(signal.text for signal in past.signals),
        )

    async def perform(self, task: gr.Task, request: Any) -> str:
        if isinstance(request, Job):
            return "fresh"
        steer = await task.receive(Steer, timeout=None)
        return " ".join((*request.read, *request.steers, steer.text))


async def begun(database: Shared) -> None:
    """A task T1 that the first version has left in the middle."""
    pasts.clear()
    calls.made.clear()
    async with database.runtime(agents(first)) as runtime:
        handle = await runtime.submit(POOL, Job("a"), task_id="T1")
        await handle.signal(Steer("x"))
        await settled()


async def test_c06_a_task_goes_on_with_what_was_made_of_its_past(database: Shared) -> None:
    await begun(database)
    async with database.runtime(gr.Agents("agents", Second)) as runtime:
        handle = runtime.task("T1")
        await handle.signal(Steer("y"))
        assert await handle.result() == "A1 A2 x y"
        (past,) = pasts
        assert (past.version, past.request) == ("1", Job("a"))
        assert [(operation.name, operation.call) for operation in past.operations] == [
            ("note", "root#1"),
            ("note", "root#2"),
        ]
        assert calls.made == ["a1", "a2"]
        async with database.open() as store:
            task = await task_of(store, "T1")
            assert (task.version, task.segment, task.attempt) == ("2", 2, 1)
            assert task.request_type.endswith("Resumed")


async def test_c06_the_transform_is_asked_once_and_is_on_record(database: Shared) -> None:
    await begun(database)
    for _ in range(3):
        async with database.runtime(gr.Agents("agents", Second)) as runtime:
            await runtime.task("T1").signal(Steer("y"), message_id="y")
            await runtime.task("T1").wait()
    assert len(pasts) == 1


async def test_c06_a_process_that_dies_with_the_transform_has_not_made_it_or_has(database: Shared) -> None:
    for phase in ("before", "unacknowledged"):
        task_id = f"T-{phase}"
        async with database.runtime(agents(first)) as runtime:
            handle = await runtime.submit(POOL, Job("a"), task_id=task_id)
            await handle.signal(Steer("x"), message_id="x")
            await settled()
        async with database.doomed(f"{phase} CommitTurn task:{task_id}", gr.Agents("agents", Second)) as runtime:
            await runtime.task(task_id).signal(Steer("y"), message_id="y")
            await anyio.sleep(10)
        async with database.runtime(gr.Agents("agents", Second)) as runtime:
            assert await runtime.task(task_id).result() == "A1 A2 x y"


async def test_c06_a_task_with_an_operation_in_flight_is_left_to_the_old_code(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.KEYED)
    async def pay() -> str:
        await anyio.sleep(1000)
        return "paid"

    async def pays(task: gr.Task, job: Job) -> str:
        return await task.run(pay)

    async with (
        database.death_at("before AcceptMessage task:T2 strike") as source,
        database.runtime(agents(pays), source=source) as runtime,
    ):
        await runtime.submit(POOL, Job(), task_id="T1")
        other = await runtime.submit(POOL, Job(), task_id="T2")
        await anyio.sleep(2)
        await other.signal(Steer(""), message_id="strike")
    async with database.runtime(gr.Agents("agents", Second, max_running=8)) as runtime:
        await anyio.sleep(2)
        status = await runtime.task("T1").status()
        assert status.parked is ParkReason.INCOMPATIBLE
        assert "has sent 'pay' (root#1)" in (status.parked_detail or "")
    async with database.runtime(agents(pays)) as runtime:
        await runtime.task("T1").release()
        assert await runtime.task("T1").result() == "paid"


async def test_c06_tasks_of_its_own_version_are_not_migrated(database: Shared) -> None:
    await begun(database)
    async with database.runtime(gr.Agents("agents", Second)) as runtime:
        assert await (await runtime.submit(POOL, Job("b"), task_id="T2")).result() == "fresh"
        assert pasts == []


async def test_c06_a_transform_that_fails_parks_the_task_with_its_journal_whole(database: Shared) -> None:
    class Broken(Second):
        def migrate(self, past: gr.Past) -> Resumed:
            raise KeyError("topic")

    await begun(database)
    async with database.runtime(gr.Agents("agents", Broken, max_restarts=0)) as runtime:
        handle = runtime.task("T1")
        await handle.signal(Steer("y"))
        await settled()
        status = await handle.status()
        assert (status.parked, status.version, status.segment) == (ParkReason.CRASH_LOOP, "1", 1)
        assert "KeyError: 'topic'" in (status.parked_detail or "")
    async with database.runtime(agents(first)) as runtime:
        await runtime.task("T1").release()
        assert await runtime.task("T1").result() == "y"


def test_a_policy_that_cannot_be_is_told_where_it_is_defined() -> None:
    with pytest.raises(gr.BadSpec, match="there is no method `migrate`"):
        type("Lacking", (gr.Agent,), {"other_versions": "migrate"})
    with pytest.raises(gr.BadSpec, match="'replay', 'refuse' or 'migrate'"):
        type("Odd", (gr.Agent,), {"other_versions": "ask"})
