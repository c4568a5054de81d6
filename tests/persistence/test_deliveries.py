"""Deliveries: counted before the handler, finished in one transaction (I3, R22, R25, C27)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.persistence.addresses import ReadAddress, StateWrite
from greenroom.persistence.deliveries import CancelTimer, DeadLettered, Delivery, Handled, ToOutside, outgoing_id
from greenroom.persistence.messages import (
    AdmitDue,
    DelayedMessages,
    Disposition,
    ListMessages,
    MessageStatus,
    ReadMessage,
    RequeueDead,
)
from greenroom.persistence.observations import ListObservations, ObservationKind
from greenroom.persistence.outbox import ReadOutbox
from greenroom.persistence.transitions import RefusalReason
from tests.persistence.stores import done, message, outgoing, owner, refused, timer

if TYPE_CHECKING:
    from greenroom.persistence.addresses import AddressRecord
    from greenroom.persistence.store import Store
    from tests.persistence.stores import Database


async def record_of(store: Store, address: str = "desk") -> AddressRecord:
    record = await store.read(ReadAddress(address=address))
    assert record is not None
    return record


async def test_r22_i06_a_delivery_is_counted_before_the_handler_runs_and_outlives_its_owner(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        assert await desk.begun(1) == Delivery(1, 1)
        database.time.pass_time(31)
        successor = await owner(store, execution_id="e2")
        (record,) = await successor.records()
        assert (record.deliveries, record.delivered_at) == (1, database.time.at(-31))
        assert await successor.begun(1) == Delivery(1, 2)


async def test_a_message_that_was_delivered_too_often_becomes_a_dead_letter(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        for count in (1, 2):
            assert await done(store, desk.begin(1, max_deliveries=2)) == Delivery(1, count)
        assert await done(store, desk.begin(1, max_deliveries=2)) == DeadLettered(1, 2)
        record = await store.read(ReadMessage(address="desk", message_id="m1"))
        assert record is not None
        assert (record.status, record.deliveries) == (MessageStatus.DEAD, 2)
        assert "2 times" in str(record.reason)
        assert (await record_of(store)).queued == 0


async def test_r22_a_delivery_that_was_broken_off_by_a_drain_is_taken_back(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        await desk.begun(1)
        assert await done(store, desk.undo(1)) == Delivery(1, 0)
        assert await refused(store, desk.undo(1)) is RefusalReason.NOT_PENDING
        assert await desk.begun(1) == Delivery(1, 1)


async def test_a_message_that_cannot_be_handled_is_buried_with_its_reason(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        assert await done(store, desk.bury(1, reason="field 'n' is missing")) == DeadLettered(1, 0)
        assert await refused(store, desk.bury(1)) is RefusalReason.NOT_PENDING
        assert await refused(store, desk.begin(1)) is RefusalReason.NOT_PENDING


async def test_a_handled_message_is_not_delivered_again(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        assert await desk.handle(1) == Handled()
        assert await refused(store, desk.begin(1)) is RefusalReason.NOT_PENDING
        assert await desk.waiting() == []
        assert (await record_of(store)).handled_seq == 1


async def test_c27_the_same_delivery_twice_is_handled_once_and_counted_twice(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        await desk.begun(1)
        await desk.begun(1)
        state = StateWrite(payload=b"first", type="S", version=1)
        await done(store, desk.finish(1, state=state))
        late = desk.finish(1, state=StateWrite(payload=b"second", type="S", version=1))
        assert await refused(store, late) is RefusalReason.NOT_PENDING
        record = await store.read(ReadMessage(address="desk", message_id="m1"))
        assert record is not None
        assert (record.status, record.deliveries) == (MessageStatus.HANDLED, 2)
        assert (await record_of(store)).state == b"first"
        (seen,) = await store.read(ListObservations())
        assert (seen.kind, seen.what) == (ObservationKind.REFUSED, "FinishDelivery")


async def test_a_message_is_finished_only_if_its_delivery_was_begun(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        assert await refused(store, desk.finish(1)) is RefusalReason.NOT_PENDING
        assert await desk.waiting() == ["m1"]


async def test_places_where_no_message_is_are_not_delivered(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        for seq in (-1, 0, 1, 7):
            assert await refused(store, desk.begin(seq)) is RefusalReason.NOT_PENDING
            assert await refused(store, desk.finish(seq)) is RefusalReason.NOT_PENDING


async def test_a_delayed_message_is_not_delivered_before_it_was_admitted(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await done(store, message("desk", "later", deliver_at=database.time.at(60)))
        assert await refused(store, desk.begin(-1)) is RefusalReason.NOT_PENDING


async def test_the_next_delivery_can_begin_in_the_commit_that_ends_the_last(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        for name in ("m1", "m2", "m3"):
            await desk.send(name)
        await desk.begun(1)
        assert await done(store, desk.finish(1, next_seq=2)) == Handled(next=Delivery(2, 1))
        await desk.begun(2)
        answer = await done(store, desk.finish(2, next_seq=9))
        assert answer.next is None
        assert answer.next_refused is not None
        assert answer.next_refused.reason is RefusalReason.NOT_PENDING
        assert (await record_of(store)).handled_seq == 2


async def test_the_next_message_may_turn_out_to_be_a_dead_letter(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        await desk.send("m2")
        await desk.begun(2)
        await desk.begun(1)
        answer = await done(store, desk.finish(1, next_seq=2, max_deliveries=1))
        assert answer == Handled(next_dead=DeadLettered(2, 1))


# ------------------------------------------------------------------------------------------ out of order, the handled mark


async def test_r25_messages_handled_in_order_are_marked_by_one_number(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        for number in (1, 2, 3):
            await desk.send(f"m{number}")
            await desk.handle(number)
        assert (await record_of(store)).handled_seq == 3
        listed = await store.read(ListMessages(address="desk"))
        assert {record.status for record in listed} == {MessageStatus.HANDLED}


async def test_messages_handled_out_of_order_are_marked_one_by_one_and_caught_up_with(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        for number in range(1, 6):
            await desk.send(f"m{number}")
        for seq, waiting, handled_seq in (
            (3, ["m1", "m2", "m4", "m5"], 0),
            (2, ["m1", "m4", "m5"], 0),
            (1, ["m4", "m5"], 3),
            (5, ["m4"], 3),
            (4, [], 5),
        ):
            await desk.handle(seq)
            assert await desk.waiting() == waiting
            assert (await record_of(store)).handled_seq == handled_seq


async def test_dead_letters_and_gaps_do_not_hold_the_handled_mark_back(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        for number in range(1, 5):
            await desk.send(f"m{number}")
        await done(store, desk.bury(2))
        await done(store, desk.bury(3))
        await done(store, RequeueDead(address="desk", message_id="m3"))
        await desk.handle(1)
        assert (await record_of(store)).handled_seq == 2
        await desk.handle(4)
        assert (await record_of(store)).handled_seq == 4
        assert await desk.waiting() == ["m3"]
        await desk.handle(5)
        assert (await record_of(store)).handled_seq == 5


async def test_a_long_row_of_settled_messages_behind_a_slow_one_is_caught_up_with(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        for number in range(1, 1302):
            await desk.send(f"m{number}")
            if number > 1:
                await done(store, desk.bury(number))
        await desk.handle(1)
        await desk.send("last")
        await desk.handle(1302)
        record = await record_of(store)
        assert await desk.waiting() == []
        assert record.queued == record.ready == 0
        await desk.send("one more")
        await desk.handle(1303)
        assert (await record_of(store)).handled_seq == 1303


# ------------------------------------------------------------------------------------------------------ one transaction


async def test_i3_state_reply_mark_and_messages_are_committed_together(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await owner(store, "counter")
        await desk.send("m1")
        await desk.begun(1)
        answer = await done(
            store,
            desk.finish(
                1,
                reply=b"done",
                state=StateWrite(payload=b"{}", type="S", version=1),
                outgoing=(outgoing("counter", outgoing_id("desk", "m1", 0)),),
                timers=(timer("tick", "t1", database.time.at(60)),),
                outside=(ToOutside(destination="mail", message_id="o1", type="Mail", body=b"hello"),),
            ),
        )
        assert answer == Handled(outgoing=(Disposition.ACCEPTED,))
        record = await record_of(store)
        assert (record.state, record.handled_seq, record.delayed) == (b"{}", 1, 1)
        sent = await store.read(ReadMessage(address="counter", message_id="desk|m1|0"))
        assert sent is not None
        assert (sent.sender, sent.status) == ("desk", MessageStatus.QUEUED)
        (row,) = await store.read(ReadOutbox(address="desk"))
        assert (row.destination, row.message_id, row.body) == ("mail", "o1", b"hello")
        (tick,) = await store.read(DelayedMessages(address="desk"))
        assert (tick.timer, tick.type, tick.sender) == ("tick", "Tick", "desk")


async def test_i3_of_a_refused_finish_nothing_is_committed(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await owner(store, "counter")
        await desk.send("m1")
        await desk.begun(1)
        successor = await owner(store)
        before = database.tables()
        zombie = desk.finish(
            1,
            reply=b"done",
            state=StateWrite(payload=b"{}", type="S", version=1),
            outgoing=(outgoing("counter", "x"),),
            timers=(timer("tick", "t1", database.time.at(60)),),
            outside=(ToOutside(destination="mail", message_id="o1", type="Mail", body=b"hello"),),
        )
        assert await refused(store, zombie) is RefusalReason.STALE_GENERATION
        after = database.tables()
        assert {name for name in before if before[name] != after[name]} == {"observations"}
        assert await successor.waiting() == ["m1"]


async def test_a_handlers_messages_to_its_own_address_come_back_to_it(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        await desk.handle(1, outgoing=(outgoing("desk", "again"),))
        assert await desk.waiting() == ["again"]


async def test_what_became_of_each_outgoing_message_is_told_in_order(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        counter = await owner(store, "counter")
        await counter.send("known", b"{}")
        await desk.send("m1")
        answer = await desk.handle(
            1,
            outgoing=(
                outgoing("counter", "new"),
                outgoing("counter", "known"),
                outgoing("counter", "known", b"other"),
                outgoing("nowhere", "lost"),
                outgoing("counter", "later", deliver_at=database.time.at(60)),
            ),
        )
        assert answer.outgoing == (
            Disposition.ACCEPTED,
            Disposition.DUPLICATE,
            Disposition.CONFLICT,
            Disposition.UNMATCHED,
            Disposition.ACCEPTED,
        )
        assert await counter.waiting() == ["known", "new"]


async def test_an_error_is_kept_under_the_messages_identity(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        await desk.handle(1, error=b"Rejected")
        record = await store.read(ReadMessage(address="desk", message_id="m1"))
        assert record is not None
        assert (record.status, record.reply, record.error) == (MessageStatus.HANDLED, None, b"Rejected")


# ----------------------------------------------------------------------------------------------------------- timers


async def test_a_timer_that_is_set_again_replaces_the_one_that_waits(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        await desk.handle(
            1, timers=(timer("tick", "t1", database.time.at(60)), timer("tock", "t2", database.time.at(60)))
        )
        await desk.send("m2")
        await desk.handle(2, timers=(timer("tick", "t3", database.time.at(90)),))
        waiting = await store.read(DelayedMessages(address="desk"))
        assert [(record.timer, record.message_id) for record in waiting] == [("tock", "t2"), ("tick", "t3")]
        assert (await record_of(store)).delayed == 2


async def test_a_cancelled_timer_never_fires(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        await desk.handle(1, timers=(timer("tick", "t1", database.time.at(60)), CancelTimer(key="tick")))
        await desk.send("m2")
        await desk.handle(2, timers=(CancelTimer(key="never set"),))
        database.time.pass_time(61)
        assert (await done(store, AdmitDue(address="desk"))).count == 0
        assert (await record_of(store)).delayed == 0


async def test_p18_timers_take_no_room(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, capacity=1)
        await desk.send("m1")
        await desk.handle(1, timers=(timer("tick", "t1", database.time.at(10)),))
        await desk.send("m2")
        assert (await record_of(store)).queued == 1
        database.time.pass_time(11)
        await done(store, AdmitDue(address="desk"))
        assert await desk.waiting() == ["m2", "t1"]
        await desk.handle(2)
        await desk.handle(3)
        record = await record_of(store)
        assert (record.queued, record.ready) == (0, 0)


async def test_a_timer_that_is_a_dead_letter_takes_no_room_when_it_is_requeued(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, capacity=1)
        await desk.send("m1")
        await desk.handle(1, timers=(timer("tick", "t1", database.time.at(-1)),))
        await desk.send("m2")
        await done(store, desk.bury(2))
        await done(store, RequeueDead(address="desk", message_id="t1"))
        assert (await record_of(store)).queued == 1
        assert await desk.waiting() == ["m2", "t1"]


async def test_a_timer_whose_identity_is_taken_is_kept_as_an_observation(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        await desk.handle(1, timers=(timer("tick", "m1", database.time.at(60)),))
        (seen,) = await store.read(ListObservations())
        assert (seen.kind, seen.message_id) == (ObservationKind.CONFLICT, "m1")
