"""R6, for tasks: what hot SQL costs does not depend on what the tables held when its plans were made."""

from __future__ import annotations

import statistics
import time
from typing import Any, Final

from greenroom.persistence.ids import new_id
from greenroom.persistence.journal import CommitTurn, EntryKind, JournalEntry, OutcomeKind, TurnCommitted
from greenroom.persistence.postgres.driver import PostgresDriver
from greenroom.persistence.postgres.session import Connection
from greenroom.persistence.task_pools import RegisterTaskPool
from greenroom.persistence.tasks import (
    ClaimedTask,
    ClaimTask,
    DueTasks,
    Ending,
    NextTaskDue,
    ReleaseTask,
    RunnableTasks,
    SubmitTask,
    Submitted,
    TaskOutcome,
    TaskReleased,
    WakeTask,
    WatchTasks,
    Woken,
)
from greenroom.persistence.transitions import Refused, Transition
from tests.persistence.postgres.help import execution, one, opened, run, session
from tests.persistence.tasks_help import new, outcome

WIDTH: Final = 100
ROWS: Final = 50_000
POOL: Final = "reviewers"

STEPS: Final = ("submit", "runnable", "claim", "turn", "release", "due", "wake", "claim again", "end", "watch")


async def timed(driver: PostgresDriver, items: list[Transition[Any]], kind: type[Any]) -> tuple[float, list[Any]]:
    """How long a batch takes, of which all is done, and its answers."""
    started = time.perf_counter()
    applied = await driver.apply(new_id(), items)
    took = time.perf_counter() - started
    assert all(isinstance(answer, kind) for answer in applied.answers), applied.answers[:3]
    return took, list(applied.answers)


async def read(driver: PostgresDriver, query: Any) -> float:
    started = time.perf_counter()
    await driver.read(query)
    return time.perf_counter() - started


async def round_of(driver: PostgresDriver, number: int) -> list[float]:
    """A hundred tasks from their submission to their end: the times of all steps."""
    names = [f"r{number:02}-{task:03}" for task in range(WIDTH)]
    times = []

    async def step(items: list[Transition[Any]], kind: type[Any]) -> list[Any]:
        took, answers = await timed(driver, items, kind)
        times.append(took)
        return answers

    def claims() -> list[Transition[Any]]:
        return [ClaimTask(address=f"task:{name}", pool=POOL, execution_id="e1", version="1") for name in names]

    def fence(name: str, generation: int) -> dict[str, Any]:
        return {"address": f"task:{name}", "execution_id": "e1", "generation": generation}

    await step([SubmitTask(task=new(name)) for name in names], Submitted)
    times.append(await read(driver, RunnableTasks(pool=POOL)))
    claimed = await step(claims(), ClaimedTask)
    at = claimed[0].task.last_at
    ended: dict[str, Any] = {
        "at": max(answer.task.last_at for answer in claimed),
        "kind": EntryKind.OUTCOME,
        "call": "root#1",
        "name": "look",
        "status": OutcomeKind.SUCCEEDED,
        "basis": 0,
        "digest": b"d",
    }
    rows = (JournalEntry(seq=1, **ended),)
    await step([CommitTurn(**fence(name, 1), after=0, rows=rows) for name in names], TurnCommitted)
    await step([ReleaseTask(**fence(name, 1), due_at=at) for name in names], TaskReleased)
    times.append(await read(driver, DueTasks()))
    await step([WakeTask(address=f"task:{name}", pool=POOL) for name in names], Woken)
    await step(claims(), ClaimedTask)
    ending = Ending(outcome=TaskOutcome.SUCCEEDED)
    await step([CommitTurn(**fence(name, 2), after=1, ending=ending) for name in names], TurnCommitted)
    times.append(await read(driver, WatchTasks(limit=100)) + await read(driver, NextTaskDue()))
    return times


async def lone(driver: PostgresDriver, name: str) -> None:
    """One task of the long queue, from its submission to its end, each step by itself."""
    fence: dict[str, Any] = {"address": f"task:{name}", "execution_id": "e1", "generation": 1}
    await one(driver, SubmitTask(task=new(name, pool="others")))
    claimed = await one(driver, ClaimTask(address=f"task:{name}", pool="others", execution_id="e1", version="1"))
    assert isinstance(claimed, ClaimedTask)
    row = outcome(1, claimed.task.last_at)
    assert await one(driver, CommitTurn(**fence, after=0, rows=(row,))) == TurnCommitted(seq=1)
    ending = Ending(outcome=TaskOutcome.SUCCEEDED)
    assert await one(driver, CommitTurn(**fence, after=1, ending=ending)) == TurnCommitted(seq=1)


async def pages_of_queues(driver: PostgresDriver, connection: Connection) -> int:
    """How often pages of the queues have been looked at in all."""
    assert driver._connection is not None
    await driver._connection.execute("SELECT pg_stat_force_next_flush()")
    count: int = await connection.fetchval(
        "SELECT sum(idx_blks_hit + idx_blks_read)::bigint FROM pg_statio_user_indexes "
        "WHERE schemaname = current_schema() AND indexrelname IN ('tasks_runnable', 'tasks_begun', 'tasks_by_pool')"
    )
    return count


async def fill(connection: Connection) -> None:
    """Tasks that have ended, that wait, and that stand in other queues, with journals; no statistics are gathered of them."""
    numbers = f"generate_series(0, {ROWS - 1}) n"
    await connection.execute(
        "INSERT INTO addresses (address, kind, generation, due_at, closed_at) "
        "SELECT 'task:old' || n, 'task', 1, CASE WHEN n % 3 = 1 THEN 9000000000000000 END, CASE WHEN n % 3 = 0 THEN 1 END "
        f"FROM {numbers}"
    )
    await connection.execute(
        "INSERT INTO tasks (address, pool, group_key, priority, turn, runnable, request, request_type, request_digest, "
        "submitted_at, parent_policy, attempt_at, seed, segment_at, outcome, ended_at) "
        "SELECT 'task:old' || n, CASE WHEN n % 3 = 2 THEN 'others' ELSE $1 END, 'g' || n % 1000, 0, n, n % 3 = 2, '', 'T', 'd', "
        "1, 'stop', 1, '', 1, CASE WHEN n % 3 = 0 THEN 'failed' END, CASE WHEN n % 3 = 0 THEN 1 END "
        f"FROM {numbers}",
        POOL,
    )
    await connection.execute(
        "INSERT INTO journal (address, attempt, segment, seq, at, kind, call, effect_possible, unresolved, failed, execution_id, "
        f"generation) SELECT 'task:old' || n, 1, 1, s, 1, 'outcome', 'root#' || s, false, false, false, 'e', 1 "
        f"FROM {numbers}, generate_series(1, 3) s"
    )


def test_r06_tasks_take_as_long_after_fifty_thousand_others_as_on_an_empty_database(url: str) -> None:
    async def main() -> None:
        async with opened(url) as driver, session(url) as connection:
            await one(driver, execution("e1", lease=600.0))
            for pool in (POOL, "others"):
                await one(driver, RegisterTaskPool(pool=pool))
            early = [await round_of(driver, number) for number in range(10)]  # plans are made, and kept, here
            await fill(connection)
            late = [await round_of(driver, number) for number in range(10, 20)]
            for kind, name in enumerate(STEPS):
                before = statistics.median(times[kind] for times in early)
                after = statistics.median(times[kind] for times in late)
                # A plan that reads a table takes some fifty times as long.
                assert after < 5 * before + 0.01, (name, before, after)

    run(main())


def test_r06_a_lone_task_is_sought_by_its_address_however_long_its_queue_is(url: str) -> None:
    async def main() -> None:
        async with opened(url) as driver, session(url) as connection:
            await one(driver, execution("e1", lease=600.0))
            for pool in (POOL, "others"):
                await one(driver, RegisterTaskPool(pool=pool))
            nobody = ClaimTask(address="task:nobody", pool="others", execution_id="e1", version="1")
            assert isinstance(await one(driver, nobody), Refused)  # plans are made, and kept, from here on
            await lone(driver, "early")
            await fill(connection)
            before = await pages_of_queues(driver, connection)
            await lone(driver, "late")
            # It is put into them; the whole of one has more than a hundred.
            assert await pages_of_queues(driver, connection) - before < 30

    run(main())
