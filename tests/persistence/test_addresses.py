"""Addresses: one owner each, under a generation that grows (I4), parked and closed ones, what is due."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from greenroom.persistence.addresses import (
    AddressKind,
    DueAddresses,
    ListAddresses,
    OpenAddress,
    Opened,
    OwnedReady,
    ParkAddress,
    ParkReason,
    ReadAddress,
    StateWrite,
    StoreNow,
    UnparkAddress,
)
from greenroom.persistence.messages import Disposition
from greenroom.persistence.transitions import RefusalReason, Refused
from tests.persistence.stores import claiming, done, message, outgoing, owner, refused, register

if TYPE_CHECKING:
    from greenroom.persistence.store import Store
    from tests.persistence.stores import Database, Owner


def parking(desk: Owner, reason: ParkReason = ParkReason.UNDECODABLE) -> ParkAddress:
    return ParkAddress(
        address=desk.address,
        execution_id=desk.execution_id,
        generation=desk.generation,
        reason=reason,
        detail="field 'total'",
    )


def opening(address: str, capacity: int | None = None) -> OpenAddress:
    return OpenAddress(address=address, kind=AddressKind.MAILBOX, capacity=capacity)


async def due(store: Store) -> list[str]:
    return [entry.address for entry in await store.read(DueAddresses())]


async def test_an_address_comes_into_being_by_its_first_claim(database: Database) -> None:
    async with database.open() as store:
        assert await store.read(ReadAddress(address="desk")) is None
        desk = await owner(store, "desk", capacity=7)
        assert (desk.claimed.generation, desk.claimed.handled_seq, desk.claimed.last_seq) == (1, 0, 0)
        assert (desk.claimed.state, desk.claimed.state_type, desk.claimed.state_version) == (None, None, None)
        record = await store.read(ReadAddress(address="desk"))
        assert record is not None
        assert (record.owner, record.generation, record.capacity, record.kind) == ("e1", 1, 7, AddressKind.ACTOR)


async def test_an_address_has_a_name() -> None:
    for make in (lambda: claiming("", "e1"), lambda: opening("")):
        with pytest.raises(ValueError, match="address"):
            make()


async def test_an_address_can_be_opened_for_mail_before_anybody_owns_it(database: Database) -> None:
    async with database.open() as store:
        assert await done(store, opening("desk", capacity=1)) == Opened(created=True)
        record = await store.read(ReadAddress(address="desk"))
        assert record is not None
        assert (record.owner, record.generation, record.capacity, record.kind) == (None, 0, 1, AddressKind.MAILBOX)
        assert await due(store) == []
        assert (await done(store, message("desk", "m1"))).disposition is Disposition.ACCEPTED
        assert await refused(store, message("desk", "m2")) is RefusalReason.FULL
        assert await due(store) == ["desk"]
        desk = await owner(store)
        assert desk.generation == 1
        assert await desk.waiting() == ["m1"]


async def test_opening_an_address_that_is_there_changes_nothing(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, "desk", capacity=7)
        closed = await owner(store, "closed")
        await done(store, closed.close())
        before = [await store.read(ReadAddress(address=name)) for name in ("desk", "closed")]
        for name in ("desk", "closed"):
            assert await done(store, opening(name, capacity=1)) == Opened(created=False)
        assert [await store.read(ReadAddress(address=name)) for name in ("desk", "closed")] == before
        await desk.send("m1")
        await desk.begun(1)  # the generation stands


async def test_an_address_is_opened_once_however_many_want_it(database: Database) -> None:
    async with database.open() as here, database.open() as there:
        opened: list[bool] = []

        async def open_it(store: Store) -> None:
            opened.append((await done(store, opening("desk"))).created)

        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(open_it, here)
                group.start_soon(open_it, there)
        assert opened.count(True) == 1


async def test_i4_a_living_owner_is_not_replaced_and_the_claimer_learns_how_long_to_wait(database: Database) -> None:
    async with database.open() as store:
        await owner(store, "desk", execution_id="e1", lease=30.0)
        await done(store, register("e2"))
        database.time.pass_time(10)
        answer = await store.commit(claiming("desk", "e2"))
        assert isinstance(answer, Refused)
        assert answer.reason is RefusalReason.NOT_OWNER
        assert answer.seconds == pytest.approx(20.0, abs=0.1)


async def test_i4_a_lapsed_owner_is_replaced_under_a_new_generation(database: Database) -> None:
    async with database.open() as store:
        first = await owner(store, "desk", execution_id="e1", lease=30.0)
        database.time.pass_time(31)
        second = await owner(store, "desk", execution_id="e2")
        assert second.generation == first.generation + 1


async def test_the_owner_itself_may_claim_again_which_fences_what_it_did_before(database: Database) -> None:
    async with database.open() as store:
        before = await owner(store, "desk")
        await before.send("m1")
        after = await owner(store, "desk")
        assert after.generation == before.generation + 1
        assert await refused(store, before.begin(1)) is RefusalReason.STALE_GENERATION
        await after.begun(1)


async def test_an_execution_that_is_unknown_or_lapsed_claims_nothing(database: Database) -> None:
    async with database.open() as store:
        assert await refused(store, claiming("desk", "nobody")) is RefusalReason.UNKNOWN_EXECUTION
        await done(store, register("e1", lease=30.0))
        database.time.pass_time(31)
        assert await refused(store, claiming("desk", "e1")) is RefusalReason.LEASE_EXPIRED
        assert await store.read(ReadAddress(address="desk")) is None


async def test_a_refused_claim_leaves_no_trace(database: Database) -> None:
    async with database.open() as store:
        await owner(store, "desk", execution_id="e1", capacity=3)
        await done(store, register("e2"))
        before = database.tables()
        await refused(store, claiming("desk", "e2", capacity=9))
        assert database.tables() == before


async def test_a_released_address_can_be_claimed_at_once(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, "desk", execution_id="e1")
        await done(store, desk.release())
        successor = await owner(store, "desk", execution_id="e2")
        assert successor.generation == 2


async def test_state_lasts_from_one_owner_to_the_next(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, "desk")
        await desk.send("m1")
        await desk.handle(1, state=StateWrite(payload=b'{"total":3}', type="Total", version=2))
        await done(store, desk.release())
        successor = await owner(store, "desk", execution_id="e2")
        assert successor.claimed.state == b'{"total":3}'
        assert (successor.claimed.state_type, successor.claimed.state_version) == ("Total", 2)
        assert (successor.claimed.handled_seq, successor.claimed.last_seq) == (1, 1)


async def test_an_empty_state_is_a_state(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, "desk")
        await desk.send("m1")
        await desk.handle(1, state=StateWrite(payload=b"", type="Nothing", version=1))
        record = await store.read(ReadAddress(address="desk"))
        assert record is not None
        assert record.state == b""


async def test_only_the_owner_of_the_current_generation_releases(database: Database) -> None:
    async with database.open() as store:
        first = await owner(store, "desk", execution_id="e1")
        database.time.pass_time(31)
        second = await owner(store, "desk", execution_id="e2")
        assert await refused(store, first.release()) is RefusalReason.STALE_GENERATION
        await done(store, second.release())
        assert await refused(store, second.release()) is RefusalReason.NOT_OWNER


# ----------------------------------------------------------------------------------------------------------- parking


async def test_a_parked_address_keeps_mail_and_state_and_is_run_by_nobody(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, "desk")
        await desk.send("m1")
        await desk.handle(1, state=StateWrite(payload=b"{}", type="Total", version=1))
        await desk.send("m2")
        await done(store, parking(desk))
        assert await refused(store, claiming("desk", "e1")) is RefusalReason.PARKED
        assert await refused(store, desk.begin(2)) is RefusalReason.NOT_OWNER
        assert (await desk.send("m3")).disposition is Disposition.ACCEPTED
        assert await due(store) == []
        record = await store.read(ReadAddress(address="desk"))
        assert record is not None
        assert (record.parked, record.parked_detail) == (ParkReason.UNDECODABLE, "field 'total'")
        assert (record.state, record.queued, record.owner) == (b"{}", 2, None)


async def test_an_operator_lets_a_parked_address_run_again(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, "desk")
        await desk.send("m1")
        await done(store, parking(desk))
        await done(store, UnparkAddress(address="desk"))
        assert await due(store) == ["desk"]
        assert await (await owner(store, "desk")).waiting() == ["m1"]


async def test_an_address_that_is_not_parked_is_not_unparked(database: Database) -> None:
    async with database.open() as store:
        await owner(store, "desk")
        assert await refused(store, UnparkAddress(address="desk")) is RefusalReason.NOT_PARKED
        assert await refused(store, UnparkAddress(address="nowhere")) is RefusalReason.UNKNOWN_ADDRESS


@pytest.mark.parametrize("reason", ParkReason)
async def test_an_address_may_be_parked_for_any_reason(database: Database, reason: ParkReason) -> None:
    async with database.open() as store:
        await done(store, parking(await owner(store, "desk"), reason))
        (record,) = await store.read(ListAddresses(parked=True))
        assert record.parked is reason


# ------------------------------------------------------------------------------------------------ closing, listing, due


async def test_c14_what_comes_to_a_closed_address_is_late_until_it_is_claimed_again(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, "desk")
        await desk.send("m1")
        await done(store, desk.close())
        assert (await desk.send("m2")).disposition is Disposition.LATE
        assert (await desk.send("m1")).disposition is Disposition.DUPLICATE
        assert await due(store) == []
        again = await owner(store, "desk")
        assert await again.waiting() == ["m1"]
        assert (await again.send("m2")).disposition is Disposition.ACCEPTED


async def test_addresses_are_listed_in_pages_without_their_states(database: Database) -> None:
    async with database.open() as store:
        for name in ("c", "a", "b"):
            desk = await owner(store, name)
            await desk.send("m")
            await desk.handle(1, state=StateWrite(payload=b"{}", type="Total", version=1))
        first = await store.read(ListAddresses(limit=2))
        second = await store.read(ListAddresses(limit=2, after=first[-1].address))
        assert [record.address for record in (*first, *second)] == ["a", "b", "c"]
        assert {record.state for record in first} == {None}
        assert {record.state_type for record in first} == {"Total"}


async def test_an_address_without_an_owner_is_due_when_it_has_mail(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, "desk")
        await owner(store, "idle")
        await done(store, desk.release())
        assert await due(store) == []
        await desk.send("m1")
        (entry,) = await store.read(DueAddresses())
        assert (entry.address, entry.due_at) == ("desk", database.time.at(0))
        await owner(store, "desk")
        assert await due(store) == []


async def test_due_addresses_come_in_pages_those_of_one_moment_too(database: Database) -> None:
    async with database.open() as store:
        for name in ("d", "a", "c", "b"):
            await done(store, opening(name))
            await done(store, message(name, "m"))
            if name == "a":
                database.time.pass_time(1)
        seen, after = [], None
        while page := await store.read(DueAddresses(after=after, limit=1)):
            (after,) = page
            seen.append(after.address)
        assert seen == ["a", "d", "b", "c"]


async def test_an_owner_finds_where_it_could_begin_a_delivery(database: Database) -> None:
    async with database.open() as store:
        owners = {name: await owner(store, name) for name in ("d", "a", "c", "b", "full")}
        await owner(store, "full", capacity=1)
        others = await owner(store, "others", execution_id="e2")
        for mailbox in (*(owners[name] for name in ("d", "a", "b", "full")), others):
            await mailbox.send("m1")
        await owners["b"].handle(1)
        await owners["d"].handle(1, outgoing=(outgoing("full", "o1"),))
        await owners["d"].send("m2")  # it cannot begin before its own message has found room
        assert await store.read(OwnedReady(execution_id="e1")) == ("a", "full")
        assert await store.read(OwnedReady(execution_id="e1", limit=1)) == ("a",)
        assert await store.read(OwnedReady(execution_id="e1", after="a")) == ("full",)
        assert await store.read(OwnedReady(execution_id="nobody")) == ()


async def test_an_address_with_mail_is_due_when_its_owner_lets_it_go(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, "desk")
        await desk.send("m1")
        assert await due(store) == []
        await done(store, desk.release())
        assert await due(store) == ["desk"]


async def test_addresses_are_due_in_the_order_in_which_they_became_so(database: Database) -> None:
    async with database.open() as store:
        for name in ("b", "a", "c"):
            desk = await owner(store, name)
            await done(store, desk.release())
        for name in ("c", "a", "b"):
            await done(store, message(name, "m"))
            database.time.pass_time(1)
        assert await due(store) == ["c", "a", "b"]
        assert len(await store.read(DueAddresses(limit=2))) == 2


async def test_an_address_is_due_when_the_time_of_its_delayed_mail_comes(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, "desk")
        await done(store, message("desk", "later", deliver_at=database.time.at(60)))
        await done(store, desk.release())
        assert await due(store) == []
        database.time.pass_time(61)
        assert await due(store) == ["desk"]


async def test_delayed_mail_to_an_address_without_an_owner_makes_it_due_then(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, "desk")
        await done(store, desk.release())
        await done(store, message("desk", "later", deliver_at=database.time.at(60)))
        await done(store, message("desk", "sooner", deliver_at=database.time.at(30)))
        database.time.pass_time(31)
        assert await due(store) == ["desk"]


async def test_r13_the_stores_time_is_the_one_that_was_steered(database: Database) -> None:
    async with database.open() as store:
        assert await store.read(StoreNow()) == database.time.at(0)
        database.time.pass_time(12.5)
        assert await store.read(StoreNow()) == database.time.at(0)
