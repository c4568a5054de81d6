"""Watches and timers, and what becomes of their news when they are taken back. Behaviours 102 and 110."""

from __future__ import annotations

import anyio
import attrs
import pytest

import greenroom as gr
from tests.conformance.calls import SLOW
from tests.conformance.probes import Boom, Crash, End, Hold, Log, crash, settle
from tests.conformance.witnesses import Unwatch, Watch, Watcher, kinds, released

# ------------------------------------------------------------------------------------------------------------- watching


def watched(log: Log, seen: list[gr.Terminated], **options: object) -> gr.Supervisor:
    return gr.Supervisor("sup", gr.Child("watcher", Watcher, seen), log.child("a", **options))


async def test_otp_102_watching_an_actor_that_has_ended_tells_of_it_at_once_and_how() -> None:
    log, seen = Log(), list[gr.Terminated]()
    error = Boom("long ago")
    async with gr.Runtime(watched(log, seen, restart="temporary")) as runtime:
        ref = runtime.ref("sup/a")
        ref.tell(Crash(error))
        await anyio.sleep(3600.0)
        await runtime.ref("sup/watcher").ask(Watch(ref))
        await settle()
        assert seen == [gr.Terminated(ref, gr.Exit("error", error), 1)]


async def test_otp_102_watching_twice_tells_once() -> None:
    log, seen = Log(), list[gr.Terminated]()
    async with gr.Runtime(watched(log, seen)) as runtime:
        await runtime.ref("sup/watcher").ask(Watch(runtime.ref("sup/a"), times=2))
        await crash(runtime.ref("sup/a"))
        assert kinds(seen) == {"sup/a": "error"}
        assert len(seen) == 1


async def test_otp_102_watching_an_actor_that_has_ended_twice_tells_once() -> None:
    log, seen = Log(), list[gr.Terminated]()
    async with gr.Runtime(watched(log, seen, restart="temporary")) as runtime:
        ref = runtime.ref("sup/a")
        await crash(ref)
        await runtime.ref("sup/watcher").ask(Watch(ref, times=2))
        await settle()
        assert len(seen) == 1


async def test_otp_102_a_watch_is_for_one_incarnation_and_can_be_repeated_for_the_next() -> None:
    log, seen = Log(), list[gr.Terminated]()
    tree = gr.Supervisor("sup", gr.Child("watcher", Watcher, seen), log.child("a"), intensity=9)
    async with gr.Runtime(tree) as runtime:
        ref = runtime.ref("sup/a")
        await runtime.ref("sup/watcher").ask(Watch(ref))
        await crash(ref, ref)
        assert [one.incarnation for one in seen] == [1]
        await runtime.ref("sup/watcher").ask(Watch(ref))
        await crash(ref)
        assert [one.incarnation for one in seen] == [1, 3]


async def test_otp_102_watching_an_actor_that_is_restarting_tells_when_its_restart_is_called_off() -> None:
    log, seen = Log(), list[gr.Terminated]()
    async with gr.Runtime(watched(log, seen, backoff=SLOW)) as runtime:
        ref = runtime.ref("sup/a")
        await crash(ref)
        await runtime.ref("sup/watcher").ask(Watch(ref))
        await settle()
        assert seen == []
        await runtime.ref("sup").terminate_child("a")
        await settle()
        assert [(one.incarnation, one.exit.kind) for one in seen] == [(1, "error")]


async def test_otp_102_watching_an_actor_that_is_restarting_tells_of_the_end_of_its_next_incarnation() -> None:
    log, seen = Log(), list[gr.Terminated]()
    async with gr.Runtime(watched(log, seen, backoff=SLOW)) as runtime:
        ref = runtime.ref("sup/a")
        await crash(ref)
        await runtime.ref("sup/watcher").ask(Watch(ref))
        await anyio.sleep(61.0)
        assert seen == []
        await runtime.ref("sup").terminate_child("a")
        await settle()
        assert [(one.incarnation, one.exit.kind) for one in seen] == [(2, "shutdown")]


async def test_otp_102_a_watch_that_is_taken_back_tells_nothing() -> None:
    log, seen = Log(), list[gr.Terminated]()
    async with gr.Runtime(watched(log, seen)) as runtime:
        await runtime.ref("sup/watcher").ask(Watch(runtime.ref("sup/a")))
        await runtime.ref("sup/watcher").ask(Unwatch(runtime.ref("sup/a")))
        await crash(runtime.ref("sup/a"))
        assert seen == []


class Busy(Watcher):
    """A watcher with something else in hand."""

    @gr.handles
    async def hold(self, message: Hold) -> None:
        await message.until.wait()


async def test_otp_102_a_watch_that_is_taken_back_tells_nothing_even_when_the_news_is_queued() -> None:
    log, seen = Log(), list[gr.Terminated]()
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("watcher", Busy, seen), log.child("a"))) as runtime:
        watcher, ref = runtime.ref("sup/watcher"), runtime.ref("sup/a")
        await watcher.ask(Watch(ref))
        with released() as go:
            watcher.tell(Hold(go))
            watcher.tell(Unwatch(ref))
            await crash(ref)
        await settle()
        assert seen == []


async def test_otp_102_a_watch_that_is_taken_back_and_made_anew_tells_of_the_new_incarnation_only() -> None:
    log, seen = Log(), list[gr.Terminated]()
    tree = gr.Supervisor("sup", gr.Child("watcher", Busy, seen), log.child("a"), intensity=9)
    async with gr.Runtime(tree) as runtime:
        watcher, ref = runtime.ref("sup/watcher"), runtime.ref("sup/a")
        await watcher.ask(Watch(ref))
        with released() as go:
            watcher.tell(Hold(go))
            watcher.tell(Unwatch(ref, again=True))
            await crash(ref)  # the news of incarnation 1 is queued behind the message that takes the watch back
        await settle()
        assert seen == []
        await crash(ref)
        assert [one.incarnation for one in seen] == [2]


# --------------------------------------------------------------------------------------------------------------- timers


@attrs.frozen
class Tick(gr.Message[None]):
    """A timer's message."""

    name: str


@attrs.frozen
class Arm(gr.Message[None]):
    """Set a timer."""

    seconds: float
    name: str
    key: str | None = None
    repeated: bool = False


@attrs.frozen
class Oversleep(gr.Message[None]):
    """Stay in hand for `seconds`, then cancel this key's timer, or set it anew with another name."""

    seconds: float
    key: str
    anew: str | None = None


class Sleeper(gr.Actor):
    """Notes the ticks it handles, and when."""

    def __init__(self, ticks: list[tuple[str, float]]) -> None:
        self.ticks = ticks

    @gr.handles
    async def arm(self, message: Arm) -> None:
        start = self.context.every if message.repeated else self.context.after
        start(message.seconds, Tick(message.name), key=message.key)

    @gr.handles
    async def oversleep(self, message: Oversleep) -> None:
        await anyio.sleep(message.seconds)
        if message.anew is None:
            self.context.cancel(message.key)
        else:
            self.context.after(1.0, Tick(message.anew), key=message.key)

    @gr.handles
    async def tick(self, message: Tick) -> None:
        self.ticks.append((message.name, anyio.current_time()))

    @gr.handles
    async def crash(self, _message: Crash) -> None:
        await anyio.sleep(2.0)
        raise Boom

    @gr.handles
    async def end(self, _message: End) -> None:
        raise gr.Stop


@pytest.mark.parametrize("repeated", [False, True], ids=["once", "repeated"])
async def test_otp_110_the_tick_of_a_cancelled_timer_is_not_handled_though_it_is_queued(repeated: bool) -> None:
    ticks = list[tuple[str, float]]()
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("sleeper", Sleeper, ticks))) as runtime:
        sleeper = runtime.ref("sup/sleeper")
        sleeper.tell(Arm(1.0, "old", "key", repeated))
        sleeper.tell(Oversleep(1.5, "key"))
        await anyio.sleep(1.25)
        node = runtime.tree().find("sup/sleeper")
        assert node is not None
        assert node.mailbox_depth == 1
        await anyio.sleep(10.0)
    assert ticks == []


@pytest.mark.parametrize("repeated", [False, True], ids=["once", "repeated"])
async def test_otp_110_the_tick_of_a_replaced_timer_is_not_handled_though_it_is_queued(repeated: bool) -> None:
    ticks = list[tuple[str, float]]()
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("sleeper", Sleeper, ticks))) as runtime:
        sleeper = runtime.ref("sup/sleeper")
        began = anyio.current_time()
        sleeper.tell(Arm(1.0, "old", "key", repeated))
        sleeper.tell(Oversleep(1.5, "key", anew="new"))
        await anyio.sleep(10.0)
    assert ticks == [("new", began + 2.5)]


async def test_otp_110_setting_a_key_again_before_it_is_due_moves_it() -> None:
    ticks = list[tuple[str, float]]()
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("sleeper", Sleeper, ticks))) as runtime:
        sleeper = runtime.ref("sup/sleeper")
        began = anyio.current_time()
        sleeper.tell(Arm(1.0, "first", "key"))
        sleeper.tell(Arm(3.0, "second", "key"))
        await anyio.sleep(10.0)
    assert ticks == [("second", began + 3.0)]


async def test_otp_110_timers_of_other_keys_and_without_a_key_are_left_alone() -> None:
    ticks = list[tuple[str, float]]()
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("sleeper", Sleeper, ticks))) as runtime:
        sleeper = runtime.ref("sup/sleeper")
        began = anyio.current_time()
        for message in (Arm(1.0, "keyed", "key"), Arm(1.0, "other", "other key"), Arm(1.0, "one"), Arm(1.0, "two")):
            sleeper.tell(message)
        sleeper.tell(Oversleep(1.5, "key"))
        await anyio.sleep(10.0)
    assert ticks == [("other", began + 1.5), ("one", began + 1.5), ("two", began + 1.5)]


async def test_otp_110_a_tick_that_is_queued_when_its_incarnation_dies_is_not_handled_by_the_next() -> None:
    ticks = list[tuple[str, float]]()
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("sleeper", Sleeper, ticks))) as runtime:
        sleeper = runtime.ref("sup/sleeper")
        sleeper.tell(Arm(1.0, "old", "key"))
        sleeper.tell(Arm(5.0, "not due yet"))
        sleeper.tell(Crash())
        await anyio.sleep(10.0)
        assert sleeper.incarnation == 2
    assert ticks == []


async def test_otp_110_the_timers_of_an_actor_that_has_ended_tick_no_more() -> None:
    ticks = list[tuple[str, float]]()
    child = gr.Child("sleeper", Sleeper, ticks, restart="transient")
    async with gr.Runtime(gr.Supervisor("sup", child)) as runtime:
        letters = runtime.dead_letters()
        sleeper = runtime.ref("sup/sleeper")
        sleeper.tell(Arm(1.0, "old"))
        sleeper.tell(End())
        await anyio.sleep(10.0)
        assert ticks == []
        assert letters.pending() == []
