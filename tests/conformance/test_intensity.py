"""OTP b.37-51: how many restarts a supervisor allows, and what happens after one too many.

OTP counts whole seconds; here the window is exact, so its edges can be tested.
"""

from __future__ import annotations

import functools

import anyio
import pytest

import greenroom as gr
from tests.conformance.probes import Boom, Crash, Log, Probe, Touch, below_top, crash, exits, reports, settle, states


async def crash_at(moment: float, ref: gr.Ref) -> None:
    """Crash a probe at exactly this moment, and let everything settle."""
    await anyio.sleep_until(moment)
    await crash(ref)


async def test_otp_037_without_intensity_the_first_crash_makes_the_supervisor_give_up() -> None:
    log = Log()
    sup = gr.Supervisor("sup", *(log.child(name) for name in "abc"), intensity=0, restart="temporary")
    async with below_top(sup) as runtime:
        events = runtime.events()
        log.take()
        await crash(runtime.ref("top/sup/b"))
        assert log.take() == ["die b", "stop c", "stop a"]
        (exit,) = exits(events, "top/sup")
        assert exit.kind == "shutdown"


async def test_otp_038_the_intensity_is_shared_by_all_children() -> None:
    log = Log()
    sup = gr.Supervisor("sup", log.child("a"), log.child("b"), intensity=2, period=10.0, restart="temporary")
    async with below_top(sup) as runtime:
        a, b = runtime.ref("top/sup/a"), runtime.ref("top/sup/b")
        await crash_at(1.0, a)
        await crash_at(4.0, b)
        log.take()
        await crash_at(8.0, a)
        assert log.take() == ["die a", "stop b"]


async def test_otp_040_restarts_further_apart_than_the_period_are_allowed_for_ever() -> None:
    log = Log()
    sup = gr.Supervisor("sup", log.child("a"), intensity=1, period=1.0)
    async with gr.Runtime(sup) as runtime:
        for count in range(1, 20):
            await crash_at(2.1 * count, runtime.ref("sup/a"))
        assert runtime.ref("sup/a").incarnation == 20


async def test_otp_040_a_restart_exactly_one_period_ago_still_counts() -> None:
    log = Log()
    sup = gr.Supervisor("sup", log.child("a"), intensity=1, period=10.0, restart="temporary")
    async with below_top(sup) as runtime:
        await crash_at(100.0, runtime.ref("top/sup/a"))
        assert await states(runtime.ref("top")) == {"sup": "running"}
        await crash_at(110.0, runtime.ref("top/sup/a"))
        assert await states(runtime.ref("top")) == {}


async def test_otp_040_a_restart_more_than_one_period_ago_counts_no_longer() -> None:
    """Different on purpose: OTP counts whole seconds, and would still find the two in one window."""
    log = Log()
    sup = gr.Supervisor("sup", log.child("a"), intensity=1, period=10.0)
    async with gr.Runtime(sup) as runtime:
        await crash_at(100.0, runtime.ref("sup/a"))
        await crash_at(110.0 + 2**-10, runtime.ref("sup/a"))
        assert runtime.ref("sup/a").incarnation == 3


async def test_otp_043_what_is_done_by_hand_is_never_counted() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), intensity=0)) as runtime:
        sup = runtime.ref("sup")
        for _ in range(4):
            await sup.terminate_child("a")
            await sup.restart_child("a")
        assert await states(sup) == {"a": "running"}
        assert runtime.ref("sup/a").incarnation == 5


async def test_otp_044_a_success_does_not_clear_the_window() -> None:
    log = Log()
    sup = gr.Supervisor("sup", log.child("a"), intensity=1, period=10.0, restart="temporary")
    async with below_top(sup) as runtime:
        ref = runtime.ref("top/sup/a")
        await crash_at(1.0, ref)
        assert await ref.ask(Touch()) == 1
        await crash_at(6.0, ref)
        assert log.take() == ["start a", "die a", "start a", "die a"]
        assert await states(runtime.ref("top")) == {}


async def test_otp_047_giving_up_is_reported_with_its_reason_and_offender_and_the_exit_is_a_plain_shutdown() -> None:
    log = Log()
    sup = gr.Supervisor("sup", log.child("a"), log.child("b"), intensity=0, restart="temporary")
    async with below_top(sup) as runtime:
        events = runtime.events()
        seen = runtime.events()
        await crash(runtime.ref("top/sup/b"))
        (report,) = reports(events, "shutdown")
        assert (report.path, report.reason) == ("top/sup", "reached_max_restart_intensity")
        assert report.offender.path == "top/sup/b"
        (exit,) = exits(seen, "top/sup")
        assert exit.kind == "shutdown"
        assert exit.clean


async def test_otp_047_the_cause_of_giving_up_is_kept_in_the_exit_for_people() -> None:
    log = Log()
    sup = gr.Supervisor("sup", log.child("a"), intensity=0, restart="temporary")
    async with below_top(sup) as runtime:
        events = runtime.events()
        boom = Boom("one too many")
        runtime.ref("top/sup/a").tell(Crash(boom))
        await settle()
        (exit,) = exits(events, "top/sup")
        assert isinstance(exit.cause, gr.RestartLimitExceeded)
        assert (exit.cause.supervisor, exit.cause.child) == ("top/sup", "top/sup/a")
        assert exit.cause.__cause__ is boom


async def test_otp_047_after_failed_starts_the_cause_is_what_the_last_start_raised() -> None:
    log = Log()
    last = Boom("the last")
    log.next_starts("a", None, Boom("the first"), last)
    sup = gr.Supervisor("sup", log.child("a"), intensity=2, restart="temporary")
    async with below_top(sup) as runtime:
        events = runtime.events()
        await crash(runtime.ref("top/sup/a"))
        (exit,) = exits(events, "top/sup")
        assert exit.cause is not None
        assert exit.cause.__cause__ is last


async def test_otp_049_a_permanent_supervisor_that_gave_up_comes_back_with_its_first_children_only() -> None:
    log = Log()
    sub = gr.Supervisor("sub", log.child("a"), intensity=0)
    async with gr.Runtime(gr.Supervisor("sup", sub, log.child("sibling"))) as runtime:
        await runtime.ref("sup/sub").start_child(log.child("dyn"))
        log.take()
        await crash(runtime.ref("sup/sub/a"))
        assert log.take() == ["die a", "stop dyn", "start a"]
        assert await states(runtime.ref("sup/sub")) == {"a": "running"}
        assert runtime.ref("sup/sub").incarnation == 2
        assert runtime.ref("sup/sibling").incarnation == 1


async def test_otp_051_a_restarted_supervisor_has_an_empty_window() -> None:
    log = Log()
    sub = gr.Supervisor("sub", log.child("a"), intensity=1, period=100.0)
    async with gr.Runtime(gr.Supervisor("sup", sub)) as runtime:
        await crash(runtime.ref("sup/sub/a"), runtime.ref("sup/sub/a"))
        assert runtime.ref("sup/sub").incarnation == 2
        await crash(runtime.ref("sup/sub/a"))
        assert runtime.ref("sup/sub").incarnation == 2
        assert runtime.ref("sup/sub/a").incarnation == 4  # the address counts on: two lives below each supervisor


# ------------------------------------------------------------------------------------------------------ giving up


async def test_a_transient_supervisor_that_gave_up_stays_down_and_that_is_reported() -> None:
    """P30. Different on purpose: OTP leaves it down silently, since its exit counts as clean."""
    log = Log()
    sub = gr.Supervisor("sub", log.child("a"), intensity=0, restart="transient")
    async with gr.Runtime(gr.Supervisor("sup", sub)) as runtime:
        events = runtime.events()
        await crash(runtime.ref("sup/sub/a"))
        assert await states(runtime.ref("sup")) == {"sub": "down"}
        found = [(report.context, report.offender.path) for report in reports(events)]
        assert found == [
            ("child_terminated", "sup/sub/a"),
            ("shutdown", "sup/sub/a"),
            ("child_terminated", "sup/sub"),
        ]


async def test_the_tree_fails_when_its_top_gives_up_and_the_causes_lead_down_to_the_crash() -> None:
    log = Log()
    boom = Boom("the bottom of it")
    sub = gr.Supervisor("sub", log.child("a"), intensity=0)
    with pytest.raises(gr.TreeFailed) as failure:
        async with gr.Runtime(gr.Supervisor("sup", sub, intensity=0)) as runtime:
            runtime.ref("sup/sub/a").tell(Crash(boom))
            await anyio.sleep_forever()
    causes = []
    error: BaseException | None = failure.value
    while error is not None:
        causes.append(error)
        error = error.__cause__
    assert [type(one) for one in causes] == [gr.TreeFailed, gr.RestartLimitExceeded, gr.RestartLimitExceeded, Boom]
    assert causes[-1] is boom


@pytest.mark.parametrize(("outer", "inner"), [(0, 0), (1, 0), (0, 1), (2, 2), (3, 1)])
async def test_nested_supervisors_give_up_at_the_product_of_their_intensities_plus_one(outer: int, inner: int) -> None:
    log = Log()
    sub = gr.Supervisor("sub", log.child("a"), intensity=inner)
    crashes = 0
    with pytest.raises(gr.TreeFailed):
        async with gr.Runtime(gr.Supervisor("sup", sub, intensity=outer)) as runtime:
            while True:
                crashes += 1
                await crash(runtime.ref("sup/sub/a"))
    assert crashes == (outer + 1) * (inner + 1)
    assert log.start_calls("a") == crashes


async def test_a_temporary_childs_crash_is_not_counted() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a", restart="temporary"), intensity=0)) as runtime:
        await crash(runtime.ref("sup/a"))
        assert await states(runtime.ref("sup")) == {}


async def test_a_dynamic_supervisor_that_gives_up_stops_its_children_at_once() -> None:
    log = Log()
    pool = gr.DynamicSupervisor("pool", functools.partial(Probe, log), intensity=0, restart="temporary")
    async with gr.Runtime(gr.Supervisor("sup", pool)) as runtime:
        refs = [await runtime.ref("sup/pool").start_child(name) for name in "abc"]
        log.next_stops("b", 2.0)
        log.next_stops("c", 3.0)
        before = anyio.current_time()
        await crash(refs[0])
        assert log.when("stop b") == log.when("stop c") == [before]
        await anyio.sleep_until(before + 3.5)
        assert await states(runtime.ref("sup")) == {}


# ---------------------------------------------------------------------------------------------- a child's own limit


async def test_a_childs_own_intensity_is_checked_before_its_supervisors() -> None:
    log = Log()
    sup = gr.Supervisor(
        "sup", log.child("a", intensity=(1, 10.0)), log.child("b"), intensity=100, period=10.0, restart="temporary"
    )
    async with below_top(sup) as runtime:
        events = runtime.events()
        await crash(*[runtime.ref("top/sup/b")] * 5, runtime.ref("top/sup/a"))
        assert await states(runtime.ref("top")) == {"sup": "running"}
        await crash(runtime.ref("top/sup/a"))
        (exit,) = exits(events, "top/sup")
        assert isinstance(exit.cause, gr.RestartLimitExceeded)
        assert (exit.cause.whose, exit.cause.intensity, exit.cause.period) == ("child", 1, 10.0)


async def test_a_childs_own_intensity_ages_by_its_own_period() -> None:
    log = Log()
    sup = gr.Supervisor("sup", log.child("a", intensity=(1, 2.0)), intensity=100)
    async with gr.Runtime(sup) as runtime:
        for count in range(1, 6):
            await crash_at(3.0 * count, runtime.ref("sup/a"))
        assert runtime.ref("sup/a").incarnation == 6


async def test_the_supervisors_intensity_holds_beside_a_childs_own() -> None:
    log = Log()
    sup = gr.Supervisor("sup", log.child("a", intensity=(100, 5.0)), intensity=1, restart="temporary")
    async with below_top(sup) as runtime:
        events = runtime.events()
        await crash(runtime.ref("top/sup/a"), runtime.ref("top/sup/a"))
        (exit,) = exits(events, "top/sup")
        assert isinstance(exit.cause, gr.RestartLimitExceeded)
        assert exit.cause.whose == "supervisor"
