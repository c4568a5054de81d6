"""The fence: what an owner writes counts only while it is the owner (R1 to R3, C19, K11)."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import permutations
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from attrs import evolve

from greenroom.persistence.addresses import ParkAddress, ParkReason, ReadAddress, StateWrite
from greenroom.persistence.callbacks import CreateCallback
from greenroom.persistence.content import INLINE_LIMIT, Content, fetch
from greenroom.persistence.deliveries import Delivery, Handled, ToOutside
from greenroom.persistence.observations import ListObservations, ObservationKind
from greenroom.persistence.transitions import RefusalReason, Refused
from tests.persistence.stores import claiming, done, outgoing, owner, refused, register, timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.persistence.store import Store
    from greenroom.persistence.transitions import OwnerWrite
    from tests.persistence.stores import Database, Owner

SOON = datetime(2030, 1, 1, 12, 0, 10, tzinfo=UTC)


def parking(desk: Owner) -> ParkAddress:
    return ParkAddress(
        address=desk.address,
        execution_id=desk.execution_id,
        generation=desk.generation,
        reason=ParkReason.CRASH_LOOP,
        detail="4 crashes in 10 s",
    )


def creating(desk: Owner) -> CreateCallback:
    return CreateCallback(
        address=desk.address,
        execution_id=desk.execution_id,
        generation=desk.generation,
        callback_id="t",
        secret_digest="secret",
        name="payment",
    )


def finishing(desk: Owner) -> OwnerWrite[Any]:
    return desk.finish(
        1,
        reply=b"from a zombie",
        state=StateWrite(payload=b"from a zombie", type="S", version=1),
        outgoing=(outgoing("counter", "x"),),
        timers=(timer("tick", "t1", SOON),),
        outside=(ToOutside(destination="mail", message_id="o1", type="Mail", body=b"hello"),),
    )


WRITES: dict[str, Callable[[Owner], OwnerWrite[Any]]] = {
    "begin": lambda desk: desk.begin(1),
    "finish": finishing,
    "undo": lambda desk: desk.undo(1),
    "bury": lambda desk: desk.bury(1),
    "release": lambda desk: desk.release(),
    "close": lambda desk: desk.close(),
    "park": parking,
    "callback": creating,
}


async def with_a_message_in_hand(store: Store) -> Owner:
    desk = await owner(store)
    await owner(store, "counter")
    await desk.send("m1")
    await desk.begun(1)
    return desk


@pytest.mark.parametrize("write", WRITES)
async def test_k11_after_a_takeover_no_write_of_the_old_owner_is_accepted(database: Database, write: str) -> None:
    async with database.open() as store:
        zombie = await with_a_message_in_hand(store)
        database.time.pass_time(31)
        await owner(store, execution_id="e2")
        before = database.tables()
        assert await refused(store, WRITES[write](zombie)) is RefusalReason.STALE_GENERATION
        after = database.tables()
        assert {name for name in before if before[name] != after[name]} == {"observations"}


@pytest.mark.parametrize("write", WRITES)
async def test_r03_after_its_lease_no_write_of_an_owner_is_accepted_though_nobody_took_over(
    database: Database, write: str
) -> None:
    async with database.open() as store:
        desk = await with_a_message_in_hand(store)
        database.time.pass_time(30)
        assert await refused(store, WRITES[write](desk)) is RefusalReason.LEASE_EXPIRED


@pytest.mark.parametrize("write", WRITES)
async def test_no_write_of_whoever_let_the_address_go_is_accepted(database: Database, write: str) -> None:
    async with database.open() as store:
        desk = await with_a_message_in_hand(store)
        await done(store, desk.release())
        assert await refused(store, WRITES[write](desk)) is RefusalReason.NOT_OWNER


@pytest.mark.parametrize("write", WRITES)
async def test_no_write_in_the_name_of_another_execution_is_accepted(database: Database, write: str) -> None:
    async with database.open() as store:
        desk = await with_a_message_in_hand(store)
        await done(store, register("e2"))
        desk.execution_id = "e2"
        assert await refused(store, WRITES[write](desk)) is RefusalReason.NOT_OWNER


@pytest.mark.parametrize("write", WRITES)
async def test_no_write_to_an_unknown_address_is_accepted(database: Database, write: str) -> None:
    async with database.open() as store:
        desk = await with_a_message_in_hand(store)
        desk.address = "nowhere"
        assert await refused(store, WRITES[write](desk)) is RefusalReason.UNKNOWN_ADDRESS


async def test_c19_what_was_refused_is_kept_with_all_that_it_carried(database: Database) -> None:
    async with database.open() as store:
        zombie = await with_a_message_in_hand(store)
        await owner(store)
        await refused(store, finishing(zombie))
        (seen,) = await store.read(ListObservations(kind=ObservationKind.REFUSED))
        assert (seen.what, seen.address, seen.execution_id, seen.generation) == ("FinishDelivery", "desk", "e1", 1)
        assert seen.detail.startswith("stale_generation: ")
        assert isinstance(seen.body, bytes)
        assert b"ZnJvbSBhIHpvbWJpZQ==" in seen.body  # "from a zombie", as bytes are written in JSON


async def test_a_large_write_that_was_refused_is_kept_as_content(database: Database) -> None:
    async with database.open() as store:
        zombie = await with_a_message_in_hand(store)
        await owner(store)
        await refused(store, zombie.finish(1, reply=b"x" * INLINE_LIMIT))
        (seen,) = await store.read(ListObservations(kind=ObservationKind.REFUSED))
        assert isinstance(seen.body, Content)
        assert len(await fetch(store, seen.body)) == seen.body.size > INLINE_LIMIT


@pytest.mark.parametrize("order", list(permutations(("old", "claim", "new"))), ids="-".join)
async def test_c19_concurrent_acceptance_changes_one_row_in_every_order(
    database: Database, order: tuple[str, ...]
) -> None:
    """Two owners finish one message while it changes hands, through two stores on one database."""
    async with database.open() as first, database.open() as second:
        old = await with_a_message_in_hand(first)
        generation = old.generation + 1  # under the same execution, so that the generation alone decides
        answers: dict[str, Any] = {}

        async def act(name: str) -> None:
            if name == "old":
                answers[name] = await first.commit(old.finish(1, state=StateWrite(payload=b"old", type="S", version=1)))
            elif name == "claim":
                answers[name] = await second.commit(claiming("desk", "e1"))
            else:
                write = old.finish(1, state=StateWrite(payload=b"new", type="S", version=1))
                answers[name] = await second.commit(evolve(write, generation=generation))

        for name in order:
            await act(name)
        accepted = [name for name in ("old", "new") if isinstance(answers[name], Handled)]
        record = await first.read(ReadAddress(address="desk"))
        assert record is not None
        assert len(accepted) <= 1
        assert record.state == (accepted[0].encode() if accepted else None)
        if order.index("old") < order.index("claim"):
            assert accepted == ["old"]
        else:
            assert isinstance(answers["old"], Refused)
            assert answers["old"].reason is RefusalReason.STALE_GENERATION
            assert accepted == (["new"] if order.index("claim") < order.index("new") else [])


async def test_c19_of_many_claims_and_writes_at_once_each_generation_accepts_only_its_own(database: Database) -> None:
    """Claims and deliveries race through two stores; whatever the order, a delivery counts under the newest claim only."""
    async with database.open() as first, database.open() as second:
        await done(first, register("e1"))
        await done(first, claiming("desk", "e1"))
        desk = await owner(first)
        await desk.send("m1")
        accepted: list[tuple[int, int]] = []

        async def race(store: Store) -> None:
            for _ in range(15):
                mine = await owner(store)
                answer = await store.commit(mine.begin(1, max_deliveries=1000))
                if isinstance(answer, Delivery):
                    accepted.append((mine.generation, answer.deliveries))
                else:
                    assert isinstance(answer, Refused)
                    assert answer.reason is RefusalReason.STALE_GENERATION

        async with anyio.create_task_group() as group:
            group.start_soon(race, first)
            group.start_soon(race, second)
        record = await first.read(ReadAddress(address="desk"))
        assert record is not None
        assert record.generation == 32
        assert sorted(accepted) == sorted(accepted, key=lambda pair: pair[1])  # counts grow with the generations
        assert [count for _, count in sorted(accepted)] == list(range(1, len(accepted) + 1))
