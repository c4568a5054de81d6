"""How long a journal may get: a warning, a limit that names the way out, and what an operator can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.persistence import ParkReason
from greenroom.runtime.tasks.length import is_too_long, is_warned
from tests.durable.helpers import events_of
from tests.tasks.scripts import POOL, Calls, Job, agents

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


@given(st.integers(1, 5000), st.lists(st.integers(1, 50), min_size=1, max_size=60))
def test_a_journal_that_grows_is_warned_of_once_and_stopped_when_it_passes_its_limit(
    limit: int, steps: list[int]
) -> None:
    rows = warned = 0
    for step in steps:
        before, rows = rows, rows + step
        warned += is_warned(before, rows, limit)
        assert is_too_long(0, rows, limit) == (rows >= limit)
    assert warned == (rows >= max(1, limit // 5))


@given(st.integers(50, 5000), st.integers(0, 2000))
def test_a_task_that_is_let_run_beyond_its_limit_is_stopped_again_after_a_fiftieth_of_it(limit: int, over: int) -> None:
    at = limit + over
    assert not is_too_long(at, at, limit)
    assert is_too_long(at, at + limit // 50, limit)


async def test_a_long_journal_is_warned_of_and_at_its_limit_the_task_is_parked_and_told_the_way_out(
    database: Shared,
) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> None:
        while True:
            await task.run(note, "a")

    async with database.runtime(agents(script, journal_limit=20)) as runtime:
        events = runtime.events()
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(60)
        status = await handle.status()
        assert (status.parked, status.journal_rows) == (ParkReason.OVERSIZE, 20)
        assert "task.continue_as" in str(status.parked_detail)
        (event,) = events_of(gr.JournalLong, events)
        assert (event.path, event.task_id, event.rows, event.limit) == (POOL, "T1", 4, 20)
        assert len(calls.made) == 20
        await handle.release()
        await anyio.sleep(60)
        status = await handle.status()
        assert (status.parked, status.journal_rows) == (ParkReason.OVERSIZE, 21)


async def test_what_is_in_flight_at_the_limit_lands_and_is_on_record(database: Shared) -> None:
    landed: list[str] = []

    @gr.operation(effect=gr.Effect.SAFE)
    async def work(text: str) -> str:
        await anyio.sleep(5 if text == "slow" else 1)
        landed.append(text)
        return text

    async def script(task: gr.Task, job: Job) -> None:
        async with task.nursery() as branches:
            branches.start_soon(task.run, work, "slow")
            branches.start_soon(task.run, work, "quick")

    async with database.runtime(agents(script, journal_limit=1)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await anyio.sleep(60)
        status = await handle.status()
        assert (status.parked, status.journal_rows) == (ParkReason.OVERSIZE, 2)
        assert landed == ["quick", "slow"]


async def test_a_task_that_ends_or_continues_with_its_last_row_is_not_parked(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        for _ in range(3):
            await task.run(note, job.text)
        if len(job.text) < 4:
            await task.continue_as(Job(job.text + "x"))
        return job.text

    async with database.runtime(agents(script, journal_limit=3)) as runtime:
        handle = await runtime.submit(POOL, Job("x"))
        assert await handle.result() == "xxxx"
        assert len(calls.made) == 12


@pytest.mark.parametrize("limit", [-1, 0, 1.5, True])
def test_a_limit_that_is_none_is_refused(limit: object) -> None:
    async def script(task: gr.Task, job: Job) -> None: ...

    with pytest.raises(gr.BadSpec, match="journal_limit"):
        agents(script, journal_limit=limit)
