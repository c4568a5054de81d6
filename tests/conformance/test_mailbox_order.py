"""The order of messages, of what was put aside, and of the news of a death. Behaviours 105, 107 and 108."""

from __future__ import annotations

import anyio
import attrs

import greenroom as gr
from tests.conformance.probes import Boom, Crash, Hold, Log, crash, settle
from tests.conformance.witnesses import Say, Scribe, Watch, released

# ---------------------------------------------------------------------------------------------------------------- stash


@attrs.frozen
class Open(gr.Message[None]):
    """From now on words are noted."""

    number: int | None = None


class Porter(Scribe):
    """Puts words aside until it is opened."""

    def __init__(self, words: list[str]) -> None:
        super().__init__(words)
        self.is_open = False

    @gr.handles
    async def say(self, message: Say) -> int:
        if not self.is_open:
            self.context.stash(message)
            return 0
        return await super().say(message)

    @gr.handles
    async def open(self, message: Open) -> None:
        self.is_open = True
        self.context.unstash(message.number)


async def test_otp_105_what_was_put_aside_comes_in_its_order_and_before_younger_messages() -> None:
    words = list[str]()
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("porter", Porter, words))) as runtime:
        porter = runtime.ref("sup/porter")
        for message in (Say("x1"), Say("x2"), Say("x3"), Open(), Say("x4")):
            porter.tell(message)
        await settle()
    assert words == ["x1", "x2", "x3", "x4"]


async def test_otp_105_who_asked_with_a_message_that_was_put_aside_gets_its_answer_in_the_end() -> None:
    words, answers = list[str](), dict[str, int]()
    tree = gr.Supervisor("sup", gr.Child("porter", Porter, words))
    async with gr.Runtime(tree) as runtime, anyio.create_task_group() as group:
        porter = runtime.ref("sup/porter")

        async def ask(word: str) -> None:
            answers[word] = await porter.ask(Say(word), timeout=None)

        group.start_soon(ask, "x1")
        await settle()
        group.start_soon(ask, "x2")
        await anyio.sleep(60.0)
        assert answers == {}
        await porter.ask(Open())
        await settle()
        assert answers == {"x1": 1, "x2": 2}


async def test_otp_105_a_few_of_the_messages_that_were_put_aside_can_be_taken_back() -> None:
    words = list[str]()
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("porter", Porter, words))) as runtime:
        porter = runtime.ref("sup/porter")
        for message in (Say("x1"), Say("x2"), Say("x3"), Open(2), Say("x4")):
            porter.tell(message)
        await settle()
        assert words == ["x1", "x2", "x4"]
        porter.tell(Open())
        await settle()
        assert words == ["x1", "x2", "x4", "x3"]


async def test_otp_105_what_was_put_aside_survives_a_restart() -> None:
    words = list[str]()
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("porter", Porter, words))) as runtime:
        porter = runtime.ref("sup/porter")
        for message in (Say("x1"), Say("x2"), Crash(), Say("x3"), Open()):
            porter.tell(message)
        await settle()
    assert words == ["x1", "x2", "x3"]


# ---------------------------------------------------------------------------------------------------------------- order


@attrs.frozen
class Recite(gr.Message[None]):
    """Tell these words to somebody, then crash."""

    to: gr.Ref
    words: tuple[str, ...]


class Reciter(gr.Actor):
    @gr.handles
    async def recite(self, message: Recite) -> None:
        for word in message.words:
            message.to.tell(Say(word))
        raise Boom


class WatchingScribe(Scribe):
    @gr.handles
    async def watch(self, message: Watch) -> None:
        self.context.watch(message.ref)

    @gr.handles
    async def terminated(self, message: gr.Terminated) -> None:
        self.words.append(message.exit.kind)


async def test_otp_107_what_an_actor_sent_before_it_died_comes_before_the_news_of_its_death() -> None:
    words = list[str]()
    tree = gr.Supervisor("sup", gr.Child("scribe", WatchingScribe, words), gr.Child("reciter", Reciter))
    async with gr.Runtime(tree) as runtime:
        scribe, reciter = runtime.ref("sup/scribe"), runtime.ref("sup/reciter")
        await scribe.ask(Watch(reciter))
        reciter.tell(Recite(scribe, ("1", "2", "3", "4", "5")))
        await settle()
    assert words == ["1", "2", "3", "4", "5", "error"]


async def test_otp_107_that_holds_too_for_a_receiver_that_was_busy_all_the_while() -> None:
    words = list[str]()
    tree = gr.Supervisor("sup", gr.Child("scribe", WatchingScribe, words), gr.Child("reciter", Reciter))
    async with gr.Runtime(tree) as runtime:
        scribe, reciter = runtime.ref("sup/scribe"), runtime.ref("sup/reciter")
        await scribe.ask(Watch(reciter))
        with released() as go:
            scribe.tell(Hold(go))
            reciter.tell(Recite(scribe, ("1", "2", "3", "4", "5")))
            await settle()
            assert words == []
        await settle()
    assert words == ["1", "2", "3", "4", "5", "error"]


async def test_otp_108_a_call_that_was_queued_before_a_death_was_noticed_still_finds_the_dead_child() -> None:
    assert await listed_around_a_crash(call_first=True) == ["running, incarnation 1", "running, incarnation 2"]


async def test_otp_108_a_call_that_was_queued_behind_a_death_finds_what_came_of_it() -> None:
    assert await listed_around_a_crash(call_first=False) == ["running, incarnation 2", "running, incarnation 2"]


async def listed_around_a_crash(*, call_first: bool) -> list[str]:
    """How child `a` is listed by a call that is queued just before, or just behind, its crash; and by a later call."""
    log, found = Log(), list[str]()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime, anyio.create_task_group() as group:

        async def look() -> None:
            (info,) = [info for info in await runtime.ref("sup").which_children() if info.name == "a"]
            found.append(f"{info.state.value}, incarnation {info.incarnation}")

        with released() as started:
            log.next_starts("slow", started)
            group.start_soon(runtime.ref("sup").start_child, log.child("slow"))
            await settle()
            if call_first:
                group.start_soon(look)
                await settle()
            await crash(runtime.ref("sup/a"))
            if not call_first:
                group.start_soon(look)
                await settle()
            assert found == []
        await settle()
        await look()
    return found
