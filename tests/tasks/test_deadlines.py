"""Deadlines: what is not begun any more, and what becomes of a task whose deadline passes while it runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import anyio
import pytest

import greenroom as gr
from greenroom.persistence.journal import EntryKind
from greenroom.persistence.tasks import Condition, TaskOutcome
from tests.durable.helpers import raised
from tests.tasks.scripts import POOL, Calls, Job, Steer, agents, journal_of

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


def at(seconds: float) -> datetime:
    """The instant that lies so many seconds after the test's beginning."""
    return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


async def deadline_passed(handle: gr.TaskHandle[object]) -> float:
    """That a task fails by its deadline; when it has."""
    error = await raised(handle.result())
    assert isinstance(error, gr.TaskFailed), error
    assert (error.kind, error.type) == ("deadline", "DeadlinePassed")
    assert (await handle.status()).outcome is TaskOutcome.FAILED
    return anyio.current_time()


async def test_a_task_whose_deadline_has_passed_in_the_queue_is_not_begun(database: Shared) -> None:
    begun: list[str] = []

    async def script(task: gr.Task, job: Job) -> None:
        begun.append(job.text)
        await task.sleep(10) if job.text == "long" else None

    @gr.operation(effect=gr.Effect.SAFE)
    async def work() -> None:
        await anyio.sleep(10)

    async def busy(task: gr.Task, job: Job) -> None:
        begun.append(job.text)
        await task.run(work)

    async with database.runtime(agents(busy, max_running=1)) as runtime:
        await runtime.submit(POOL, Job("long"))
        await anyio.sleep(0.1)
        late = await runtime.submit(POOL, Job("late"), deadline=at(5))
        assert await deadline_passed(late) == pytest.approx(10.0, abs=0.5)
        assert begun == ["long"]


@pytest.mark.parametrize("what", ["sleep", "receive", "operation", "child"])
async def test_a_deadline_that_passes_while_the_task_waits_for_it_ends_the_task(what: str, database: Shared) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def work() -> None:
        await anyio.sleep(1000)

    async def script(task: gr.Task, job: Job) -> None:
        if what == "sleep":
            await task.sleep(1000)
        elif what == "receive":
            await task.receive(Steer, timeout=None)
        elif what == "operation":
            await task.run(work)
        elif job.text == "child":
            await task.receive(Steer, timeout=None)
        else:
            child = await task.submit(POOL, Job("child"))
            await child.result()

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), deadline=at(30))
        if what == "child":  # its child has the same deadline, and either may be told first
            assert isinstance(await raised(handle.result()), gr.TaskFailed)
            assert anyio.current_time() == pytest.approx(30.0, abs=0.5)
        else:
            assert await deadline_passed(handle) == pytest.approx(30.0, abs=0.5)


async def test_control_code_may_clean_up_after_its_deadline_and_sends_nothing_else(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> None:
        try:
            await task.sleep(1000)
        finally:
            async with task.cleanup(10):
                await task.run(note, "cleaned")
        await task.run(note, "never")

    async with database.runtime(agents(script)) as runtime:
        await deadline_passed(await runtime.submit(POOL, Job(), deadline=at(30)))
        assert calls.made == ["cleaned"]


async def test_a_result_that_control_code_still_returns_counts(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        try:
            await task.receive(Steer, timeout=None)
        except gr.Cancelled as cancelled:
            return f"what there was: {cancelled.reason}"
        return "all"

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), deadline=at(30))
        assert await handle.result() == "what there was: its deadline has passed"


async def test_a_task_that_is_not_in_memory_is_ended_at_its_deadline_once(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> None:
        await task.receive(Steer, timeout=None)

    async with database.runtime(agents(script)) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1", deadline=at(100))
        await anyio.sleep(1)
    async with database.runtime(agents(script)) as runtime:
        handle = runtime.task("T1")
        assert (await handle.status()).condition is Condition.WAITING
        assert await deadline_passed(handle) == pytest.approx(100.0, abs=1.0)
        async with database.open() as store:
            rows = await journal_of(store, "T1")
            assert [row.kind for row in rows] == [EntryKind.CONTROL]


async def test_a_task_that_dies_while_it_cleans_up_after_its_deadline_is_not_told_twice(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> None:
        try:
            await task.sleep(1000)
        finally:
            async with task.cleanup(10):
                await task.run(note, "a")
                await task.run(note, "b")

    async with database.runtime(agents(script)) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1", deadline=at(30))
        await anyio.sleep(1)
    async with (
        database.death_at("after CommitTurn task:T1 (2)") as source,
        database.runtime(agents(script), source=source),
    ):
        await anyio.sleep(60)
    async with database.runtime(agents(script)) as runtime:
        await deadline_passed(runtime.task("T1"))
        async with database.open() as store:
            kinds = [row.kind for row in await journal_of(store, "T1")]
    assert kinds.count(EntryKind.CONTROL) == 1
    assert sorted(set(calls.made)) == ["a", "b"]


async def test_a_cancel_before_the_deadline_stays_a_cancel_after_it(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def work() -> None:
        await anyio.sleep(20)

    async def script(task: gr.Task, job: Job) -> None:
        try:
            await task.sleep(1000)
        finally:
            async with task.cleanup(100):
                await task.run(work)

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), deadline=at(30))
        await anyio.sleep(20)
        await handle.cancel("superseded")
        error = await raised(handle.result())
        assert isinstance(error, gr.TaskCancelled)
        assert anyio.current_time() == pytest.approx(40.0, abs=0.5)
