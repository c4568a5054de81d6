"""OTP b.52-61: what happens when the start in a restart fails, and what may be done meanwhile."""

from __future__ import annotations

import anyio
import pytest

import greenroom as gr
from tests.conformance.probes import Boom, Crash, Log, Touch, below_top, crash, exits, reports, settle, states

SLOW_FAILURE = (1.0, Boom("not yet"))
"""A start that fails after a second. Calls made meanwhile are served between it and the next attempt."""


async def test_otp_052_a_restart_that_fails_once_is_tried_again_and_both_attempts_count() -> None:
    log = Log()
    log.next_starts("a", None, SLOW_FAILURE)
    sup = gr.Supervisor("sup", log.child("a"), intensity=2, period=60.0, restart="temporary")
    async with below_top(sup) as runtime:
        await crash(runtime.ref("top/sup/a"))
        assert await states(runtime.ref("top/sup")) == {"a": "restarting"}
        assert await states(runtime.ref("top/sup")) == {"a": "running"}
        assert log.take() == ["start a", "die a", "fail a", "start a"]
        await crash(runtime.ref("top/sup/a"))
        assert log.take() == ["die a"]
        assert await states(runtime.ref("top")) == {}


@pytest.mark.parametrize("restart", ["permanent", "transient"])
@pytest.mark.parametrize("intensity", [1, 2, 3])
async def test_otp_052_a_child_that_fails_every_restart_is_started_as_often_as_the_intensity_says(
    restart: str, intensity: int
) -> None:
    log = Log()
    log.next_starts("a", None, *[Boom()] * 10)
    sup = gr.Supervisor("sup", log.child("a", restart=restart), intensity=intensity, restart="temporary")
    async with below_top(sup) as runtime:
        events = runtime.events()
        await crash(runtime.ref("top/sup/a"))
        assert log.take() == ["start a", "die a"] + ["fail a"] * intensity
        assert [exit.kind for exit in exits(events, "top/sup")] == ["shutdown"]


async def test_otp_053_what_may_be_done_with_a_restarting_child() -> None:
    log = Log()
    log.next_starts("a", None, *[SLOW_FAILURE] * 10)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"), intensity=20)) as runtime:
        sup = runtime.ref("sup")
        await crash(runtime.ref("sup/a"))
        with pytest.raises(gr.AlreadyPresent):
            await sup.start_child(log.child("a"))
        with pytest.raises(gr.ChildRestarting):
            await sup.restart_child("a")
        with pytest.raises(gr.ChildRestarting):
            await sup.delete_child("a")
        assert await states(sup) == {"a": "restarting", "b": "running"}
        assert await sup.count_children() == gr.ChildCounts(specs=2, active=1, supervisors=0, workers=2)


async def test_otp_058_calls_are_answered_between_the_attempts_of_a_retry_loop() -> None:
    log = Log()
    log.next_starts("a", None, *[SLOW_FAILURE] * 10)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), intensity=20)) as runtime:
        await crash(runtime.ref("sup/a"))
        for attempts in range(1, 4):
            assert log.start_calls("a") == 1 + attempts
            assert await states(runtime.ref("sup")) == {"a": "restarting"}
            await settle()


async def test_otp_058_a_stop_of_the_supervisor_ends_the_retry_loop_at_once() -> None:
    log = Log()
    log.next_starts("a", None, *[SLOW_FAILURE] * 10)
    sup = gr.Supervisor("sup", log.child("a"), log.child("b"), intensity=20, restart="temporary")
    async with below_top(sup) as runtime:
        events = runtime.events()
        await crash(runtime.ref("top/sup/a"))
        log.take()
        await runtime.ref("top").terminate_child("sup")
        assert anyio.current_time() == 1.0
        assert log.take() == ["stop b"]
        assert exits(events, "top/sup") == [gr.Exit("shutdown")]


async def test_otp_059_a_child_that_ignores_its_restart_is_down_and_not_tried_again() -> None:
    log = Log()
    log.next_starts("a", None, gr.Ignore(), gr.Ignore())
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), intensity=1)) as runtime:
        sup = runtime.ref("sup")
        await crash(runtime.ref("sup/a"))
        assert log.take() == ["start a", "die a", "ignore a"]
        assert await states(sup) == {"a": "down"}
        with pytest.raises(gr.AlreadyPresent):
            await sup.start_child(log.child("a"))
        assert await sup.restart_child("a") is None
        assert await states(sup) == {"a": "down"}


async def test_otp_060_a_child_that_ignores_a_group_restart_is_tried_again_at_the_next_one() -> None:
    log = Log()
    log.next_starts("b", None, gr.Ignore())
    tree = gr.Supervisor("sup", *(log.child(name) for name in "abc"), strategy="one_for_all", intensity=2)
    async with gr.Runtime(tree) as runtime:
        await crash(runtime.ref("sup/a"))
        assert await states(runtime.ref("sup")) == {"a": "running", "b": "down", "c": "running"}
        await crash(runtime.ref("sup/a"))
        assert await states(runtime.ref("sup")) == {"a": "running", "b": "running", "c": "running"}


async def test_otp_061_a_restart_by_hand_that_fails_leaves_the_child_down_and_is_neither_tried_again_nor_counted() -> (
    None
):
    log = Log()
    boom = Boom("by hand")
    log.next_starts("a", None, boom, Boom("again"))
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), intensity=0)) as runtime:
        sup = runtime.ref("sup")
        await sup.terminate_child("a")
        with pytest.raises(gr.StartFailed, match="by hand") as failure:
            await sup.restart_child("a")
        assert failure.value.__cause__ is boom
        assert await states(sup) == {"a": "down"}
        with pytest.raises(gr.StartFailed):
            await sup.restart_child("a")
        await settle()
        assert log.take() == ["start a", "stop a", "fail a", "fail a"]
        assert await states(sup) == {"a": "down"}


# ----------------------------------------------------------------------------------------------------- in a group


async def test_one_for_all_at_the_retry_stops_those_that_had_started_and_starts_the_whole_group() -> None:
    log = Log()
    log.next_starts("b", None, SLOW_FAILURE)
    tree = gr.Supervisor("sup", *(log.child(name) for name in "abc"), strategy="one_for_all", intensity=2)
    async with gr.Runtime(tree) as runtime:
        log.take()
        await crash(runtime.ref("sup/c"))
        assert log.take() == ["die c", "stop b", "stop a", "start a", "fail b"]
        assert await states(runtime.ref("sup")) == {"a": "running", "b": "restarting", "c": "restarting"}
        await settle()
        assert log.take() == ["stop a", "start a", "start b", "start c"]


async def test_rest_for_one_at_the_retry_leaves_those_before_alone_and_goes_on_with_the_failed_one() -> None:
    log = Log()
    log.next_starts("c", None, SLOW_FAILURE)
    tree = gr.Supervisor("sup", *(log.child(name) for name in "abcd"), strategy="rest_for_one", intensity=2)
    async with gr.Runtime(tree) as runtime:
        log.take()
        await crash(runtime.ref("sup/b"))
        assert log.take() == ["die b", "stop d", "stop c", "start b", "fail c"]
        await anyio.sleep(2.0)
        assert log.take() == ["start c", "start d"]
        assert [runtime.ref(f"sup/{name}").incarnation for name in "abcd"] == [1, 2, 3, 2]


async def test_a_group_restart_that_covers_a_retrying_child_makes_its_queued_retry_void() -> None:
    log = Log()
    log.next_starts("c", None, SLOW_FAILURE)
    tree = gr.Supervisor("sup", *(log.child(name) for name in "abc"), strategy="rest_for_one", intensity=2)
    async with gr.Runtime(tree) as runtime:
        log.take()
        await crash(runtime.ref("sup/c"))
        runtime.ref("sup/a").tell(Crash())  # dies during the failing start: its end is queued before the retry
        await anyio.sleep(5.0)
        # Two restarts, not three: intensity 2 would not have allowed the retry as well.
        assert log.take() == ["die c", "fail c", "die a", "stop b", "start a", "start b", "start c"]
        assert set((await states(runtime.ref("sup"))).values()) == {"running"}


async def test_it_stays_void_when_the_group_restart_fails_before_it_comes_to_that_child() -> None:
    log = Log()
    log.next_starts("a", None, SLOW_FAILURE)
    log.next_starts("c", None, SLOW_FAILURE)
    tree = gr.Supervisor("sup", *(log.child(name) for name in "abc"), strategy="rest_for_one", intensity=3)
    async with gr.Runtime(tree) as runtime:
        log.take()
        await crash(runtime.ref("sup/c"))
        runtime.ref("sup/a").tell(Crash())
        await anyio.sleep(5.0)
        assert log.take() == ["die c", "fail c", "die a", "stop b", "fail a", "start a", "start b", "start c"]


async def test_terminating_a_retrying_child_cancels_the_retry_and_leaves_those_that_waited_for_it_down() -> None:
    log = Log()
    log.next_starts("b", None, *[SLOW_FAILURE] * 10)
    tree = gr.Supervisor("sup", *(log.child(name) for name in "abc"), strategy="rest_for_one", intensity=20)
    async with gr.Runtime(tree) as runtime:
        sup = runtime.ref("sup")
        await crash(runtime.ref("sup/b"))
        await sup.terminate_child("b")
        assert await states(sup) == {"a": "running", "b": "down", "c": "down"}
        log.take()
        await anyio.sleep(5.0)
        assert log.take() == []
        await sup.restart_child("c")
        assert await states(sup) == {"a": "running", "b": "down", "c": "running"}


async def test_terminating_a_retrying_child_twice_is_fine() -> None:
    log = Log()
    log.next_starts("a", None, *[SLOW_FAILURE] * 10)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), intensity=20)) as runtime:
        sup = runtime.ref("sup")
        await crash(runtime.ref("sup/a"))
        await sup.terminate_child("a")
        await sup.terminate_child("a")
        assert await states(sup) == {"a": "down"}
        await sup.delete_child("a")
        assert await states(sup) == {}


async def test_messages_for_siblings_that_wait_to_be_restarted_are_kept_for_them() -> None:
    """Different on purpose: in OTP they are down meanwhile and have no mailbox."""
    log = Log()
    log.next_starts("a", None, SLOW_FAILURE)
    tree = gr.Supervisor("sup", log.child("a"), log.child("b"), strategy="one_for_all", intensity=3)
    async with gr.Runtime(tree) as runtime:
        await crash(runtime.ref("sup/a"))
        assert await runtime.ref("sup/b").ask(Touch()) == 1
        assert log.take() == ["start a", "start b", "die a", "stop b", "fail a", "start a", "start b"]


async def test_a_start_in_a_restart_that_times_out_is_tried_again_like_any_failed_start() -> None:
    log = Log()
    log.next_starts("a", None, 60.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a", start_timeout=2.0), intensity=2)) as runtime:
        events = runtime.events()
        await crash(runtime.ref("sup/a"))
        await anyio.sleep(3.0)
        assert await states(runtime.ref("sup")) == {"a": "running"}
        (report,) = reports(events, "start_error")
        assert report.exit is not None
        assert isinstance(report.exit.cause, gr.StartTimeout)


async def test_a_failed_start_in_a_restart_is_reported() -> None:
    log = Log()
    boom = Boom("not yet")
    log.next_starts("a", None, boom)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), intensity=2)) as runtime:
        events = runtime.events()
        await crash(runtime.ref("sup/a"))
        (report,) = reports(events, "start_error")
        assert (report.path, report.reason, report.offender.path) == ("sup", "not yet", "sup/a")
        assert report.exit == gr.Exit("error", boom)
