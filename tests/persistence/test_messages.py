"""Accepting messages: order, duplicates and conflicts, capacity, delays, dead letters (C14, R25, R27, I5)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import anyio
import pytest

from greenroom.persistence.addresses import ReadAddress
from greenroom.persistence.messages import (
    AdmitDue,
    Admitted,
    DeadLetters,
    DelayedMessages,
    Disposition,
    DropDead,
    ListMessages,
    MessageStatus,
    NextMessages,
    ReadMessage,
    Receipt,
    RequeueDead,
)
from greenroom.persistence.observations import ListObservations, ObservationKind
from greenroom.persistence.transitions import RefusalReason
from tests.persistence.stores import done, message, owner, refused

if TYPE_CHECKING:
    from greenroom.persistence.store import Store
    from tests.persistence.stores import Database


async def queued(store: Store, address: str = "desk") -> tuple[int, int, int]:
    """What an address counts: (against its capacity, ready, delayed)."""
    record = await store.read(ReadAddress(address=address))
    assert record is not None
    return record.queued, record.ready, record.delayed


async def test_messages_wait_in_the_order_of_their_acceptance(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        receipts = [await desk.send(name) for name in ("c", "a", "b")]
        assert [receipt.seq for receipt in receipts] == [1, 2, 3]
        assert {receipt.disposition for receipt in receipts} == {Disposition.ACCEPTED}
        assert await desk.waiting() == ["c", "a", "b"]
        assert await queued(store) == (3, 3, 0)


async def test_identities_and_types_are_any_text(database: Database) -> None:
    odd = ["\x1f", "a\x1fb", "\x1e", "", "ä, b", "NULL", "{}", "'"]
    async with database.open() as store:
        desk = await owner(store, "des\x1fk")
        async with anyio.create_task_group() as group:
            for text in odd:
                group.start_soon(done, store, message(desk.address, f"id{text}", type=text, sender=text))
        records = await desk.records()
        assert sorted((record.message_id, record.type, record.sender) for record in records) == sorted(
            (f"id{text}", text, text) for text in odd
        )
        for record in records:
            assert record.seq is not None
            await desk.handle(record.seq)
        assert await desk.waiting() == []


async def test_a_message_is_kept_whole(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await done(store, message("desk", "m1", b'{"n":1}', type="Add", sender="client-7"))
        (record,) = await desk.records()
        assert (record.message_id, record.type, record.body, record.sender) == ("m1", "Add", b'{"n":1}', "client-7")
        assert (record.seq, record.status, record.deliveries) == (1, MessageStatus.QUEUED, 0)
        assert (record.accepted_at, record.delivered_at) == (database.time.at(0), None)


async def test_a_message_may_be_empty(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1", b"")
        (record,) = await desk.records()
        assert record.body == b""


async def test_names_may_be_written_in_any_script(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, "büro/日本/😀\n1")
        await desk.send("nächste/✉")
        assert await desk.waiting() == ["nächste/✉"]


async def test_r27_whoever_follows_the_places_of_a_mailbox_misses_none_though_many_send_by_two_stores(
    database: Database,
) -> None:
    """A place is seen only when every place before it has been given and is seen, or never will be."""
    wanted = 200
    async with database.open() as store, database.open() as other:
        await owner(store)
        followed: list[int] = []

        async def follow() -> None:
            while len(followed) < wanted:
                page = await other.read(ListMessages(address="desk", after=followed[-1] if followed else 0, limit=7))
                followed.extend(record.seq or 0 for record in page)

        async def send(through: Store, sender: int) -> None:
            for number in range(wanted // 10):
                await done(through, message("desk", f"m{sender}-{number}"))

        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            for sender in range(10):
                group.start_soon(send, (store, other)[sender % 2], sender)
        on_record = await store.read(ListMessages(address="desk", limit=wanted + 1))
        assert followed == [record.seq for record in on_record] == list(range(1, wanted + 1))


async def test_messages_are_read_in_pages(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        for number in range(5):
            await desk.send(f"m{number}")
        first = await store.read(NextMessages(address="desk", limit=3))
        rest = await store.read(NextMessages(address="desk", after=first[-1].seq or 0, limit=3))
        assert [record.message_id for record in (*first, *rest)] == ["m0", "m1", "m2", "m3", "m4"]


# ------------------------------------------------------------------------------------------------------ dispositions


async def test_c14_a_duplicate_gets_the_place_of_the_first_and_changes_nothing(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        await desk.send("m2")
        assert await desk.send("m1") == Receipt("m1", Disposition.DUPLICATE, 1)
        assert await queued(store) == (2, 2, 0)


async def test_c14_a_duplicate_of_a_handled_message_is_known(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        await desk.handle(1)
        assert await desk.send("m1") == Receipt("m1", Disposition.DUPLICATE, 1)
        assert await desk.waiting() == []


async def test_r25_the_same_identity_with_other_content_is_a_conflict(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1", b"one")
        assert await desk.send("m1", b"two") == Receipt("m1", Disposition.CONFLICT)
        (record,) = await desk.records()
        assert record.body == b"one"


async def test_r25_the_same_identity_with_another_type_is_a_conflict(database: Database) -> None:
    async with database.open() as store:
        await owner(store)
        await done(store, message("desk", "m1", b"{}", type="Add"))
        receipt = await done(store, message("desk", "m1", b"{}", type="Subtract"))
        assert receipt.disposition is Disposition.CONFLICT


async def test_one_identity_may_be_used_at_two_addresses(database: Database) -> None:
    async with database.open() as store:
        for name in ("desk", "counter"):
            assert (await (await owner(store, name)).send("m1")).disposition is Disposition.ACCEPTED


async def test_c14_a_message_to_an_unknown_address_is_unmatched(database: Database) -> None:
    async with database.open() as store:
        assert await done(store, message("nowhere", "m1")) == Receipt("m1", Disposition.UNMATCHED)
        assert await store.read(ReadAddress(address="nowhere")) is None


async def test_c14_duplicate_conflicting_late_and_unmatched_messages_can_all_be_looked_up(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1", b"one")
        await done(store, message("desk", "m1", b"one", sender="s1"))
        await done(store, message("desk", "m1", b"two", sender="s2"))
        await done(store, message("nowhere", "m2", b"three", sender="s3"))
        await done(store, desk.close())
        await done(store, message("desk", "m3", b"four", sender="s4"))
        found = await store.read(ListObservations())
        assert [(seen.kind, seen.address, seen.message_id, seen.sender, seen.body) for seen in found] == [
            (ObservationKind.LATE, "desk", "m3", "s4", b"four"),
            (ObservationKind.UNMATCHED, "nowhere", "m2", "s3", b"three"),
            (ObservationKind.CONFLICT, "desk", "m1", "s2", b"two"),
            (ObservationKind.DUPLICATE, "desk", "m1", "s1", None),
        ]
        assert all(seen.detail and seen.what == "Note" and seen.at == database.time.at(0) for seen in found)


async def test_observations_are_chosen_by_address_and_kind_and_read_in_pages(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        for number in range(3):
            await done(store, message("nowhere", f"n{number}"))
            await desk.send("m1")
        unmatched = await store.read(ListObservations(kind=ObservationKind.UNMATCHED))
        assert [seen.message_id for seen in unmatched] == ["n2", "n1", "n0"]
        first = await store.read(ListObservations(address="desk", limit=2))
        rest = await store.read(ListObservations(address="desk", limit=2, before=first[-1].id))
        assert (len(first), len(rest)) == (2, 1)
        assert {seen.address for seen in (*first, *rest)} == {"desk"}


# --------------------------------------------------------------------------------------------------------- capacity


async def test_a_full_mailbox_refuses_and_has_room_again_when_a_message_was_handled(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, capacity=2)
        await desk.send("m1")
        await desk.send("m2")
        assert await refused(store, message("desk", "m3")) is RefusalReason.FULL
        await desk.begun(1)
        assert await refused(store, message("desk", "m3")) is RefusalReason.FULL
        await done(store, desk.finish(1))
        assert (await desk.send("m3")).disposition is Disposition.ACCEPTED


async def test_a_refused_message_has_taken_neither_place_nor_identity(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, capacity=1)
        await desk.send("m1")
        before = database.tables()
        await refused(store, message("desk", "m2"))
        assert database.tables() == before


async def test_a_full_mailbox_still_knows_a_duplicate(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, capacity=1)
        await desk.send("m1")
        assert (await desk.send("m1")).disposition is Disposition.DUPLICATE


async def test_a_dead_letter_takes_no_room(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, capacity=1)
        await desk.send("m1")
        await done(store, desk.bury(1))
        assert (await desk.send("m2")).disposition is Disposition.ACCEPTED


async def test_a_delayed_message_takes_room_from_its_acceptance_on(database: Database) -> None:
    async with database.open() as store:
        await owner(store, capacity=1)
        await done(store, message("desk", "later", deliver_at=database.time.at(60)))
        assert await refused(store, message("desk", "m2")) is RefusalReason.FULL


# ----------------------------------------------------------------------------------------------------------- delays


async def test_a_delayed_message_waits_for_its_time_and_then_goes_to_the_end(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        receipt = await done(store, message("desk", "later", deliver_at=database.time.at(60)))
        assert receipt == Receipt("later", Disposition.ACCEPTED, None)
        await desk.send("now")
        assert await queued(store) == (2, 1, 1)
        assert await done(store, AdmitDue(address="desk")) == Admitted(0, database.time.at(60))
        assert await desk.waiting() == ["now"]
        database.time.pass_time(61)
        assert await done(store, AdmitDue(address="desk")) == Admitted(1, None)
        assert await desk.waiting() == ["now", "later"]
        assert await queued(store) == (2, 2, 0)


async def test_delayed_messages_are_admitted_by_their_times_and_then_by_their_acceptance(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        for name, seconds in (("c", 30), ("a", 10), ("b1", 20), ("b2", 20), ("d", 99)):
            await done(store, message("desk", name, deliver_at=database.time.at(seconds)))
        listed = await store.read(DelayedMessages(address="desk"))
        assert [record.message_id for record in listed] == ["a", "b1", "b2", "c", "d"]
        database.time.pass_time(40)
        assert await done(store, AdmitDue(address="desk", limit=3)) == Admitted(3, database.time.at(-10))
        assert await done(store, AdmitDue(address="desk")) == Admitted(1, database.time.at(59))
        assert await desk.waiting() == ["a", "b1", "b2", "c"]


async def test_a_message_whose_time_is_past_is_not_delayed(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        receipt = await done(store, message("desk", "m1", deliver_at=database.time.at(-5)))
        assert receipt.seq == 1
        assert await desk.waiting() == ["m1"]


async def test_a_duplicate_of_a_delayed_message_has_no_place_either(database: Database) -> None:
    async with database.open() as store:
        await owner(store)
        later = message("desk", "later", deliver_at=database.time.at(60))
        await done(store, later)
        again = message("desk", "later", deliver_at=database.time.at(90))
        assert await done(store, again) == Receipt("later", Disposition.DUPLICATE, None)


async def test_nothing_is_admitted_at_an_unknown_address(database: Database) -> None:
    async with database.open() as store:
        assert await refused(store, AdmitDue(address="nowhere")) is RefusalReason.UNKNOWN_ADDRESS


def test_an_instant_without_a_time_zone_is_refused_at_birth() -> None:
    with pytest.raises(ValueError, match="time zone"):
        message("desk", "m1", deliver_at=datetime(2030, 1, 1))  # noqa: DTZ001 - that is the point


# ------------------------------------------------------------------------------------------------------ dead letters


async def test_dead_letters_are_listed_over_all_addresses_and_for_one(database: Database) -> None:
    async with database.open() as store:
        for name in ("b", "a"):
            desk = await owner(store, name)
            for number in (1, 2):
                await desk.send(f"m{number}")
                await done(store, desk.bury(number, reason="cannot be decoded"))
        every = await store.read(DeadLetters())
        assert [(record.address, record.message_id) for record in every] == [
            ("a", "m1"),
            ("a", "m2"),
            ("b", "m1"),
            ("b", "m2"),
        ]
        assert {record.reason for record in every} == {"cannot be decoded"}
        assert {record.status for record in every} == {MessageStatus.DEAD}
        rest = await store.read(DeadLetters(after=("a", 1), limit=2))
        assert [(record.address, record.seq) for record in rest] == [("a", 2), ("b", 1)]
        of_b = await store.read(DeadLetters(address="b", after=("b", 1)))
        assert [record.seq for record in of_b] == [2]


async def test_a_requeued_dead_letter_goes_to_the_end_with_no_deliveries_counted(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        await desk.begun(1)
        await done(store, desk.bury(1))
        await desk.send("m2")
        settled = await done(store, RequeueDead(address="desk", message_id="m1"))
        assert (settled.status, settled.seq) == (MessageStatus.QUEUED, 3)
        assert await desk.waiting() == ["m2", "m1"]
        assert (await desk.records())[1].deliveries == 0
        assert await store.read(DeadLetters()) == ()
        await desk.handle(2)
        await desk.handle(3)
        assert await desk.waiting() == []


async def test_a_dropped_dead_letter_is_gone_and_its_identity_stays_known(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        await done(store, desk.bury(1))
        assert (await done(store, DropDead(address="desk", message_id="m1"))).status is MessageStatus.DROPPED
        assert await store.read(DeadLetters()) == ()
        assert (await desk.send("m1")).disposition is Disposition.DUPLICATE


async def test_only_dead_letters_are_requeued_or_dropped(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        await done(store, message("desk", "later", deliver_at=database.time.at(60)))
        for kind in (RequeueDead, DropDead):
            assert await refused(store, kind(address="desk", message_id="m1")) is RefusalReason.NOT_PENDING
            assert await refused(store, kind(address="desk", message_id="later")) is RefusalReason.NOT_PENDING
            assert await refused(store, kind(address="desk", message_id="m9")) is RefusalReason.UNKNOWN_MESSAGE
            assert await refused(store, kind(address="nowhere", message_id="m1")) is RefusalReason.UNKNOWN_MESSAGE


async def test_a_dead_letter_is_not_requeued_into_a_full_mailbox(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, capacity=1)
        await desk.send("m1")
        await done(store, desk.bury(1))
        await desk.send("m2")
        assert await refused(store, RequeueDead(address="desk", message_id="m1")) is RefusalReason.FULL


async def test_a_requeued_dead_letter_makes_its_address_due(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        await done(store, desk.bury(1))
        await done(store, desk.release())
        await done(store, RequeueDead(address="desk", message_id="m1"))
        record = await store.read(ReadAddress(address="desk"))
        assert record is not None
        assert record.due_at == database.time.at(0)


# ---------------------------------------------------------------------------------------------------------- reading


async def test_a_message_is_found_by_its_identity_with_its_reply(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        await desk.handle(1, reply=b"42")
        record = await store.read(ReadMessage(address="desk", message_id="m1"))
        assert record is not None
        assert (record.status, record.reply, record.error) == (MessageStatus.HANDLED, b"42", None)
        assert await store.read(ReadMessage(address="desk", message_id="m2")) is None


async def test_all_messages_of_an_address_are_listed_with_where_they_stand(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        for name in ("handled", "dead", "waiting"):
            await desk.send(name)
        await desk.handle(1)
        await done(store, desk.bury(2))
        await done(store, message("desk", "later", deliver_at=database.time.at(60)))
        listed = await store.read(ListMessages(address="desk"))
        assert [(record.message_id, record.status) for record in listed] == [
            ("handled", MessageStatus.HANDLED),
            ("dead", MessageStatus.DEAD),
            ("waiting", MessageStatus.QUEUED),
        ]
        assert [record.seq for record in await store.read(ListMessages(address="desk", after=1, limit=1))] == [2]
