"""Other threads: `tell` raises and loses nothing; `runtime.from_thread` is the way in (P21)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import pytest

import greenroom as gr
from greenroom.testing import VirtualClock
from tests.actors.helpers import Boom, Do, Fail, Hold, Note, Puppet, Unknown, idle, tree

R = TypeVar("R")


async def elsewhere(work: Callable[[], R]) -> R | BaseException:
    """What this returns, or raises, in a worker thread."""

    def run() -> R | BaseException:
        try:
            return work()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is what was asked for
            return error

    return await anyio.to_thread.run_sync(run)


async def test_p21_a_tell_from_another_thread_raises_and_names_the_way_in() -> None:
    log: list[object] = []
    async with tree(gr.Child("a", Puppet, log)) as runtime:
        ref = runtime.ref("app/a")
        error = await elsewhere(lambda: ref.tell(Note("x")))
        assert isinstance(error, gr.WrongThread)
        assert "`runtime.from_thread.tell(ref, message)`" in str(error)
        await idle()
        assert log == []
        assert await ref.ask(Note("y")) == 1


@pytest.mark.parametrize("overflow", ["reject", "drop_new", "drop_oldest"])
async def test_p21_a_tell_from_another_thread_to_a_full_mailbox_raises_the_same(overflow: Any) -> None:
    hold = Hold()
    async with tree(gr.Child("a", Puppet, mailbox=gr.Mailbox(capacity=1, overflow=overflow))) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(hold)
        await hold.begun.wait()
        ref.tell(Note("fills it"))
        assert isinstance(await elsewhere(lambda: ref.tell(Note("x"))), gr.WrongThread)
        assert runtime.dead_letter_counts() == {}
        hold.until.set()


async def test_p21_a_tell_from_another_thread_to_an_ended_actor_or_a_supervisor_raises_the_same() -> None:
    async with tree(gr.Child("a", Puppet, restart="transient")) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(Fail(gr.Stop()))
        await idle()
        assert isinstance(await elsewhere(lambda: ref.tell(Note("x"))), gr.WrongThread)
        assert isinstance(await elsewhere(lambda: runtime.ref("app").tell(Note("x"))), gr.WrongThread)
        assert runtime.dead_letter_counts() == {}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("call", ["send", "ask"])
async def test_p21_a_send_or_an_ask_in_another_threads_loop_raises_the_same(call: str, full: bool) -> None:
    hold = Hold()
    async with tree(gr.Child("a", Puppet, mailbox=gr.Mailbox(capacity=1))) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(hold)
        await hold.begun.wait()
        if full:
            ref.tell(Note("fills it"))
        for backend in ("asyncio", "trio"):
            error = await elsewhere(lambda: anyio.run(getattr(ref, call), Note("x"), backend=backend))  # noqa: B023
            assert isinstance(error, gr.WrongThread)
        hold.until.set()


async def test_p21_an_administration_call_from_another_thread_raises_the_same() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        error = await elsewhere(lambda: anyio.run(runtime.ref("app").which_children))
        assert isinstance(error, gr.WrongThread)


CONTEXT_CALLS: dict[str, Callable[[gr.Context], object]] = {
    "after": lambda context: context.after(1, Note("x")),
    "every": lambda context: context.every(1, Note("x")),
    "cancel": lambda context: context.cancel("k"),
    "watch": lambda context: context.watch(context.ref),
    "unwatch": lambda context: context.unwatch(context.ref),
    "stash": lambda context: context.stash(Note("x")),
    "unstash": lambda context: context.unstash(),
    "stop": lambda context: context.stop(),
    "nursery": lambda context: context.nursery.start_soon(anyio.sleep, 1),
}


@pytest.mark.parametrize("call", CONTEXT_CALLS)
async def test_p21_a_context_is_for_the_loops_thread(call: str) -> None:
    async def use_elsewhere(self: Puppet) -> object:
        return await elsewhere(lambda: CONTEXT_CALLS[call](self.context))

    async with tree(gr.Child("a", Puppet)) as runtime:
        assert isinstance(await runtime.ref("app/a").ask(Do(use_elsewhere), timeout=None), gr.WrongThread)
        assert await runtime.ref("app/a").ask(Note("fine")) == 1


# -------------------------------------------------------------------------------------------------------- the way in


async def test_from_thread_tell_puts_a_message_into_the_mailbox() -> None:
    log: list[object] = []
    async with tree(gr.Child("a", Puppet, log)) as runtime:
        assert await elsewhere(lambda: runtime.from_thread.tell(runtime.ref("app/a"), Note("x"))) is None
        await idle()
        assert log == ["x"]


async def test_from_thread_ask_returns_the_reply() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        assert await elsewhere(lambda: runtime.from_thread.ask(runtime.ref("app/a"), Note("x"))) == 1


async def test_from_thread_works_from_a_plain_thread(clock: VirtualClock) -> None:
    log, answers = list[object](), list[object]()
    async with tree(gr.Child("a", Puppet, log)) as runtime:
        done = anyio.Event()
        ref = runtime.ref("app/a")

        def work() -> None:
            for number in range(20):
                runtime.from_thread.tell(ref, Note(number))
            answers.append(runtime.from_thread.ask(ref, Note("last")))
            loop_post(done.set)

        loop_post = ref._cell.services.loop.post
        with clock.hold():
            thread = threading.Thread(target=work)
            thread.start()
            await done.wait()
            thread.join()
    assert (log, answers) == ([*range(20), "last"], [21])


async def test_from_thread_call_runs_an_async_function_on_the_loop() -> None:
    where: list[int] = []

    async def work(one: int, other: int) -> int:
        where.append(threading.get_ident())
        await anyio.lowlevel.checkpoint()
        return one + other

    async with tree(gr.Child("a", Puppet)) as runtime:
        assert await elsewhere(lambda: runtime.from_thread.call(work, 2, 3)) == 5
        assert where == [threading.get_ident()]


async def test_from_thread_call_reaches_the_administration() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        counts: Any = await elsewhere(lambda: runtime.from_thread.call(runtime.ref("app").count_children))
        assert counts.active == 1


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (Fail(Boom()), gr.ActorCrashed),
        (Fail(gr.Rejected("no")), gr.Rejected),
        (Unknown(), gr.UnhandledMessage),
        ("no message", gr.NotAMessage),
    ],
)
async def test_from_thread_ask_raises_what_ask_raises(message: Any, kind: type[Exception]) -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        assert isinstance(await elsewhere(lambda: runtime.from_thread.ask(runtime.ref("app/a"), message)), kind)


async def test_from_thread_ask_times_out() -> None:
    hold = Hold()
    async with tree(gr.Child("a", Puppet)) as runtime:
        ref = runtime.ref("app/a")
        error = await elsewhere(lambda: runtime.from_thread.ask(ref, hold, timeout=0))
        assert isinstance(error, gr.AskTimeout)
        hold.until.set()


async def test_from_thread_tell_raises_what_tell_raises() -> None:
    hold = Hold()
    async with tree(gr.Child("a", Puppet, mailbox=gr.Mailbox(capacity=1))) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(hold)
        await hold.begun.wait()
        ref.tell(Note("fills it"))
        assert isinstance(await elsewhere(lambda: runtime.from_thread.tell(ref, Note("x"))), gr.MailboxFull)
        hold.until.set()


@pytest.mark.parametrize("error", [Boom(), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
async def test_what_a_call_raises_belongs_to_its_caller_and_harms_nobody_else(error: BaseException) -> None:
    async def fail() -> None:
        raise error

    async with tree(gr.Child("a", Puppet)) as runtime:
        assert await elsewhere(lambda: runtime.from_thread.call(fail)) is error
        assert await runtime.ref("app/a").ask(Note("fine")) == 1


async def test_from_thread_on_the_loops_own_thread_is_refused_and_names_the_way_out() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        ref = runtime.ref("app/a")
        for call in (lambda: runtime.from_thread.tell(ref, Note("x")), lambda: runtime.from_thread.ask(ref, Note("x"))):
            with pytest.raises(
                gr.Misuse, match=r"the event loop's own thread: use `await ref.ask\(...\)` or `ref.tell"
            ):
                call()


async def test_from_thread_needs_a_runtime_that_runs() -> None:
    runtime = tree(gr.Child("a", Puppet))
    with pytest.raises(gr.RuntimeNotRunning, match=r"runtime\.from_thread needs a running runtime"):
        runtime.from_thread


async def test_from_thread_after_the_end_says_so() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        ref, from_thread = runtime.ref("app/a"), runtime.from_thread
    for call in (lambda: from_thread.tell(ref, Note("x")), lambda: from_thread.call(idle)):
        assert isinstance(await elsewhere(call), gr.RuntimeNotRunning)


async def test_a_thread_that_waits_when_the_runtime_ends_is_told(clock: VirtualClock) -> None:
    outcome: list[BaseException] = []
    async with tree(gr.Child("a", Puppet)) as runtime:
        begun = anyio.Event()

        async def forever() -> None:
            begun.set()
            await anyio.sleep_forever()

        def work() -> None:
            try:
                runtime.from_thread.call(forever)
            except BaseException as error:  # noqa: BLE001 - as above
                outcome.append(error)

        with clock.hold():
            thread = threading.Thread(target=work)
            thread.start()
            await begun.wait()
    thread.join()
    assert [type(error) for error in outcome] == [gr.RuntimeNotRunning]


async def test_a_call_that_turns_its_cancellation_into_a_result_does_not_harm_the_end(clock: VirtualClock) -> None:
    outcome: list[object] = []
    async with tree(gr.Child("a", Puppet)) as runtime:
        begun = anyio.Event()

        async def stubborn() -> str:
            begun.set()
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                return "a result after all"
            return ""

        def work() -> None:
            try:
                outcome.append(runtime.from_thread.call(stubborn))
            except BaseException as error:  # noqa: BLE001 - as above
                outcome.append(error)

        with clock.hold():
            thread = threading.Thread(target=work)
            thread.start()
            await begun.wait()
    thread.join()
    assert len(outcome) == 1


async def test_p22_a_dead_letter_from_a_handlers_worker_thread_names_the_actor() -> None:
    async def tell_from_thread(self: Puppet) -> None:
        runtime = self.context.runtime
        await anyio.to_thread.run_sync(lambda: runtime.from_thread.tell(runtime.ref("app"), Note("x")))

    async with tree(gr.Child("a", Puppet)) as runtime:
        letters = runtime.dead_letters()
        await runtime.ref("app/a").ask(Do(tell_from_thread))
        assert [letter.sender for letter in letters.pending()] == ["app/a"]
