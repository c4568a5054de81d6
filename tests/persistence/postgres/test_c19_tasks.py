"""C19, R2, R3, R5, for tasks: claims and the turns of old owners meet in all orders, and an answer that is lost changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from greenroom.persistence.clock import instant
from greenroom.persistence.driver import StatementFailed
from greenroom.persistence.executions import EndExecution
from greenroom.persistence.ids import new_id
from greenroom.persistence.journal import CommitTurn, TurnCommitted
from greenroom.persistence.observations import ListObservations, ObservationKind
from greenroom.persistence.postgres.driver import PostgresDriver
from greenroom.persistence.postgres.session import Connection
from greenroom.persistence.task_pools import RegisterTaskPool
from greenroom.persistence.tasks import (
    ClaimedTask,
    Ending,
    Submission,
    Submitted,
    TaskOutcome,
)
from greenroom.persistence.transitions import OwnerWrite, RefusalReason, Refused, Transition
from greenroom.testing import Cut, PostgresProxy
from tests.persistence.postgres.help import (
    Hands,
    execution,
    one,
    opened,
    run,
    see_through,
    session,
    waiting_for_locks,
)
from tests.persistence.tasks_help import POOL, claim, outcome, submit

END: Final = Ending(outcome=TaskOutcome.SUCCEEDED, result=b"r")

TURNS: Final[dict[str, Callable[[dict[str, Any], datetime], OwnerWrite[Any]]]] = {
    "a row": lambda owner, at: CommitTurn(**owner, after=0, rows=(outcome(1, at),)),
    "two rows": lambda owner, at: CommitTurn(**owner, after=0, rows=(outcome(1, at), outcome(2, at))),
    "the end": lambda owner, at: CommitTurn(**owner, after=0, ending=END),
    "a row and the end": lambda owner, at: CommitTurn(**owner, after=0, rows=(outcome(1, at),), ending=END),
}
OLD: Final[dict[str, Any]] = {"address": "task:t", "execution_id": "e1", "generation": 1}


async def prepare(driver: PostgresDriver, *, lease: float = 10.0) -> datetime:
    """A task of an owner's. Returns when its first segment began."""
    await one(driver, execution("e1", lease=lease))
    await one(driver, RegisterTaskPool(pool=POOL))
    await one(driver, submit("t"))
    claimed = await one(driver, claim("t"))
    assert isinstance(claimed, ClaimedTask)
    return claimed.task.last_at


async def rows_of(connection: Connection) -> list[Any]:
    """All that a turn can change."""
    return [
        tuple(row)
        for table in ("journal", "tasks")
        for row in await connection.fetch(f"SELECT * FROM {table} ORDER BY 1, 2")
    ] + [tuple(row) for row in await connection.fetch("SELECT address, closed_at FROM addresses ORDER BY 1")]


@pytest.mark.parametrize("name", TURNS)
def test_c19_r02_a_turn_that_waits_behind_the_takeover_is_refused_and_kept(url: str, name: str) -> None:
    hands = Hands()

    async def main() -> None:
        async with opened(url, hands.clock) as old, opened(url, hands.clock) as new, session(url) as holder:
            at = await prepare(old)
            await one(new, execution("e2", lease=1000.0))
            hands.move(20.0)  # past the old owner's lease
            async with holder.transaction():
                await holder.execute("SELECT FROM addresses WHERE address = 'task:t' FOR UPDATE")
                takeover = asyncio.create_task(one(new, claim("t", "e2")))
                await waiting_for_locks(holder, 1)
                late = asyncio.create_task(one(old, TURNS[name](OLD, at)))
                await waiting_for_locks(holder, 2)
            claimed, answer = await takeover, await late
            assert isinstance(claimed, ClaimedTask)
            assert (claimed.task.generation, claimed.task.suspicions) == (2, 1)
            assert isinstance(answer, Refused)
            assert answer.reason is RefusalReason.STALE_GENERATION
            assert await holder.fetchval("SELECT count(*) FROM journal") == 0
            assert await holder.fetchval("SELECT owner FROM addresses") == "e2"
            (kept,) = await new.read(ListObservations(kind=ObservationKind.REFUSED))
            assert (kept.what, kept.generation, kept.execution_id) == ("CommitTurn", 1, "e1")

    run(main())


@pytest.mark.parametrize("name", TURNS)
def test_c19_r02_a_turn_that_comes_first_stands_and_the_takeover_sees_it(url: str, name: str) -> None:
    hands = Hands()

    async def main() -> None:
        async with opened(url, hands.clock) as old, opened(url, hands.clock) as new, session(url) as holder:
            at = await prepare(old, lease=30.0)
            await one(new, execution("e2", lease=1000.0))
            item = TURNS[name](OLD, at)
            async with holder.transaction():
                await holder.execute("SELECT FROM addresses WHERE address = 'task:t' FOR UPDATE")
                turn = asyncio.create_task(one(old, item))
                await waiting_for_locks(holder, 1)
                takeover = asyncio.create_task(one(new, claim("t", "e2")))
                await waiting_for_locks(holder, 2)
            answer, claimed = await turn, await takeover
            assert isinstance(answer, TurnCommitted)
            assert answer.seq == await holder.fetchval("SELECT count(*) FROM journal")
            assert isinstance(claimed, Refused)
            ended = "the end" in name
            assert claimed.reason is (RefusalReason.NOT_PENDING if ended else RefusalReason.NOT_OWNER)

    run(main())


@pytest.mark.parametrize("name", TURNS)
def test_r03_a_turn_that_outwaits_its_lease_is_refused_though_nobody_took_over(url: str, name: str) -> None:
    async def main() -> None:
        async with opened(url) as driver, session(url) as holder:
            at = await prepare(driver, lease=1.0)
            before = await rows_of(holder)
            async with holder.transaction():
                await holder.execute("SELECT FROM addresses WHERE address = 'task:t' FOR UPDATE")
                turn = asyncio.create_task(one(driver, TURNS[name](OLD, at)))
                await waiting_for_locks(holder, 1)
                # A clock that was read in the locking statement would have been read before this wait.
                await holder.execute(
                    "SELECT pg_sleep(greatest(0, (lease_until - greenroom_now()) / 1e6) + 0.01) FROM executions"
                )
            answer = await turn
            assert isinstance(answer, Refused)
            assert answer.reason is RefusalReason.LEASE_EXPIRED
            assert await rows_of(holder) == before

    run(main())


@pytest.mark.parametrize("name", TURNS)
def test_a_turn_that_waits_behind_another_of_its_place_is_refused(url: str, name: str) -> None:
    async def main() -> None:
        async with opened(url) as first, opened(url) as second, session(url) as holder:
            at = await prepare(first)
            async with holder.transaction():
                await holder.execute("SELECT FROM addresses WHERE address = 'task:t' FOR UPDATE")
                ahead = asyncio.create_task(one(first, TURNS["a row"](OLD, at)))
                await waiting_for_locks(holder, 1)
                behind = asyncio.create_task(one(second, TURNS[name](OLD, at)))
                await waiting_for_locks(holder, 2)
            assert await ahead == TurnCommitted(seq=1)
            answer = await behind
            assert isinstance(answer, Refused)
            assert answer.reason is RefusalReason.CONFLICT
            assert await holder.fetchval("SELECT count(*) FROM journal") == 1

    run(main())


def test_of_two_claims_that_wait_for_one_task_one_gets_it(url: str) -> None:
    async def main() -> None:
        async with opened(url) as first, opened(url) as second, session(url) as holder:
            await one(first, RegisterTaskPool(pool=POOL))
            await one(first, execution("e1"))
            await one(second, execution("e2"))
            await one(first, submit("t"))
            async with holder.transaction():
                await holder.execute("SELECT FROM addresses WHERE address = 'task:t' FOR UPDATE")
                claims = [
                    asyncio.create_task(one(driver, claim("t", name)))
                    for driver, name in ((first, "e1"), (second, "e2"))
                ]
                await waiting_for_locks(holder, 2)
            answers = sorted(await asyncio.gather(*claims), key=lambda answer: type(answer).__name__)
            assert isinstance(answers[0], ClaimedTask)
            assert answers[0].task.generation == 1
            assert isinstance(answers[1], Refused)
            assert answers[1].reason is RefusalReason.NOT_OWNER
            assert await holder.fetchval("SELECT runnable FROM task_pools") == 0

    run(main())


def test_a_claim_that_outwaits_its_executions_lease_is_refused(url: str) -> None:
    async def main() -> None:
        async with opened(url) as driver, session(url) as holder:
            await one(driver, RegisterTaskPool(pool=POOL))
            await one(driver, execution("e1", lease=1.0))
            await one(driver, submit("t"))
            async with holder.transaction():
                await holder.execute("SELECT FROM addresses WHERE address = 'task:t' FOR UPDATE")
                claims = asyncio.create_task(one(driver, claim("t")))
                await waiting_for_locks(holder, 1)
                await holder.execute(
                    "SELECT pg_sleep(greatest(0, (lease_until - greenroom_now()) / 1e6) + 0.01) FROM executions"
                )
            answer = await claims
            assert isinstance(answer, Refused)
            assert answer.reason is RefusalReason.LEASE_EXPIRED
            assert await holder.fetchval("SELECT owner FROM addresses") is None

    run(main())


def test_an_execution_that_ends_while_its_claim_of_a_task_waits_owns_nothing_afterwards(url: str) -> None:
    async def main() -> None:
        async with opened(url) as driver, opened(url) as operator, session(url) as holder:
            await one(driver, RegisterTaskPool(pool=POOL))
            await one(driver, execution("e1"))
            await one(driver, submit("t"))
            async with holder.transaction():
                await holder.execute("SELECT FROM addresses WHERE address = 'task:t' FOR UPDATE")
                claims = asyncio.create_task(one(driver, claim("t")))
                await waiting_for_locks(holder, 1)
                ending = asyncio.create_task(one(operator, EndExecution(execution_id="e1")))
                await waiting_for_locks(holder, 2)
            await asyncio.gather(claims, ending)
            assert await holder.fetchval("SELECT count(*) FROM addresses WHERE owner IS NOT NULL") == 0

    run(main())


def test_a_task_that_cannot_be_read_is_not_claimed(url: str) -> None:
    async def main() -> None:
        async with opened(url) as driver, session(url) as connection:
            await one(driver, RegisterTaskPool(pool=POOL))
            await one(driver, execution("e1"))
            await one(driver, submit("t"))
            await connection.execute("UPDATE tasks SET restarts = 'no list'")
            with pytest.raises(StatementFailed):
                await one(driver, claim("t"))
            assert await connection.fetchval("SELECT owner FROM addresses") is None
            assert await connection.fetchval("SELECT runnable FROM tasks") is True

    run(main())


# ------------------------------------------------------------------------------------------------- unknown outcomes


@pytest.fixture
def proxy(url: str) -> Iterator[PostgresProxy]:
    with PostgresProxy(url) as started:
        yield started


@pytest.mark.parametrize("cut", list(Cut))
def test_r05_a_cut_at_any_commit_of_a_task_leaves_each_step_done_exactly_once(
    proxy: PostgresProxy, url: str, cut: Cut
) -> None:
    async def main() -> None:
        async with opened(proxy.url) as driver, session(url) as connection:
            await one(driver, execution("e1"))
            await one(driver, RegisterTaskPool(pool=POOL))

            async def cut_through(item: Transition[Any]) -> Any:
                proxy.plan(cut)
                (answer,) = await see_through(driver, [item])
                return answer

            assert await cut_through(submit("t")) == Submitted(Submission.ACCEPTED, 1)
            claimed = await cut_through(claim("t"))
            assert isinstance(claimed, ClaimedTask)
            assert claimed.task.generation == 1
            at = claimed.task.last_at
            for seq in (1, 2):
                turn = CommitTurn(**OLD, after=seq - 1, rows=(outcome(seq, at + timedelta(seconds=seq)),))
                assert await cut_through(turn) == TurnCommitted(seq=seq)
            assert await cut_through(CommitTurn(**OLD, after=2, ending=END)) == TurnCommitted(seq=2)
            assert proxy.done == 5
            assert await connection.fetchval("SELECT count(*) FROM journal") == 2
            assert await connection.fetchval("SELECT count(*) FROM observations") == 0
            assert await connection.fetchval("SELECT runnable FROM task_pools") == 0

    run(main())


def test_r05_each_step_of_a_task_applied_again_meets_its_own_row_and_answers_from_it(url: str) -> None:
    async def main() -> None:
        async with opened(url) as driver, session(url) as connection:
            await one(driver, execution("e1"))
            await one(driver, RegisterTaskPool(pool=POOL))
            items: list[Transition[Any]] = [
                submit("t"),
                claim("t"),
                CommitTurn(**OLD, after=0, rows=(outcome(1, instant(4_000_000_000_000_000)),)),
                CommitTurn(**OLD, after=1, ending=END),
            ]
            for item in items:
                batch_id = new_id()
                first = await driver.apply(batch_id, [item])
                assert not isinstance(first.answers[0], Refused)
                assert (await driver.apply(batch_id, [item])).answers == first.answers
            assert await connection.fetchval("SELECT count(*) FROM journal") == 1
            assert await connection.fetchval("SELECT count(*) FROM observations") == 0
            assert await connection.fetchval("SELECT runnable FROM task_pools") == 0
            assert await connection.fetchval("SELECT generation FROM addresses") == 1

    run(main())
