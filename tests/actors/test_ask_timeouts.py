"""`ask` and time: its timeout, late replies, askers that give up (DESIGN section 3)."""

from __future__ import annotations

import anyio
import pytest

import greenroom as gr
from greenroom.testing import VirtualClock
from tests.actors.helpers import Boom, Do, Fail, Hold, Note, Puppet, idle, raised, tree


async def test_an_ask_times_out_after_five_seconds_by_default(clock: VirtualClock) -> None:
    hold = Hold()
    async with tree(gr.Child("a", Puppet)) as runtime:
        with pytest.raises(gr.AskTimeout) as caught:
            await runtime.ref("app/a").ask(hold)
        assert clock.now() == 5.0
        hold.until.set()
    assert str(caught.value) == (
        "'app/a' did not answer a Hold within 5 s; it may still do the work. "
        "Give `ask(..., timeout=...)` more, or None to wait for ever"
    )


async def test_a_timed_out_ask_is_a_timeout_error_too() -> None:
    hold = Hold()
    async with tree(gr.Child("a", Puppet)) as runtime:
        with pytest.raises(TimeoutError):
            await runtime.ref("app/a").ask(hold, timeout=0.5)
        hold.until.set()


async def test_an_ask_without_timeout_waits_for_as_long_as_it_takes() -> None:
    hold = Hold()
    async with tree(gr.Child("a", Puppet)) as runtime, anyio.create_task_group() as group:
        answers: list[str] = []

        async def ask() -> None:
            answers.append(await runtime.ref("app/a").ask(hold, timeout=None))

        group.start_soon(ask)
        await anyio.sleep(80_000)
        hold.until.set()
    assert answers == ["held"]


async def test_a_late_reply_is_dropped_and_the_work_is_done_all_the_same() -> None:
    done: list[str] = []

    async def slow(self: Puppet) -> str:
        await anyio.sleep(2)
        done.append("slow")
        return "late"

    async with tree(gr.Child("a", Puppet)) as runtime:
        ref = runtime.ref("app/a")
        with pytest.raises(gr.AskTimeout):
            await ref.ask(Do(slow), timeout=1)
        assert await ref.ask(Note("next"), timeout=10) == 1
        assert done == ["slow"]


async def test_a_timed_out_ask_that_was_still_queued_is_handled_all_the_same() -> None:
    hold, log = Hold(), list[object]()
    async with tree(gr.Child("a", Puppet, log)) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(hold)
        with pytest.raises(gr.AskTimeout):
            await ref.ask(Note("queued"), timeout=1)
        hold.until.set()
        await idle()
        assert log == ["queued"]


async def test_a_cancelled_asker_leaves_the_recipient_alone() -> None:
    hold = Hold()
    async with tree(gr.Child("a", Puppet)) as runtime:
        ref = runtime.ref("app/a")
        with anyio.move_on_after(1) as scope:
            await ref.ask(hold, timeout=None)
        assert scope.cancelled_caught
        hold.until.set()
        assert await ref.ask(Note("next")) == 1
        assert ref.incarnation == 1


async def test_a_late_failure_after_a_timeout_is_dropped() -> None:
    async def fail_late(_: Puppet) -> None:
        await anyio.sleep(2)
        raise Boom

    async with tree(gr.Child("a", Puppet)) as runtime:
        ref = runtime.ref("app/a")
        with pytest.raises(gr.AskTimeout):
            await ref.ask(Do(fail_late), timeout=1)
        assert await ref.ask(Note("next"), timeout=10) == 1
        assert ref.incarnation == 2


async def test_asks_with_many_timeouts_each_fall_due_at_their_own_time(clock: VirtualClock) -> None:
    hold = Hold()
    due: list[tuple[float, float]] = []
    async with tree(gr.Child("a", Puppet)) as runtime:
        ref = runtime.ref("app/a")

        async def ask(delay: float, timeout: float) -> None:
            await anyio.sleep(delay)
            await raised(ref.ask(hold, timeout=timeout))
            due.append((delay + timeout, clock.now()))

        async with anyio.create_task_group() as group:
            for delay, timeout in [(0.0, 4.0), (1.0, 4.0), (0.5, 1.0), (2.0, 1.0), (0.25, 8.0), (3.0, 4.0)]:
                group.start_soon(ask, delay, timeout)
        hold.until.set()
    assert sorted(due) == due
    assert [expected for expected, _ in due] == [at for _, at in due]


async def test_an_ask_with_timeout_zero_does_not_wait(clock: VirtualClock) -> None:
    hold = Hold()
    async with tree(gr.Child("a", Puppet)) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(hold)
        with pytest.raises(gr.AskTimeout):
            await ref.ask(Note("x"), timeout=0)
        assert clock.now() == 0.0
        hold.until.set()


@pytest.mark.parametrize("call", ["ask", "send"])
async def test_what_belongs_to_persistent_mailboxes_is_refused_on_one_in_memory(call: str) -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        with pytest.raises(ValueError, match="persistent mailbox; that of 'app/a' is in memory"):
            await getattr(runtime.ref("app/a"), call)(Note("x"), message_id="m1")


@pytest.mark.parametrize("error", [StopAsyncIteration(), StopIteration(), GeneratorExit()])
async def test_a_handler_may_raise_what_has_a_meaning_for_coroutines(error: BaseException) -> None:
    class Concurrent(gr.Actor):
        @gr.handles(concurrency=2)
        async def fail(self, message: Fail) -> int:
            raise message.error

    async with tree(gr.Child("a", Puppet), gr.Child("b", Concurrent)) as runtime:
        for name in ("a", "b"):
            with pytest.raises(gr.ActorCrashed):
                await runtime.ref(f"app/{name}").ask(Fail(error))
            await idle()
            assert runtime.ref(f"app/{name}").incarnation == 2
