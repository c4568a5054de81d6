"""`ask`: the typed reply, or at once what happened instead (DESIGN section 3, P19, P20)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

import greenroom as gr
from greenroom.testing import VirtualClock
from tests.actors.helpers import Boom, Do, Fail, Note, Puppet, Unknown, events_of, idle, tree

PROGRAM = """
import attrs
import greenroom as gr

@attrs.frozen
class Add(gr.Message[int]):
    n: int

@attrs.frozen
class Quiet(gr.Message[None]):
    pass

class Counter(gr.Actor):
    @gr.handles
    async def add(self, message: Add) -> int:
        return message.n

    @gr.handles(concurrency=2)
    async def quiet(self, message: Quiet) -> None: ...

async def main(ref: gr.Ref, runtime: gr.Runtime) -> None:
    reveal_type(await ref.ask(Add(1)))
    reveal_type(await ref.ask(Quiet()))
    reveal_type(runtime.from_thread.ask(ref, Add(1)))
    reveal_type(ref.tell(Add(1)))
    await ref.ask("no message")
    ref.tell(1)
"""


async def test_an_ask_returns_what_the_handler_returns() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        assert await runtime.ref("app/a").ask(Note("x")) == 1


def test_a_type_checker_sees_the_type_of_the_reply(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="the type checker is a tool of development, no dependency of the tests")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={tmp_path}", str(program)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    found = [line.partition("program.py:")[2].partition(" ")[2] for line in checked.stdout.splitlines()]
    assert [line for line in found if line.startswith("note: Revealed")] == [
        'note: Revealed type is "int"',
        'note: Revealed type is "None"',
        'note: Revealed type is "int"',
        'note: Revealed type is "None"',
    ], checked.stdout + checked.stderr
    wrong = [line for line in found if line.startswith("error:")]
    assert len(wrong) == 2, checked.stdout
    assert 'Argument 1 to "ask" of "Ref" has incompatible type "str"' in wrong[0]
    assert 'Argument 1 to "tell" of "Ref" has incompatible type "int"' in wrong[1]


async def test_a_reply_may_be_an_exception_as_a_value() -> None:
    async def give(_: Puppet) -> Exception:
        return Boom("a value")

    async with tree(gr.Child("a", Puppet)) as runtime:
        assert isinstance(await runtime.ref("app/a").ask(Do(give)), Boom)


# ------------------------------------------------------------------------------------------- what happened instead


async def test_an_ask_of_something_that_is_no_message_names_its_type_and_not_its_contents() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        with pytest.raises(gr.NotAMessage) as caught:
            await runtime.ref("app/a").ask("secret")  # type: ignore[arg-type]  # under test
    assert str(caught.value) == (
        "a str is not a message: put it into one, say `@attrs.frozen class Note(gr.Message[None]): text: str`"
    )


async def test_a_message_class_in_place_of_a_message_is_refused() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        with pytest.raises(gr.NotAMessage, match=r"the class Note.*Note\(\.\.\.\)"):
            await runtime.ref("app/a").ask(Note)  # type: ignore[arg-type]  # under test


async def test_an_ask_that_no_handler_takes_raises_at_once_and_names_what_is_handled(clock: VirtualClock) -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        ref = runtime.ref("app/a")
        with pytest.raises(gr.UnhandledMessage) as caught:
            await ref.ask(Unknown("secret"))
        assert str(caught.value) == "'app/a' has no handler for Unknown: it handles Do, Fail, Hold, Note, Terminated"
        assert clock.now() == 0.0
        assert await ref.ask(Note("it lives on")) == 1


async def test_an_ask_of_an_actor_without_handlers_says_so() -> None:
    async with tree(gr.Child("a", gr.Actor)) as runtime:
        with pytest.raises(gr.UnhandledMessage, match="'app/a' has no handler for Unknown: it handles no messages"):
            await runtime.ref("app/a").ask(Unknown())


async def test_an_ask_of_a_supervisor_is_unhandled_and_crashes_nothing() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        with pytest.raises(gr.UnhandledMessage, match="'app' has no handler for Unknown"):
            await runtime.ref("app").ask(Unknown())
        assert await runtime.ref("app/a").ask(Note("fine")) == 1


async def test_a_crash_reaches_the_asker_at_once_with_its_cause(clock: VirtualClock) -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        with pytest.raises(gr.ActorCrashed) as caught:
            await runtime.ref("app/a").ask(Fail(Boom("of this")))
        assert clock.now() == 0.0
    error = caught.value
    assert (str(error), str(error.__cause__)) == (
        "'app/a' (incarnation 1) crashed while it handled a Fail; whether it had effects is not known",
        "of this",
    )
    assert isinstance(error.__cause__, Boom)
    assert error.__cause__.__traceback__ is not None
    assert (error.recipient, error.message_type, error.incarnation) == ("app/a", "Fail", 1)


def in_group(error: BaseException) -> Do:
    """A message whose handler raises this out of a task group, as anyio's users see it: inside an ExceptionGroup."""

    async def raise_in_group(_: Puppet) -> None:
        async def fail() -> None:
            raise error

        async with anyio.create_task_group() as group:
            group.start_soon(fail)

    return Do(raise_in_group)


async def test_p15_a_crash_out_of_a_task_group_in_a_handler_is_unwrapped_for_the_asker() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        with pytest.raises(gr.ActorCrashed) as caught:
            await runtime.ref("app/a").ask(in_group(Boom("inside")))
    assert isinstance(caught.value.__cause__, Boom)


async def test_p20_a_refusal_out_of_a_task_group_in_a_handler_is_a_refusal() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        ref = runtime.ref("app/a")
        with pytest.raises(gr.Rejected, match="not today"):
            await ref.ask(in_group(gr.Rejected("not today")))
        await idle()
        assert ref.incarnation == 1


async def test_p20_a_stop_out_of_a_task_group_in_a_handler_is_a_normal_end() -> None:
    async with tree(gr.Child("a", Puppet, restart="transient")) as runtime:
        events = runtime.events()
        with pytest.raises(gr.ActorStopped, match="it stopped itself instead"):
            await runtime.ref("app/a").ask(in_group(gr.Stop()))
        await idle()
        assert [event.exit for event in events_of(gr.ActorEnded, events)] == [gr.Exit("normal")]


@pytest.mark.backends("asyncio")
async def test_p12_a_cancellation_that_nobody_ordered_is_a_crash_with_the_cancellation_as_its_cause() -> None:
    async def await_a_cancelled_future(_: Puppet) -> None:
        import asyncio

        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async with tree(gr.Child("a", Puppet)) as runtime:
        with pytest.raises(gr.ActorCrashed) as caught:
            await runtime.ref("app/a").ask(Do(await_a_cancelled_future))
        await idle()
        assert runtime.ref("app/a").incarnation == 2
    assert isinstance(caught.value.__cause__, anyio.get_cancelled_exc_class())
    assert "crashed while it handled a Do" in str(caught.value)


async def test_p20_a_refusal_reaches_the_asker_as_it_was_raised_and_crashes_nothing() -> None:
    class NoStock(gr.Rejected):
        def __init__(self, item: str) -> None:
            super().__init__(item)
            self.item = item

    original = NoStock("tea")
    async with tree(gr.Child("a", Puppet)) as runtime:
        ref = runtime.ref("app/a")
        with pytest.raises(NoStock) as caught:
            await ref.ask(Fail(original))
        assert caught.value is original
        assert await ref.ask(Note("it lives on")) == 1
        assert ref.incarnation == 1


async def test_p20_a_refused_message_that_nobody_asked_about_is_a_dead_letter() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        letters = runtime.dead_letters()
        message = Fail(gr.Rejected("no"))
        runtime.ref("app/a").tell(message)
        await idle()
        assert letters.pending() == [gr.DeadLetter(message, "app/a", None, gr.DeadLetterReason.REJECTED)]


async def test_p20_stop_ends_the_actor_normally_and_its_asker_learns_it() -> None:
    async with tree(gr.Child("a", Puppet, restart="transient")) as runtime:
        events = runtime.events()
        ref = runtime.ref("app/a")
        with pytest.raises(gr.ActorStopped, match="'app/a' did not handle a Fail: it stopped itself instead"):
            await ref.ask(Fail(gr.Stop()))
        await idle()
        assert [event.exit for event in events_of(gr.ActorEnded, events)] == [gr.Exit("normal")]


async def test_p20_stop_may_end_the_actor_as_shutdown_with_a_reason() -> None:
    async with tree(gr.Child("a", Puppet, restart="transient")) as runtime:
        events = runtime.events()
        stop = gr.Stop("served enough", shutdown=True)
        runtime.ref("app/a").tell(Fail(stop))
        await idle()
        assert [event.exit for event in events_of(gr.ActorEnded, events)] == [gr.Exit("shutdown", stop)]


async def test_p20_ignore_out_of_a_handler_is_a_crash_like_any_other() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        ref = runtime.ref("app/a")
        with pytest.raises(gr.ActorCrashed):
            await ref.ask(Fail(gr.Ignore()))
        assert await ref.ask(Note("restarted")) == 1
        assert ref.incarnation == 2


async def test_context_stop_ends_the_actor_after_the_reply_of_the_message_in_hand() -> None:
    async def stop(self: Puppet) -> str:
        self.context.stop()
        self.context.ref.tell(Note("too late"))
        return "goodbye"

    log: list[object] = []
    async with tree(gr.Child("a", Puppet, log, restart="transient")) as runtime:
        letters = runtime.dead_letters()
        assert await runtime.ref("app/a").ask(Do(stop)) == "goodbye"
        await idle()
        assert (log, [letter.message for letter in letters.pending()]) == ([], [Note("too late")])


async def test_p19_an_ask_of_an_ended_actor_raises_at_once_and_says_why(clock: VirtualClock) -> None:
    async with tree(gr.Child("a", Puppet, restart="transient")) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(Fail(gr.Stop()))
        await idle()
        before = clock.now()
        with pytest.raises(gr.ActorStopped, match=r"'app/a' did not handle a Note: it has ended \(normal\)"):
            await ref.ask(Note("x"))
        assert clock.now() == before


async def test_p19_an_ask_of_a_forgotten_child_says_that_it_is_forgotten() -> None:
    async with tree(gr.Child("a", Puppet, restart="temporary")) as runtime:
        ref = runtime.ref("app/a")
        await runtime.ref("app").terminate_child("a")
        with pytest.raises(gr.ActorStopped, match="it has ended and its supervisor has forgotten it"):
            await ref.ask(Note("x"))


async def test_p19_an_ask_after_the_end_of_the_runtime_raises_actor_stopped() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        ref = runtime.ref("app/a")
    with pytest.raises(gr.ActorStopped, match="its supervisor"):
        await ref.ask(Note("x"))


async def _spin(call: Any) -> int:
    """Call until cancelled, from a task that does nothing else; how often it could before somebody else ran."""
    calls = 0
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def cancel() -> None:
                scope.cancel()

            group.start_soon(cancel)
            while calls < 10_000:
                calls += 1
                await call()
    assert scope.cancelled_caught
    return calls


@pytest.mark.parametrize("timeout", [5.0, None])
async def test_p21_asking_an_ended_actor_in_a_loop_lets_others_run(timeout: float | None) -> None:
    async with tree(gr.Child("a", Puppet, restart="transient")) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(Fail(gr.Stop()))
        await idle()

        async def ask() -> None:
            with pytest.raises(gr.ActorStopped):
                await ref.ask(Note("x"), timeout=timeout)

        assert await _spin(ask) <= 200


@pytest.mark.parametrize("capacity", [None, 10])
async def test_p21_sending_in_a_loop_lets_others_run(capacity: int | None) -> None:
    mailbox = gr.Mailbox(capacity=capacity, overflow="drop_oldest")
    async with tree(gr.Child("a", Puppet, mailbox=mailbox)) as runtime:
        ref = runtime.ref("app/a")
        assert await _spin(lambda: ref.send(Note("x"))) <= 200
