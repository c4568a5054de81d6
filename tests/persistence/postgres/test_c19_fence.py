"""C19, R2, R3: an old owner's write and a takeover meet, in all orders; the fence is in another table than what is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from greenroom.persistence.addresses import (
    Claimed,
    CloseAddress,
    ParkAddress,
    ParkReason,
    ReleaseAddress,
    StateWrite,
)
from greenroom.persistence.callbacks import CreateCallback
from greenroom.persistence.deliveries import BeginDelivery, BuryMessage, FinishDelivery, Outgoing, UndoDelivery
from greenroom.persistence.executions import EndExecution
from greenroom.persistence.observations import ListObservations, ObservationKind
from greenroom.persistence.postgres.driver import PostgresDriver
from greenroom.persistence.postgres.session import Connection
from greenroom.persistence.transitions import OwnerWrite, RefusalReason, Refused
from tests.persistence.postgres.help import (
    Hands,
    begin,
    claim,
    execution,
    many,
    message,
    one,
    opened,
    run,
    session,
    waiting_for_locks,
)

Make = Callable[[dict[str, Any]], OwnerWrite[Any]]

SENT = Outgoing(recipient="other", message_id="out", type="T", body=b"x", digest="d")
STATE = StateWrite(payload=b"new", type="S", version=1)

WRITES: dict[str, Make] = {
    "begin": lambda owner: BeginDelivery(**owner, seq=2),
    "finish": lambda owner: FinishDelivery(**owner, seq=1, state=STATE, reply=b"r"),
    "finish and go on": lambda owner: FinishDelivery(**owner, seq=1, next_seq=2),
    "finish and send": lambda owner: FinishDelivery(**owner, seq=1, outgoing=(SENT,)),
    "undo": lambda owner: UndoDelivery(**owner, seq=1),
    "bury": lambda owner: BuryMessage(**owner, seq=1, reason="bad"),
    "release": lambda owner: ReleaseAddress(**owner),
    "close": lambda owner: CloseAddress(**owner),
    "park": lambda owner: ParkAddress(**owner, reason=ParkReason.UNDECODABLE, detail="it"),
    "callback": lambda owner: CreateCallback(**owner, callback_id="t", secret_digest="s", name="n"),
}
OLD = {"address": "desk", "execution_id": "e1", "generation": 1}


async def prepare(driver: PostgresDriver, hands: Hands) -> None:
    """A message in the old owner's hand, and a lease that has passed at noon."""
    await one(driver, execution("e1", lease=10.0))
    await one(driver, execution("e2", lease=1000.0))
    await many(driver, [claim("desk", "e1"), claim("other", "e2")])
    await many(driver, [message("desk", "m1"), message("desk", "m2")])
    await one(driver, begin("desk", "e1", 1, 1))
    hands.move(5.0)


async def rows_of(connection: Connection) -> list[Any]:
    """All that an owner's write can change."""
    found: list[Any] = []
    for table in ("messages", "callbacks", "outbox"):
        found += [tuple(row) for row in await connection.fetch(f"SELECT * FROM {table} ORDER BY 1, 2")]
    found += [
        tuple(row)
        for row in await connection.fetch(
            "SELECT address, last_seq, handled_seq, queued, ready, held, state, parked, closed_at FROM addresses ORDER BY 1"
        )
    ]
    return found


@pytest.mark.parametrize("name", list(WRITES))
def test_c19_r02_a_write_that_waits_behind_the_takeover_is_refused_and_kept(url: str, name: str) -> None:
    hands = Hands()

    async def main() -> None:
        async with (
            opened(url, hands.clock) as old,
            opened(url, hands.clock) as new,
            session(url) as holder,
        ):
            await prepare(old, hands)
            hands.move(20.0)  # past the old owner's lease
            before = await rows_of(holder)
            async with holder.transaction():
                await holder.execute("SELECT FROM addresses WHERE address IN ('desk', 'other') FOR UPDATE")
                takeover = asyncio.create_task(one(new, claim("desk", "e2")))
                await waiting_for_locks(holder, 1)
                late = asyncio.create_task(one(old, WRITES[name](OLD)))
                await waiting_for_locks(holder, 2)
            claimed, answer = await takeover, await late
            assert isinstance(claimed, Claimed)
            assert claimed.generation == 2
            assert isinstance(answer, Refused)
            assert answer.reason is RefusalReason.STALE_GENERATION
            assert await rows_of(holder) == before
            (kept,) = await new.read(ListObservations(kind=ObservationKind.REFUSED))
            assert (kept.what, kept.generation, kept.execution_id) == (type(WRITES[name](OLD)).__name__, 1, "e1")
            assert b'"desk"' in kept.body

    run(main())


@pytest.mark.parametrize("name", list(WRITES))
def test_c19_r02_a_write_that_comes_first_stands_and_the_takeover_sees_it(url: str, name: str) -> None:
    hands = Hands()

    async def main() -> None:
        async with (
            opened(url, hands.clock) as old,
            opened(url, hands.clock) as new,
            session(url) as holder,
        ):
            await prepare(old, hands)
            async with holder.transaction():
                await holder.execute("SELECT FROM addresses WHERE address IN ('desk', 'other') FOR UPDATE")
                write = asyncio.create_task(one(old, WRITES[name](OLD)))
                await waiting_for_locks(holder, 1)
                takeover = asyncio.create_task(one(new, claim("desk", "e2")))
                await waiting_for_locks(holder, 2)
            answer, claimed = await write, await takeover
            assert not isinstance(answer, Refused)
            # The lease lasts still, so that only who was let go of is taken over.
            released = name in ("release", "close")
            reason = RefusalReason.PARKED if name == "park" else RefusalReason.NOT_OWNER
            assert isinstance(claimed, Claimed) if released else claimed.reason is reason

    run(main())


@pytest.mark.parametrize("name", list(WRITES))
def test_r03_a_write_that_outwaits_its_lease_is_refused_though_nobody_took_over(url: str, name: str) -> None:
    async def main() -> None:
        async with opened(url) as driver, session(url) as holder:
            await one(driver, execution("e1", lease=1.0))
            await many(driver, [claim("desk", "e1"), claim("other", "e1")])
            await many(driver, [message("desk", "m1"), message("desk", "m2")])
            await one(driver, begin("desk", "e1", 1, 1))
            before = await rows_of(holder)
            async with holder.transaction():
                await holder.execute("SELECT FROM addresses WHERE address IN ('desk', 'other') FOR UPDATE")
                write = asyncio.create_task(one(driver, WRITES[name](OLD)))
                await waiting_for_locks(holder, 1)
                # A clock that was read in the locking statement would have been read before this wait.
                await holder.execute(
                    "SELECT pg_sleep(greatest(0, (lease_until - greenroom_now()) / 1e6) + 0.01) FROM executions"
                )
            answer = await write
            assert isinstance(answer, Refused)
            assert answer.reason is RefusalReason.LEASE_EXPIRED
            assert await rows_of(holder) == before

    run(main())


def test_an_execution_that_ends_while_a_claim_waits_owns_nothing_afterwards(url: str) -> None:
    async def main() -> None:
        async with opened(url) as driver, opened(url) as operator, session(url) as holder:
            await one(driver, execution("e1"))
            await one(driver, claim("desk", "e1"))
            async with holder.transaction():
                await holder.execute("SELECT FROM addresses WHERE address = 'desk' FOR UPDATE")
                claims = asyncio.create_task(many(driver, [claim("desk", "e1"), claim("fresh", "e1")]))
                await waiting_for_locks(holder, 1)
                ending = asyncio.create_task(one(operator, EndExecution(execution_id="e1")))
                await waiting_for_locks(holder, 2)
            await asyncio.gather(claims, ending)
            assert await holder.fetchval("SELECT count(*) FROM addresses WHERE owner IS NOT NULL") == 0

    run(main())


def test_two_executions_that_claim_a_new_address_at_once_get_one_owner(url: str) -> None:
    async def main() -> None:
        async with opened(url) as first, opened(url) as second:
            await one(first, execution("e1"))
            await one(second, execution("e2"))
            for number in range(20):
                answers = await asyncio.gather(
                    many(first, [claim(f"a{number}", "e1"), claim(f"b{number}", "e1")]),
                    many(second, [claim(f"b{number}", "e2"), claim(f"a{number}", "e2")]),
                )
                for pair in zip(answers[0], reversed(answers[1]), strict=True):
                    assert sorted(type(answer).__name__ for answer in pair) == ["Claimed", "Refused"]

    run(main())
