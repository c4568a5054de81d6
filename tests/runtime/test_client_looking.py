"""A client looks after a store: what is there, what waits for an operator, what was refused."""

from __future__ import annotations

import gc
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.errors import NoSuchStore, StoreRefused
from greenroom.mailbox import current_loop
from greenroom.persistence import (
    BeginSend,
    DrainExecution,
    EndExecution,
    FailSend,
    ParkAddress,
    ParkReason,
    Prunable,
    Prune,
    ReadOutbox,
    ToOutside,
)
from greenroom.persistence.content import INLINE_LIMIT
from greenroom.runtime.client import Client
from greenroom.runtime.durable.opening import StoreSource
from greenroom.runtime.listing import PAGE, Listing
from tests.persistence.stores import done, message, owner, refused, register
from tests.runtime.clients import Add, Note, all_of, client_of, desk_and_client, encoded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.persistence.stores import Database, Owner

DESK = "service/desk"


async def dead_letter(desk: Owner, client: Client, message_id: str, reason: str = "it cannot be decoded") -> None:
    """Send the desk a message that becomes a dead letter."""
    await client.send(DESK, Note(message_id), message_id=message_id)
    record = await client.message(DESK, message_id)
    assert record is not None
    assert record.seq is not None
    await done(desk.store, desk.bury(record.seq, reason))


# ------------------------------------------------------------------------------------------------------- opening


@pytest.mark.parametrize("file", ["store.db", "no/such/folder/store.db"])
async def test_a_client_makes_no_database(tmp_path: Path, file: str) -> None:
    with pytest.raises(NoSuchStore, match="there is no store at sqlite:///"):
        async with Client(f"sqlite:///{tmp_path}/{file}"):
            pass
    assert list(tmp_path.iterdir()) == []


async def test_a_client_makes_no_schema(database: Database) -> None:
    with pytest.raises(NoSuchStore):
        async with client_of(database):
            pass
    with pytest.raises(NoSuchStore):  # the first try has left nothing
        async with client_of(database):
            pass


async def test_an_empty_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch()
    with pytest.raises(NoSuchStore):
        async with Client(f"sqlite:///{tmp_path}/store.db"):
            pass
    assert (tmp_path / "store.db").stat().st_size == 0


async def test_a_database_in_memory_has_no_clients() -> None:
    with pytest.raises(gr.BadStoreUrl, match="exists only inside its own store"):
        async with Client("sqlite://:memory:"):
            pass


async def test_a_client_is_used_inside_of_its_block_and_once(database: Database) -> None:
    async with database.open():
        client = client_of(database)
        with pytest.raises(gr.Misuse, match="use it inside"):
            await client.send(DESK, Note("hello"))
        async with client:
            with pytest.raises(gr.Misuse, match="make a new one"):
                await client.__aenter__()
            assert await client.executions() == ()
        with pytest.raises(gr.Misuse, match="use it inside"):
            await client.executions()


async def test_c18_a_client_shows_what_its_acknowledgements_promise(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with StoreSource(url).open(current_loop()):
        async with Client(url) as client:
            assert client.durability == "full"
            assert client.name == url
        async with Client(f"{url}?durability=reduced") as client:
            assert client.durability == "reduced"


async def test_a_client_tells_the_stores_time(database: Database) -> None:
    async with desk_and_client(database) as (_, client):
        assert await client.now() == database.time.at(0)
        database.time.pass_time(60)
        assert await client.now() == database.time.at(0)


# ----------------------------------------------------------------------------------------------------- addresses


async def test_an_address_is_shown_with_what_waits_there(database: Database) -> None:
    async with desk_and_client(database, capacity=10) as (desk, client):
        await client.send(DESK, Note("one"))
        await client.send(DESK, Note("later"), deliver_at=database.time.at(60))
        await dead_letter(desk, client, "m3")
        found = await client.address(DESK)
        assert found is not None
        assert (found.address, found.kind, found.owner, found.generation) == (DESK, "actor", "e1", 1)
        assert (found.queued, found.ready, found.delayed, found.dead, found.held) == (2, 1, 1, 1, 0)
        assert (found.capacity, found.parked, found.closed_at) == (10, None, None)


async def test_an_address_that_is_not_there_is_none(database: Database) -> None:
    async with desk_and_client(database) as (_, client):
        assert await client.address("service/nobody") is None


async def test_all_addresses_are_listed_in_order_however_many(database: Database) -> None:
    names = [f"pool/{number:04}" for number in range(2 * PAGE + 1)]
    async with database.open() as store:
        for name in names:
            await owner(store, name)
        async with client_of(database) as client:
            assert [each.address for each in await all_of(client.addresses())] == names
            assert [each.address for each in await all_of(client.addresses(after="pool/0150"))] == names[151:]


async def test_a_parked_address_is_listed_with_its_reason_and_can_be_let_go(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        await owner(desk.store, "service/hall")
        parking = ParkAddress(
            address=DESK,
            execution_id="e1",
            generation=desk.generation,
            reason=ParkReason.UNDECODABLE,
            detail="the state is of version 3",
        )
        await done(desk.store, parking)
        (found,) = await all_of(client.addresses(parked=True))
        assert (found.address, found.parked, found.parked_detail) == (DESK, "undecodable", "the state is of version 3")
        await client.unpark(DESK)
        assert await all_of(client.addresses(parked=True)) == []


async def test_only_what_is_parked_can_be_unparked(database: Database) -> None:
    async with desk_and_client(database) as (_, client):
        for address, reason in ((DESK, "not_parked"), ("service/nobody", "unknown_address")):
            with pytest.raises(StoreRefused) as caught:
                await client.unpark(address)
            assert caught.value.reason == reason
            assert address in str(caught.value)


# ------------------------------------------------------------------------------------------------------ messages


async def test_a_message_is_shown_with_its_content_and_what_became_of_it(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        await client.send(DESK, Add(3), message_id="m1")
        before = await client.message(DESK, "m1")
        assert before is not None
        assert (before.status, before.deliveries, before.delivered_at, before.reply) == ("queued", 0, None, None)
        assert (before.body, before.undecodable, before.content) == (Add(3), None, encoded(Add(3)))
        await desk.handle(1, reply=encoded(7))
        after = await client.message(DESK, "m1")
        assert after is not None
        assert (after.status, after.deliveries, after.reply, after.error) == ("handled", 1, 7, None)
        assert (after.seq, after.sender, after.timer, after.reason) == (1, None, None, None)
        assert after.accepted_at == after.delivered_at == database.time.at(0)
        assert after.type.endswith(":Add")


async def test_the_error_of_a_handled_message_is_told(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        await client.send(DESK, Add(3), message_id="m1")
        await desk.handle(1, error=encoded(gr.Rejected("no")))
        found = await client.message(DESK, "m1")
        assert found is not None
        assert isinstance(found.error, gr.RemoteError)
        assert found.error.text == "no"


async def test_a_message_that_is_not_there_is_none(database: Database) -> None:
    async with desk_and_client(database) as (_, client):
        assert await client.message(DESK, "m1") is None
        assert await client.message("service/nobody", "m1") is None


async def test_contents_are_not_in_a_repr(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        await client.send(DESK, Note("a secret"), message_id="m1")
        await desk.handle(1, reply=encoded("a secret, too"))
        found = await client.message(DESK, "m1")
        assert found is not None
        assert found.body == Note("a secret")
        assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("body", "shown", "why"),
    [
        (b'{"$":"not.loaded.here:Note","text":"hello"}', {"$": "not.loaded.here:Note", "text": "hello"}, "not loaded"),
        (b'{"$":"tests.runtime.clients:Note","words":1}', {"$": "tests.runtime.clients:Note", "words": 1}, "Note.text"),
        (b"\xff\xfe", b"\xff\xfe", "not JSON"),
    ],
    ids=["a class that is not loaded", "another shape", "no JSON"],
)
async def test_k18_what_cannot_be_decoded_is_shown_as_it_is(
    database: Database, body: bytes, shown: object, why: str
) -> None:
    async with desk_and_client(database) as (desk, client):
        await done(desk.store, message(DESK, "m1", body))
        found = await client.message(DESK, "m1")
        assert found is not None
        assert found.body == shown
        assert found.content == body
        assert found.undecodable is not None
        assert why in found.undecodable


async def test_messages_are_listed_in_order_and_those_that_wait_apart(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        for number in range(PAGE + 5):
            await client.send(DESK, Add(number), message_id=f"m{number:03}")
        await desk.handle(1)
        await client.send(DESK, Add(0), message_id="later", deliver_at=database.time.at(60))
        everything = await all_of(client.messages(DESK))
        assert [each.seq for each in everything] == list(range(1, PAGE + 6))
        assert [each.status for each in everything[:2]] == ["handled", "queued"]
        assert [each.seq for each in await all_of(client.waiting(DESK))] == list(range(2, PAGE + 6))
        assert [each.seq for each in await all_of(client.messages(DESK, after=103))] == [104, 105]
        assert [each.seq for each in await all_of(client.waiting(DESK, after=103))] == [104, 105]
        (later,) = await all_of(client.delayed(DESK))
        assert (later.message_id, later.status, later.seq, later.deliver_at) == (
            "later", "delayed", None, database.time.at(60),
        )  # fmt: skip


async def test_delayed_messages_are_listed_the_next_due_first(database: Database) -> None:
    async with desk_and_client(database) as (_, client):
        for number in range(PAGE + 5):
            due = database.time.at(100 - number // 2)  # two at each moment
            await client.send(DESK, Add(number), message_id=f"m{number:03}", deliver_at=due)
        found = [(each.deliver_at, each.message_id) for each in await all_of(client.delayed(DESK))]
        assert found == sorted(found)
        assert len(found) == PAGE + 5


async def test_a_large_content_is_shown_whole(database: Database) -> None:
    async with desk_and_client(database) as (_, client):
        await client.send(DESK, Note("x" * (INLINE_LIMIT + 1)))
        (found,) = await all_of(client.messages(DESK))
        assert found.body == Note("x" * (INLINE_LIMIT + 1))


# -------------------------------------------------------------------------------------------------- dead letters


async def test_dead_letters_are_listed_with_their_reasons(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        for number in range(PAGE + 1):
            await dead_letter(desk, client, f"m{number:03}", f"reason {number}")
        hall = await owner(desk.store, "service/hall")
        await hall.send("m1")
        await done(hall.store, hall.bury(1))
        found = await all_of(client.dead_letters(DESK))
        assert [each.reason for each in found] == [f"reason {number}" for number in range(PAGE + 1)]
        assert {each.status for each in found} == {"dead"}
        addresses = [each.address for each in await all_of(client.dead_letters())]
        assert addresses == [*[DESK] * (PAGE + 1), "service/hall"]


async def test_a_dead_letter_is_requeued_or_dropped_once(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        await dead_letter(desk, client, "m1")
        await dead_letter(desk, client, "m2")
        await client.requeue(DESK, "m1")
        await client.drop(DESK, "m2")
        assert await desk.waiting() == ["m1"]
        assert await all_of(client.dead_letters()) == []
        for settle in (client.requeue, client.drop):
            for message_id in ("m1", "m2"):
                with pytest.raises(StoreRefused, match="no dead letter") as caught:
                    await settle(DESK, message_id)
                assert caught.value.reason == "not_pending"


async def test_what_is_not_there_cannot_be_settled(database: Database) -> None:
    async with desk_and_client(database) as (_, client):
        for settle in (client.requeue, client.drop):
            for address in (DESK, "service/nobody"):
                with pytest.raises(StoreRefused, match="has no message 'm1'") as caught:
                    await settle(address, "m1")
                assert caught.value.reason == "unknown_message"


async def test_a_dead_letter_is_not_requeued_into_a_full_mailbox(database: Database) -> None:
    async with desk_and_client(database, capacity=1) as (desk, client):
        await dead_letter(desk, client, "m1")
        await client.send(DESK, Note("fills it"))
        with pytest.raises(StoreRefused) as caught:
            await client.requeue(DESK, "m1")
        assert caught.value.reason == "full"


# ---------------------------------------------------------------------------------------------------- executions


async def test_executions_are_listed_with_whether_they_live(database: Database) -> None:
    async with desk_and_client(database, lease=10.0) as (desk, client):
        database.time.pass_time(5)
        for execution in ("e2", "e3"):
            await done(desk.store, register(execution))
        await done(desk.store, DrainExecution(execution_id="e2"))
        await done(desk.store, EndExecution(execution_id="e3"))
        database.time.pass_time(7)
        found = {each.execution_id: each for each in await client.executions()}
        assert set(found) == {"e1", "e2"}
        assert (found["e1"].state, found["e1"].alive, found["e1"].seconds_left) == ("active", False, 0.0)
        assert (found["e2"].state, found["e2"].alive, found["e2"].seconds_left) == ("draining", True, 23.0)
        assert (found["e2"].host, found["e2"].pid) == ("here", 1)
        assert [each.execution_id for each in await client.executions(ended=True)] == ["e1", "e2", "e3"]


# -------------------------------------------------------------------------------------------------- observations


async def test_c14_what_was_not_accepted_can_be_looked_up(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        await client.send(DESK, Note("one"), message_id="m1")
        await client.send(DESK, Note("one"), message_id="m1")
        await client.send(DESK, Note("two"), message_id="m1")
        await client.send("service/nobody", Note("three"), message_id="m3")
        assert await refused(desk.store, register("e1")) is not None
        await done(desk.store, desk.close())
        await client.send(DESK, Note("four"), message_id="m4")
        found = await all_of(client.observations())
        assert [(each.kind, each.message_id) for each in found] == [
            ("late", "m4"), ("unmatched", "m3"), ("conflict", "m1"), ("duplicate", "m1"),
        ]  # fmt: skip
        assert found[0].body == Note("four")
        assert "four" not in repr(found[0])
        assert [each.message_id for each in await all_of(client.observations(address=DESK, kind="conflict"))] == ["m1"]


async def test_a_refused_write_of_an_old_owner_is_kept_as_json(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        await desk.send("m1")
        await desk.begun(1)
        await owner(desk.store, DESK)  # claimed anew, under the next generation
        await refused(desk.store, desk.finish(1, reply=b"7"))
        (found,) = await all_of(client.observations(kind="refused"))
        assert (found.what, found.execution_id, found.generation) == ("FinishDelivery", "e1", 1)
        assert found.body["seq"] == 1


async def test_observations_are_listed_however_many(database: Database) -> None:
    async with desk_and_client(database) as (_, client):
        for number in range(PAGE + 1):
            await client.send("service/nobody", Note(str(number)), message_id=f"m{number}")
        found = [each.message_id for each in await all_of(client.observations())]
        assert found == [f"m{number}" for number in reversed(range(PAGE + 1))]


async def test_an_unknown_kind_of_observation_is_refused(database: Database) -> None:
    async with desk_and_client(database) as (_, client):
        with pytest.raises(ValueError, match="odd"):
            client.observations(kind="odd")  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------------------------- outbox


async def test_what_the_outbox_has_given_up_can_be_sent_again(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        await desk.send("m1")
        outside = [
            ToOutside(destination="mail", message_id=f"o{number}", type="Mail", body=b'{"to":"boss"}')
            for number in range(2)
        ]
        await desk.handle(1, outside=tuple(outside))
        first, second = await desk.store.read(ReadOutbox(address=DESK))
        await done(desk.store, BeginSend(address=DESK, ordinal=first.ordinal, seconds=5))
        await done(desk.store, FailSend(address=DESK, ordinal=first.ordinal, seconds=None))
        found = await all_of(client.outbox(DESK))
        assert [(each.ordinal, each.message_id, each.status, each.attempts) for each in found] == [
            (first.ordinal, "o0", "dead", 1), (second.ordinal, "o1", "pending", 0),
        ]  # fmt: skip
        assert (found[0].destination, found[0].body) == ("mail", {"to": "boss"})
        await client.requeue_send(DESK, first.ordinal)
        assert {each.status for each in await all_of(client.outbox(DESK))} == {"pending"}
        assert [each.ordinal for each in await all_of(client.outbox(DESK, after=first.ordinal))] == [second.ordinal]


async def test_only_what_was_given_up_can_be_sent_again(database: Database) -> None:
    async with desk_and_client(database) as (_, client):
        with pytest.raises(StoreRefused) as caught:
            await client.requeue_send(DESK, 1)
        assert caught.value.reason == "unknown_message"


# ------------------------------------------------------------------------------------------------------- listings


async def test_a_listing_may_be_left_early_and_gone_on_with(database: Database) -> None:
    async with desk_and_client(database) as (_, client):
        for number in range(5):
            await client.send(DESK, Add(number))
        listing = client.messages(DESK)
        async for each in listing:
            if each.seq == 2:
                break
        assert [each.seq async for each in listing] == [3, 4, 5]
        async for _each in client.messages(DESK):
            break
        gc.collect()  # no loop may complain of a generator that was left open


async def test_what_comes_behind_is_seen_by_a_listing_that_is_on_its_way(database: Database) -> None:
    async with desk_and_client(database) as (_, client):
        for number in range(PAGE):
            await client.send(DESK, Add(number))
        seen = 0
        async for each in client.messages(DESK):
            seen += 1
            if each.seq == PAGE:
                await client.send(DESK, Add(-1))
        assert seen == PAGE + 1


async def test_a_message_that_retention_has_forgotten_is_none(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        await client.send(DESK, Add(3), message_id="m1")
        await desk.handle(1)
        database.time.pass_time(60)
        await done(desk.store, Prune(kind=Prunable.MESSAGES, age=timedelta(seconds=30)))
        assert await client.message(DESK, "m1") is None


@given(st.lists(st.integers()))
async def test_a_listing_shows_every_record_once_and_in_order(records: list[int]) -> None:
    numbered = list(enumerate(records * 40))  # some that fill whole pages, and more than one
    asked: list[int] = []

    async def read(last: tuple[int, int] | None) -> Sequence[tuple[int, int]]:
        first = 0 if last is None else last[0] + 1
        asked.append(first)
        return numbered[first : first + PAGE]

    async def show(record: tuple[int, int]) -> int:
        return record[1]

    assert await all_of(Listing(read, show)) == [number for _, number in numbered]
    assert asked == list(range(0, len(numbered) + 1, PAGE))
