"""`tell`, `send`, dead letters, and what a bounded mailbox does with a message too many (P18, P19)."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

import greenroom as gr
from greenroom.testing import VirtualClock
from tests.actors.helpers import Do, Fail, Hold, Note, Puppet, Unknown, idle, node, raised, tree

FULL = "the mailbox of 'app/a' is full"


async def test_told_messages_are_handled_in_their_order() -> None:
    log: list[object] = []
    async with tree(gr.Child("a", Puppet, log)) as runtime:
        for number in range(1000):
            runtime.ref("app/a").tell(Note(number))
        await idle()
        assert log == list(range(1000))


async def test_messages_between_one_pair_keep_their_order_whichever_way_they_are_sent() -> None:
    log: list[object] = []
    async with tree(gr.Child("a", Puppet, log, mailbox=gr.Mailbox(capacity=3))) as runtime:
        ref = runtime.ref("app/a")
        for number in range(0, 90, 3):
            ref.tell(Note(number))
            await ref.send(Note(number + 1))
            await ref.ask(Note(number + 2))
        assert log == list(range(90))


async def test_a_tell_of_no_message_is_refused() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        for call in (runtime.ref("app/a").tell, runtime.ref("app").tell):
            with pytest.raises(gr.NotAMessage, match="a dict is not a message"):
                call({"secret": 1})  # type: ignore[arg-type]  # under test
        with pytest.raises(gr.NotAMessage, match="a dict is not a message"):
            await runtime.ref("app/a").send({"secret": 1})  # type: ignore[arg-type]  # under test


# ----------------------------------------------------------------------------------------------------- dead letters


async def test_p19_a_tell_to_an_ended_actor_is_a_dead_letter_with_recipient_and_reason() -> None:
    async with tree(gr.Child("a", Puppet, restart="transient")) as runtime:
        runtime.ref("app/a").tell(Fail(gr.Stop()))
        await idle()
        letters = runtime.dead_letters()
        runtime.ref("app/a").tell(Note("x"))
        assert letters.pending() == [gr.DeadLetter(Note("x"), "app/a", None, gr.DeadLetterReason.ENDED)]


async def test_p22_a_dead_letter_names_the_actor_that_sent_it() -> None:
    async def send_on(self: Puppet) -> None:
        self.context.runtime.ref("app/gone").tell(Note("by tell"))
        await self.context.runtime.ref("app/gone").send(Note("by send"))

    async with tree(gr.Child("a", Puppet), gr.Child("gone", Puppet, restart="transient")) as runtime:
        runtime.ref("app/gone").tell(Fail(gr.Stop()))
        await idle()
        letters = runtime.dead_letters()
        await runtime.ref("app/a").ask(Do(send_on))
        assert [letter.sender for letter in letters.pending()] == ["app/a", "app/a"]


async def test_p22_what_an_actors_nursery_sends_is_sent_by_the_actor() -> None:
    async def send_on(self: Puppet) -> None:
        async def tell() -> None:
            self.context.runtime.ref("app").tell(Note("x"))

        self.context.nursery.start_soon(tell)

    async with tree(gr.Child("a", Puppet)) as runtime:
        letters = runtime.dead_letters()
        await runtime.ref("app/a").ask(Do(send_on))
        await idle()
        assert [(letter.sender, letter.recipient) for letter in letters.pending()] == [("app/a", "app")]


async def test_a_told_message_without_handler_is_a_dead_letter() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        letters = runtime.dead_letters()
        runtime.ref("app/a").tell(Unknown())
        await idle()
        assert [letter.reason for letter in letters.pending()] == [gr.DeadLetterReason.UNHANDLED]
        assert runtime.ref("app/a").incarnation == 1


async def test_dead_letters_are_counted_by_recipient_and_reason_though_nobody_listens() -> None:
    async with tree(gr.Child("a", Puppet, mailbox=gr.Mailbox(capacity=1, overflow="drop_new"))) as runtime:
        for _ in range(3):
            runtime.ref("app/a").tell(Unknown())
        runtime.ref("app").tell(Unknown())
        await idle()
        assert runtime.dead_letter_counts() == {
            ("app/a", gr.DeadLetterReason.DROPPED): 2,
            ("app/a", gr.DeadLetterReason.UNHANDLED): 1,
            ("app", gr.DeadLetterReason.UNHANDLED): 1,
        }


async def test_the_stream_of_dead_letters_ends_with_the_runtime_after_what_it_holds() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        letters = runtime.dead_letters()
        runtime.ref("app/a").tell(Unknown("last"))
        await idle()
    assert [letter.message async for letter in letters] == [Unknown("last")]


async def test_a_reader_of_dead_letters_that_lags_misses_the_oldest_and_can_tell() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        letters = runtime.dead_letters(buffer=2)
        for number in range(5):
            runtime.ref("app/a").tell(Unknown(str(number)))
        await idle()
        assert [letter.message for letter in letters.pending()] == [Unknown("3"), Unknown("4")]
        assert letters.missed == 3


async def test_p29_the_log_of_dead_letters_shows_types_and_not_contents(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="greenroom")
    async with tree(gr.Child("a", Puppet)) as runtime:
        runtime.ref("app/a").tell(Unknown("the secret"))
        await idle()
    assert "dead letter: Unknown to app/a from outside (unhandled)" in caplog.text
    assert "the secret" not in caplog.text


# ------------------------------------------------------------------------------------------------- a full mailbox


class Full:
    """An actor `app/a` with a message in hand and its mailbox full of notes 0, 1, ….

    `released` lets it go on; `log` is what it has handled.
    """

    def __init__(self, capacity: int, overflow: Any = "reject") -> None:
        self.log: list[object] = []
        self.hold = Hold()
        self.released = self.hold.until
        self.capacity = capacity
        mailbox = gr.Mailbox(capacity=capacity, overflow=overflow)
        self._manager = tree(gr.Child("a", Puppet, self.log, mailbox=mailbox), gr.Child("b", Puppet))

    async def __aenter__(self) -> gr.Runtime:
        self.runtime = await self._manager.__aenter__()
        self.ref = self.runtime.ref("app/a")
        self.ref.tell(self.hold)
        await self.hold.begun.wait()
        for number in range(self.capacity):
            self.ref.tell(Note(number))
        return self.runtime

    async def __aexit__(self, *error: Any) -> None:
        self.released.set()
        await self._manager.__aexit__(*error)


async def test_p19_a_tell_to_a_full_mailbox_raises_and_is_not_taken() -> None:
    full = Full(2)
    async with full as runtime:
        with pytest.raises(gr.MailboxFull) as caught:
            full.ref.tell(Note("too much"))
        assert str(caught.value) == (
            "the mailbox of 'app/a' is full (capacity 2): a Note was not taken. Wait for room with `await ref.send(...)`, "
            "or give the child another `mailbox=Mailbox(capacity=..., overflow=...)`"
        )
        full.released.set()
        await idle()
        assert full.log == [0, 1]
        assert runtime.dead_letter_counts() == {}


async def test_p19_a_send_to_a_full_mailbox_waits_for_room() -> None:
    full = Full(1)
    async with full, anyio.create_task_group() as group:
        group.start_soon(full.ref.send, Note("sent"))
        await anyio.sleep(60)
        assert node(full.runtime, "app/a").mailbox_depth == 1
        full.released.set()
        await idle()
        assert full.log == [0, "sent"]


async def test_p19_waiting_senders_get_room_first_come_first_served() -> None:
    full = Full(2)
    async with full, anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(full.ref.send if number % 2 else full.ref.ask, Note(f"waiting {number}"))
            await idle()
        full.released.set()
        await idle()
        assert full.log == [0, 1, *(f"waiting {number}" for number in range(20))]


async def test_p19_a_tell_does_not_overtake_a_waiting_sender() -> None:
    full = Full(1)
    async with full, anyio.create_task_group() as group:
        group.start_soon(full.ref.send, Note("waiting"))
        await idle()
        full.released.set()
        refused = 0
        while full.log[-1:] != ["waiting"]:
            try:
                full.ref.tell(Note("told"))
            except gr.MailboxFull:
                refused += 1
            await anyio.lowlevel.checkpoint()
        assert refused
        await idle()
        assert full.log.index("waiting") < full.log.index("told") if "told" in full.log else True


async def test_p19_a_cancelled_send_was_not_taken_and_gives_its_place_away() -> None:
    full = Full(1)
    async with full, anyio.create_task_group() as group:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as inner:
                inner.start_soon(full.ref.send, Note("cancelled"))
                await idle()
                group.start_soon(full.ref.send, Note("behind it"))
                await idle()
                scope.cancel()
        full.released.set()
        await idle()
        assert full.log == [0, "behind it"]


async def test_p19_a_send_cancelled_in_the_moment_it_gets_room_is_either_taken_or_cancelled() -> None:
    full = Full(1)
    async with full:
        outcome = ""
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def send() -> None:
                    nonlocal outcome
                    outcome = "cancelled"
                    await full.ref.send(Note("sent"))
                    outcome = "taken"

                group.start_soon(send)
                await idle()
                full.ref._cell.mailbox.queue.clear()
                full.ref._cell.mailbox.admit_waiting()
                scope.cancel()
        full.released.set()
        await idle()
        assert full.log == (["sent"] if outcome == "taken" else [])


async def test_p19_a_waiting_send_learns_that_its_recipient_has_ended() -> None:
    full = Full(1)
    async with full as runtime, anyio.create_task_group() as group:
        errors: list[BaseException] = []

        async def send() -> None:
            errors.append(await raised(full.ref.send(Note("waiting"))))

        group.start_soon(send)
        await idle()
        group.start_soon(runtime.ref("app").terminate_child, "a")
        await idle()
        full.released.set()
        await idle()
        assert str(errors[0]) == "'app/a' did not handle a Note: it was terminated by a call"
        assert isinstance(errors[0], gr.ActorStopped)


async def test_p19_a_waiting_sender_outlives_a_restart_of_its_recipient() -> None:
    full = Full(1)
    async with full, anyio.create_task_group() as group:
        full.ref._cell.mailbox.queue.clear()
        full.ref.tell(Fail(RuntimeError("crash")))
        group.start_soon(full.ref.send, Note("waiting"))
        await idle()
        full.released.set()
        await idle()
        assert (full.log, full.ref.incarnation) == (["waiting"], 2)


async def test_p19_an_ask_waits_for_room_within_its_timeout(clock: VirtualClock) -> None:
    full = Full(1)
    async with full:
        begun = clock.now()
        with pytest.raises(gr.AskTimeout, match="'app/a' did not answer a Note within 3 s"):
            await full.ref.ask(Note("asked"), timeout=3)
        assert clock.now() - begun == 3.0
        full.released.set()
        await idle()
        assert full.log == [0]


async def test_p19_the_wait_for_room_and_the_wait_for_the_reply_share_one_timeout(clock: VirtualClock) -> None:
    async def slow(_: Puppet) -> None:
        await anyio.sleep(100)

    full = Full(1)
    async with full, anyio.create_task_group() as group:
        begun = clock.now()

        async def release() -> None:
            await anyio.sleep(2)
            full.released.set()

        group.start_soon(release)
        with pytest.raises(gr.AskTimeout, match="'app/a' did not answer a Do within 3 s") as caught:
            await full.ref.ask(Do(slow), timeout=3)
        assert clock.now() - begun == 3.0
        assert caught.value.timeout == 3


async def test_p19_an_ask_without_timeout_waits_for_room_for_as_long_as_it_takes() -> None:
    full = Full(1)
    async with full, anyio.create_task_group() as group:
        answers: list[int] = []

        async def ask() -> None:
            answers.append(await full.ref.ask(Note("asked"), timeout=None))

        group.start_soon(ask)
        await anyio.sleep(80_000)
        full.released.set()
        await idle()
        assert answers == [2]


async def test_p19_an_ask_that_got_room_and_then_its_reply_returns_it() -> None:
    full = Full(1)
    async with full, anyio.create_task_group() as group:

        async def release() -> None:
            await anyio.sleep(2)
            full.released.set()

        group.start_soon(release)
        assert await full.ref.ask(Note("asked"), timeout=3) == 2


async def test_p19_drop_new_drops_what_comes_and_keeps_what_waits() -> None:
    full = Full(2, "drop_new")
    async with full as runtime:
        letters = runtime.dead_letters()
        full.ref.tell(Note("told"))
        await full.ref.send(Note("sent"))
        assert [(letter.message, letter.reason) for letter in letters.pending()] == [
            (Note("told"), gr.DeadLetterReason.DROPPED),
            (Note("sent"), gr.DeadLetterReason.DROPPED),
        ]
        assert node(runtime, "app/a").dropped == 2
        full.released.set()
        await idle()
        assert full.log == [0, 1]


async def test_p19_drop_oldest_makes_room_for_what_comes() -> None:
    full = Full(2, "drop_oldest")
    async with full as runtime:
        letters = runtime.dead_letters()
        full.ref.tell(Note("told"))
        await full.ref.send(Note("sent"))
        assert [letter.message for letter in letters.pending()] == [Note(0), Note(1)]
        assert node(runtime, "app/a").dropped == 2
        full.released.set()
        await idle()
        assert full.log == ["told", "sent"]


async def test_p19_a_dropped_ask_fails_at_once_with_mailbox_full(clock: VirtualClock) -> None:
    full = Full(1, "drop_new")
    async with full:
        begun = clock.now()
        for timeout in (5.0, None):
            with pytest.raises(gr.MailboxFull, match=FULL):
                await full.ref.ask(Note("asked"), timeout=timeout)
        assert clock.now() == begun


async def test_p19_an_ask_that_waits_is_told_when_a_newer_message_drops_it() -> None:
    full = Full(1, "drop_oldest")
    async with full, anyio.create_task_group() as group:
        errors: list[BaseException] = []

        async def ask() -> None:
            errors.append(await raised(full.ref.ask(Note("asked"))))

        group.start_soon(ask)
        await idle()
        full.ref.tell(Note("newer"))
        await idle()
        assert isinstance(errors[0], gr.MailboxFull)
        full.released.set()
        await idle()
        assert full.log == ["newer"]


async def test_p18_ticks_and_terminated_never_count_against_the_capacity_nor_are_dropped() -> None:
    for overflow in ("reject", "drop_new", "drop_oldest"):
        full = Full(1, overflow)
        async with full:
            actor_context = full.ref._cell.life.context  # type: ignore[union-attr]
            actor_context.after(1, Note("tick"))
            actor_context.watch(full.runtime.ref("app/b"))
            await full.runtime.ref("app").terminate_child("b")
            await anyio.sleep(2)
            assert node(full.runtime, "app/a").mailbox_depth == 3
            full.released.set()
            await idle()
            assert [type(entry) for entry in full.log] == [int, gr.Terminated, str]


async def test_p18_ticks_in_the_mailbox_take_no_room_from_senders() -> None:
    full = Full(2)
    async with full:
        life = full.ref._cell.life
        for number in range(50):
            life.context.after(1, Note(f"tick {number}"))  # type: ignore[union-attr]
        await anyio.sleep(2)
        with pytest.raises(gr.MailboxFull):
            full.ref.tell(Note("too much"))
        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(full.ref.send, Note(f"sent {number}"))
            await idle()
            full.released.set()
            high_water = 0
            while len(full.log) < 57:
                queue = full.ref._cell.mailbox.queue
                high_water = max(high_water, sum(isinstance(item[0], Note) for item in queue))
                await anyio.lowlevel.checkpoint()
        assert high_water <= 2


async def test_a_mailbox_without_a_bound_takes_everything() -> None:
    log: list[object] = []
    async with tree(gr.Child("a", Puppet, log, mailbox=gr.Mailbox(capacity=None))) as runtime:
        for number in range(20_000):
            runtime.ref("app/a").tell(Note(number))
        assert node(runtime, "app/a").mailbox_depth == 20_000
        await idle()
        assert len(log) == 20_000


async def test_the_default_mailbox_holds_ten_thousand() -> None:
    hold = Hold()
    async with tree(gr.Child("a", Puppet)) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(hold)
        await hold.begun.wait()
        for number in range(10_000):
            ref.tell(Note(number))
        with pytest.raises(gr.MailboxFull, match="capacity 10000"):
            ref.tell(Note("too much"))
        hold.until.set()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"capacity": 0}, "above 0, or None for unbounded"),
        ({"capacity": -1}, "above 0"),
        ({"capacity": True}, "above 0"),
        ({"capacity": 1.5}, "above 0"),
        ({"overflow": "drop"}, "choose 'reject', 'drop_new' or 'drop_oldest'"),
    ],
)
def test_a_mailbox_that_cannot_be_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(gr.BadSpec, match=text):
        gr.Mailbox(**options)
