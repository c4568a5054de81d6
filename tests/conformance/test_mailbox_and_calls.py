"""Asks that fail at once, starts, and what is not offered. Behaviours 97 to 101, 103, 104 and 106."""

from __future__ import annotations

import anyio
import pytest

import greenroom as gr
from tests.conformance.probes import Boom, Crash, Hold, Log, Touch, crash, reports, settle, states
from tests.conformance.witnesses import Say, Scribe, released, settle_after_spinning

# ------------------------------------------------------------------------------------------------------ nobody is there


async def test_otp_097_an_ask_to_an_actor_that_has_ended_fails_at_once() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a", restart="temporary"))) as runtime:
        ref = runtime.ref("sup/a")
        await crash(ref)
        began = anyio.current_time()
        with pytest.raises(gr.ActorStopped, match="'sup/a' did not handle a Touch: it has ended") as failure:
            await ref.ask(Touch(), timeout=None)
        assert anyio.current_time() == began
        assert not isinstance(failure.value, TimeoutError)


async def test_otp_097_an_ask_under_an_unknown_path_fails_at_once_and_names_near_ones() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("worker"))) as runtime:
        with pytest.raises(gr.NoSuchActor, match=r"'sup/worke'; did you mean 'sup/worker'"):
            runtime.ref("sup/worke")


@pytest.mark.parametrize("way", ["tell", "send"])
async def test_otp_097_a_message_to_an_actor_that_has_ended_becomes_a_dead_letter(way: str) -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        ref, letters = runtime.ref("sup/a"), runtime.dead_letters()
        await runtime.ref("sup").terminate_child("a")
        if way == "tell":
            ref.tell(Touch())
        else:
            await ref.send(Touch())
        assert letters.pending() == [gr.DeadLetter(Touch(), "sup/a", None, gr.DeadLetterReason.ENDED)]


async def test_otp_097_an_ask_that_is_queued_when_the_actor_stops_fails_then() -> None:
    log, failures = Log(), list[gr.ActorStopped]()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime, anyio.create_task_group() as group:
        ref = runtime.ref("sup/a")

        async def ask() -> None:
            with pytest.raises(gr.ActorStopped) as failure:
                await ref.ask(Touch(), timeout=None)
            failures.append(failure.value)

        with released() as go:
            ref.tell(Hold(go))
            await settle()
            group.start_soon(ask)
            await settle()
            group.start_soon(runtime.ref("sup").terminate_child, "a")
            await settle()
            assert failures == []
        await settle()
        assert [(failure.recipient, failure.why) for failure in failures] == [("sup/a", "it was terminated by a call")]


# ------------------------------------------------------------------------------------------ ends with a message in hand


@pytest.mark.parametrize("stop", [gr.Stop("enough"), gr.Stop("enough", shutdown=True)], ids=["normal", "shutdown"])
async def test_otp_098_who_asks_an_actor_that_stops_instead_of_answering_is_told_its_reason(stop: gr.Stop) -> None:
    class Leaver(gr.Actor):
        @gr.handles
        async def touch(self, _message: Touch) -> int:
            raise stop

    async with gr.Runtime(gr.Supervisor("sup", gr.Child("a", Leaver, restart="temporary"))) as runtime:
        with pytest.raises(gr.ActorStopped, match="'sup/a' did not handle a Touch: it stopped itself") as failure:
            await runtime.ref("sup/a").ask(Touch())
    assert failure.value.__cause__ is stop


async def test_otp_098_who_asks_an_actor_that_crashes_instead_of_answering_is_told_its_error() -> None:
    log = Log()
    error = Boom("no answer")
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        with pytest.raises(
            gr.ActorCrashed, match=r"'sup/a' \(incarnation 1\) crashed while it handled a Crash"
        ) as failure:
            await runtime.ref("sup/a").ask(Crash(error))
    assert failure.value.__cause__ is error


async def test_otp_098_who_asks_an_actor_that_is_killed_instead_of_answering_is_told_so_at_that_moment() -> None:
    log, times = Log(), list[float]()
    tree = gr.Supervisor("sup", log.child("a", shutdown=1.0))
    with released() as never:
        async with gr.Runtime(tree) as runtime, anyio.create_task_group() as group:

            async def ask() -> None:
                with pytest.raises(gr.ActorCrashed, match="was stopped while it handled a Hold"):
                    await runtime.ref("sup/a").ask(Hold(never), timeout=None)
                times.append(anyio.current_time())

            group.start_soon(ask)
            await settle()
            began = anyio.current_time()
            await runtime.ref("sup").terminate_child("a")
            await settle()
            assert times == [began + 1.0]


async def test_otp_098_an_actor_that_answers_and_then_stops_has_answered() -> None:
    class Leaver(gr.Actor):
        @gr.handles
        async def touch(self, _message: Touch) -> int:
            self.context.stop()
            return 7

    async with gr.Runtime(gr.Supervisor("sup", gr.Child("a", Leaver, restart="transient"))) as runtime:
        assert await runtime.ref("sup/a").ask(Touch()) == 7
        await settle()
        assert await states(runtime.ref("sup")) == {"a": "down"}


async def test_otp_098_an_actor_that_is_told_to_stop_still_answers_the_message_in_hand() -> None:
    log, answered = Log(), list[str]()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime, anyio.create_task_group() as group:

        async def ask(message: Hold) -> None:
            await runtime.ref("sup/a").ask(message, timeout=None)
            answered.append("in the end")

        with released() as go:
            group.start_soon(ask, Hold(go))
            await settle()
            group.start_soon(runtime.ref("sup").terminate_child, "a")
            await settle()
            assert answered == []
        await settle()
        assert answered == ["in the end"]
        assert await states(runtime.ref("sup")) == {"a": "down"}


async def test_otp_099_an_actor_that_asks_itself_gets_an_error_at_once() -> None:
    class Narcissus(gr.Actor):
        @gr.handles
        async def say(self, message: Say) -> int:
            return await self.context.ref.ask(message, timeout=None)

    async with gr.Runtime(gr.Supervisor("sup", gr.Child("narcissus", Narcissus))) as runtime:
        began = anyio.current_time()
        with pytest.raises(gr.ActorCrashed) as failure:
            await runtime.ref("sup/narcissus").ask(Say("hello"))
        assert anyio.current_time() == began
    assert isinstance(failure.value.__cause__, gr.WouldDeadlock)
    assert "'sup/narcissus' would wait for itself" in str(failure.value.__cause__)
    assert "`tell` instead" in str(failure.value.__cause__)


async def test_otp_099_an_actor_that_catches_the_error_lives_on() -> None:
    class Narcissus(gr.Actor):
        @gr.handles
        async def say(self, message: Say) -> int:
            with pytest.raises(gr.WouldDeadlock):
                await self.context.ref.ask(message)
            return 1

    async with gr.Runtime(gr.Supervisor("sup", gr.Child("narcissus", Narcissus))) as runtime:
        assert await runtime.ref("sup/narcissus").ask(Say("hello")) == 1


# --------------------------------------------------------------------------------------------- before the first message


class Slow(Scribe):
    """Takes its time to start, and notes when it has."""

    async def on_start(self) -> None:
        self.words.append("starting")
        await anyio.sleep(1.0)
        self.words.append("started")


async def test_otp_100_on_start_ends_before_any_message_that_came_meanwhile() -> None:
    words = list[str]()
    async with gr.Runtime(gr.Supervisor("sup")) as runtime, anyio.create_task_group() as group:
        group.start_soon(runtime.ref("sup").start_child, gr.Child("slow", Slow, words))
        await settle()
        runtime.ref("sup/slow").tell(Say("early"))
        await anyio.sleep(1.5)
    assert words == ["starting", "started", "early"]


async def test_otp_100_on_start_of_the_next_incarnation_runs_before_the_messages_that_are_queued_already() -> None:
    words = list[str]()
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("slow", Slow, words))) as runtime:
        words.clear()
        runtime.ref("sup/slow").tell(Crash())
        runtime.ref("sup/slow").tell(Say("queued"))
        await anyio.sleep(1.5)
    assert words == ["starting", "started", "queued"]


async def test_otp_100_what_on_start_tells_its_own_actor_comes_behind_what_is_queued() -> None:
    words = list[str]()

    class Eager(Slow):
        async def on_start(self) -> None:
            await super().on_start()
            self.context.ref.tell(Say("to myself"))

    async with gr.Runtime(gr.Supervisor("sup")) as runtime, anyio.create_task_group() as group:
        group.start_soon(runtime.ref("sup").start_child, gr.Child("eager", Eager, words))
        await settle()
        runtime.ref("sup/eager").tell(Say("early"))
        await anyio.sleep(1.5)
    assert words == ["starting", "started", "early", "to myself"]


# -------------------------------------------------------------------------------------------------- what is not offered


def public_face() -> set[str]:
    """Every public name of the package, and of the objects through which actors are used and written."""
    return {
        name.lower()
        for names in (gr.__all__, dir(gr.Context), dir(gr.Ref), dir(gr.Runtime), dir(gr.Actor))
        for name in names
        if not name.startswith("_")
    }


def containing(*words: str) -> set[str]:
    return {name for name in public_face() if any(word in name for word in words)}


def test_the_search_of_the_public_face_finds_what_is_there() -> None:
    assert {"tell", "ask", "after", "stash", "request_stop", "on_start", "supervisor"} <= public_face()
    assert containing("stash") >= {"stash", "unstash", "stashfull"}


def test_otp_101_there_is_no_selective_receive() -> None:
    assert containing("receive", "select", "match") == set()


def test_otp_103_an_actor_is_not_suspended_and_its_state_is_neither_read_nor_replaced_from_outside() -> None:
    assert containing("suspend", "resume", "get_state", "replace_state", "get_status", "sys_", "hibernate") == set()


def test_otp_106_there_are_no_timers_that_are_bound_to_a_state() -> None:
    assert containing("state_timeout", "next_state", "become", "statem", "machine", "postpone") == set()


async def test_otp_101_messages_are_handled_in_the_order_in_which_they_came() -> None:
    words = list[str]()
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("scribe", Scribe, words))) as runtime:
        for word in "abc":
            runtime.ref("sup/scribe").tell(Say(word))
        await settle()
    assert words == ["a", "b", "c"]


# ----------------------------------------------------------------------------------------------------- starting in time


async def test_otp_104_a_start_that_takes_too_long_is_told_to_the_starter() -> None:
    log = Log()
    log.next_starts("slow", 60.0)
    async with gr.Runtime(gr.Supervisor("sup")) as runtime:
        began = anyio.current_time()
        with pytest.raises(gr.StartFailed, match="'sup/slow' could not be started") as failure:
            await runtime.ref("sup").start_child(log.child("slow", start_timeout=2.0))
        assert anyio.current_time() - began == 2.0
    cause = failure.value.__cause__
    assert isinstance(cause, gr.StartTimeout)
    assert (cause.child, cause.timeout) == ("sup/slow", 2.0)


async def test_otp_104_a_half_started_child_is_killed_and_forgotten() -> None:
    log = Log()
    log.next_starts("slow", 60.0)
    async with gr.Runtime(gr.Supervisor("sup", intensity=0)) as runtime:
        events = runtime.events()
        with pytest.raises(gr.StartFailed):
            await runtime.ref("sup").start_child(log.child("slow", start_timeout=2.0))
        assert [event.exit.kind for event in events.pending() if isinstance(event, gr.ActorEnded)] == ["killed"]
        assert await states(runtime.ref("sup")) == {}
        await anyio.sleep(100.0)
        assert log.take() == ["start slow"]


async def test_otp_104_no_stray_exit_of_a_half_started_child_is_taken_for_a_crash() -> None:
    log = Log()
    log.next_starts("slow", 60.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), intensity=0, strategy="one_for_all")) as runtime:
        events = runtime.events()
        log.take()
        with pytest.raises(gr.StartFailed):
            await runtime.ref("sup").start_child(log.child("slow", start_timeout=2.0))
        await settle()
        assert log.take() == ["start slow"]
        assert reports(events, "child_terminated", "shutdown") == []
        assert await runtime.ref("sup/a").ask(Touch()) == 1


async def test_otp_104_a_tree_whose_child_takes_too_long_does_not_start() -> None:
    log = Log()
    log.next_starts("slow", 60.0)
    with pytest.raises(gr.StartFailed) as failure:
        async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("slow", start_timeout=2.0))):
            pytest.fail("the tree has started")
    assert failure.value.child == "sup/slow"
    assert isinstance(failure.value.__cause__, gr.StartTimeout)
    assert log.take() == ["start a", "start slow", "stop a"]


async def test_otp_104_a_half_started_child_that_swallows_its_cancellation_is_stuck_and_then_forgotten() -> None:
    class Deaf(gr.Actor):
        def __init__(self, until: anyio.Event) -> None:
            self.until = until

        async def on_start(self) -> None:
            while not self.until.is_set():
                try:
                    await self.until.wait()
                except anyio.get_cancelled_exc_class():
                    continue

    async with gr.Runtime(gr.Supervisor("sup")) as runtime:
        with released() as go:
            with pytest.raises(gr.StartFailed) as failure:
                await runtime.ref("sup").start_child(gr.Child("deaf", Deaf, go, start_timeout=1.0))
            assert isinstance(failure.value.__cause__, gr.StartTimeout)
            assert await states(runtime.ref("sup")) == {"deaf": "stuck"}
        await settle_after_spinning()
        assert await states(runtime.ref("sup")) == {}
