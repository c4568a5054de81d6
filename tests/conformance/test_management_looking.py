"""What is found by looking: lists and counts, refs of what is gone, stray messages. Behaviours 89 to 92."""

from __future__ import annotations

import asyncio
import logging

import anyio
import pytest

import greenroom as gr
from tests.conformance.calls import SLOW, dynamic
from tests.conformance.probes import Crash, Log, Touch, crash, exits, settle, states
from tests.conformance.witnesses import Watch, Watcher, kinds

# ----------------------------------------------------------------------------------------------------- lists and counts


async def test_otp_089_the_latest_started_child_is_listed_first() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"), gr.Supervisor("inner"))) as runtime:
        await runtime.ref("sup").start_child(log.child("late"))
        found = await runtime.ref("sup").which_children()
        assert [(info.name, info.kind) for info in found] == [
            ("late", "worker"),
            ("inner", "supervisor"),
            ("b", "worker"),
            ("a", "worker"),
        ]
        assert found[0].ref is runtime.ref("sup/late")


async def test_otp_089_a_restart_does_not_change_the_order() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"))) as runtime:
        await crash(runtime.ref("sup/a"))
        found = await runtime.ref("sup").which_children()
        assert [(info.name, info.incarnation, info.restarts) for info in found] == [("b", 1, 0), ("a", 2, 1)]


async def test_otp_089_dynamic_children_are_listed_latest_first_too() -> None:
    log = Log()
    async with gr.Runtime(dynamic(log)) as runtime:
        for _ in range(3):
            await runtime.ref("sup/dyn").start_child()
        assert [info.name for info in await runtime.ref("sup/dyn").which_children()] == ["3", "2", "1"]


async def test_count_children_counts_what_is_down_and_restarting_but_not_as_active() -> None:
    log = Log()
    children = [log.child("up"), log.child("off"), log.child("bad", backoff=SLOW)]
    async with gr.Runtime(gr.Supervisor("sup", *children, gr.Supervisor("inner"))) as runtime:
        await runtime.ref("sup").terminate_child("off")
        await crash(runtime.ref("sup/bad"))
        assert await runtime.ref("sup").count_children() == gr.ChildCounts(specs=4, active=2, supervisors=1, workers=3)


# ------------------------------------------------------------------- strays, slow starts, and children that would leave


async def test_otp_090_a_stray_message_to_a_supervisor_is_logged_and_hurts_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        letters = runtime.dead_letters()
        with caplog.at_level(logging.INFO, "greenroom.dead_letters"):
            runtime.ref("sup").tell(Touch())
            await runtime.ref("sup").send(Touch())
        assert [record.getMessage() for record in caplog.records] == [
            "dead letter: Touch to sup from outside (unhandled)"
        ] * 2
        assert [letter.reason for letter in letters.pending()] == [gr.DeadLetterReason.UNHANDLED] * 2
        assert await runtime.ref("sup/a").ask(Touch()) == 1
        assert await states(runtime.ref("sup")) == {"a": "running"}


async def test_otp_090_a_stray_ask_to_a_supervisor_is_answered_with_an_error() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        with pytest.raises(gr.UnhandledMessage, match=r"'sup' has no handler for Touch"):
            await runtime.ref("sup").ask(Touch())
        assert await states(runtime.ref("sup")) == {"a": "running"}


async def test_otp_091_a_call_during_a_slow_start_waits_for_it_and_is_then_answered() -> None:
    log, found = Log(), dict[str, str]()
    log.next_starts("slow", 30.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime, anyio.create_task_group() as group:

        async def look() -> None:
            found.update(await states(runtime.ref("sup")))

        began = anyio.current_time()
        group.start_soon(runtime.ref("sup").start_child, log.child("slow"))
        await settle()
        group.start_soon(look)
        await anyio.sleep(29.0)
        assert found == {}
        await anyio.sleep(began + 30.0 - anyio.current_time())
        await settle()
        assert found == {"a": "running", "slow": "running"}


async def test_otp_092_a_child_has_no_way_to_leave_its_supervisor() -> None:
    face = {name for face in (gr.Context, gr.Ref, gr.Runtime, gr.Actor, gr.Nursery) for name in dir(face)}
    assert {name for name in face if any(word in name for word in ("unlink", "link", "detach", "disown"))} == set()


@pytest.mark.backends("asyncio")
async def test_otp_092_a_child_that_cancels_its_own_task_as_only_asyncio_allows_is_noticed_and_restarted() -> None:
    class Escapist(gr.Actor):
        @gr.handles
        async def flee(self, _message: Crash) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await anyio.sleep_forever()

        @gr.handles
        async def touch(self, _message: Touch) -> int:
            return self.context.incarnation

    async with gr.Runtime(gr.Supervisor("sup", gr.Child("escapist", Escapist))) as runtime:
        events = runtime.events()
        await crash(runtime.ref("sup/escapist"))
        (exit,) = exits(events, "sup/escapist")
        assert exit.kind == "error"
        assert isinstance(exit.cause, asyncio.CancelledError)
        assert await runtime.ref("sup/escapist").ask(Touch()) == 2


async def test_otp_092_nothing_that_a_child_has_started_outlives_it() -> None:
    log = list[str]()

    async def background() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            log.append("the background has ended")

    class Parent(gr.Actor):
        async def on_start(self) -> None:
            self.context.nursery.start_soon(background)

    async with gr.Runtime(gr.Supervisor("sup", gr.Child("parent", Parent))) as runtime:
        await settle()
        await runtime.ref("sup").terminate_child("parent")
        log.append("the child has ended")
    assert log == ["the background has ended", "the child has ended"]


# ---------------------------------------------------------------------------------------------- the ref of what is gone


async def test_a_message_to_a_deleted_child_is_a_dead_letter() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        old = runtime.ref("sup/a")
        letters = runtime.dead_letters()
        await runtime.ref("sup").terminate_child("a")
        await runtime.ref("sup").delete_child("a")
        old.tell(Touch())
        (letter,) = letters.pending()
        assert (letter.recipient, letter.reason) == ("sup/a", gr.DeadLetterReason.ENDED)


async def test_an_ask_to_a_deleted_child_fails_at_once() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        old = runtime.ref("sup/a")
        await runtime.ref("sup").terminate_child("a")
        await runtime.ref("sup").delete_child("a")
        with pytest.raises(gr.ActorStopped, match="'sup/a'"), anyio.fail_after(0):
            await old.ask(Touch(), timeout=None)


async def test_the_ref_of_a_deleted_child_does_not_reach_its_successor() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        old = runtime.ref("sup/a")
        await runtime.ref("sup").terminate_child("a")
        await runtime.ref("sup").delete_child("a")
        new = await runtime.ref("sup").start_child(log.child("a"))
        assert new is not old
        with pytest.raises(gr.ActorStopped):
            await old.ask(Touch())
        assert await new.ask(Touch()) == 1


async def test_the_ref_of_a_terminated_child_reaches_its_next_incarnation() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        ref = runtime.ref("sup/a")
        await runtime.ref("sup").terminate_child("a")
        with pytest.raises(gr.ActorStopped):
            await ref.ask(Touch())
        await runtime.ref("sup").restart_child("a")
        assert await ref.ask(Touch()) == 1


async def test_watching_the_ref_of_a_deleted_child_tells_of_its_end_at_once() -> None:
    log, seen = Log(), list[gr.Terminated]()
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("watcher", Watcher, seen), log.child("a"))) as runtime:
        old = runtime.ref("sup/a")
        await runtime.ref("sup").terminate_child("a")
        await runtime.ref("sup").delete_child("a")
        await runtime.ref("sup/watcher").ask(Watch(old))
        await settle()
    assert kinds(seen) == {"sup/a": "shutdown"}


async def test_children_of_a_supervisor_that_has_ended_are_no_longer_found() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", gr.Supervisor("inner", log.child("a")))) as runtime:
        old = runtime.ref("sup/inner/a")
        await runtime.ref("sup").terminate_child("inner")
        with pytest.raises(gr.NoSuchActor):
            runtime.ref("sup/inner/a")
        with pytest.raises(gr.ActorStopped):
            await old.ask(Touch())
