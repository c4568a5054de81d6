"""P19: what a bounded mailbox does with a message too many, for each way of sending and each policy."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import greenroom as gr
from greenroom.testing import VirtualClock
from tests.actors.helpers import Do, Fail, Hold, Note, Puppet, idle, node, raised, tree

FULL = "the mailbox of 'app/a' is full"


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


async def test_p19_asks_whose_recipient_is_filled_by_others_meanwhile_keep_their_timeout(clock: VirtualClock) -> None:
    hold = Hold()
    async with tree(gr.Child("a", Puppet, mailbox=gr.Mailbox(capacity=70))) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(hold)
        await hold.begun.wait()
        outcomes: list[BaseException] = []

        async def ask(number: int) -> None:
            outcomes.append(await raised(ref.ask(Note(number), timeout=3)))

        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(ask, number)
        assert [type(outcome) for outcome in outcomes] == [gr.AskTimeout] * 200
        assert clock.now() == 3.0
        hold.until.set()


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
