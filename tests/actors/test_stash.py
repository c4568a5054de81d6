"""The stash: messages put aside, returned in order, bounded (DESIGN section 3)."""

from __future__ import annotations

from typing import Any

import anyio
import attrs
import pytest

import greenroom as gr
from tests.actors.helpers import Boom, Do, Fail, Note, events_of, idle, node, raised, tree


@attrs.frozen(eq=False)
class Work(gr.Message[str]):
    name: str


@attrs.frozen
class Open(gr.Message[None]):
    count: int | None = None


class Stasher(gr.Actor):
    """Stashes work until it is opened."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.open = False

    @gr.handles
    async def work(self, message: Work) -> str:
        if not self.open:
            self.context.stash(message)
            return "nobody gets this"
        self.log.append(message.name)
        return f"done {message.name}"

    @gr.handles
    async def opens(self, message: Open) -> None:
        self.open = True
        self.context.unstash(message.count)

    @gr.handles
    async def note(self, message: Note) -> int:
        self.log.append(str(message.what))
        return 0

    @gr.handles
    async def do(self, message: Do) -> Any:
        return await message.work(self)

    @gr.handles
    async def fail(self, message: Fail) -> int:
        raise message.error


async def test_stashed_messages_come_back_in_their_order_before_what_is_queued() -> None:
    log: list[str] = []
    async with tree(gr.Child("a", Stasher, log)) as runtime:
        ref = runtime.ref("app/a")
        for name in "abc":
            ref.tell(Work(name))
        ref.tell(Open())
        ref.tell(Work("d"))
        await idle()
        assert log == ["a", "b", "c", "d"]


async def test_some_of_the_stashed_messages_can_be_returned_the_oldest_first() -> None:
    log: list[str] = []
    async with tree(gr.Child("a", Stasher, log)) as runtime:
        ref = runtime.ref("app/a")
        for name in "abcd":
            ref.tell(Work(name))
        ref.tell(Open(2))
        ref.tell(Note("-"))
        ref.tell(Open(1))
        ref.tell(Open(100))
        await idle()
        assert log == ["a", "b", "-", "c", "d"]


@pytest.mark.parametrize("count", [0, None, 5])
async def test_unstashing_an_empty_stash_does_nothing(count: int | None) -> None:
    async with tree(gr.Child("a", Stasher, [])) as runtime:
        await runtime.ref("app/a").ask(Open(count))
        assert runtime.ref("app/a").incarnation == 1


async def test_the_asker_of_a_stashed_message_goes_on_waiting_and_gets_the_reply_in_the_end() -> None:
    log: list[str] = []
    async with tree(gr.Child("a", Stasher, log)) as runtime, anyio.create_task_group() as group:
        ref = runtime.ref("app/a")
        answers: list[str] = []

        async def ask() -> None:
            answers.append(await ref.ask(Work("a"), timeout=100))

        group.start_soon(ask)
        await anyio.sleep(50)
        assert answers == []
        ref.tell(Open())
        await idle()
        assert answers == ["done a"]


async def test_the_asker_of_a_stashed_message_times_out_as_usual() -> None:
    async with tree(gr.Child("a", Stasher, [])) as runtime:
        assert isinstance(await raised(runtime.ref("app/a").ask(Work("a"), timeout=3)), gr.AskTimeout)


async def test_a_message_may_be_stashed_again() -> None:
    log: list[str] = []

    class Twice(Stasher):
        async def opens(self, message: Open) -> None:
            self.context.unstash()

        async def work(self, message: Work) -> str:
            self.log.append("again")
            self.open = len(self.log) > 3
            return await super().work(message)

    async with tree(gr.Child("a", Twice, log)) as runtime, anyio.create_task_group() as group:
        ref = runtime.ref("app/a")
        answers: list[str] = []

        async def ask() -> None:
            answers.append(await ref.ask(Work("a")))

        group.start_soon(ask)
        for _ in range(3):
            await idle()
            ref.tell(Open())
        await idle()
        assert answers == ["done a"]
        assert log == ["again"] * 4 + ["a"]


# ------------------------------------------------------------------------------------------------------------ bounds


async def test_the_stash_holds_as_many_as_the_mailbox_and_then_raises_in_the_handler() -> None:
    async with tree(gr.Child("a", Stasher, [], mailbox=gr.Mailbox(capacity=3))) as runtime:
        ref = runtime.ref("app/a")
        for name in "abc":
            await ref.send(Work(name))
            await idle()
        error = await raised(ref.ask(Work("d")))
        assert isinstance(error, gr.ActorCrashed)
        assert isinstance(error.__cause__, gr.StashFull)
        assert str(error.__cause__) == (
            "the stash of 'app/a' holds its 3 messages: unstash, or refuse with `raise gr.Rejected(...)`"
        )


async def test_a_message_that_found_the_stash_full_is_still_in_hand() -> None:
    class Answers(Stasher):
        async def work(self, message: Work) -> str:
            try:
                return await super().work(message)
            except gr.StashFull:
                return "no room"

    async with tree(gr.Child("a", Answers, [], mailbox=gr.Mailbox(capacity=1))) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(Work("a"))
        await idle()
        assert await ref.ask(Work("b")) == "no room"


async def test_only_the_message_in_hand_can_be_stashed_and_only_once() -> None:
    errors: list[BaseException] = []

    async def stash_wrongly(self: Stasher) -> str:
        for message in (Work("another"), do, do):
            try:
                self.context.stash(message)
            except gr.Misuse as error:
                errors.append(error)
        return "not sent, since it is stashed"

    do = Do(stash_wrongly)
    async with tree(gr.Child("a", Stasher, [])) as runtime:
        assert isinstance(await raised(runtime.ref("app/a").ask(do, timeout=1)), gr.AskTimeout)
        assert [str(error) for error in errors] == [
            f"'app/a' can stash only the message it has in hand, and each once; not this {name}"
            for name in ("Work", "Do")
        ]


async def test_an_equal_message_is_not_the_message_in_hand() -> None:
    async def stash_equal(self: Stasher) -> BaseException:
        try:
            self.context.stash(Open(1))
        except gr.Misuse as error:
            return error
        raise AssertionError

    async with tree(gr.Child("a", Stasher, [])) as runtime:
        assert isinstance(await runtime.ref("app/a").ask(Do(stash_equal)), gr.Misuse)


async def test_unstashing_does_not_lose_messages_though_the_mailbox_is_full() -> None:
    log: list[str] = []
    async with tree(gr.Child("a", Stasher, log, mailbox=gr.Mailbox(capacity=3))) as runtime:
        ref = runtime.ref("app/a")
        for name in "abc":
            ref.tell(Work(name))
        await idle()
        ref.tell(Open())
        ref.tell(Work("d"))
        ref.tell(Work("e"))
        await idle()
        assert log == ["a", "b", "c", "d", "e"]


# ------------------------------------------------------------------------------------------------------------- ends


async def test_p18_at_a_restart_what_was_stashed_returns_to_the_mailbox_before_what_was_queued() -> None:
    log: list[str] = []
    async with tree(gr.Child("a", Stasher, log)) as runtime, anyio.create_task_group() as group:
        ref = runtime.ref("app/a")
        answers: list[str] = []

        async def ask() -> None:
            answers.append(await ref.ask(Work("asked"), timeout=100))

        ref.tell(Work("a"))
        group.start_soon(ask)
        await idle()
        ref.tell(Fail(Boom()))
        ref.tell(Work("b"))
        await idle()
        ref.tell(Open())
        await idle()
        assert (log, answers, ref.incarnation) == (["a", "asked", "b"], ["done asked"], 2)


async def test_p18_at_a_stop_stashed_asks_fail_and_tells_become_dead_letters() -> None:
    async with tree(gr.Child("a", Stasher, [])) as runtime, anyio.create_task_group() as group:
        ref = runtime.ref("app/a")
        errors: list[BaseException] = []

        async def ask() -> None:
            errors.append(await raised(ref.ask(Work("asked"), timeout=100)))

        ref.tell(Work("told"))
        group.start_soon(ask)
        await idle()
        await runtime.ref("app").terminate_child("a")
        await idle()
        assert [type(error) for error in errors] == [gr.ActorStopped]
        assert runtime.dead_letter_counts() == {("app/a", gr.DeadLetterReason.ENDED): 1}


async def test_a_handler_that_stashes_its_message_and_then_crashes_has_had_it_in_hand() -> None:
    crashes: list[int] = []

    async def stash_and_crash(self: Stasher) -> None:
        crashes.append(self.context.incarnation)
        self.context.stash(do)
        raise Boom

    do = Do(stash_and_crash)
    async with tree(gr.Child("a", Stasher, [])) as runtime:
        events = runtime.events()
        error = await raised(runtime.ref("app/a").ask(do))
        assert isinstance(error, gr.ActorCrashed)
        await anyio.sleep(10)
        assert (crashes, len(events_of(gr.ActorEnded, events))) == ([1], 1)


async def test_a_handler_that_unstashes_its_own_message_and_then_crashes_has_had_it_in_hand() -> None:
    crashes: list[int] = []

    async def stash_and_crash(self: Stasher) -> None:
        crashes.append(self.context.incarnation)
        self.context.stash(do)
        self.context.unstash()
        raise Boom

    do = Do(stash_and_crash)
    log: list[str] = []
    async with tree(gr.Child("a", Stasher, log)) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(do)
        ref.tell(Note("next"))
        await anyio.sleep(10)
        assert (crashes, log, ref.incarnation) == ([1], ["next"], 2)


async def test_a_handler_that_stashes_its_message_and_then_refuses_it_has_refused_it() -> None:
    refused: list[int] = []

    async def stash_and_refuse(self: Stasher) -> None:
        refused.append(1)
        self.context.stash(do)
        raise gr.Rejected

    do = Do(stash_and_refuse)
    async with tree(gr.Child("a", Stasher, [])) as runtime:
        ref = runtime.ref("app/a")
        assert isinstance(await raised(ref.ask(do)), gr.Rejected)
        await ref.ask(Open())
        await idle()
        assert refused == [1]


async def test_stashing_leaves_the_capacity_of_the_mailbox_whole_over_restarts() -> None:
    async with tree(gr.Child("a", Stasher, [], mailbox=gr.Mailbox(capacity=4))) as runtime:
        ref = runtime.ref("app/a")
        for _ in range(5):
            ref.tell(Work("x"))
            await idle()
            await raised(ref.ask(Fail(Boom())))
            await idle()
            await ref.ask(Open())
        assert node(runtime, "app/a").mailbox_depth == 0
        await raised(ref.ask(Fail(Boom())))
        await idle()
        for number in range(4):
            ref.tell(Note(number))
        with pytest.raises(gr.MailboxFull):
            ref.tell(Note("too much"))
