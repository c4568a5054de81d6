"""What an actor on a thread can do beside its messages: reach others, set timers, watch, stash (P25, P20, P21, P22)."""

from __future__ import annotations

from typing import Any

import anyio
import attrs
import pytest

import greenroom as gr
from tests.actors.helpers import Boom, Puppet, idle, node, raised, tree
from tests.actors.helpers import Do as AsyncDo
from tests.isolation.threads import Blocking, Do, Fail, Gate, Note, thread_child


def raises(call: Any) -> Any:
    """Turn a call into one that returns what it raises."""

    def work(actor: Any) -> BaseException:
        try:
            result = call(actor)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is what the test looks at
            return error
        raise AssertionError(f"nothing was raised, but {result!r} returned")

    return work


# ----------------------------------------------------------------------------------------------- reaching others


async def test_p21_tell_from_the_thread_raises_and_names_the_way_out() -> None:
    async with tree(thread_child("a"), gr.Child("b", Puppet)) as runtime:
        other = runtime.ref("app/b")
        error = await runtime.ref("app/a").ask(Do(raises(lambda _: other.tell(Note(1)))))
        assert isinstance(error, gr.WrongThread)
        assert "runtime.from_thread.tell" in str(error)


async def test_p25_a_thread_can_tell() -> None:
    log: list[Any] = []
    async with tree(thread_child("a"), thread_child("b", log)) as runtime:
        other = runtime.ref("app/b")
        await runtime.ref("app/a").ask(Do(lambda a: a.context.runtime.from_thread.tell(other, Note(1))))
        await other.ask(Note(2))
        assert log == [1, 2]


async def test_p25_a_thread_can_ask_and_wait_for_the_reply() -> None:
    async with tree(thread_child("a"), gr.Child("b", Puppet)) as runtime:
        other = runtime.ref("app/b")

        async def answer(_: Any) -> str:
            return "answer"

        ask = Do(lambda a: a.context.runtime.from_thread.ask(other, AsyncDo(answer)))
        assert await runtime.ref("app/a").ask(ask) == "answer"


async def test_p25_a_thread_can_ask_from_on_start() -> None:
    class Asks(Blocking):
        async def on_start(self) -> object:
            runtime = self.context.runtime
            return runtime.from_thread.ask(runtime.ref("app/b"), Note("hello"))

    async with tree(thread_child("b")) as runtime:
        started = await runtime.ref("app").start_child(gr.Child("a", Asks, isolation="thread"))
        assert started.info == 1


async def test_p25_what_an_ask_raises_is_raised_on_the_thread() -> None:
    rejected = gr.Rejected("no")
    async with tree(thread_child("a"), thread_child("b")) as runtime:
        other = runtime.ref("app/b")
        ask = Do(raises(lambda a: a.context.runtime.from_thread.ask(other, Fail(rejected))))
        assert await runtime.ref("app/a").ask(ask) is rejected


async def test_p25_an_ask_from_the_thread_times_out() -> None:
    async with tree(thread_child("a"), thread_child("b")) as runtime:
        gate, other = Gate(), runtime.ref("app/b")
        slow = Do(gate.pass_through(runtime))
        ask = Do(raises(lambda a: a.context.runtime.from_thread.ask(other, slow, timeout=2.0)))
        error = await runtime.ref("app/a").ask(ask, timeout=None)
        assert isinstance(error, gr.AskTimeout)
        assert anyio.current_time() == 2.0
        gate.open()


async def test_p22_the_thread_of_an_actor_is_the_sender_of_its_dead_letters() -> None:
    async with tree(thread_child("a"), thread_child("gone", restart="temporary")) as runtime:
        gone = runtime.ref("app/gone")
        await runtime.ref("app").terminate_child("gone")
        letters = runtime.dead_letters()
        await runtime.ref("app/a").ask(Do(lambda a: a.context.runtime.from_thread.tell(gone, Note(1))))
        (letter,) = letters.pending()
        assert (letter.recipient, letter.sender) == ("app/gone", "app/a")


async def test_p22_a_thread_that_asks_itself_is_refused() -> None:
    async with tree(thread_child("a")) as runtime:
        ref = runtime.ref("app/a")
        ask = Do(raises(lambda a: a.context.runtime.from_thread.ask(a.context.ref, Note(1))))
        assert isinstance(await ref.ask(ask), gr.WouldDeadlock)
        assert await ref.ask(Note(1)) == 1


async def test_p22_a_thread_that_asks_itself_inside_a_call_is_refused() -> None:
    async with tree(thread_child("a")) as runtime:
        ref = runtime.ref("app/a")

        async def ask_myself() -> None:
            await ref.ask(Note(1))

        call = Do(raises(lambda a: a.context.runtime.from_thread.call(ask_myself)))
        assert isinstance(await ref.ask(call), gr.WouldDeadlock)


async def test_p22_an_on_start_that_asks_itself_is_refused() -> None:
    class AsksItself(Blocking):
        async def on_start(self) -> None:
            self.context.runtime.from_thread.ask(self.context.ref, Note(1))

    async with tree() as runtime:
        error = await raised(runtime.ref("app").start_child(gr.Child("a", AsksItself, isolation="thread")))
        assert isinstance(error.__cause__, gr.WouldDeadlock)


async def test_p22_an_on_start_that_calls_its_own_supervisor_is_refused() -> None:
    class CallsAbove(Blocking):
        async def on_start(self) -> None:
            runtime = self.context.runtime
            runtime.from_thread.call(runtime.ref("app").which_children)

    async with tree() as runtime:
        error = await raised(runtime.ref("app").start_child(gr.Child("a", CallsAbove, isolation="thread")))
        assert isinstance(error.__cause__, gr.WouldDeadlock)


async def test_a_handler_may_call_its_own_supervisor() -> None:
    async with tree(thread_child("a")) as runtime:
        top = runtime.ref("app")
        children = await runtime.ref("app/a").ask(Do(lambda a: a.context.runtime.from_thread.call(top.which_children)))
        assert [child.name for child in children] == ["a"]


async def test_p25_a_thread_has_no_nursery() -> None:
    async with tree(thread_child("a")) as runtime:
        error = await runtime.ref("app/a").ask(Do(raises(lambda a: a.context.nursery)))
        assert isinstance(error, gr.Misuse)
        assert "thread" in str(error)


# ---------------------------------------------------------------------------------------------------------- timers


async def test_p25_a_timer_set_on_the_thread_ticks_there() -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log)) as runtime:
        await runtime.ref("app/a").ask(Do(lambda a: a.context.after(5.0, Note("tick"))))
        await anyio.sleep(4.9)
        assert log == []
        await anyio.sleep(0.2)
        assert log == ["tick"]


async def test_p25_a_repeated_timer_ticks_until_it_is_cancelled() -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log)) as runtime:
        ref = runtime.ref("app/a")
        await ref.ask(Do(lambda a: a.context.every(1.0, Note("tick"), key="t")))
        await anyio.sleep(3.5)
        await ref.ask(Do(lambda a: a.context.cancel("t")))
        await anyio.sleep(5)
        assert log == ["tick"] * 3


async def test_a_tick_that_waits_behind_the_handler_that_cancels_it_is_never_delivered() -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log)) as runtime:
        ref, gate = runtime.ref("app/a"), Gate()
        passes = gate.pass_through(runtime)
        await ref.ask(Do(lambda a: a.context.after(1.0, Note("tick"), key="t")))

        def cancel_late(actor: Any) -> None:
            passes(actor)
            actor.context.cancel("t")

        ref.tell(Do(cancel_late))
        await anyio.sleep(2)
        assert node(runtime, "app/a").mailbox_depth == 1
        gate.open()
        assert await ref.ask(Note("next")) == 1


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda a: a.context.after(-1, Note(1)), ValueError),
        (lambda a: a.context.every(0, Note(1)), ValueError),
        (lambda a: a.context.after(1, "no message"), gr.NotAMessage),
        (lambda a: a.context.watch("no ref"), TypeError),
        (lambda a: a.context.unwatch(None), TypeError),
    ],
    ids=["after", "every", "message", "watch", "unwatch"],
)
async def test_a_wrong_argument_is_refused_on_the_thread(call: Any, error: type[Exception]) -> None:
    async with tree(thread_child("a")) as runtime:
        assert isinstance(await runtime.ref("app/a").ask(Do(raises(call))), error)
        assert runtime.ref("app/a").incarnation == 1


async def test_what_can_only_be_found_wrong_on_the_event_loop_is_the_actors_crash() -> None:
    async with tree(thread_child("a")) as runtime:
        ref = runtime.ref("app/a")
        unhashable: Any = []
        await ref.ask(Do(lambda a: a.context.after(1, Note(1), key=unhashable)))
        assert await ref.ask(Note(1)) == 1
        assert ref.incarnation == 2
        assert "TypeError" in str(node(runtime, "app/a").last_error)


# ----------------------------------------------------------------------------------------------- watches and stops


async def test_p25_a_watch_set_on_the_thread_is_told_of_the_end() -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log), thread_child("b", restart="temporary")) as runtime:
        other = runtime.ref("app/b")
        await runtime.ref("app/a").ask(Do(lambda a: a.context.watch(other)))
        other.tell(Fail(Boom("x")))
        await idle()
        (terminated,) = log
        assert terminated.ref is other
        assert isinstance(terminated.exit.cause, Boom)


async def test_p25_a_watch_taken_back_on_the_thread_is_not_told() -> None:
    log: list[Any] = []

    def watch_and_unwatch(actor: Any) -> None:
        actor.context.watch(other)
        actor.context.unwatch(other)

    async with tree(thread_child("a", log), thread_child("b", restart="temporary")) as runtime:
        other = runtime.ref("app/b")
        await runtime.ref("app/a").ask(Do(watch_and_unwatch))
        other.tell(Fail(Boom("x")))
        await idle()
        assert log == []


async def test_p25_stop_on_the_thread_ends_the_actor_normally_and_its_reply_is_sent() -> None:
    def stop(actor: Any) -> str:
        actor.context.stop()
        return "last words"

    log: list[Any] = []
    async with tree(thread_child("a", log, restart="transient")) as runtime:
        ref = runtime.ref("app/a")
        first, second = Do(stop), Note("not any more")
        async with anyio.create_task_group() as group:
            group.start_soon(self_check, ref, second)
            assert await ref.ask(first) == "last words"
        assert node(runtime, "app/a").state is gr.State.DOWN
    assert log == ["on_stop normal"]


async def self_check(ref: gr.Ref, message: Note) -> None:
    """The message behind the one that stopped the actor is not handled."""
    assert isinstance(await raised(ref.ask(message)), gr.ActorStopped)


async def test_what_a_handler_posted_happens_before_its_reply() -> None:
    log: list[Any] = []
    async with tree(thread_child("a", log), thread_child("b")) as runtime:
        other = runtime.ref("app/b")
        for number in range(1, 51):
            await runtime.ref("app/a").ask(Do(lambda a: a.context.watch(other)))
            other.tell(Fail(Boom("x")))  # an incarnation that was not watched by now would end unseen
            await idle()
            assert [terminated.incarnation for terminated in log] == list(range(1, number + 1))


# ----------------------------------------------------------------------------------------------------------- stash


@attrs.define
class Lazy(gr.Actor):
    """Stashes notes until it is told to work."""

    log: list[Any]
    ready: bool = False

    @gr.handles
    def note(self, message: Note) -> int:
        if not self.ready:
            self.context.stash(message)
            return -1
        self.log.append(message.what)
        return len(self.log)

    @gr.handles
    def do(self, message: Do) -> Any:
        return message.work(self)


def get_ready(actor: Any) -> None:
    """Turn a lazy one into a worker."""
    actor.ready = True
    actor.context.unstash()


async def test_p25_stashed_messages_come_back_in_order_and_their_askers_go_on_waiting() -> None:
    log: list[Any] = []
    answers: list[int] = []
    async with tree(gr.Child("lazy", Lazy, log, isolation="thread")) as runtime:
        ref = runtime.ref("app/lazy")

        async def ask(number: int) -> None:
            answers.append(await ref.ask(Note(number)))

        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(ask, number)
                await idle()
            assert answers == []
            await ref.ask(Do(get_ready))
        assert log == [0, 1, 2]
        assert answers == [1, 2, 3]


async def test_p25_a_full_stash_refuses_on_the_thread() -> None:
    async with tree(gr.Child("lazy", Lazy, [], isolation="thread", mailbox=gr.Mailbox(capacity=1))) as runtime:
        ref = runtime.ref("app/lazy")
        await ref.send(Note(1))
        error = await raised(ref.ask(Note(2)))
        assert isinstance(error.__cause__, gr.StashFull)


async def test_p25_only_the_message_in_hand_can_be_stashed() -> None:
    async with tree(thread_child("a")) as runtime:
        error = await runtime.ref("app/a").ask(Do(raises(lambda a: a.context.stash(Note(1)))))
        assert isinstance(error, gr.Misuse)


async def test_p25_a_stashed_message_survives_a_restart() -> None:
    log: list[Any] = []

    def crash(_: Any) -> None:
        raise Boom("x")

    async with tree(gr.Child("lazy", Lazy, log, isolation="thread")) as runtime:
        ref = runtime.ref("app/lazy")
        ref.tell(Note("kept"))
        ref.tell(Do(crash))
        await idle()
        await ref.ask(Do(get_ready))
        await idle()
        assert ref.incarnation == 2
        assert log == ["kept"]
