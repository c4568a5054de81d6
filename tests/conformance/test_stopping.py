"""Stopping: in what order, for how long, and what is said about it. Behaviours 62 to 76, and what stands around them."""

from __future__ import annotations

from typing import Literal

import anyio
import attrs
import pytest

import greenroom as gr
from greenroom.mailbox import Subscription
from tests.conformance.probes import (
    Boom,
    Crash,
    End,
    Hold,
    Log,
    Step,
    Touch,
    below_top,
    exits,
    reports,
    settle,
    states,
)
from tests.conformance.watching import Watch, Watcher, kinds, released

RestartName = Literal["permanent", "transient", "temporary"]

RESTARTS: tuple[RestartName, ...] = ("permanent", "transient", "temporary")

KILL_TIME = 2.0
"""Seconds from a cancellation to `stuck`, by default; a tenth follows for the last try."""


# ------------------------------------------------------------------------------------------------------- the order


async def test_otp_062_children_are_stopped_in_reverse_start_order() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"), log.child("c"))):
        log.take()
    assert log.take() == ["stop c", "stop b", "stop a"]


async def test_otp_062_each_child_has_ended_before_the_next_is_asked() -> None:
    log = Log()
    for name in "abc":
        log.next_stops(name, 0.25)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"), log.child("c"))):
        log.take()
        began = anyio.current_time()
    assert [time - began for time in log.times] == [0.0, 0.25, 0.5]


async def test_otp_062_a_supervisor_that_was_asked_to_stop_exits_as_asked() -> None:
    log = Log()
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a")))
    async with runtime:
        pass
    assert runtime.exit == gr.Exit("shutdown")


async def test_otp_062_an_inner_supervisor_is_stopped_whole_before_its_elder_sibling() -> None:
    log = Log()
    inner = gr.Supervisor("inner", log.child("b"), log.child("c"))
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), inner, log.child("d"))) as runtime:
        events = runtime.events()
        log.take()
    assert log.take() == ["stop d", "stop c", "stop b", "stop a"]
    assert exits(events, "sup/inner") == [gr.Exit("shutdown")]


async def test_a_child_that_was_started_later_by_a_call_is_stopped_first() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"))) as runtime:
        await runtime.ref("sup").start_child(log.child("late"))
        log.take()
    assert log.take() == ["stop late", "stop b", "stop a"]


async def test_the_stop_of_a_static_supervisor_takes_the_sum_of_its_childrens_stops() -> None:
    log = Log()
    stubborn = [log.child(name, shutdown=0.25) for name in "abc"]
    with released() as never:
        async with gr.Runtime(gr.Supervisor("sup", *stubborn)) as runtime:
            for name in "abc":
                runtime.ref(f"sup/{name}").tell(Hold(never))
            await settle()
            began = anyio.current_time()
        assert anyio.current_time() - began == 0.75


async def test_the_bulk_stop_of_a_dynamic_supervisor_takes_the_longest_of_its_childrens_stops() -> None:
    log = Log()
    template = log.child("worker", shutdown=5.0)
    async with gr.Runtime(gr.Supervisor("sup", gr.DynamicSupervisor("dyn", template))) as runtime:
        for _ in range(10):
            await runtime.ref("sup/dyn").start_child()
        log.next_stops("worker", *(0.25 * number for number in range(1, 11)))
        log.take()
        began = anyio.current_time()
    assert anyio.current_time() - began == 2.5
    assert log.when("stop worker") == [began] * 10


async def test_stubborn_dynamic_children_share_one_deadline() -> None:
    log = Log()
    dynamic = gr.DynamicSupervisor("dyn", log.child("worker", shutdown=0.25))
    with released() as never:
        async with gr.Runtime(gr.Supervisor("sup", dynamic)) as runtime:
            for _ in range(3):
                (await runtime.ref("sup/dyn").start_child()).tell(Hold(never))
            await settle()
            began = anyio.current_time()
        assert anyio.current_time() - began == 0.25


# -------------------------------------------------------------------------------------------- children that will not


async def test_otp_063_a_child_that_ignores_the_request_is_killed_after_its_shutdown_time() -> None:
    log, seen = Log(), list[gr.Terminated]()
    tree = gr.Supervisor("sup", gr.Child("watcher", Watcher, seen), log.child("deaf", shutdown=1.0))
    with released() as never:
        async with gr.Runtime(tree) as runtime:
            deaf = runtime.ref("sup/deaf")
            await runtime.ref("sup/watcher").ask(Watch(deaf))
            deaf.tell(Hold(never))
            await settle()
            began = anyio.current_time()
            await runtime.ref("sup").terminate_child("deaf")
            assert anyio.current_time() - began == 1.0
            await settle()
    assert kinds(seen) == {"sup/deaf": "killed"}


async def test_otp_063_the_kill_is_reported_and_the_stop_goes_on_with_the_next() -> None:
    log = Log()
    tree = gr.Supervisor("sup", log.child("a"), log.child("deaf", shutdown=1.0), log.child("c"))
    with released() as never:
        async with gr.Runtime(tree) as runtime:
            events = runtime.events()
            runtime.ref("sup/deaf").tell(Hold(never))
            await settle()
            log.take()
            began = anyio.current_time()
    assert log.take() == ["stop c", "kill deaf", "stop a"]
    assert anyio.current_time() - began == 1.0
    (report,) = reports(events)
    assert (report.context, report.path, report.offender.name) == ("shutdown_error", "sup", "deaf")
    assert report.exit is not None
    assert report.exit.kind == "killed"


async def test_otp_063_a_child_that_swallows_its_cancellation_is_named_and_the_stop_goes_on_around_it() -> None:
    log = Log()
    tree = gr.Supervisor("sup", log.child("a"), log.child("deaf", shutdown=1.0), log.child("c"))
    async with gr.Runtime(tree) as runtime:
        with released() as release:
            runtime.ref("sup/deaf").tell(Hold(release, swallow=True))
            await settle()
            log.take()
            runtime.request_stop()
            await anyio.sleep(1.0 + KILL_TIME + 0.25)
            assert log.take() == ["stop c", "stop a"]
            report = runtime.report
            assert report is not None
            assert report.stuck == ("sup/deaf",)
            assert set(report.stopped) == {"sup/a", "sup/c"}
            assert runtime.exit is None


async def test_otp_063_watchers_hear_of_a_stuck_child_only_when_it_has_really_ended() -> None:
    log, seen = Log(), list[gr.Terminated]()
    tree = gr.Supervisor("sup", gr.Child("watcher", Watcher, seen), log.child("deaf", shutdown=1.0))
    async with gr.Runtime(tree) as runtime:
        with released() as release:
            deaf = runtime.ref("sup/deaf")
            await runtime.ref("sup/watcher").ask(Watch(deaf))
            deaf.tell(Hold(release, swallow=True))
            await settle()
            with pytest.raises(gr.ChildStillEnding):
                await runtime.ref("sup").terminate_child("deaf")
            await settle()
            assert seen == []
        await settle()
        assert kinds(seen) == {"sup/deaf": "killed"}


async def test_otp_064_a_brutal_kill_is_at_once_and_runs_no_on_stop() -> None:
    log, seen = Log(), list[gr.Terminated]()
    tree = gr.Supervisor("sup", gr.Child("watcher", Watcher, seen), log.child("victim", shutdown="kill"))
    with released() as never:
        async with gr.Runtime(tree) as runtime:
            victim = runtime.ref("sup/victim")
            await runtime.ref("sup/watcher").ask(Watch(victim))
            victim.tell(Hold(never))
            await settle()
            log.take()
            began = anyio.current_time()
            await runtime.ref("sup").terminate_child("victim")
            assert anyio.current_time() == began
            await settle()
            assert log.take() == []
    assert kinds(seen) == {"sup/victim": "killed"}


async def test_otp_064_an_idle_child_is_brutally_killed_without_on_stop_too() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("victim", shutdown="kill"))) as runtime:
        events = runtime.events()
        log.take()
    assert log.take() == []
    assert [exit.kind for exit in exits(events, "sup/victim")] == ["killed"]


async def test_otp_064_a_brutal_kill_that_was_asked_for_is_not_reported() -> None:
    log = Log()
    tree = gr.Supervisor("sup", *(log.child(name, shutdown="kill", restart=name) for name in RESTARTS))
    async with gr.Runtime(tree) as runtime:
        events = runtime.events()
    assert reports(events) == []


async def test_otp_064_a_task_that_swallows_even_a_brutal_kill_is_stuck() -> None:
    log = Log()
    tree = gr.Supervisor("sup", log.child("a"), log.child("deaf", shutdown="kill"))
    async with gr.Runtime(tree) as runtime:
        with released() as release:
            runtime.ref("sup/deaf").tell(Hold(release, swallow=True))
            await settle()
            log.take()
            runtime.request_stop()
            await anyio.sleep(KILL_TIME + 0.25)
            assert log.take() == ["stop a"]
            assert runtime.report is not None
            assert runtime.report.stuck == ("sup/deaf",)
        await settle()
        assert log.take() == []


async def test_otp_065_a_shutdown_time_of_zero_kills_without_time_for_on_stop() -> None:
    log, seen = Log(), list[gr.Terminated]()
    tree = gr.Supervisor("sup", gr.Child("watcher", Watcher, seen), log.child("victim", shutdown=0))
    with released() as never:
        async with gr.Runtime(tree) as runtime:
            victim = runtime.ref("sup/victim")
            await runtime.ref("sup/watcher").ask(Watch(victim))
            victim.tell(Hold(never))
            await settle()
            log.take()
            began = anyio.current_time()
            await runtime.ref("sup").terminate_child("victim")
            assert anyio.current_time() == began
            await settle()
            assert log.take() == []
    assert kinds(seen) == {"sup/victim": "killed"}


async def test_otp_065_a_kill_for_want_of_time_is_reported_unlike_a_brutal_one() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("victim", shutdown=0))) as runtime:
        events = runtime.events()
    (report,) = reports(events)
    assert (report.context, report.offender.name, report.reason) == ("shutdown_error", "victim", "killed")


async def test_otp_066_a_child_without_a_shutdown_time_is_waited_for_however_long_it_takes() -> None:
    log = Log()
    log.next_stops("slow", 7 * 24 * 3600.0)
    tree = gr.Supervisor("sup", log.child("a"), log.child("slow", shutdown=None))
    async with gr.Runtime(tree) as runtime:
        events = runtime.events()
        log.take()
        began = anyio.current_time()
    assert log.entries == ["stop slow", "stop a"]
    assert log.times[1] - began == 7 * 24 * 3600.0
    assert exits(events, "sup/slow") == [gr.Exit("shutdown")]


async def test_otp_066_a_child_without_a_shutdown_time_that_refuses_is_never_cancelled_by_the_ladder() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("deaf", shutdown=None))) as runtime:
        events = runtime.events()
        with released() as release:
            runtime.ref("sup/deaf").tell(Hold(release))
            await settle()
            runtime.request_stop()
            await anyio.sleep(24 * 3600.0)
            assert runtime.tree().find("sup/deaf") is not None
            assert exits(events, "sup/deaf") == []
        await settle()
        assert exits(events, "sup/deaf") == [gr.Exit("shutdown")]


# ------------------------------------------------------------------------------------------- what need not be stopped


async def test_otp_070_a_stop_skips_children_that_have_finished_or_were_stopped() -> None:
    log = Log()
    tree = gr.Supervisor(
        "sup", log.child("a"), log.child("done", restart="transient"), log.child("off"), log.child("b")
    )
    async with gr.Runtime(tree) as runtime:
        await runtime.ref("sup").terminate_child("off")
        runtime.ref("sup/done").tell(End())
        await settle()
        assert await states(runtime.ref("sup")) == {"a": "running", "done": "down", "off": "down", "b": "running"}
        log.take()
    assert log.take() == ["stop b", "stop a"]


async def test_otp_070_a_stop_skips_a_child_that_is_restarting_and_ends_its_retries() -> None:
    log = Log()
    tree = gr.Supervisor("sup", log.child("a"), log.child("bad", backoff=gr.Backoff(3600.0, maximum=3600.0)))
    async with gr.Runtime(tree) as runtime:
        runtime.ref("sup/bad").tell(Crash())
        await settle()
        assert await states(runtime.ref("sup")) == {"a": "running", "bad": "restarting"}
        log.take()
        began = anyio.current_time()
    assert log.take() == ["stop a"]
    assert anyio.current_time() == began


async def test_a_child_that_crashed_just_before_its_stop_is_reported_as_it_was_and_not_restarted() -> None:
    log = Log()
    sup = gr.Supervisor("sup", log.child("a"), intensity=0, restart="temporary")
    async with below_top(sup) as runtime, anyio.create_task_group() as group:
        events = runtime.events()
        with released() as started:
            log.next_starts("slow", started)
            group.start_soon(runtime.ref("top/sup").start_child, log.child("slow"))
            await settle()
            # Both wait behind the slow start, the call first: it is to find a child that is dead already.
            group.start_soon(runtime.ref("top/sup").terminate_child, "a")
            await settle()
            runtime.ref("top/sup/a").tell(Crash())
            await settle()
        await settle()
        assert await states(runtime.ref("top/sup")) == {"a": "down", "slow": "running"}
        (report,) = reports(events)
        assert (report.context, report.offender.name) == ("shutdown_error", "a")
        assert report.exit is not None
        assert isinstance(report.exit.cause, Boom)


# --------------------------------------------------------------------------------------- supervisors cut short


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
        await settle()
        assert await states(sup) == {"inner": "down", "sibling": "running"}
        await sup.restart_child("inner")
        assert await runtime.ref("sup/inner/grandchild").ask(Touch()) == 1


async def test_otp_075_terminating_a_child_twice_is_fine_both_times() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        sup = runtime.ref("sup")
        log.take()
        await sup.terminate_child("a")
        await sup.terminate_child("a")
        assert log.take() == ["stop a"]
        assert await states(sup) == {"a": "down"}


async def test_otp_075_terminating_an_unknown_child_is_refused() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        with pytest.raises(gr.ChildNotFound, match="'b' of 'sup'"):
            await runtime.ref("sup").terminate_child("b")
        assert await states(runtime.ref("sup")) == {"a": "running"}


# -------------------------------------------------------------------------------------------- what a stop reports


async def reports_of_a_stop(restart: RestartName, ends: Step) -> list[gr.SupervisorReport]:
    """Stop a child of this restart type whose `on_stop` ends so, with a neighbour on each side."""
    log = Log()
    log.next_stops("a", ends)
    tree = gr.Supervisor("sup", log.child("before"), log.child("a", restart=restart), log.child("after"))
    async with gr.Runtime(tree) as runtime:
        events = runtime.events()
        log.take()
    assert log.take() == ["stop after", "stop a", "stop before"]
    return reports(events)


@pytest.mark.parametrize("restart", RESTARTS)
async def test_otp_076_a_shutdown_on_request_is_silent_for_every_restart_type(restart: RestartName) -> None:
    assert await reports_of_a_stop(restart, None) == []


@pytest.mark.parametrize("ends", [gr.Stop(), gr.Stop("detail", shutdown=True)], ids=["normal", "shutdown-detail"])
async def test_otp_076_a_permanent_child_that_ends_otherwise_than_by_shutdown_is_reported(ends: gr.Stop) -> None:
    (report,) = await reports_of_a_stop("permanent", ends)
    assert (report.context, report.offender.name, report.exit) == ("shutdown_error", "a", ends.exit)


@pytest.mark.parametrize("restart", ["transient", "temporary"])
@pytest.mark.parametrize("ends", [gr.Stop(), gr.Stop("detail", shutdown=True)], ids=["normal", "shutdown-detail"])
async def test_otp_076_a_child_that_may_end_by_itself_may_do_so_when_it_is_stopped(
    restart: RestartName, ends: gr.Stop
) -> None:
    assert await reports_of_a_stop(restart, ends) == []


@pytest.mark.parametrize("restart", RESTARTS)
async def test_otp_076_an_error_during_the_stop_is_reported_for_every_restart_type(restart: RestartName) -> None:
    error = Boom("at the stop")
    (report,) = await reports_of_a_stop(restart, error)
    assert (report.context, report.path, report.offender.name) == ("shutdown_error", "sup", "a")
    assert report.exit == gr.Exit("error", error)
    assert report.reason == "error: Boom: at the stop"


@pytest.mark.parametrize("restart", RESTARTS)
async def test_otp_076_a_kill_after_the_shutdown_time_is_reported_for_every_restart_type(restart: RestartName) -> None:
    log = Log()
    with released() as never:
        async with gr.Runtime(gr.Supervisor("sup", log.child("a", restart=restart, shutdown=1.0))) as runtime:
            events = runtime.events()
            runtime.ref("sup/a").tell(Hold(never))
            await settle()
    (report,) = reports(events)
    assert (report.context, report.offender.name, report.reason) == ("shutdown_error", "a", "killed")


async def test_otp_076_a_permanent_child_whose_handler_ends_it_during_the_stop_is_reported() -> None:
    @attrs.frozen
    class EndWhen(gr.Message[None]):
        event: anyio.Event

    class Leaver(gr.Actor):
        @gr.handles
        async def leave(self, message: EndWhen) -> None:
            await message.event.wait()
            raise gr.Stop

    async with gr.Runtime(gr.Supervisor("sup", gr.Child("leaver", Leaver))) as runtime:
        events = runtime.events()
        with released() as now:
            runtime.ref("sup/leaver").tell(EndWhen(now))
            await settle()
            runtime.request_stop()
            await settle()
    (report,) = reports(events)
    assert (report.context, report.exit) == ("shutdown_error", gr.Exit("normal"))


async def test_a_bulk_stop_makes_one_report_for_each_reason_with_the_number_of_children() -> None:
    log = Log()
    log.next_stops("worker", Boom("one"), Boom("one"), None, Boom("two"), Boom("one"))
    async with gr.Runtime(gr.Supervisor("sup", gr.DynamicSupervisor("dyn", log.child("worker")))) as runtime:
        events = runtime.events()
        for _ in range(5):
            await runtime.ref("sup/dyn").start_child()
    found = reports(events)
    assert {(report.reason, report.offender.count) for report in found} == {
        ("error: Boom: one", 3),
        ("error: Boom: two", 1),
    }
    assert {(report.path, report.context) for report in found} == {("sup/dyn", "shutdown_error")}


def ended(events: Subscription[gr.Event]) -> list[str]:
    """Paths of what has ended, in order, out of the events buffered so far."""
    return [event.path for event in events.pending() if isinstance(event, gr.ActorEnded)]
