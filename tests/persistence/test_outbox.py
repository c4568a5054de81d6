"""The outbox: messages held for lack of room (R25), and those for outside destinations (C20)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from greenroom.persistence.addresses import ReadAddress
from greenroom.persistence.deliveries import ToOutside
from greenroom.persistence.messages import Disposition
from greenroom.persistence.outbox import (
    BeginSend,
    DueOutbox,
    FailSend,
    FinishSend,
    FlushableHeld,
    Flushed,
    FlushHeld,
    Held,
    OutboxMoved,
    OutboxStatus,
    ReadOutbox,
    RequeueSend,
    Sending,
)
from greenroom.persistence.transitions import RefusalReason, Refused
from tests.persistence.stores import done, outgoing, owner, refused

if TYPE_CHECKING:
    from greenroom.persistence.store import Store
    from tests.persistence.stores import Database, Owner


async def test_r25_a_handlers_messages_over_capacity_are_held_in_order_and_hold_back_its_next_message(
    database: Database,
) -> None:
    async with database.open() as store:
        desk = await owner(store)
        counter = await owner(store, "counter", capacity=1)
        await desk.send("m1")
        await desk.send("m2")
        answer = await desk.handle(
            1, outgoing=tuple(outgoing("counter", f"x{number}") for number in range(3)), next_seq=2
        )
        assert answer.outgoing == (Disposition.ACCEPTED, Disposition.HELD, Disposition.HELD)
        assert answer.next_refused is not None
        assert answer.next_refused.reason is RefusalReason.HELD_BACK
        assert await refused(store, desk.begin(2)) is RefusalReason.HELD_BACK
        assert await counter.waiting() == ["x0"]

        await counter.handle(1)
        assert await store.read(FlushableHeld()) == (Held("desk", "counter"),)
        flush = FlushHeld(address="desk", recipients=("counter",))
        assert await done(store, flush) == Flushed(1, 1)
        assert await store.read(FlushableHeld()) == ()
        assert await refused(store, desk.begin(2)) is RefusalReason.HELD_BACK
        await counter.handle(2)
        again = FlushHeld(address="desk", recipients=("counter",))
        assert await done(store, again) == Flushed(1, 0)
        assert await counter.waiting() == ["x2"]
        await desk.begun(2)


async def test_r25_what_a_handler_sends_to_its_own_address_is_never_held(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, capacity=1)
        await desk.send("m1")
        answer = await desk.handle(1, outgoing=tuple(outgoing("desk", f"x{number}") for number in range(3)), next_seq=2)
        assert answer.outgoing == (Disposition.ACCEPTED,) * 3
        assert answer.next is not None
        assert await desk.waiting() == ["x0", "x1", "x2"]


async def test_a_message_behind_a_held_one_is_held_too_even_if_there_were_room(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        counter = await owner(store, "counter", capacity=1)
        await desk.send("m1")
        await counter.send("y")
        answer = await desk.handle(
            1, outgoing=(outgoing("counter", "x0"), outgoing("counter", "y"), outgoing("desk", "self"))
        )
        assert answer.outgoing == (Disposition.HELD, Disposition.HELD, Disposition.ACCEPTED)


async def test_held_messages_to_an_address_that_was_closed_are_let_go(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        counter = await owner(store, "counter", capacity=1)
        await desk.send("m1")
        await counter.send("y")
        await desk.handle(1, outgoing=(outgoing("counter", "x0"),))
        await done(store, counter.close())
        assert await store.read(FlushableHeld()) == (Held("desk", "counter"),)
        assert await done(store, FlushHeld(address="desk", recipients=("counter",))) == Flushed(1, 0)


async def test_a_held_message_keeps_its_delay(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        counter = await owner(store, "counter", capacity=1)
        await desk.send("m1")
        await counter.send("y")
        await desk.handle(1, outgoing=(outgoing("counter", "x0", deliver_at=database.time.at(60)),))
        await counter.handle(1)
        await done(store, FlushHeld(address="desk", recipients=("counter",)))
        record = await store.read(ReadAddress(address="counter"))
        assert record is not None
        assert (record.ready, record.delayed) == (0, 1)


async def test_flushing_an_unknown_address_is_refused(database: Database) -> None:
    async with database.open() as store:
        flush = FlushHeld(address="nowhere", recipients=("counter",))
        assert await refused(store, flush) is RefusalReason.UNKNOWN_ADDRESS


async def with_outbox(store: Store, count: int = 1) -> Owner:
    """An address with rows for an outside destination."""
    desk = await owner(store)
    await desk.send("m1")
    await desk.handle(
        1,
        outside=tuple(
            ToOutside(destination="mail", message_id=f"o{number}", type="Mail", body=b"hello")
            for number in range(1, count + 1)
        ),
    )
    return desk


async def test_c20_a_row_that_was_published_and_not_marked_is_published_again_under_its_identity(
    database: Database,
) -> None:
    async with database.open() as store:
        await with_outbox(store)
        (row,) = await store.read(DueOutbox(destination="mail"))
        assert (row.address, row.ordinal, row.message_id, row.attempts) == ("desk", 1, "o1", 0)
        assert await done(store, BeginSend(address="desk", ordinal=1, seconds=30.0)) == Sending(1)
        assert await store.read(DueOutbox(destination="mail")) == ()
        database.time.pass_time(31)  # the relay was killed between publishing and marking
        (again,) = await store.read(DueOutbox(destination="mail"))
        assert (again.message_id, again.attempts) == ("o1", 1)
        assert await done(store, BeginSend(address="desk", ordinal=1, seconds=30.0)) == Sending(2)
        assert await done(store, FinishSend(address="desk", ordinal=1)) == OutboxMoved(OutboxStatus.SENT)
        database.time.pass_time(31)
        assert await store.read(DueOutbox(destination="mail")) == ()


async def test_what_is_due_to_one_destination_is_not_hidden_by_another(database: Database) -> None:
    async with database.open() as store:
        await with_outbox(store, count=3)
        assert await store.read(DueOutbox(destination="chat")) == ()
        assert [row.message_id for row in await store.read(DueOutbox(destination="mail", limit=2))] == ["o1", "o2"]


async def test_a_row_that_one_relay_has_is_not_given_to_another(database: Database) -> None:
    async with database.open() as store:
        await with_outbox(store)
        await done(store, BeginSend(address="desk", ordinal=1, seconds=30.0))
        database.time.pass_time(10)
        answer = await store.commit(BeginSend(address="desk", ordinal=1, seconds=30.0))
        assert isinstance(answer, Refused)
        assert answer.reason is RefusalReason.NOT_PENDING
        assert answer.seconds == pytest.approx(20.0)


async def test_a_row_that_failed_is_tried_again_later_or_given_up(database: Database) -> None:
    async with database.open() as store:
        await with_outbox(store)
        await done(store, BeginSend(address="desk", ordinal=1, seconds=30.0))
        assert await done(store, FailSend(address="desk", ordinal=1, seconds=5.0)) == OutboxMoved(OutboxStatus.PENDING)
        assert await store.read(DueOutbox(destination="mail")) == ()
        database.time.pass_time(6)
        assert len(await store.read(DueOutbox(destination="mail"))) == 1
        assert await done(store, FailSend(address="desk", ordinal=1, seconds=None)) == OutboxMoved(OutboxStatus.DEAD)
        assert await store.read(DueOutbox(destination="mail")) == ()
        for transition in (
            BeginSend(address="desk", ordinal=1, seconds=1.0),
            FinishSend(address="desk", ordinal=1),
            FailSend(address="desk", ordinal=1, seconds=1.0),
        ):
            assert await refused(store, transition) is RefusalReason.NOT_PENDING


async def test_an_operator_requeues_a_row_that_was_given_up(database: Database) -> None:
    async with database.open() as store:
        await with_outbox(store)
        assert await refused(store, RequeueSend(address="desk", ordinal=1)) is RefusalReason.NOT_PENDING
        await done(store, FailSend(address="desk", ordinal=1, seconds=None))
        assert await done(store, RequeueSend(address="desk", ordinal=1)) == OutboxMoved(OutboxStatus.PENDING)
        assert len(await store.read(DueOutbox(destination="mail"))) == 1


async def test_what_is_asked_of_an_unknown_row_is_refused(database: Database) -> None:
    async with database.open() as store:
        assert await refused(store, FinishSend(address="desk", ordinal=9)) is RefusalReason.UNKNOWN_MESSAGE


async def test_the_outbox_of_an_address_is_read_in_order_and_pages(database: Database) -> None:
    async with database.open() as store:
        await with_outbox(store, count=3)
        await done(store, FinishSend(address="desk", ordinal=1))
        first = await store.read(ReadOutbox(address="desk", limit=2))
        rest = await store.read(ReadOutbox(address="desk", after=first[-1].ordinal))
        assert [(row.ordinal, row.status) for row in (*first, *rest)] == [
            (1, OutboxStatus.SENT),
            (2, OutboxStatus.PENDING),
            (3, OutboxStatus.PENDING),
        ]
        assert [row.sent_at for row in first] == [database.time.at(0), None]


async def test_a_row_for_outside_holds_nothing_back(database: Database) -> None:
    async with database.open() as store:
        desk = await with_outbox(store)
        await desk.send("m2")
        await desk.begun(2)
