"""Deadlines, versions of code, attempts, suspicions: whether a task is begun, gone on with, or begun once more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import anyio

import greenroom as gr
from greenroom.persistence import ParkReason
from greenroom.persistence.tasks import Condition, TaskOutcome
from tests.durable.helpers import raised, settled
from tests.tasks.scripts import POOL, Calls, Job, Steer, agents

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


async def listener(task: gr.Task, job: Job) -> str:
    return (await task.receive(Steer, timeout=None)).text


async def test_a_task_whose_deadline_has_passed_is_not_begun(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        assert task.deadline is not None
        return await task.run(note, job.text)

    async with database.runtime(agents(script)) as runtime:
        now = (await (await runtime.submit(POOL, Job("first"), deadline=database_end(database))).status()).at
        late = await runtime.submit(POOL, Job("late"), deadline=now - timedelta(seconds=1), task_id="T2")
        error = await raised(late.result())
        assert isinstance(error, gr.TaskFailed)
        assert error.kind == "deadline"
        await settled()
        assert calls.made == ["first"]


def database_end(database: Shared) -> datetime:
    """Long after everything."""
    return datetime(2100, 1, 1, tzinfo=UTC)


async def test_c06_code_of_another_version_goes_on_by_replay(database: Shared) -> None:
    async with database.runtime(agents(listener, version="1")) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
    async with database.runtime(agents(listener, version="2")) as runtime:
        await runtime.task("T1").signal(Steer("go"))
        assert await runtime.task("T1").result() == "go"


async def test_c06_code_that_refuses_other_versions_parks_their_tasks(database: Shared) -> None:
    class Strict(gr.Agent[Job, str]):
        version = "2"
        other_versions = "refuse"

        async def perform(self, task: gr.Task, request: Job) -> str:
            return await listener(task, request)

    async with database.runtime(agents(listener, version="1")) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
    async with database.runtime(gr.Agents("agents", Strict)) as runtime:
        await runtime.task("T1").signal(Steer("go"))
        await settled()
        status = await runtime.task("T1").status()
        assert (status.condition, status.parked) == (Condition.WAITING, ParkReason.INCOMPATIBLE)
        fresh = await runtime.submit(POOL, Job(), task_id="T2")
        await fresh.signal(Steer("go"))
        assert await fresh.result() == "go"


async def test_r19_an_ended_task_can_be_attempted_once_more(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        await task.run(note, str(task.attempt))
        if task.attempt == 1:
            raise gr.Failed("not yet")
        return "done"

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        assert isinstance(await raised(handle.result()), gr.TaskFailed)
        assert await handle.new_attempt("the shop is open now") == 2
        assert await handle.result() == "done"
        assert calls.made == ["1", "2"]
        status = await handle.status()
        assert (status.attempt, status.outcome) == (2, TaskOutcome.SUCCEEDED)


async def test_r19_a_task_that_has_not_ended_has_no_other_attempt(database: Shared) -> None:
    async with database.runtime(agents(listener)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await settled()
        assert isinstance(await raised(handle.new_attempt("why not")), gr.StoreRefused)
        assert isinstance(await raised(runtime.task("T9").new_attempt("why not")), gr.NoSuchTask)


async def test_r22_a_task_with_which_process_after_process_dies_is_parked(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def deadly() -> None:
        await anyio.sleep(1000)

    async def script(task: gr.Task, job: Job) -> None:
        await task.run(deadly)

    for life in range(3):
        async with (
            database.death_at(f"before AcceptMessage task:T1 death {life}") as source,
            database.runtime(agents(script), source=source) as runtime,
        ):
            handle = await runtime.submit(POOL, Job(), task_id="T1")
            await anyio.sleep(10)
            await handle.signal(Steer(""), message_id=f"death {life}")
    async with database.runtime(agents(script)) as runtime:
        await anyio.sleep(10)
        status = await runtime.task("T1").status()
        assert status.parked is ParkReason.CRASH_LOOP


async def test_r22_a_task_that_only_waits_is_not_suspected_however_many_processes_die(database: Shared) -> None:
    for life in range(5):
        async with (
            database.death_at(f"before AcceptMessage task:T2 death {life}") as source,
            database.runtime(agents(listener), source=source) as runtime,
        ):
            await runtime.submit(POOL, Job(), task_id="T1")
            other = await runtime.submit(POOL, Job(), task_id="T2")
            await anyio.sleep(10)
            await other.signal(Steer(""), message_id=f"death {life}")
    async with database.runtime(agents(listener)) as runtime:
        await runtime.task("T1").signal(Steer("go"))
        assert await runtime.task("T1").result() == "go"
