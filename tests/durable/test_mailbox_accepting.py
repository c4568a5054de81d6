"""Sending to a persistent mailbox: what is acknowledged is durable, and what becomes of everything else is told and kept."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import anyio
import pytest
from attrs import define, field, frozen

import greenroom as gr
from greenroom.persistence import ReadMessage
from greenroom.persistence.content import HARD_LIMIT, INLINE_LIMIT
from tests.durable.desks import DESK, Desk, Leave, Script, desk
from tests.durable.helpers import Add, Note, settled

if TYPE_CHECKING:
    from greenroom.runtime.stored import ObservationInfo
    from tests.durable.helpers import Shared


@frozen
class Likeness(gr.Message[None]):
    """As a note, but for its class."""

    text: str


@frozen
class Odd(gr.Message[None]):
    """It could not come back."""

    thing: anyio.Event


@frozen
class ReplyTo(gr.Message[None]):
    ref: gr.Ref


@frozen
class Listed(gr.Message[None]):
    """It holds what can be changed."""

    numbers: list[int] = field(factory=list)

    def change(self) -> None:
        self.numbers.append(1)


@define
class Counted(gr.Message[None]):
    """It can be changed."""

    number: int = 0

    def change(self) -> None:
        self.number += 1


async def observed(database: Shared) -> list[ObservationInfo]:
    """What the store has kept of what was not accepted, oldest first."""
    async with database.client() as client:
        return [each async for each in client.observations()][::-1]


async def test_a_message_is_durable_when_it_is_acknowledged_and_handled_soon(database: Shared) -> None:
    script = Script()
    gate = script.gate("first")
    async with database.runtime(desk(script)) as runtime:
        receipt = await runtime.ref(DESK).send(Note("first"), message_id="m1")
        assert receipt == gr.Receipt("m1", "accepted")
        async with database.client() as client:
            kept = await client.message(DESK, "m1")
            assert kept is not None
            assert (kept.body, kept.sender) == (Note("first"), None)
            gate.opened.set()
            assert await runtime.ref(DESK).ask(Add(1)) == 1
            kept = await client.message(DESK, "m1")
            assert kept is not None
            assert kept.status == "handled"
    assert script.seen == ["first", "1"]


async def test_messages_without_an_id_are_different_messages(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script)) as runtime:
        receipts = [await runtime.ref(DESK).send(Note("same")) for _ in range(3)]
        await settled()
    assert len({receipt.message_id for receipt in receipts if receipt is not None}) == 3
    assert script.seen == ["same"] * 3


async def test_what_an_actor_sends_is_kept_with_its_sender(database: Shared) -> None:
    class Clerk(gr.Actor):
        async def on_start(self) -> None:
            await self.context.runtime.ref(DESK).send(Note("from the clerk"), message_id="m1")

    script = Script()
    async with database.runtime(desk(script), gr.Child("clerk", Clerk)) as runtime:
        await settled()
        assert script.seen == ["from the clerk"]
        async with database.client() as client:
            kept = await client.message(DESK, "m1")
            assert kept is not None
            assert kept.sender == "service/clerk"
        assert runtime.exit is None


async def test_tell_is_refused_with_the_reason_and_the_way_out(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script)) as runtime:
        with pytest.raises(gr.TellRefused, match=r"await ref\.send") as caught:
            runtime.ref(DESK).tell(Note("in vain"))
        assert DESK in str(caught.value)
        await runtime.ref(DESK).ask(Add(1))
    assert script.seen == ["1"]


async def test_message_ids_and_delays_are_refused_by_a_mailbox_in_memory(database: Shared) -> None:
    async with database.runtime(gr.Child("desk", Desk, Script())) as runtime:
        with pytest.raises(ValueError, match="persistent mailbox"):
            await runtime.ref(DESK).send(Note("x"), message_id="m1")
        with pytest.raises(ValueError, match="persistent mailbox"):
            await runtime.ref(DESK).ask(Add(1), message_id="m1")


# -------------------------------------------------------------------------------------------------- dispositions


async def test_r25_the_same_message_again_is_a_duplicate_before_and_after_it_was_handled(database: Shared) -> None:
    script = Script()
    gate = script.gate("one")
    async with database.runtime(desk(script)) as runtime:
        ref = runtime.ref(DESK)
        await ref.send(Note("one"), message_id="m1")
        assert await ref.send(Note("one"), message_id="m1") == gr.Receipt("m1", "duplicate")
        gate.opened.set()
        await ref.ask(Add(1))
        assert await ref.send(Note("one"), message_id="m1") == gr.Receipt("m1", "duplicate")
        await ref.ask(Add(1))
    assert script.seen == ["one", "1", "2"]


async def test_r25_another_message_under_an_id_that_is_taken_is_a_conflict(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script)) as runtime:
        ref = runtime.ref(DESK)
        await ref.send(Note("one"), message_id="m1")
        assert await ref.send(Note("two"), message_id="m1") == gr.Receipt("m1", "conflict")
        assert await ref.send(Likeness("one"), message_id="m1") == gr.Receipt("m1", "conflict")
        await ref.ask(Add(1))
    assert script.seen == ["one", "1"]


async def test_c14_what_comes_twice_late_or_to_nobody_is_told_and_can_be_looked_up(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script, restart="temporary")) as runtime:
        ref = runtime.ref(DESK)
        await ref.send(Note("one"), message_id="m1")
        await ref.send(Note("one"), message_id="m1")
        await ref.send(Note("two"), message_id="m1")
        await ref.send(Leave())
        await settled()
        assert await ref.send(Note("three"), message_id="m3") == gr.Receipt("m3", "late")
        async with database.client() as client:
            assert await client.send("service/nobody", Note("four"), message_id="m4") == gr.Receipt("m4", "unmatched")
    found = {(each.kind, each.address, each.message_id): each.body for each in await observed(database)}
    assert found == {
        ("duplicate", DESK, "m1"): None,  # it is that of the first
        ("conflict", DESK, "m1"): Note("two"),
        ("late", DESK, "m3"): Note("three"),
        ("unmatched", "service/nobody", "m4"): Note("four"),
    }
    assert script.seen == ["one"]


# -------------------------------------------------------------------------------------------------------- order


async def test_messages_of_one_sender_keep_their_order(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script)) as runtime:

        async def send_all(sender: str) -> None:
            for number in range(30):
                await runtime.ref(DESK).send(Note(f"{sender} {number}"))

        async with anyio.create_task_group() as senders:
            for sender in ("a", "b", "c"):
                senders.start_soon(send_all, sender)
        await settled()
    for sender in ("a", "b", "c"):
        assert [text for text in script.seen if text.startswith(sender)] == [f"{sender} {n}" for n in range(30)]


async def test_the_order_holds_over_pages_restarts_and_runtimes(database: Shared) -> None:
    sent = [f"note {number}" for number in range(120)]
    script = Script()
    script.crashes.update({sent[20]: 2, sent[75]: 1})
    gate = script.gate(sent[40])
    async with database.runtime(desk(script)) as runtime:
        for text in sent[:90]:
            await runtime.ref(DESK).send(Note(text))
        await gate.begun.wait()
        gate.opened.set()
    handled = len(set(script.seen))
    assert 41 <= handled < 90
    async with database.runtime(desk(script)) as runtime:
        for text in sent[90:]:
            await runtime.ref(DESK).send(Note(text))
        await settled()
    assert [*dict.fromkeys(script.seen)] == sent
    assert len(script.seen) == len(sent) + 3  # each crash has repeated its own message, and no other


# ----------------------------------------------------------------------------------------------------- capacity


async def test_a_full_mailbox_takes_nothing_and_has_room_again_when_a_message_is_handled(database: Shared) -> None:
    script = Script()
    gate = script.gate("one")
    async with database.runtime(desk(script, mailbox=gr.PersistentMailbox(capacity=2))) as runtime:
        ref = runtime.ref(DESK)
        await ref.send(Note("one"))
        await gate.begun.wait()
        await ref.send(Note("two"))
        with pytest.raises(gr.MailboxFull) as caught:
            await ref.send(Note("three"), message_id="m3")
        assert (caught.value.recipient, caught.value.capacity, caught.value.message_type) == (DESK, 2, "Note")
        async with database.client() as client:
            assert await client.message(DESK, "m3") is None
        with pytest.raises(gr.MailboxFull):
            await ref.ask(Add(1))
        gate.opened.set()
        await settled()
        assert await ref.send(Note("three"), message_id="m3") == gr.Receipt("m3", "accepted")
        await settled()
    assert script.seen == ["one", "two", "three"]


async def test_a_delayed_message_takes_room_in_the_mailbox(database: Shared) -> None:
    async with database.runtime(desk(Script(), mailbox=gr.PersistentMailbox(capacity=1))) as runtime:
        await runtime.ref(DESK).send(Note("later"), deliver_at=database.time.now() + timedelta(hours=1))
        with pytest.raises(gr.MailboxFull):
            await runtime.ref(DESK).send(Note("now"))


# ------------------------------------------------------------------------------------------------------- delays


async def test_a_delayed_message_is_delivered_at_its_moment_and_not_before(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script)) as runtime:
        ref = runtime.ref(DESK)
        await ref.send(Note("later"), deliver_at=database.time.now() + timedelta(seconds=100))
        await ref.send(Note("sooner"), deliver_at=database.time.now() + timedelta(seconds=50))
        await ref.send(Note("now"))
        await anyio.sleep(49.9)
        assert script.seen == ["now"]
        await anyio.sleep(0.2)
        assert script.seen == ["now", "sooner"]
        await anyio.sleep(49.7)
        assert script.seen == ["now", "sooner"]
        await anyio.sleep(0.2)
        assert script.seen == ["now", "sooner", "later"]


async def test_a_message_delayed_into_the_past_is_delivered_at_once(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script)) as runtime:
        await runtime.ref(DESK).send(Note("late"), deliver_at=database.time.now() - timedelta(days=1))
        await settled()
        assert script.seen == ["late"]


async def test_delayed_messages_come_in_the_next_runtime_each_at_its_moment(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script)) as runtime:
        for seconds in (10, 20, 30):
            deliver_at = database.time.now() + timedelta(seconds=seconds)
            await runtime.ref(DESK).send(Note(f"after {seconds}"), deliver_at=deliver_at)
    assert script.seen == []
    await anyio.sleep(15)
    async with database.runtime(desk(script)):
        await settled()
        assert script.seen == ["after 10"]
        await anyio.sleep(4.9)
        assert script.seen == ["after 10"]
        await anyio.sleep(0.2)
        assert script.seen == ["after 10", "after 20"]
        await anyio.sleep(10)
        assert script.seen == ["after 10", "after 20", "after 30"]


async def test_a_message_is_delayed_until_an_aware_instant(database: Shared) -> None:
    async with database.runtime(desk(Script())) as runtime:
        with pytest.raises(ValueError, match="time zone"):
            await runtime.ref(DESK).send(Note("x"), deliver_at=database.time.now().replace(tzinfo=None))


# -------------------------------------------------------------------------------------------------- large, and odd


async def test_a_large_message_goes_by_the_content_store(database: Shared) -> None:
    script = Script()
    text = "x" * (INLINE_LIMIT + 1)
    async with database.runtime(desk(script)) as runtime:
        await runtime.ref(DESK).send(Note(text))
        await settled()
    assert script.seen == [text]


async def test_a_message_that_is_too_large_is_refused_by_its_name(database: Shared) -> None:
    async with database.runtime(desk(Script())) as runtime:
        with pytest.raises(gr.PayloadTooLarge, match="the message Note has"):
            await runtime.ref(DESK).send(Note("x" * HARD_LIMIT))


async def test_what_could_not_come_back_is_refused_before_it_is_stored(database: Shared) -> None:
    async with database.runtime(desk(Script())) as runtime:
        with pytest.raises(gr.NotEncodable, match="thing"):
            await runtime.ref(DESK).send(Odd(anyio.Event()), message_id="m1")
        with pytest.raises(gr.NotAMessage):
            await runtime.ref(DESK).send("hello")  # type: ignore[arg-type]
    async with database.open() as store:
        assert await store.read(ReadMessage(address=DESK, message_id="m1")) is None


async def test_an_actor_whose_messages_cannot_be_stored_does_not_start(database: Shared) -> None:
    class OddDesk(gr.Actor):
        @gr.handles
        async def odd(self, message: Odd) -> None:
            """Nothing."""

    runtime = database.runtime(gr.Child("desk", OddDesk, mailbox=gr.PersistentMailbox()))
    with pytest.raises(gr.StartFailed) as caught:
        async with runtime:
            pass
    assert "Odd" in str(caught.value)
    assert "thing" in str(caught.value)


async def test_refs_in_messages_come_back_as_refs(database: Shared) -> None:
    class Postman(gr.Actor):
        @gr.handles
        async def reply_to(self, message: ReplyTo) -> None:
            await message.ref.send(Note("delivered"))

    script = Script()
    postman = gr.Child("postman", Postman, mailbox=gr.PersistentMailbox())
    async with database.runtime(desk(script), postman) as runtime:
        await runtime.ref("service/postman").send(ReplyTo(runtime.ref(DESK)))
        await settled()
        await settled()
    assert script.seen == ["delivered"]


# --------------------------------------------------------------------------------------------------------- specs


@pytest.mark.parametrize(
    "options", [{"capacity": 0}, {"capacity": 1.5}, {"max_deliveries": 0}, {"max_deliveries": True}]
)
def test_a_persistent_mailbox_has_whole_numbers_above_zero(options: dict[str, object]) -> None:
    with pytest.raises(gr.BadSpec, match=next(iter(options))):
        gr.PersistentMailbox(**options)  # type: ignore[arg-type]


def test_a_persistent_mailbox_needs_a_store() -> None:
    with pytest.raises(gr.BadSpec, match=DESK):
        gr.Runtime(gr.Supervisor("service", desk(Script())))


def test_c24_a_store_in_memory_holds_persistent_mailboxes_only_if_that_is_said() -> None:
    tree = gr.Supervisor("service", desk(Script()))
    with pytest.raises(gr.BadSpec, match="volatile=True"):
        gr.Runtime(tree, store="sqlite://:memory:")
    gr.Runtime(tree, store="sqlite://:memory:", volatile=True)
    gr.Runtime(gr.Supervisor("service", gr.Child("desk", Desk, Script())), store="sqlite://:memory:")


async def test_c24_a_volatile_store_does_what_is_asked_of_it_and_shows_what_it_is() -> None:
    script = Script()
    tree = gr.Supervisor("service", desk(script))
    async with gr.Runtime(tree, store="sqlite://:memory:", volatile=True) as runtime:
        assert runtime.durability is not None
        assert runtime.durability.value == "volatile"
        await runtime.ref(DESK).send(Note("gone tomorrow"))
        await settled()
    assert script.seen == ["gone tomorrow"]


@pytest.mark.parametrize("kind", [Listed, Counted], ids=["by its list", "by itself"])
async def test_what_a_sender_changes_after_it_has_sent_a_message_does_not_reach_the_handler(
    database: Shared, kind: type[Listed | Counted]
) -> None:
    handled: list[object] = []

    class Reader(gr.Actor):
        @gr.handles
        async def listed(self, message: Listed) -> None:
            handled.append(message)

        @gr.handles
        async def counted(self, message: Counted) -> None:
            handled.append(message)

        @gr.handles
        async def add(self, message: Add) -> int:
            return message.number

    message = kind()
    async with database.runtime(gr.Child("reader", Reader, mailbox=gr.PersistentMailbox())) as runtime:
        await runtime.ref("service/reader").ask(Add(1))  # from now on what is sent here is not read from the store
        await settled()
        await runtime.ref("service/reader").send(message)
        message.change()
        await runtime.ref("service/reader").ask(Add(1))
    assert handled == [kind()]
