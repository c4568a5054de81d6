"""Stopping a thread, which nothing can interrupt: asked, given the kill time, abandoned (P3, P6, P16)."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
import threading
from typing import Any

import anyio
import pytest

import greenroom as gr
from greenroom.mailbox import Subscription
from tests.actors.helpers import Boom, events_of, idle, node, raised, tree
from tests.isolation.threads import Blocking, Do, Fail, Gate, Note, Old, blocker, come_back, thread_child, threads_of


async def seen(kind: type[gr.Event], events: Subscription[gr.Event], path: str = "app/a") -> Any:
    """The next event of this kind at this path."""
    async for event in events:
        if isinstance(event, kind) and event.path == path:
            return event
    raise AssertionError(f"no {kind.__name__} came")


class HangsAtItsEnd(Blocking):
    """Its `on_stop` waits for a gate."""

    def __init__(self, gate: Gate, log: list[Any] | None = None) -> None:
        super().__init__(log)
        self.gate = gate

    async def on_stop(self, exit: gr.Exit) -> None:
        self.log.append(f"on_stop {exit}")
        self.gate.pass_through(self.context.runtime)(self)


class HangsAtItsStart(Blocking):
    """Its constructor waits for a gate, the first time."""

    def __init__(self, gate: Gate, log: list[Any]) -> None:
        super().__init__(log)
        self.log.append("made")
        gate.pass_through(self.context.runtime)(self)


# ------------------------------------------------------------------------------------------------------ in good time


async def test_p16_a_stop_waits_for_the_message_in_hand_and_runs_on_stop_after_it() -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log)) as runtime:
        gate, replies = Gate(), list[Any]()

        async def ask() -> None:
            replies.append(await runtime.ref("app/a").ask(Do(gate.pass_through(runtime))))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await gate.reached.wait()
            group.start_soon(runtime.stop)
            await anyio.sleep(4.0)
            gate.open()
    assert replies == ["passed"]
    assert log == ["on_stop shutdown"]
    assert anyio.current_time() == 4.0
    assert runtime.report is not None
    assert runtime.report.clean


async def test_p18_what_is_queued_at_a_stop_fails_with_actor_stopped_and_is_not_handled() -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log)) as runtime:
        gate, errors = Gate(), list[Any]()

        async def ask() -> None:
            errors.append(await raised(runtime.ref("app/a").ask(Note("queued"))))

        async with anyio.create_task_group() as group:
            runtime.ref("app/a").tell(Do(gate.pass_through(runtime)))
            await gate.reached.wait()
            group.start_soon(ask)
            await idle()
            group.start_soon(runtime.stop)
            await idle()
            gate.open()
    assert [type(error) for error in errors] == [gr.ActorStopped]
    assert log == ["on_stop shutdown"]


async def test_p06_a_thread_that_comes_back_within_the_kill_time_still_runs_on_stop() -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log)) as runtime:
        gate = Gate()
        runtime.ref("app/a").tell(Do(gate.pass_through(runtime)))
        await gate.reached.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.stop)
            await anyio.sleep(6.5)  # shutdown 5.0, then the kill time of 2.0
            gate.open()
    assert log == ["on_stop killed"]
    report = runtime.report
    assert report is not None
    assert report.cancelled == ("app/a",)
    assert report.killed == report.abandoned == ()
    assert anyio.current_time() == 6.5


async def test_p16_a_brutal_kill_gives_no_on_stop_to_a_thread_that_ends_in_time() -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log, shutdown="kill")) as runtime:
        gate = Gate()
        runtime.ref("app/a").tell(Do(gate.pass_through(runtime)))
        await gate.reached.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.stop)
            await anyio.sleep(1.0)
            gate.open()
    assert log == []
    assert anyio.current_time() == 1.0


@pytest.mark.parametrize("shutdown", [0, "kill"])
async def test_p06_a_crash_leaves_the_thread_time_to_end_however_short_its_shutdown_is(shutdown: Any) -> None:
    async with tree(thread_child("a", shutdown=shutdown)) as runtime:
        events = runtime.events()
        for number in range(20):
            runtime.ref("app/a").tell(Fail(Boom("x")))
            assert await runtime.ref("app/a").ask(Note(1)) == 1
            assert runtime.ref("app/a").incarnation == number + 2
        assert events_of(gr.ActorAbandoned, events) == []


async def test_p08_without_a_shutdown_time_a_stop_waits_for_as_long_as_it_takes() -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log, shutdown=None)) as runtime:
        gate = Gate()
        runtime.ref("app/a").tell(Do(gate.pass_through(runtime)))
        await gate.reached.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.stop)
            await anyio.sleep(10_000)
            gate.open()
    assert log == ["on_stop shutdown"]


# ------------------------------------------------------------------------------------------------------- abandoned


async def test_p06_a_thread_that_does_not_come_back_is_abandoned_and_named() -> None:
    async with tree(thread_child("a")) as runtime:
        gate, events = Gate(), runtime.events()
        runtime.ref("app/a").tell(Do(gate.pass_through(runtime)))
        await gate.reached.wait()
    assert anyio.current_time() == 7.0  # shutdown 5.0, then the kill time of 2.0
    (abandoned,) = events_of(gr.ActorAbandoned, events)
    assert (abandoned.path, abandoned.incarnation, abandoned.thread) == ("app/a", 1, "greenroom app/a #1")
    report = runtime.report
    assert report is not None
    assert report.abandoned == ("app/a",)
    assert report.killed == report.cancelled == report.stuck == report.unknown == ()
    assert not report.clean


async def test_p06_the_exit_of_an_abandoned_thread_is_abandoned_and_never_killed() -> None:
    async with tree(thread_child("a")) as runtime:
        gate, events = Gate(), runtime.events()
        runtime.ref("app/a").tell(Do(gate.pass_through(runtime)))
        await gate.reached.wait()
    ends = [event.exit.kind for event in events.pending() if isinstance(event, gr.ActorEnded) and event.path == "app/a"]
    assert ends == ["abandoned"]


async def test_p06_an_abandoned_thread_is_logged_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "greenroom.actors"):
        async with tree(thread_child("a")) as runtime:
            gate = Gate()
            runtime.ref("app/a").tell(Do(gate.pass_through(runtime)))
            await gate.reached.wait()
    assert "'greenroom app/a #1' is left alone" in caplog.text


async def test_p06_the_asker_of_the_message_in_hand_is_told_that_the_actor_was_stopped() -> None:
    errors: list[BaseException] = []
    async with tree(thread_child("a")) as runtime:
        gate = Gate()

        async def ask() -> None:
            errors.append(await raised(runtime.ref("app/a").ask(Do(gate.pass_through(runtime)), timeout=None)))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await gate.reached.wait()
            await runtime.stop()
    (error,) = errors
    assert isinstance(error, gr.ActorCrashed)
    assert "was stopped" in str(error)


async def test_p06_the_rest_of_the_tree_stops_in_order_around_an_abandoned_thread() -> None:
    log: list[Any] = []
    async with tree(thread_child("first", log), thread_child("a"), thread_child("last", log)) as runtime:
        gate = Gate()
        runtime.ref("app/a").tell(Do(gate.pass_through(runtime)))
        await gate.reached.wait()
    assert log == ["on_stop shutdown"] * 2
    report = runtime.report
    assert report is not None
    assert report.stopped == ("app/last", "app/first")
    assert report.abandoned == ("app/a",)


async def test_p06_an_on_stop_that_hangs_is_abandoned_after_the_shutdown_and_the_kill_time() -> None:
    gate = Gate()
    async with tree(gr.Child("a", HangsAtItsEnd, gate, isolation="thread", shutdown=3.0)) as runtime:
        pass
    assert anyio.current_time() == 5.0
    assert runtime.report is not None
    assert runtime.report.abandoned == ("app/a",)


async def test_p06_a_forced_stop_abandons_at_once() -> None:
    async with tree(thread_child("a")) as runtime:
        gate = Gate()
        runtime.ref("app/a").tell(Do(gate.pass_through(runtime)))
        await gate.reached.wait()
        for _ in range(3):  # asked, cancelled, forced
            runtime.request_stop()
            await idle()
        await runtime.stop()
    assert anyio.current_time() < 0.01
    assert runtime.report is not None
    assert runtime.report.abandoned == ("app/a",)


async def test_p06_an_abandoned_pykka_actor_ends_without_on_stop_when_it_comes_back() -> None:
    log: list[Any] = []
    async with tree(gr.Child("a", Old, log, isolation="thread"), thread_child("b")) as runtime:
        gate, events = Gate(), runtime.events()
        runtime.ref("app/a").tell(Do(gate.pass_through(runtime)))
        await gate.reached.wait()
        assert isinstance(await raised(runtime.ref("app").terminate_child("a")), gr.ChildStillEnding)
        await seen(gr.ActorAbandoned, events)
        await come_back("app/a", gate)
    assert log == ["on_start"]


@pytest.mark.real_time
async def test_p06_a_thread_that_is_blocked_for_ever_is_abandoned_on_a_real_clock_too() -> None:
    begun = anyio.Event()

    async def begin() -> None:
        begun.set()

    with blocker() as release:
        async with tree(thread_child("a", shutdown=0.05), kill_time=0.05) as runtime:

            def block(actor: Any) -> None:
                actor.context.runtime.from_thread.call(begin)
                release.wait()

            runtime.ref("app/a").tell(Do(block))
            await begun.wait()
            (thread,) = threads_of("app/a")
        assert thread.is_alive()
        assert runtime.report is not None
        assert runtime.report.abandoned == ("app/a",)
    thread.join(5)
    assert not thread.is_alive()


def test_p06_an_abandoned_thread_does_not_keep_the_process() -> None:
    program = textwrap.dedent(
        """
        import threading, attrs, greenroom as gr

        @attrs.frozen
        class Block(gr.Message[None]):
            pass

        class Blocks(gr.Actor):
            @gr.handles
            def block(self, message: Block) -> None:
                self.context.runtime.from_thread.call(begin)
                threading.Event().wait()

        async def begin():
            runtime.request_stop()

        async def body(started):
            global runtime
            runtime = started
            runtime.ref("app/a").tell(Block())
            await runtime.wait_stopping()

        tree = gr.Supervisor("app", gr.Child("a", Blocks, isolation="thread", shutdown=0.1))
        raise SystemExit(gr.run(tree, body=body))
        """
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=30, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "abandoned: app/a" in done.stderr


# ---------------------------------------------------------------------------------------------------- replacements


async def test_p06_the_place_of_an_abandoned_thread_stays_taken_until_it_has_ended() -> None:
    async with tree(thread_child("a")) as runtime:
        top, gate = runtime.ref("app"), Gate()
        runtime.ref("app/a").tell(Do(gate.pass_through(runtime)))
        await gate.reached.wait()
        assert isinstance(await raised(top.terminate_child("a")), gr.ChildStillEnding)
        assert node(runtime, "app/a").state is gr.State.ABANDONED
        assert isinstance(await raised(top.restart_child("a")), gr.ChildStillEnding)
        assert isinstance(await raised(top.delete_child("a")), gr.ChildStillEnding)
        await come_back("app/a", gate)
        assert node(runtime, "app/a").state is gr.State.DOWN
        await top.restart_child("a")
        assert await runtime.ref("app/a").ask(Note(1)) == 1


async def test_p06_a_restart_waits_until_the_abandoned_thread_has_ended() -> None:
    gate, log = Gate(), list[Any]()
    async with tree(gr.Child("a", HangsAtItsEnd, gate, log, isolation="thread")) as runtime:
        ref, events = runtime.ref("app/a"), runtime.events()
        ref.tell(Fail(Boom("x")))
        abandoned = await seen(gr.ActorAbandoned, events)
        assert abandoned.at == 7.0
        ref.tell(Note("queued"))
        await anyio.sleep(100)
        assert node(runtime, "app/a").state is gr.State.ABANDONED
        assert ref.incarnation == 1
        await come_back("app/a", gate)
        await ref.ask(Note("asked"))
        assert ref.incarnation == 2
        assert log == ["on_stop error: Boom: x", "queued", "asked"]


async def test_p06_the_exit_of_an_abandoned_crash_keeps_the_crash_as_its_cause() -> None:
    gate, boom = Gate(), Boom("x")
    async with tree(gr.Child("a", HangsAtItsEnd, gate, isolation="thread")) as runtime:
        events = runtime.events()
        runtime.ref("app/a").tell(Fail(boom))
        ended = await seen(gr.ActorEnded, events)
        assert ended.exit == gr.Exit("abandoned", boom)
        gate.open()


async def test_p06_with_replace_abandoned_a_new_incarnation_starts_beside_the_old_thread() -> None:
    gate, log = Gate(), list[Any]()
    async with tree(gr.Child("a", HangsAtItsEnd, gate, log, isolation="thread", replace_abandoned=True)) as runtime:
        ref, events = runtime.ref("app/a"), runtime.events()
        ref.tell(Fail(Boom("x")))
        await seen(gr.ActorAbandoned, events)
        await ref.ask(Note("next"))
        assert ref.incarnation == 2
        assert {thread.name for thread in threads_of("app/a")} == {"greenroom app/a #1", "greenroom app/a #2"}
        await come_back("app/a", gate)
        await ref.ask(Note("still there"))
        assert ref.incarnation == 2
    assert log == ["on_stop error: Boom: x", "next", "still there", "on_stop shutdown"]


async def test_p06_a_late_reply_of_an_abandoned_incarnation_reaches_nobody() -> None:
    answers: list[Any] = []
    async with tree(thread_child("a", replace_abandoned=True)) as runtime:
        top, ref, old_gate, new_gate = runtime.ref("app"), runtime.ref("app/a"), Gate(), Gate()
        ref.tell(Do(old_gate.pass_through(runtime, "old")))
        await old_gate.reached.wait()
        await top.terminate_child("a")
        await top.restart_child("a")

        async def ask() -> None:
            answers.append(await ref.ask(Do(new_gate.pass_through(runtime, "new"))))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await new_gate.reached.wait()
            await come_back("app/a", old_gate)
            assert answers == []
            new_gate.open()
        assert answers == ["new"]


async def test_p06_an_abandoned_thread_can_do_nothing_more_by_its_context() -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log, replace_abandoned=True), thread_child("b")) as runtime:
        top, ref, gate, other = runtime.ref("app"), runtime.ref("app/a"), Gate(), runtime.ref("app/b")
        passes = gate.pass_through(runtime)

        def go_on_late(actor: Any) -> None:
            passes(actor)
            actor.context.after(1.0, Note("tick"))
            actor.context.watch(other)
            actor.context.stop()

        ref.tell(Do(go_on_late))
        await gate.reached.wait()
        await top.terminate_child("a")
        await top.restart_child("a")
        await come_back("app/a", gate)
        other.tell(Fail(Boom("x")))
        await anyio.sleep(5)
        assert log == []
        assert ref.incarnation == 2
        assert node(runtime, "app/a").state is gr.State.RUNNING


async def test_p06_an_abandoned_thread_that_asks_its_own_address_asks_the_next_incarnation() -> None:
    answers: list[Any] = []
    async with tree(thread_child("a", replace_abandoned=True)) as runtime:
        top, ref, gate = runtime.ref("app"), runtime.ref("app/a"), Gate()
        passes = gate.pass_through(runtime)

        def ask_late(actor: Any) -> None:
            passes(actor)
            answers.append(runtime.from_thread.ask(ref, Note("from the old one")))

        ref.tell(Do(ask_late))
        await gate.reached.wait()
        await top.terminate_child("a")
        await top.restart_child("a")
        await come_back("app/a", gate)
        assert answers == [1]


async def test_p03_a_group_restart_waits_for_an_abandoned_sibling_and_says_so() -> None:
    tree_ = gr.Supervisor("app", thread_child("a"), thread_child("b"), strategy="one_for_all", intensity=10)
    async with gr.Runtime(tree_) as runtime:
        gate, events = Gate(), runtime.events()
        runtime.ref("app/a").tell(Do(gate.pass_through(runtime)))
        await gate.reached.wait()
        runtime.ref("app/b").tell(Fail(Boom("x")))
        waiting = await seen(gr.RestartWaiting, events, "app/b")
        assert waiting.waits_for == ("app/a",)
        assert len(await runtime.ref("app").which_children()) == 2  # its supervisor goes on serving
        await come_back("app/a", gate)
        assert await runtime.ref("app/b").ask(Note(1)) == 1
        assert runtime.ref("app/a").incarnation == runtime.ref("app/b").incarnation == 2


async def test_p06_a_supervisor_is_not_restarted_while_an_abandoned_thread_below_it_may_run() -> None:
    inner = gr.Supervisor("inner", thread_child("a"), thread_child("b"), intensity=0)
    async with tree(inner) as runtime:
        gate, events = Gate(), runtime.events()
        runtime.ref("app/inner/a").tell(Do(gate.pass_through(runtime)))
        await gate.reached.wait()
        runtime.ref("app/inner/b").tell(Fail(Boom("x")))  # one too many: the inner supervisor gives up
        await seen(gr.ActorAbandoned, events, "app/inner/a")
        await anyio.sleep(100)
        assert node(runtime, "app/inner").state is gr.State.ABANDONED
        await come_back("app/inner/a", gate)
        assert node(runtime, "app/inner").state is gr.State.RUNNING
        assert await runtime.ref("app/inner/a").ask(Note(1)) == 1


async def test_p06_a_start_that_outlives_its_start_timeout_is_abandoned_and_not_tried_again_before_it_ends() -> None:
    gate, log = Gate(), list[Any]()
    crash = thread_child("late", log)
    async with tree(crash) as runtime:
        child = gr.Child("a", HangsAtItsStart, gate, log, isolation="thread", start_timeout=1.0)
        error = await raised(runtime.ref("app").start_child(child))
        assert isinstance(error, gr.StartFailed)
        assert isinstance(error.__cause__, gr.StartTimeout)
        assert anyio.current_time() == 3.0  # the start_timeout, then the kill time of 2.0
        assert node(runtime, "app/a").state is gr.State.ABANDONED
        await come_back("app/a", gate)
        assert log == ["made"]
        assert runtime.tree().find("app/a") is None


async def test_p06_a_restart_whose_start_was_abandoned_is_tried_again_when_the_thread_has_ended() -> None:
    gates, log = [Gate(), Gate(), Gate()], list[Any]()
    gates[0].open()
    gates[2].open()
    later = iter(gates)

    def make() -> Blocking:
        return HangsAtItsStart(next(later), log)

    async with tree(gr.Child("a", make, isolation="thread", start_timeout=1.0)) as runtime:
        ref, events = runtime.ref("app/a"), runtime.events()
        ref.tell(Fail(Boom("x")))
        await seen(gr.ActorAbandoned, events)
        await anyio.sleep(100)
        assert ref.incarnation == 2
        await come_back("app/a", gates[1], incarnation=2)
        await ref.ask(Note("at last"))
        assert ref.incarnation == 3
    assert log == ["made", "on_stop error: Boom: x", "made", "made", "at last", "on_stop shutdown"]


# ----------------------------------------------------------------------------------------------------------- reports


async def test_p06_a_thread_abandoned_before_the_shutdown_is_listed_in_its_report() -> None:
    async with tree(thread_child("a", restart="temporary"), thread_child("b")) as runtime:
        gate = Gate()
        runtime.ref("app/a").tell(Do(gate.pass_through(runtime)))
        await gate.reached.wait()
        assert isinstance(await raised(runtime.ref("app").terminate_child("a")), gr.ChildStillEnding)
    report = runtime.report
    assert report is not None
    assert report.abandoned == ("app/a",)
    assert report.stopped == ("app/b",)


async def test_p06_a_thread_that_came_back_before_the_shutdown_is_not_listed_in_its_report() -> None:
    async with tree(thread_child("a", restart="temporary"), thread_child("b")) as runtime:
        gate = Gate()
        runtime.ref("app/a").tell(Do(gate.pass_through(runtime)))
        await gate.reached.wait()
        assert isinstance(await raised(runtime.ref("app").terminate_child("a")), gr.ChildStillEnding)
        await come_back("app/a", gate)
    report = runtime.report
    assert report is not None
    assert report.abandoned == ()
    assert report.clean


async def test_p06_threads_that_outlive_the_runtime_are_told_so_and_end_in_peace() -> None:
    errors: list[BaseException] = []

    def call_twice(actor: Any) -> None:
        for _ in range(2):
            try:
                actor.context.runtime.from_thread.call(gate.opened.wait)
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is what the test looks at
                errors.append(error)

    async with tree(thread_child("a")) as runtime:
        gate = Gate()
        runtime.ref("app/a").tell(Do(call_twice))
        await idle()
        (thread,) = threads_of("app/a")
    await anyio.to_thread.run_sync(thread.join, 5)
    assert not thread.is_alive()
    assert [type(error) for error in errors] == [gr.RuntimeNotRunning] * 2


def test_p06_the_context_of_a_thread_whose_loop_has_ended_says_so() -> None:
    contexts: list[Any] = []

    async def main() -> None:
        async with tree(thread_child("a")) as runtime:
            await runtime.ref("app/a").ask(Do(lambda actor: contexts.append(actor.context)))

    for backend in ("asyncio", "trio"):
        anyio.run(main, backend=backend)
        with pytest.raises(gr.RuntimeNotRunning):
            contexts.pop().stop()
    assert threading.current_thread() is threading.main_thread()
