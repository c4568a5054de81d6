"""Stopping children: in what order and for how long. Behaviours 62 to 66, 70 and 75."""

from __future__ import annotations

import anyio
import pytest

import greenroom as gr
from tests.conformance.probes import Crash, End, Hold, Log, exits, reports, settle, states
from tests.conformance.witnesses import Watch, Watcher, kinds, released, settle_after_spinning

KILL_TIME = 2.0
"""Seconds from a cancellation to `stuck`, by default; a tenth follows for the last try."""


# ------------------------------------------------------------------------------------------------------------ the order


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


# ----------------------------------------------------------------------------------------------- children that will not


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
            await settle_after_spinning()
            assert seen == []
        await settle_after_spinning()
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
        await settle_after_spinning()
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


# --------------------------------------------------------------------------------------------- what need not be stopped


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
