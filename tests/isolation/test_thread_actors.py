"""Actors with plain `def` handlers, each on a thread of its own (P25, P26, and P20, P22, P15 on threads)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from functools import partial
from typing import Any

import anyio
import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from tests.actors.helpers import Boom, idle, node, raised, tree
from tests.isolation.threads import Blocking, Do, Fail, Gate, Note, thread_child, threads_of


class Yields:
    """Something to await, that waits."""

    def __await__(self) -> Generator[None, None, None]:
        yield


async def start_one(child: gr.Child) -> Any:
    """What `start_child` returns or raises for this child."""
    async with tree() as runtime:
        return await runtime.ref("app").start_child(child)


# ------------------------------------------------------------------------------------------------------ the thread


async def test_p26_all_of_an_actors_code_runs_on_one_daemon_thread_that_bears_its_name() -> None:
    threads: list[threading.Thread] = []

    class Where(gr.Actor):
        def __init__(self) -> None:
            threads.append(threading.current_thread())

        async def on_start(self) -> None:
            threads.append(threading.current_thread())

        async def on_stop(self, exit: gr.Exit) -> None:
            threads.append(threading.current_thread())

        @gr.handles
        def note(self, message: Note) -> int:
            threads.append(threading.current_thread())
            return 0

    async with tree(gr.Child("where", Where, isolation="thread")) as runtime:
        for number in range(3):
            await runtime.ref("app/where").ask(Note(number))
    assert len(threads) == 6
    (thread,) = set(threads)
    assert thread.daemon
    assert thread.name == "greenroom app/where #1"
    assert thread is not threading.current_thread()


async def test_p26_nothing_of_the_thread_is_left_after_a_stop() -> None:
    async with tree(thread_child("a")) as runtime:
        await runtime.ref("app/a").ask(Note(1))
        (thread,) = threads_of("app/a")
    thread.join(5)
    assert not thread.is_alive()


async def test_p24_the_context_is_there_before_init_runs_on_the_thread() -> None:
    class Early(gr.Actor):
        def __init__(self) -> None:
            self.path = self.context.ref.path

        @gr.handles
        def do(self, message: Do) -> Any:
            return message.work(self)

    async with tree(gr.Child("early", Early, isolation="thread")) as runtime:
        assert await runtime.ref("app/early").ask(Do(lambda actor: actor.path)) == "app/early"


async def test_p24_a_second_actor_made_in_init_gets_no_context_of_its_maker() -> None:
    class Maker(gr.Actor):
        def __init__(self) -> None:
            self.other = Blocking()

        @gr.handles
        def do(self, message: Do) -> Any:
            return message.work(self)

    async with tree(gr.Child("maker", Maker, isolation="thread")) as runtime:
        assert not await runtime.ref("app/maker").ask(Do(lambda actor: hasattr(actor.other, "context")))


# -------------------------------------------------------------------------------------------------- hooks and start


async def test_p20_what_on_start_returns_is_the_start_info() -> None:
    class Informs(Blocking):
        async def on_start(self) -> object:
            return {"port": 1}

    assert (await start_one(gr.Child("a", Informs, isolation="thread"))).info == {"port": 1}


async def test_p25_hooks_may_be_plain_functions_on_a_thread() -> None:
    log: list[Any] = []

    class Plain(Blocking):
        def on_start(self) -> object:  # type: ignore[override]
            return "plain"

        def on_stop(self, exit: gr.Exit) -> None:  # type: ignore[override]
            self.log.append(exit.kind)

    assert (await start_one(gr.Child("a", Plain, log, isolation="thread"))).info == "plain"
    assert log == ["shutdown"]


@pytest.mark.parametrize("wait", [Yields, partial(anyio.sleep, 1)], ids=["waits", "needs anyio"])
async def test_p25_an_on_start_that_awaits_the_event_loop_is_refused_with_the_way_out(wait: Any) -> None:
    class Waits(Blocking):
        async def on_start(self) -> None:
            await wait()

    error = await raised(start_one(gr.Child("a", Waits, isolation="thread")))
    assert isinstance(error, gr.StartFailed)
    assert isinstance(error.__cause__, gr.Misuse)
    assert "plain `def`" in str(error.__cause__)
    assert "from_thread" in str(error.__cause__)


@pytest.mark.parametrize("sleep", [asyncio.sleep, trio.sleep], ids=["asyncio", "trio"])
async def test_p25_a_loops_own_complaint_about_an_awaiting_hook_comes_with_the_way_out(sleep: Any) -> None:
    class Waits(Blocking):
        async def on_start(self) -> None:
            await sleep(1)

    error = await raised(start_one(gr.Child("a", Waits, isolation="thread")))
    assert isinstance(error.__cause__, RuntimeError)
    assert any("plain `def`" in note for note in error.__cause__.__notes__)


async def test_p25_an_on_stop_that_awaits_the_event_loop_is_the_actors_error_exit() -> None:
    class Waits(Blocking):
        async def on_stop(self, exit: gr.Exit) -> None:
            await Yields()

    log: list[Any] = []
    async with tree(
        thread_child("watcher", log), gr.Child("a", Waits, isolation="thread", restart="temporary")
    ) as runtime:
        ref = runtime.ref("app/a")
        await runtime.ref("app/watcher").ask(Do(lambda actor: actor.context.watch(ref)))
        await runtime.ref("app").terminate_child("a")
        await idle()
    assert isinstance(log[0].exit.cause, gr.Misuse)


async def test_p13_an_on_start_that_raises_is_a_start_failure_with_its_cause() -> None:
    class Broken(Blocking):
        async def on_start(self) -> None:
            raise Boom("no")

    error = await raised(start_one(gr.Child("a", Broken, isolation="thread")))
    assert isinstance(error, gr.StartFailed)
    assert isinstance(error.__cause__, Boom)


async def test_p13_a_constructor_that_raises_is_a_start_failure_without_on_stop() -> None:
    log: list[Any] = []

    class Broken(Blocking):
        def __init__(self) -> None:
            super().__init__(log)
            raise Boom("no")

    error = await raised(start_one(gr.Child("a", Broken, isolation="thread")))
    assert isinstance(error.__cause__, Boom)
    assert log == []


async def test_a_system_without_a_thread_left_is_a_start_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with tree() as runtime:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            error = await raised(runtime.ref("app").start_child(thread_child("a")))
        assert isinstance(error, gr.StartFailed)
        assert "can't start new thread" in str(error.__cause__)
        await runtime.ref("app").start_child(thread_child("a"))
        await anyio.sleep(10)  # virtual time is not held for the thread that never was
        assert anyio.current_time() == 10.0


async def test_p20_ignore_in_on_start_leaves_the_child_down_without_an_error() -> None:
    class Ignores(Blocking):
        async def on_start(self) -> None:
            raise gr.Ignore

    async with tree(gr.Child("a", Ignores, isolation="thread")) as runtime:
        assert node(runtime, "app/a").state is gr.State.DOWN


async def test_p25_a_factory_that_makes_an_actor_with_async_handlers_fails_at_the_start() -> None:
    class Async(gr.Actor):
        @gr.handles
        async def note(self, message: Note) -> int:
            return 0

    def make() -> gr.Actor:
        return Async()

    error = await raised(start_one(gr.Child("a", make, isolation="thread")))
    assert isinstance(error.__cause__, TypeError)
    assert "isolation='task'" in str(error.__cause__)


async def test_p25_a_factory_that_makes_no_actor_fails_at_the_start() -> None:
    factory: Any = lambda: "no actor"  # noqa: E731
    error = await raised(start_one(gr.Child("a", factory, isolation="thread")))
    assert isinstance(error.__cause__, TypeError)
    assert "made a str" in str(error.__cause__)


# -------------------------------------------------------------------------------------------------------- messages


async def test_p26_messages_are_handled_one_at_a_time_and_in_order() -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log)) as runtime:
        ref = runtime.ref("app/a")
        for number in range(200):
            ref.tell(Note(number))
        await ref.ask(Note("last"))
        assert log == [*range(200), "last"]


async def test_p23_a_handler_of_a_base_message_handles_a_derived_one_on_a_thread() -> None:
    @attrs.frozen
    class Louder(Note):
        pass

    log: list[Any] = []
    async with tree(thread_child("a", log)) as runtime:
        await runtime.ref("app/a").ask(Louder("x"))
        assert log == ["x"]


async def test_p19_an_ask_without_a_handler_is_unhandled_and_names_what_is_handled() -> None:
    @attrs.frozen
    class Strange(gr.Message[None]):
        pass

    async with tree(thread_child("a")) as runtime:
        error = await raised(runtime.ref("app/a").ask(Strange()))
        assert isinstance(error, gr.UnhandledMessage)
        assert error.handles == ("Do", "Fail", "Note", "Terminated")
        assert await runtime.ref("app/a").ask(Note(1)) == 1


async def test_p20_rejected_reaches_the_asker_as_raised_and_crashes_nothing() -> None:
    rejected = gr.Rejected("not now")
    async with tree(thread_child("a")) as runtime:
        ref = runtime.ref("app/a")
        assert await raised(ref.ask(Fail(rejected))) is rejected
        assert ref.incarnation == 1


async def test_p20_a_rejected_tell_is_a_dead_letter() -> None:
    async with tree(thread_child("a")) as runtime:
        letters = runtime.dead_letters()
        runtime.ref("app/a").tell(Fail(gr.Rejected()))
        await idle()
        (letter,) = letters.pending()
        assert letter.reason is gr.DeadLetterReason.REJECTED


async def test_p20_stop_ends_the_actor_normally_after_its_on_stop() -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log, restart="transient")) as runtime:
        error = await raised(runtime.ref("app/a").ask(Fail(gr.Stop())))
        assert isinstance(error, gr.ActorStopped)
        await idle()
        assert node(runtime, "app/a").state is gr.State.DOWN
        assert log == ["on_stop normal"]


async def test_a_crash_on_the_thread_reaches_the_asker_with_its_cause_and_the_actor_is_restarted() -> None:
    boom = Boom("x")
    async with tree(thread_child("a")) as runtime:
        ref = runtime.ref("app/a")
        error = await raised(ref.ask(Fail(boom)))
        assert isinstance(error, gr.ActorCrashed)
        assert error.__cause__ is boom
        assert await ref.ask(Note(1)) == 1
        assert ref.incarnation == 2


async def test_a_tell_that_fails_crashes_the_actor() -> None:
    async with tree(thread_child("a")) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(Fail(Boom("x")))
        assert await ref.ask(Note(1)) == 1
        assert ref.incarnation == 2
        assert node(runtime, "app/a").last_error == "error: Boom: x"


async def test_on_stop_runs_on_the_thread_after_a_crash_and_is_told_of_it() -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log)) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(Fail(Boom("x")))
        await ref.ask(Note("next"))
        assert log == ["on_stop error: Boom: x", "next"]


async def test_an_exception_that_generators_swallow_crashes_the_actor_like_any_other() -> None:
    async with tree(thread_child("a")) as runtime:
        error = await raised(runtime.ref("app/a").ask(Fail(StopIteration())))
        assert isinstance(error, gr.ActorCrashed)


async def test_p18_queued_messages_stay_at_a_restart_and_the_one_in_hand_does_not_come_back() -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log)) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(Fail(Boom("x")))
        for number in range(5):
            ref.tell(Note(number))
        await ref.ask(Note("last"))
        assert log == ["on_stop error: Boom: x", 0, 1, 2, 3, 4, "last"]
        assert ref.incarnation == 2


async def test_p18_drain_handles_what_is_queued_before_the_thread_ends() -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log, drain=True)) as runtime:
        for number in range(5):
            runtime.ref("app/a").tell(Note(number))
    assert log == [0, 1, 2, 3, 4, "on_stop shutdown"]


async def test_p19_a_late_reply_to_an_ask_that_timed_out_is_dropped() -> None:
    async with tree(thread_child("a")) as runtime:
        ref = runtime.ref("app/a")
        gate = Gate()
        error = await raised(ref.ask(Do(gate.pass_through(runtime, "late")), timeout=3.0))
        assert isinstance(error, gr.AskTimeout)
        assert anyio.current_time() == 3.0
        gate.open()
        assert await ref.ask(Do(lambda _: "in time")) == "in time"
        assert ref.incarnation == 1


@given(st.lists(st.sampled_from(["note", "ask", "reject", "crash", "stop"]), max_size=25))
async def test_whatever_comes_each_message_is_handled_once_and_in_order(script: list[str]) -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log), intensity=1000) as runtime:
        ref = runtime.ref("app/a")
        for number, step in enumerate(script):
            error = {"reject": gr.Rejected(), "crash": Boom("x"), "stop": gr.Stop()}.get(step)
            if error is not None:
                ref.tell(Fail(error))
            elif step == "note":
                ref.tell(Note(number))
            else:
                await ref.ask(Note(number))
        await ref.ask(Note("end"))
        assert [entry for entry in log if isinstance(entry, int)] == [
            number for number, step in enumerate(script) if step in ("note", "ask")
        ]
        assert ref.incarnation == 1 + script.count("crash") + script.count("stop")


# ------------------------------------------------------------------------------------------- SystemExit and the like


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=lambda e: type(e).__name__)
async def test_p26_an_order_to_exit_out_of_a_handler_is_the_exit_of_that_child_alone(error: BaseException) -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log), thread_child("b")) as runtime:
        asked = await raised(runtime.ref("app/a").ask(Fail(error)))
        assert isinstance(asked, gr.ActorCrashed)
        assert asked.__cause__ is error
        assert await runtime.ref("app/a").ask(Note("next")) == 2
        assert runtime.ref("app/b").incarnation == 1
        assert not runtime.stopping
    assert log[0].startswith(f"on_stop error: {type(error).__name__}")


async def test_p26_an_order_to_exit_out_of_on_start_is_a_start_failure() -> None:
    class Exits(Blocking):
        async def on_start(self) -> None:
            raise SystemExit(3)

    error = await raised(start_one(gr.Child("a", Exits, isolation="thread")))
    assert isinstance(error, gr.StartFailed)
    assert isinstance(error.__cause__, SystemExit)


async def test_p26_an_order_to_exit_out_of_on_stop_is_an_error_exit_and_the_stop_goes_on() -> None:
    class Exits(Blocking):
        async def on_stop(self, exit: gr.Exit) -> None:
            raise SystemExit(3)

    log: list[Any] = []
    async with tree(thread_child("first", log), gr.Child("a", Exits, isolation="thread")) as runtime:
        events = runtime.events()
    ends = {event.path: event.exit for event in events.pending() if isinstance(event, gr.ActorEnded)}
    assert isinstance(ends["app/a"].cause, SystemExit)
    assert log == ["on_stop shutdown"]


async def test_p12_a_cancellation_raised_on_a_thread_is_an_error_like_any_other() -> None:
    async with tree(thread_child("a")) as runtime:
        error = await raised(runtime.ref("app/a").ask(Fail(asyncio.CancelledError())))
        assert isinstance(error, gr.ActorCrashed)
        assert isinstance(error.__cause__, asyncio.CancelledError)
        assert await runtime.ref("app/a").ask(Note(1)) == 1


# ------------------------------------------------------------------------------------------------ refused beforehand


def test_p25_concurrency_is_refused_for_a_plain_handler() -> None:
    with pytest.raises(gr.BadHandler, match="concurrency needs `async def`"):

        class Concurrent(gr.Actor):
            @gr.handles(concurrency=2)  # type: ignore[arg-type]  # the type checker refuses it, too
            def note(self, message: Note) -> int:
                return 0


def test_p25_async_handlers_on_a_thread_are_refused_when_the_spec_is_built() -> None:
    class Async(gr.Actor):
        @gr.handles
        async def note(self, message: Note) -> int:
            return 0

    with pytest.raises(gr.BadSpec, match="isolation='task' or 'process'"):
        gr.Child("a", Async, isolation="thread")


def test_p25_plain_handlers_on_the_event_loop_are_refused_when_the_spec_is_built() -> None:
    with pytest.raises(gr.BadSpec, match="isolation='thread' or 'process'"):
        gr.Child("a", Blocking)


def test_p25_the_class_inside_a_partial_is_checked_too() -> None:
    with pytest.raises(gr.BadSpec, match="isolation='thread' or 'process'"):
        gr.Child("a", partial(Blocking, log=[]))


def test_p26_ask_failure_is_refused_for_an_actor_of_ours() -> None:
    with pytest.raises(gr.BadSpec, match="ask_failure"):
        gr.Child("a", Blocking, isolation="thread", ask_failure="crash")


async def test_p25_a_class_without_handlers_may_run_on_a_thread() -> None:
    class Silent(gr.Actor):
        async def on_start(self) -> object:
            return threading.current_thread().name

    assert (await start_one(gr.Child("a", Silent, isolation="thread"))).info == "greenroom app/a #1"
