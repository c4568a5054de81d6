"""What people and virtual clocks see of a thread at work (P29)."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

import greenroom as gr
from greenroom.testing import VirtualClock
from tests.actors.helpers import Boom, events_of, idle, node, raised, tree
from tests.isolation.threads import Blocking, Do, Fail, Gate, Note, Old, blocker, thread_child

A_MOMENT = 0.05
"""Real seconds that a thread works on its own, while virtual time must not jump over it."""


def work_for_a_moment(reply: object = "worked") -> Any:
    """Keeps the thread at work in real time; nobody else is told."""

    def work(_: Any) -> object:
        threading.Event().wait(A_MOMENT)
        return reply

    return work


# ---------------------------------------------------------------------------------------------------- virtual time


async def test_virtual_time_stands_while_a_thread_handles_a_message(clock: VirtualClock) -> None:
    async with tree(thread_child("a")) as runtime:
        assert await runtime.ref("app/a").ask(Do(work_for_a_moment()), timeout=0.001) == "worked"
        assert clock.now() == 0.0


async def test_virtual_time_stands_while_a_pykka_actor_handles_a_tell(clock: VirtualClock) -> None:
    async with tree(gr.Child("old", Old, isolation="thread")) as runtime:
        runtime.ref("app/old").tell(Do(work_for_a_moment()))
        await idle()
        assert node(runtime, "app/old").message_type is None
        assert clock.now() == 0.001


async def test_virtual_time_stands_while_a_thread_starts_and_while_it_stops(clock: VirtualClock) -> None:
    class Slow(Blocking):
        async def on_start(self) -> None:
            work_for_a_moment()(self)

        async def on_stop(self, exit: gr.Exit) -> None:
            work_for_a_moment()(self)

    async with tree(gr.Child("a", Slow, isolation="thread", start_timeout=0.001, shutdown=0.001)) as runtime:
        pass
    assert clock.now() == 0.0
    assert runtime.report is not None
    assert runtime.report.clean


async def test_virtual_time_goes_on_when_the_thread_has_failed(clock: VirtualClock) -> None:
    async with tree(thread_child("a"), gr.Child("old", Old, isolation="thread")) as runtime:
        for name in ("a", "old"):
            runtime.ref(f"app/{name}").tell(Fail(Boom("x")))
        await anyio.sleep(1000)
        assert clock.now() == 1000.0


async def test_virtual_time_goes_on_while_the_thread_waits_for_the_event_loop(clock: VirtualClock) -> None:
    async with tree(thread_child("a")) as runtime:
        sleep = Do(lambda actor: actor.context.runtime.from_thread.call(anyio.sleep, 30))
        await runtime.ref("app/a").ask(sleep, timeout=None)
        assert clock.now() == 30.0


async def test_virtual_time_stands_again_after_the_thread_has_waited_for_the_event_loop(clock: VirtualClock) -> None:
    def wait_then_work(actor: Any) -> object:
        actor.context.runtime.from_thread.call(anyio.sleep, 1)
        return work_for_a_moment()(actor)

    async with tree(thread_child("a")) as runtime:
        assert await runtime.ref("app/a").ask(Do(wait_then_work), timeout=1.001) == "worked"
        assert clock.now() == 1.0


async def test_virtual_time_goes_on_without_an_abandoned_thread(clock: VirtualClock) -> None:
    with blocker() as release:

        def wait_then_block(actor: Any) -> None:
            passes(actor)
            release.wait(5)

        async with tree(thread_child("a"), thread_child("b")) as runtime:
            gate = Gate()
            passes = gate.pass_through(runtime)
            runtime.ref("app/a").tell(Do(wait_then_block))
            await gate.reached.wait()
            assert isinstance(await raised(runtime.ref("app").terminate_child("a")), gr.ChildStillEnding)
            gate.open()
            await anyio.sleep(100)
            assert clock.now() == 107.0


# ------------------------------------------------------------------------------------------------------ for people


async def test_p29_the_tree_shows_the_message_a_thread_has_in_hand_and_for_how_long() -> None:
    async with tree(thread_child("a")) as runtime:
        gate = Gate()
        runtime.ref("app/a").tell(Do(gate.pass_through(runtime)))
        runtime.ref("app/a").tell(Note(1))
        await anyio.sleep(12.5)
        shown = node(runtime, "app/a")
        assert (shown.message_type, shown.in_hand_for) == ("Do", 12.5)
        assert (shown.isolation, shown.mailbox_depth) == ("thread", 1)
        gate.open()
        await runtime.ref("app/a").ask(Note(2))
        assert node(runtime, "app/a").message_type is None


async def test_p29_a_slow_handler_on_a_thread_is_reported_once_with_the_stack_of_its_thread() -> None:
    async with tree(thread_child("a"), slow_handler=10.0) as runtime:
        gate, events = Gate(), runtime.events()
        passes = gate.pass_through(runtime)

        def a_slow_function(actor: Any) -> object:
            return passes(actor)

        runtime.ref("app/a").tell(Do(a_slow_function))
        await anyio.sleep(60)
        gate.open()
        (slow,) = events_of(gr.SlowHandler, events)
        assert (slow.path, slow.message_type) == ("app/a", "Do")
        assert 10.0 <= slow.age <= 15.0
        assert "a_slow_function" in slow.stack


async def test_p29_an_idle_thread_is_no_slow_handler() -> None:
    async with tree(thread_child("a"), slow_handler=10.0) as runtime:
        events = runtime.events()
        await runtime.ref("app/a").ask(Note(1))
        await anyio.sleep(60)
        assert events_of(gr.SlowHandler, events) == []


async def test_p29_the_error_that_ended_a_thread_is_shown_by_its_type_and_text() -> None:
    async with tree(thread_child("a")) as runtime:
        runtime.ref("app/a").tell(Fail(Boom("x")))
        await runtime.ref("app/a").ask(Note(1))
        assert node(runtime, "app/a").last_error == "error: Boom: x"


@pytest.mark.real_time
async def test_p26_a_flooded_thread_lets_the_event_loop_turn() -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with (
        tree(thread_child("a", mailbox=gr.Mailbox(capacity=None))) as runtime,
        anyio.create_task_group() as group,
    ):
        ref = runtime.ref("app/a")
        for number in range(500):
            ref.tell(Note(number))
        group.start_soon(turn)
        assert await ref.ask(Note("last"), timeout=None) == 501
        assert turns > 10
        group.cancel_scope.cancel()
