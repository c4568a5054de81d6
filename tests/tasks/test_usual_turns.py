"""The usual turn is taken without the driver of its run (`Express`): that shows in nothing but the time it takes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import greenroom as gr
from greenroom.persistence import TaskOutcome
from greenroom.runtime.tasks.express import Express
from greenroom.testing import Away, Contention, Fault, OutcomeLost, Slow, StatementError, StoreFaults
from tests.durable.helpers import eventually
from tests.tasks.scripts import POOL, Calls, Job, Steer, agents, journal_of, task_of

if TYPE_CHECKING:
    from tests.durable.helpers import Shared

STEPS = "abcdef"

THIRD = "CommitTurn task:T1 (3)"
"""The commit of the third row: a usual turn."""


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> list[Express]:
    """An entry for each usual turn that the store has answered."""
    seen: list[Express] = []
    plain = Express._committed

    def note(self: Express) -> None:
        seen.append(self)
        plain(self)

    monkeypatch.setattr(Express, "_committed", note)
    return seen


def in_order(calls: Calls, effect: gr.Effect = gr.Effect.SAFE, *, seconds: float = 0.0) -> Any:
    """Control code that performs an operation for each letter, one after another; each takes so long."""

    @gr.operation(effect=effect, name="note")
    async def note(text: str) -> str:
        calls.made.append(text)
        await anyio.sleep(seconds)
        return text.upper()

    async def script(task: gr.Task, job: Job) -> str:
        return "".join([await task.run(note, letter) for letter in STEPS])

    return script


async def rows_of(database: Shared) -> list[int]:
    """The numbers of the rows in the journal of T1."""
    async with database.open() as store:
        return [row.seq for row in await journal_of(store, "T1")]


@pytest.mark.parametrize("effect", [gr.Effect.SAFE, gr.Effect.KEYED])
async def test_one_operation_after_another_is_committed_without_waking_the_driver(
    effect: gr.Effect, database: Shared, committed: list[Express]
) -> None:
    calls = Calls()
    async with database.runtime(agents(in_order(calls, effect))) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert await handle.result() == STEPS.upper()
    assert len(committed) == len(STEPS) - 1  # the last one ends the task
    assert await rows_of(database) == [*range(1, len(STEPS) + 1)]


async def test_the_driver_would_have_written_the_same_journal(
    database: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> list[Any]:
        async with database.runtime(agents(in_order(Calls()))) as runtime:
            handle = await runtime.submit(POOL, Job())
            await handle.result()
            return [
                (event.cursor, event.call, event.name, event.status, event.value)
                async for event in handle.events()
                if event.kind == "operation"
            ]

    express = await run()
    monkeypatch.setattr(Express, "landed", lambda self, landed: False)
    assert await run() == express
    assert len(express) == len(STEPS)


@pytest.mark.parametrize(
    "fault",
    [
        Contention(),
        Away(3.0),
        Away(100.0),
        OutcomeLost(committed=True),
        OutcomeLost(committed=False),
        OutcomeLost(committed=True, seconds=100.0),
        OutcomeLost(committed=False, seconds=100.0),
    ],
    ids=str,
)
async def test_a_usual_turn_that_the_store_does_not_take_at_once_is_committed_once(
    fault: Fault, database: Shared, committed: list[Express]
) -> None:
    calls = Calls()
    async with StoreFaults({THIRD: fault}) as faults:
        source = database.source(driver=faults.wrap, lease=1e9)
        async with database.runtime(agents(in_order(calls)), source=source) as runtime:
            handle = await runtime.submit(POOL, Job(), task_id="T1")
            assert await handle.result() == STEPS.upper()
    assert faults.struck
    assert committed
    assert calls.made == [*STEPS]
    assert await rows_of(database) == [*range(1, len(STEPS) + 1)]


async def test_a_usual_turn_that_the_database_cannot_take_restarts_the_task_and_what_was_not_durable_is_done_again(
    database: Shared,
) -> None:
    calls = Calls()
    async with (
        StoreFaults({THIRD: StatementError()}) as faults,
        database.runtime(agents(in_order(calls)), source=database.source(driver=faults.wrap)) as runtime,
    ):
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert await handle.result() == STEPS.upper()
    assert faults.struck
    assert calls.made == [*"abccdef"]


async def test_a_task_that_is_told_to_cancel_while_a_usual_turn_commits_begins_one_more_at_most(
    database: Shared,
) -> None:
    calls = Calls()
    async with StoreFaults({THIRD: Slow(2.0)}) as faults:
        source = database.source(driver=faults.wrap)
        async with database.runtime(agents(in_order(calls, seconds=1.0)), source=source) as runtime:
            handle = await runtime.submit(POOL, Job(), task_id="T1")
            await eventually(lambda: bool(faults.struck))
            await handle.cancel("enough")
            with pytest.raises(gr.TaskCancelled, match="enough"):
                await handle.result()
    async with database.open() as store:
        task = await task_of(store, "T1")
    assert task.outcome is TaskOutcome.CANCELLED
    assert calls.made in ([*"abc"], [*"abcd"])  # the row of the command comes behind that of the turn in hand


async def test_a_pool_that_stops_while_a_usual_turn_commits_sends_nothing_more_and_loses_nothing(
    database: Shared,
) -> None:
    calls = Calls()
    script = in_order(calls)
    async with StoreFaults({THIRD: Slow(2.0)}) as faults:
        source = database.source(driver=faults.wrap)
        async with database.runtime(agents(script), source=source) as runtime:
            await runtime.submit(POOL, Job(), task_id="T1")
            await eventually(lambda: bool(faults.struck))
    assert calls.made == [*"abc"]
    assert len(await rows_of(database)) == 3
    async with database.runtime(agents(script)) as runtime:
        assert await runtime.task("T1").result() == STEPS.upper()
    assert calls.made == [*STEPS]


async def test_a_signal_that_comes_while_usual_turns_are_taken_is_received(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        for letter in STEPS:
            await task.run(note, letter)
        return (await task.receive(Steer, timeout=None)).text

    async with (
        StoreFaults({THIRD: Slow(2.0)}) as faults,
        database.runtime(agents(script), source=database.source(driver=faults.wrap)) as runtime,
    ):
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await eventually(lambda: bool(faults.struck))
        await handle.signal(Steer("left"))
        assert await handle.result() == "left"
    assert calls.made == [*STEPS]


async def test_control_code_that_fails_in_a_usual_turn_ends_as_it_would_by_the_driver(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        for letter in "abc":
            await task.run(note, letter)
        raise gr.Failed("no more")

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        with pytest.raises(gr.TaskFailed, match="no more"):
            await handle.result()
    assert len(await rows_of(database)) == 3


async def test_a_deadline_that_passes_while_usual_turns_are_taken_cuts_the_task_off(database: Shared) -> None:
    calls = Calls()

    async with database.runtime(agents(in_order(calls, seconds=1.0))) as runtime:
        handle = await runtime.submit(
            POOL, Job(), task_id="T1", deadline=datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=3.5)
        )
        with pytest.raises(gr.TaskFailed, match="deadline"):
            await handle.result()
    assert calls.made == [*"abcd"]


async def test_branches_that_land_together_are_all_accepted(database: Shared, committed: list[Express]) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        async def branch(name: str) -> str:
            return "".join([await task.run(note, f"{name}{letter}") for letter in "xyz"])

        async with task.nursery() as branches:
            started = [branches.start_soon(branch, name) for name in STEPS]
        return " ".join(branch.result for branch in started)

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert await handle.result() == " ".join(f"{n}X{n}Y{n}Z".upper() for n in STEPS)
    assert sorted(calls.made) == sorted(f"{name}{letter}" for name in STEPS for letter in "xyz")
    assert len(await rows_of(database)) == 18
