"""From the mailbox into the handler: each delivery is counted before it begins, and what cannot be handled becomes a dead letter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from attrs import frozen

import greenroom as gr
from greenroom.persistence import AcceptMessage, MessageRecord, MessageStatus, ReadMessage, message_digest
from greenroom.runtime.durable.custody import PAGE
from tests.durable.desks import DESK, Desk, Script, Unheard, desk
from tests.durable.helpers import Add, Note, eventually, settled, until

if TYPE_CHECKING:
    from greenroom.persistence import Store
    from greenroom.runtime.stored import MessageInfo
    from tests.durable.helpers import Shared


async def message_of(store: Store, message_id: str) -> MessageRecord:
    record = await store.read(ReadMessage(address=DESK, message_id=message_id))
    assert record is not None
    return record


async def dead_letters(database: Shared) -> list[MessageInfo]:
    async with database.client() as client:
        return [each async for each in client.dead_letters()]


# ----------------------------------------------------------------------------------------------------- counting


async def test_r22_a_delivery_is_counted_before_its_handler_runs(database: Shared) -> None:
    script = Script()
    gate = script.gate("one")
    async with database.runtime(desk(script)) as runtime, database.open() as store:
        await runtime.ref(DESK).send(Note("one"), message_id="m1")
        await gate.begun.wait()
        assert (await message_of(store, "m1")).deliveries == 1
        gate.opened.set()
        await settled()
        handled = await message_of(store, "m1")
        assert (handled.status, handled.deliveries) == (MessageStatus.HANDLED, 1)


async def test_r22_only_the_message_in_hand_is_counted_when_the_actor_crashes(database: Shared) -> None:
    script = Script()
    script.crashes["two"] = 2
    async with database.runtime(desk(script)) as runtime, database.open() as store:
        for text in ("one", "two", "three"):
            await runtime.ref(DESK).send(Note(text), message_id=text)
        await settled()
        assert script.seen == ["one", "two", "two", "two", "three"]
        assert [(await message_of(store, text)).deliveries for text in ("one", "two", "three")] == [1, 3, 1]


async def test_r22_a_message_that_crashes_its_actor_each_time_becomes_a_dead_letter(database: Shared) -> None:
    script = Script()
    script.crashes["bad"] = 1000
    async with database.runtime(desk(script, mailbox=gr.PersistentMailbox(max_deliveries=3))) as runtime:
        letters = runtime.dead_letters()
        await runtime.ref(DESK).send(Note("bad"), message_id="m1")
        await runtime.ref(DESK).send(Note("good"))
        await settled()
        assert script.seen == ["bad"] * 3 + ["good"]
        (letter,) = await dead_letters(database)
        assert (letter.address, letter.message_id, letter.deliveries) == (DESK, "m1", 3)
        assert letter.body == Note("bad")
        assert letter.reason is not None
        assert "3 times" in letter.reason
        (told,) = letters.pending()
        assert (told.recipient, told.reason) == (DESK, gr.DeadLetterReason.DELIVERIES)


async def test_r22_a_message_that_kills_its_process_each_time_becomes_a_dead_letter(database: Shared) -> None:
    script = Script()
    script.gate("bad")  # it is in the handler, which never returns, that the process dies
    mailbox = gr.PersistentMailbox(max_deliveries=3)
    for _ in range(3):
        async with database.doomed("after BeginDelivery service/desk m1", desk(script, mailbox=mailbox)) as runtime:
            await runtime.ref(DESK).send(Note("bad"), message_id="m1")
            await anyio.sleep(60)
    assert script.seen == ["bad"] * 3
    async with database.runtime(desk(script, mailbox=mailbox)) as runtime:
        assert await runtime.ref(DESK).ask(Add(1)) == 1
    assert script.seen == ["bad"] * 3 + ["1"]
    (letter,) = await dead_letters(database)
    assert (letter.message_id, letter.deliveries) == ("m1", 3)


async def test_the_count_starts_anew_when_an_operator_requeues_a_dead_letter(database: Shared) -> None:
    script = Script()
    script.crashes["bad"] = 3
    async with database.runtime(desk(script, mailbox=gr.PersistentMailbox(max_deliveries=2))) as runtime:
        await runtime.ref(DESK).send(Note("bad"), message_id="m1")
        await runtime.ref(DESK).send(Note("good"))
        await settled()
        assert script.seen == ["bad", "bad", "good"]
        async with database.client() as client:
            await client.requeue(DESK, "m1")
            await until(lambda: len(script.seen) == 5)
            await settled()
            assert script.seen == ["bad", "bad", "good", "bad", "bad"]
            kept = await client.message(DESK, "m1")
            assert kept is not None
            assert (kept.status, kept.deliveries) == ("handled", 2)


async def test_a_dead_letter_that_is_dropped_is_never_delivered_and_keeps_its_id(database: Shared) -> None:
    script = Script()
    script.crashes["bad"] = 1
    async with database.runtime(desk(script, mailbox=gr.PersistentMailbox(max_deliveries=1))) as runtime:
        await runtime.ref(DESK).send(Note("bad"), message_id="m1")
        await settled()
        async with database.client() as client:
            await client.drop(DESK, "m1")
        assert await runtime.ref(DESK).send(Note("bad"), message_id="m1") == gr.Receipt("m1", "duplicate")
        await settled()
    assert script.seen == ["bad"]
    assert await dead_letters(database) == []


# ----------------------------------------------------------------------------------------- what cannot be handled


async def test_a_message_that_nobody_handles_is_a_dead_letter_that_says_so(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script)) as runtime:
        await runtime.ref(DESK).send(Unheard("?"), message_id="m1")
        assert await runtime.ref(DESK).ask(Add(1)) == 1
        (letter,) = await dead_letters(database)
        assert (letter.message_id, letter.deliveries) == ("m1", 0)
        assert letter.reason is not None
        assert "no handler" in letter.reason
        assert "Note" in letter.reason  # it says what is handled
        assert script.starts == 1


async def accept_raw(store: Store, message_id: str, type: str, body: bytes) -> None:
    await store.commit(
        AcceptMessage(address=DESK, message_id=message_id, type=type, body=body, digest=message_digest(type, body))
    )


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b'{"$":"nowhere:Gone","text":"x"}', ["nowhere:Gone", "not loaded"]),
        (b'{"$":"tests.durable.helpers:Note","text":17}', ["Note", "text"]),
        (b'{"$":"tests.durable.helpers:Note"}', ["Note", "text"]),
        (b"\\x00garbage", []),
    ],
)
async def test_k18_a_message_that_cannot_be_decoded_is_a_dead_letter_that_names_type_row_and_field(
    database: Shared, body: bytes, names: list[str]
) -> None:
    script = Script()
    async with database.runtime(desk(script)) as runtime, database.open() as store:
        await accept_raw(store, "m1", "tests.durable.helpers:Note", body)
        await runtime.ref(DESK).send(Note("after it"))
        await settled()
        letter = await message_of(store, "m1")
        assert letter.status is MessageStatus.DEAD
        assert letter.body == body
        assert letter.reason is not None
        assert DESK in letter.reason
        assert "'m1'" in letter.reason
        for name in names:
            assert name in letter.reason
    assert script.seen == ["after it"]
    assert script.starts == 1


async def test_a_page_that_ends_with_what_cannot_be_handled_is_followed_by_the_next(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script)) as runtime, database.open() as store:
        await runtime.ref("service").terminate_child("desk")
        for number in range(PAGE - 1):
            await runtime.ref(DESK).send(Note(str(number)))
        await accept_raw(store, "bad", "tests.durable.helpers:Note", b"garbage")
        await runtime.ref(DESK).send(Note("behind it"))
        await runtime.ref("service").restart_child("desk")
        await settled()
        assert script.seen[-1] == "behind it"


# -------------------------------------------------------------------------------------------- counts taken back


async def test_r20_a_stop_waits_for_the_message_in_hand_and_begins_no_other(database: Shared) -> None:
    script = Script()
    gate = script.gate("one")
    async with database.runtime(desk(script)) as runtime:
        for text in ("one", "two", "three"):
            await runtime.ref(DESK).send(Note(text), message_id=text)
        await gate.begun.wait()
        runtime.request_stop()
        gate.opened.set()
    async with database.open() as store:
        counts = [(await message_of(store, text)).deliveries for text in ("one", "two", "three")]
    assert counts == [1, 0, 0]
    assert script.seen == ["one"]
    async with database.runtime(desk(script)):
        await settled()
    assert script.seen == ["one", "two", "three"]


async def test_r20_the_count_of_a_message_is_taken_back_that_a_shutdown_breaks_off(database: Shared) -> None:
    script = Script()
    gate = script.gate("one")
    async with database.open() as store:
        for _ in range(3):
            async with database.runtime(desk(script, mailbox=gr.PersistentMailbox(max_deliveries=1))) as runtime:
                await runtime.ref(DESK).send(Note("one"), message_id="one")
                await gate.begun.wait()
                assert (await message_of(store, "one")).deliveries == 1
                gate.begun = anyio.Event()
            assert (await message_of(store, "one")).deliveries == 0
        gate.opened.set()
        async with database.runtime(desk(script)):
            await settled()
        assert (await message_of(store, "one")).status is MessageStatus.HANDLED
    assert script.seen == ["one"] * 4


async def test_p18_with_drain_a_stop_handles_first_what_was_fetched(database: Shared) -> None:
    script = Script()
    gate = script.gate("one")
    async with database.runtime(desk(script, drain=True)) as runtime:
        for text in ("one", "two", "three"):
            await runtime.ref(DESK).send(Note(text))
        await gate.begun.wait()
        runtime.request_stop()
        gate.opened.set()
    assert script.seen == ["one", "two", "three"]


async def test_p18_at_a_stop_what_waits_stays_in_the_store_and_is_no_dead_letter(database: Shared) -> None:
    script = Script()
    gate = script.gate("one")
    async with database.runtime(desk(script)) as runtime:
        letters = runtime.dead_letters()
        for text in ("one", "two"):
            await runtime.ref(DESK).send(Note(text))
        await gate.begun.wait()
        runtime.request_stop()
        gate.opened.set()
        await runtime.stop()
        assert letters.pending() == []
    async with database.runtime(desk(script)):
        await settled()
    assert script.seen == ["one", "two"]


# ---------------------------------------------------------------------------------------- concurrent handlers


@frozen
class Fetch(gr.Message[str]):
    """Takes as long as the script says."""

    text: str


@frozen
class Urgent(Fetch):
    """Handled by itself, one at a time."""


class Fetcher(gr.Actor):
    """Eight at once."""

    def __init__(self, script: Script) -> None:
        self.script = script
        script.starts += 1

    @gr.handles(concurrency=8)
    async def fetch(self, message: Fetch) -> str:
        await self.script.play(message.text)
        return message.text.upper()

    @gr.handles
    async def urgent(self, message: Urgent) -> str:
        await self.script.play(message.text)
        return f"{message.text}!"


def fetcher(script: Script, **options: Any) -> gr.Child:
    return gr.Child("desk", Fetcher, script, mailbox=gr.PersistentMailbox(**options))


async def test_concurrent_handlers_finish_their_messages_in_any_order(database: Shared) -> None:
    script = Script()
    names = [f"page {number}" for number in range(8)]
    gates = [script.gate(name) for name in names]
    async with database.runtime(fetcher(script)) as runtime, database.open() as store:
        for name in [*names, "page 8", "page 9"]:
            await runtime.ref(DESK).send(Fetch(name), message_id=name)
        for gate in gates:
            await gate.begun.wait()
        assert sorted(script.seen) == names  # eight at once, and no more
        for name, gate in [*zip(names, gates, strict=True)][::-1]:
            gate.opened.set()
            await settled()
            assert (await message_of(store, name)).status is MessageStatus.HANDLED
        for name in [*names, "page 8", "page 9"]:
            assert await runtime.ref(DESK).ask(Fetch(name), message_id=name) == name.upper()
    assert sorted(script.seen) == sorted([*names, "page 8", "page 9"])


async def test_r22_a_message_that_waits_for_a_place_at_a_concurrent_handler_is_not_counted(database: Shared) -> None:
    script = Script()
    names = [f"page {number}" for number in range(10)]
    gates = [script.gate(name) for name in names]
    async with database.runtime(fetcher(script)) as runtime, database.open() as store:
        for name in names:
            await runtime.ref(DESK).send(Fetch(name), message_id=name)
        for gate in gates[:8]:
            await gate.begun.wait()
        await settled()
        assert [(await message_of(store, name)).deliveries for name in names] == [1] * 8 + [0, 0]
        for gate in gates:
            gate.opened.set()
        await settled()
        assert [(await message_of(store, name)).deliveries for name in names] == [1] * 10


async def test_concurrent_handlers_that_are_broken_off_are_not_counted_and_come_again(database: Shared) -> None:
    script = Script()
    names = [f"page {number}" for number in range(10)]
    gates = [script.gate(name) for name in names]
    async with database.open() as store:
        async with database.runtime(fetcher(script)) as runtime:
            for name in names:
                await runtime.ref(DESK).send(Fetch(name), message_id=name)
            for gate in gates[:8]:
                await gate.begun.wait()
            gates[3].opened.set()
            await gates[8].begun.wait()
        assert [(await message_of(store, name)).deliveries for name in names] == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
        for gate in gates:
            gate.opened.set()
        async with database.runtime(fetcher(script)):
            await settled()
        assert [(await message_of(store, name)).deliveries for name in names] == [1] * 10


async def test_a_crash_of_one_concurrent_handler_counts_for_its_message_alone(database: Shared) -> None:
    script = Script()
    names = [f"page {number}" for number in range(4)]
    gates = [script.gate(name) for name in names]
    script.crashes["page 2"] = 1
    async with database.runtime(fetcher(script)) as runtime, database.open() as store:
        for name in names:
            await runtime.ref(DESK).send(Fetch(name), message_id=name)
        for gate in gates:
            await gate.begun.wait()
        for gate in (gates[2], gates[0], gates[1], gates[3]):
            gate.opened.set()
            await settled()
        assert script.starts == 2
        assert [(await message_of(store, name)).deliveries for name in names] == [1, 1, 2, 1]


async def test_the_handler_of_the_nearest_class_takes_a_message_also_beside_concurrent_ones(database: Shared) -> None:
    async with database.runtime(fetcher(Script())) as runtime:
        assert await runtime.ref(DESK).ask(Fetch("a")) == "A"
        assert await runtime.ref(DESK).ask(Urgent("a")) == "a!"


# ------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("kind", [Urgent, Fetch])
async def test_what_waits_is_in_the_store_and_not_in_memory(database: Shared, kind: type[Fetch]) -> None:
    script = Script()
    names = [f"{number:04}" for number in range(1300)]
    gates = [script.gate(name) for name in names[:8]]
    async with database.runtime(fetcher(script)) as runtime:

        async def send(name: str) -> None:
            await runtime.ref(DESK).send(kind(name), message_id=name)

        for name in names[:8]:
            await send(name)
        await gates[0].begun.wait()
        async with anyio.create_task_group() as senders:
            for name in names[8:]:
                senders.start_soon(send, name)
        node = runtime.tree().find(DESK)
        assert node is not None
        assert node.mailbox_depth <= 1100
        for gate in gates:
            gate.opened.set()
        await eventually(lambda: len(script.seen) == len(names))
    assert sorted(script.seen) == names


async def test_ticks_between_pages_do_not_keep_what_waits_from_being_fetched(database: Shared) -> None:
    class Ticking(Desk):
        async def on_start(self) -> None:
            self.context.every(0.5, Note("tick"))

        @gr.handles
        async def slow(self, message: Fetch) -> str:
            await anyio.sleep(0.1)
            await self.script.play(message.text)
            return ""

    script = Script()
    async with database.runtime(gr.Child("desk", Ticking, script, mailbox=gr.PersistentMailbox())) as runtime:
        await runtime.ref("service").terminate_child("desk")
        for number in range(150):
            await runtime.ref(DESK).send(Fetch(str(number)))
        await runtime.ref("service").restart_child("desk")
        await anyio.sleep(60)
    assert [text for text in script.seen if text != "tick"] == [str(number) for number in range(150)]


async def test_k06_what_an_error_says_decides_nothing(database: Shared) -> None:
    class Liar(gr.Actor):
        @gr.handles
        async def note(self, message: Note) -> None:
            raise RuntimeError("the execution e1 has lost its lease: LeaseLost, StoreUnavailable, cancelled, handled")

    mailbox = gr.PersistentMailbox(max_deliveries=2)
    async with database.runtime(gr.Child("desk", Liar, mailbox=mailbox)) as runtime:
        await runtime.ref(DESK).send(Note("x"), message_id="m1")
        await settled()
        assert runtime.ref(DESK).incarnation == 3
    (letter,) = await dead_letters(database)
    assert letter.deliveries == 2
