"""Supervisors that are killed, or cut short in the middle of their own stop. Behaviours 72 and 74."""

from __future__ import annotations

import anyio
import pytest

import greenroom as gr
from greenroom.mailbox import Subscription
from tests.conformance.probes import Hold, Log, Touch, exits, settle, states
from tests.conformance.witnesses import Watch, Watcher, kinds, released, settle_after_spinning

KILL_TIME = 2.0
"""Seconds from a cancellation to `stuck`, by default; a tenth follows for the last try."""


async def test_otp_072_when_a_supervisor_is_killed_its_children_see_it_and_clean_up() -> None:
    log, seen = Log(), list[gr.Terminated]()
    inner = gr.Supervisor("inner", log.child("a"), log.child("b"), shutdown="kill")
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("watcher", Watcher, seen), inner)) as runtime:
        for path in ("sup/inner/a", "sup/inner/b", "sup/inner"):
            await runtime.ref("sup/watcher").ask(Watch(runtime.ref(path)))
        log.take()
        await runtime.ref("sup").terminate_child("inner")
        await settle()
        assert sorted(log.take()) == ["kill a", "kill b"]
    assert kinds(seen) == {"sup/inner/a": "killed", "sup/inner/b": "killed", "sup/inner": "killed"}


async def test_otp_072_the_children_of_a_killed_supervisor_all_go_at_once() -> None:
    log = Log()
    children = [log.child(name, shutdown=60.0) for name in "abc"]
    with released() as never:
        async with gr.Runtime(gr.Supervisor("sup", gr.Supervisor("inner", *children, shutdown="kill"))) as runtime:
            for name in "abc":
                runtime.ref(f"sup/inner/{name}").tell(Hold(never))
            await settle()
            log.take()
            began = anyio.current_time()
        assert log.times == [began] * 3
        assert anyio.current_time() == began


async def test_otp_072_those_that_do_not_clean_up_die_with_the_killed_supervisor() -> None:
    log = Log()
    inner = gr.Supervisor("inner", log.child("tidy"), log.child("victim", shutdown="kill"), shutdown="kill")
    async with gr.Runtime(gr.Supervisor("sup", inner)) as runtime:
        events = runtime.events()
        log.take()
    assert log.take() == ["kill tidy"]
    assert [exit.kind for exit in exits(events, "sup/inner/victim")] == ["killed"]


async def test_otp_072_the_second_stop_request_cancels_the_whole_tree_at_once() -> None:
    log = Log()
    tree = gr.Supervisor("sup", log.child("a", shutdown=60.0), gr.Supervisor("inner", log.child("b", shutdown=60.0)))
    with released() as never:
        async with gr.Runtime(tree) as runtime:
            events = runtime.events()
            for path in ("sup/a", "sup/inner/b"):
                runtime.ref(path).tell(Hold(never))
            await settle()
            log.take()
            runtime.request_stop()
            await settle()
            assert log.take() == []
            runtime.request_stop()
            began = anyio.current_time()
    assert sorted(log.entries) == ["kill a", "kill b"]
    assert log.times == [began] * 2
    assert {event.path: event.exit.kind for event in events.pending() if isinstance(event, gr.ActorEnded)} == {
        "sup/a": "killed",
        "sup/inner/b": "killed",
        "sup/inner": "killed",
        "sup": "killed",
    }


async def test_otp_074_no_grandchild_outlives_a_supervisor_that_is_cut_short() -> None:
    log = Log()
    inner = gr.Supervisor("inner", log.child("grandchild", shutdown=60.0), shutdown=1.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), inner, log.child("z"))) as runtime:
        events = runtime.events()
        with released() as release:
            runtime.ref("sup/inner/grandchild").tell(Hold(release, swallow=True))
            await settle()
            log.take()
            runtime.request_stop()
            # The inner supervisor's second is over, and the kill time: everything else has stopped, and it waits.
            await anyio.sleep(1.0 + KILL_TIME + 0.25)
            assert log.take() == ["stop z", "stop a"]
            assert ended(events) == ["sup/z", "sup/a"]
            await anyio.sleep(20.0)
            assert ended(events) == []
            assert runtime.exit is None
            assert runtime.report is not None
            assert runtime.report.stuck == ("sup/inner/grandchild",)
    assert ended(events) == ["sup/inner/grandchild", "sup/inner", "sup"]


async def test_otp_074_a_supervisor_cut_short_is_killed_and_its_obedient_children_clean_up() -> None:
    log = Log()
    inner = gr.Supervisor("inner", log.child("first"), log.child("busy", shutdown=60.0), shutdown=1.0)
    with released() as never:
        async with gr.Runtime(gr.Supervisor("sup", inner)) as runtime:
            events = runtime.events()
            runtime.ref("sup/inner/busy").tell(Hold(never))
            await settle()
            log.take()
            began = anyio.current_time()
        assert sorted(log.entries) == ["kill busy", "kill first"]
        assert [time - began for time in log.times] == [1.0, 1.0]
    assert [exit.kind for exit in exits(events, "sup/inner")] == ["killed"]


async def test_otp_074_a_call_that_cuts_a_supervisor_short_is_told_that_it_is_still_ending() -> None:
    log = Log()
    inner = gr.Supervisor("inner", log.child("grandchild", shutdown=60.0), shutdown=1.0)
    async with gr.Runtime(gr.Supervisor("sup", inner, log.child("sibling"))) as runtime:
        sup = runtime.ref("sup")
        with released() as release:
            runtime.ref("sup/inner/grandchild").tell(Hold(release, swallow=True))
            await settle()
            with pytest.raises(gr.ChildStillEnding, match="'inner' of 'sup'"):
                await sup.terminate_child("inner")
            with pytest.raises(gr.ChildStillEnding):
                await sup.restart_child("inner")
            with pytest.raises(gr.ChildStillEnding):
                await sup.delete_child("inner")
            assert await runtime.ref("sup/sibling").ask(Touch()) == 1
        await settle_after_spinning()
        assert await states(sup) == {"inner": "down", "sibling": "running"}
        await sup.restart_child("inner")
        assert await runtime.ref("sup/inner/grandchild").ask(Touch()) == 1


def ended(events: Subscription[gr.Event]) -> list[str]:
    """Paths of what has ended, in order, out of the events buffered so far."""
    return [event.path for event in events.pending() if isinstance(event, gr.ActorEnded)]
