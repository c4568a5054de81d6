"""What has happened is on record, though something else of the same turn cannot be done (I8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

import greenroom as gr
from greenroom.persistence import ParkReason
from tests.durable.conftest import database
from tests.tasks.scripts import POOL, Job, agents, journal_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.persistence.journal import JournalEntry
    from tests.durable.helpers import Shared
    from tests.tasks.scripts import Script

__all__ = ["database"]


class Once:
    """An operation that must not be repeated, and what is done next in its turn."""

    def __init__(self, following: Callable[[gr.Task], Awaitable[object]]) -> None:
        self.sent: list[str] = []

        @gr.operation(effect=gr.Effect.ONCE)
        async def pay(text: str) -> str:
            self.sent.append(text)
            return f"paid {text}"

        async def script(task: gr.Task, job: Job) -> object:
            await task.run(pay, "10")
            return await following(task)

        self.script: Script = script


async def parked(database: Shared, once: Once) -> tuple[gr.TaskStatus, list[JournalEntry]]:
    """How its task stands when it is parked, and what is on record of it."""
    async with database.runtime(agents(once.script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(60)
        status = await handle.status()
    async with database.open() as store:
        return status, list(await journal_of(store, "T1"))


async def test_a_child_for_a_pool_that_nobody_knows_takes_no_outcome_with_it(database: Shared) -> None:
    once = Once(lambda task: task.submit("no/such", Job()))
    status, rows = await parked(database, once)
    assert status.parked is ParkReason.CRASH_LOOP
    assert "no pool of tasks 'no/such' was ever registered" in (status.parked_detail or "")
    assert [row.name for row in rows] == ["pay"]
    assert once.sent == ["10"]


async def test_a_child_is_submitted_when_its_pool_has_come_to_be(database: Shared) -> None:
    async def submit(task: gr.Task) -> object:
        return await (await task.submit("service/late", Job())).result()

    async def late(task: gr.Task, job: Job) -> str:
        return "late"

    once = Once(submit)
    await parked(database, once)

    class Late(gr.Agent[Job, str]):
        async def perform(self, task: gr.Task, request: Job) -> str:
            return await late(task, request)

    async with database.runtime(agents(once.script), gr.Agents("late", Late, max_running=1)) as runtime:
        handle = runtime.task("T1")
        await handle.release()
        assert await handle.result(timeout=100) == "late"
    assert once.sent == ["10"]


async def test_a_result_that_is_too_large_for_a_parent_takes_no_outcome_with_it(database: Shared) -> None:
    async def large(task: gr.Task) -> str:
        return "x" * 13_000_000

    once = Once(large)

    async def script(task: gr.Task, job: Job) -> object:
        if job.text == "child":
            return await once.script(task, job)
        return await (await task.submit(POOL, Job("child"))).result()

    async with database.runtime(agents(script)) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(60)
        async with database.client() as client:
            (child,) = [task async for task in client.tasks() if task.task_id != "T1"]
        assert child.parked is ParkReason.CRASH_LOOP
        assert "too many for the message by which a parent gets it" in (child.parked_detail or "")
    assert once.sent == ["10"]


async def test_a_result_that_is_too_large_at_all_takes_no_outcome_with_it(database: Shared) -> None:
    async def large(task: gr.Task) -> str:
        return "x" * 17_000_000

    once = Once(large)
    status, rows = await parked(database, once)
    assert status.parked is ParkReason.CRASH_LOOP
    assert [row.name for row in rows] == ["pay"]
    assert once.sent == ["10"]


@pytest.mark.parametrize("text", ["zero \0", "surrogate \ud800"], ids=["zero", "surrogate"])
@pytest.mark.parametrize("what", ["tell", "ask", "submit", "callback", "version"])
async def test_a_name_that_cannot_be_stored_is_refused_where_it_is_given(
    database: Shared, what: str, text: str
) -> None:
    async def refused(task: gr.Task) -> str:
        try:
            if what == "tell":
                await task.tell(text, Job())
            elif what == "ask":
                await task.ask(text, Job())
            elif what == "submit":
                await task.submit(text, Job())
            elif what == "callback":
                await task.callback(text, timeout=None)
            else:
                task.version(text)
        except ValueError as error:
            return str(error)
        return "nothing was said"

    once = Once(refused)
    async with database.runtime(agents(once.script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert "which cannot be stored" in str(await handle.result(timeout=100))
    assert once.sent == ["10"]


async def test_a_callback_until_no_date_is_refused_where_it_is_asked_for(database: Shared) -> None:
    async def refused(task: gr.Task) -> str:
        try:
            await task.callback("payment", timeout=1e12)
        except ValueError as error:
            return str(error)
        return "nothing was said"

    async with database.runtime(agents(Once(refused).script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert "is no date" in str(await handle.result(timeout=100))


def test_an_operation_cannot_have_a_name_that_cannot_be_stored() -> None:
    with pytest.raises(ValueError, match="cannot be the name of an operation"):
        gr.operation(effect=gr.Effect.SAFE, name="zero \0")
