"""A persistent mailbox through the lives of its child: restarts, stops, ends for good, and calls to its supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

import greenroom as gr
from greenroom.persistence import ReadAddress
from tests.durable.desks import DESK, Desk, Leave, Script, desk
from tests.durable.helpers import Add, Boom, Note, settled

if TYPE_CHECKING:
    from greenroom.persistence import AddressRecord
    from tests.durable.helpers import Shared


async def address_of(database: Shared) -> AddressRecord:
    async with database.open() as store:
        record = await store.read(ReadAddress(address=DESK))
        assert record is not None
        return record


async def test_an_address_is_owned_while_its_child_runs_and_by_nobody_afterwards(database: Shared) -> None:
    async with database.runtime(desk(Script())):
        record = await address_of(database)
        assert record.owner is not None
        assert record.generation == 1
    record = await address_of(database)
    assert (record.owner, record.closed_at) == (None, None)


async def test_k06_each_incarnation_owns_the_address_under_a_generation_of_its_own(database: Shared) -> None:
    script = Script()
    script.crashes["bad"] = 2
    async with database.runtime(desk(script)) as runtime:
        await runtime.ref(DESK).send(Note("bad"))
        await settled()
        assert script.starts == 3
        assert (await address_of(database)).generation == 3


async def test_p18_at_a_restart_what_waits_stays_and_keeps_its_order(database: Shared) -> None:
    script = Script()
    gate = script.gate("one")
    script.crashes["one"] = 1
    async with database.runtime(desk(script)) as runtime:
        for text in ("one", "two", "three"):
            await runtime.ref(DESK).send(Note(text))
        await gate.begun.wait()
        gate.opened.set()
        await settled()
    assert script.seen == ["one", "one", "two", "three"]


async def test_messages_can_be_sent_while_the_child_waits_for_its_restart(database: Shared) -> None:
    script = Script()
    script.crashes["one"] = 1
    async with database.runtime(desk(script, backoff=gr.Backoff(10.0, jitter=0.0))) as runtime:
        await runtime.ref(DESK).send(Note("one"))
        await settled()
        assert await runtime.ref(DESK).send(Note("two"), message_id="m2") == gr.Receipt("m2", "accepted")
        with pytest.raises(gr.ActorDown):
            await runtime.ref(DESK).ask(Add(1), when_down="fail")
        await anyio.sleep(9)
        assert script.seen == ["one"]
        await anyio.sleep(2)
    assert script.seen == ["one", "one", "two"]


async def test_ticks_and_watches_come_through_a_persistent_mailbox(database: Shared) -> None:
    class Watcher(gr.Actor):
        def __init__(self, script: Script) -> None:
            self.script = script

        async def on_start(self) -> None:
            self.context.after(5.0, Note("tick"))
            self.context.watch(self.context.runtime.ref("service/other"))

        @gr.handles
        async def note(self, message: Note) -> None:
            self.script.seen.append(message.text)

        @gr.handles
        async def terminated(self, message: gr.Terminated) -> None:
            self.script.seen.append(message.ref.path)

    script = Script()
    other = gr.Child("other", Desk, Script(), restart="temporary")
    watcher = gr.Child("desk", Watcher, script, mailbox=gr.PersistentMailbox())
    async with database.runtime(other, watcher) as runtime:
        runtime.ref("service/other").tell(Leave())
        await settled()
        assert script.seen == ["service/other"]
        await runtime.ref(DESK).send(Note("sent"))
        await anyio.sleep(6)
        assert script.seen == ["service/other", "sent", "tick"]


async def test_a_handler_may_take_all_messages_of_a_base_class(database: Shared) -> None:
    class Everything(gr.Actor):
        @gr.handles
        async def anything(self, message: gr.Message[Any]) -> str:
            return type(message).__name__

    async with database.runtime(gr.Child("desk", Everything, mailbox=gr.PersistentMailbox())) as runtime:
        replies: list[Any] = [await runtime.ref(DESK).ask(message) for message in (Add(1), Note("x"))]
    assert replies == ["Add", "Note"]


async def test_a_stash_is_refused_with_the_reason(database: Shared) -> None:
    class Stasher(gr.Actor):
        @gr.handles
        async def add(self, message: Add) -> int:
            try:
                self.context.stash(message)
            except gr.Misuse as error:
                raise gr.Rejected(str(error)) from error
            return 0

    async with database.runtime(gr.Child("desk", Stasher, mailbox=gr.PersistentMailbox())) as runtime:
        with pytest.raises(gr.Rejected, match="deliver_at"):
            await runtime.ref(DESK).ask(Add(1))


# ----------------------------------------------------------------------------------------------- ends for good


async def test_c14_what_comes_after_a_normal_end_is_late_and_what_waited_stays(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script, restart="transient")) as runtime:
        await runtime.ref(DESK).send(Leave())
        await runtime.ref(DESK).send(Note("too late to be handled"), message_id="m1")
        await settled()
        assert await runtime.ref(DESK).send(Note("after it"), message_id="m2") == gr.Receipt("m2", "late")
        with pytest.raises(gr.NotAccepted) as caught:
            await runtime.ref(DESK).ask(Add(1), message_id="q1")
        assert caught.value.disposition == "late"
    record = await address_of(database)
    assert record.closed_at is not None
    assert record.ready == 1
    assert script.ends == [gr.Exit("normal")]


async def test_an_address_is_open_again_when_its_child_is_started_again(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script, restart="transient")) as runtime:
        await runtime.ref(DESK).send(Leave())
        await runtime.ref(DESK).send(Note("waited"))
        await settled()
        await runtime.ref("service").restart_child("desk")
        assert await runtime.ref(DESK).ask(Add(1)) == 1
    assert script.seen == ["waited", "1"]
    assert (await address_of(database)).closed_at is None


async def test_a_terminated_child_gives_its_address_back_and_mail_still_comes(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script)) as runtime:
        await runtime.ref("service").terminate_child("desk")
        await settled()
        record = await address_of(database)
        assert (record.owner, record.closed_at) == (None, None)
        assert await runtime.ref(DESK).send(Note("kept"), message_id="m1") == gr.Receipt("m1", "accepted")
        await anyio.sleep(10)
        assert script.seen == []
        await runtime.ref("service").restart_child("desk")
        await settled()
        assert script.seen == ["kept"]


async def test_a_child_that_gave_up_leaves_its_mail_to_the_next_runtime(database: Shared) -> None:
    script = Script()
    script.crashes["bad"] = 2
    with pytest.raises(gr.TreeFailed):
        async with database.runtime(desk(script), intensity=1) as runtime:
            await runtime.ref(DESK).send(Note("bad"))
            await runtime.ref(DESK).send(Note("good"))
            await runtime.wait()
    assert script.seen == ["bad", "bad"]
    record = await address_of(database)
    assert (record.owner, record.closed_at, record.ready) == (None, None, 2)
    async with database.runtime(desk(script)):
        await settled()
    assert script.seen == ["bad", "bad", "bad", "good"]


async def test_a_child_that_cannot_start_gives_its_address_back(database: Shared) -> None:
    class Broken(gr.Actor):
        async def on_start(self) -> None:
            raise Boom("it cannot start")

    with pytest.raises(gr.StartFailed, match="cannot start"):
        async with database.runtime(gr.Child("desk", Broken, mailbox=gr.PersistentMailbox())):
            """It does not come here."""
    assert (await address_of(database)).owner is None


async def test_a_child_may_ignore_its_start(database: Shared) -> None:
    class Absent(gr.Actor):
        async def on_start(self) -> None:
            raise gr.Ignore

    async with database.runtime(gr.Child("desk", Absent, mailbox=gr.PersistentMailbox())):
        await settled()
        assert (await address_of(database)).owner is None


# --------------------------------------------------------------------------------------------- added at run time


async def test_children_with_persistent_mailboxes_can_be_added_and_deleted(database: Shared) -> None:
    script = Script()
    async with database.runtime() as runtime:
        ref = await runtime.ref("service").start_child(desk(script))
        assert await ref.ask(Add(1)) == 1
        await runtime.ref("service").terminate_child("desk")
        await runtime.ref("service").delete_child("desk")
        await settled()
        again = await runtime.ref("service").start_child(desk(script))
        assert await again.ask(Add(1)) == 1
    assert script.starts == 2


async def test_a_child_that_has_no_store_to_keep_its_messages_in_is_refused_by_its_supervisor() -> None:
    async with gr.Runtime(gr.Supervisor("service")) as runtime:
        with pytest.raises(gr.BadSpec, match=DESK):
            await runtime.ref("service").start_child(desk(Script()))


def test_children_that_are_named_by_number_cannot_keep_their_mail_in_a_store() -> None:
    with pytest.raises(gr.BadSpec, match="lasting name"):
        gr.DynamicSupervisor("desks", desk(Script()))


async def test_partitions_have_addresses_of_their_own(database: Shared) -> None:
    script = Script()
    child = gr.Child("desk", Desk, script, mailbox=gr.PersistentMailbox())
    async with database.runtime(gr.PartitionSupervisor("desks", child, partitions=2)) as runtime:
        partitions = [runtime.ref("service/desks").partition(number) for number in range(2)]
        assert [await ref.ask(Add(number + 1)) for number, ref in enumerate(partitions)] == [1, 2]
    async with database.open() as store:
        for ref in partitions:
            assert await store.read(ReadAddress(address=ref.path)) is not None
