"""Automatic shutdown: which ends of significant children end their supervisor. Behaviours 77 to 85."""

from __future__ import annotations

from typing import Literal

import anyio
import pytest

import greenroom as gr
from tests.conformance.probes import Boom, Crash, End, Log, Touch, below_top, crash, exits, reports, settle, states

Mode = Literal["never", "any_significant", "all_significant"]
RestartName = Literal["permanent", "transient", "temporary"]
How = Literal["normal", "shutdown", "detail", "killed"]


def supervisor(mode: Mode, *children: gr.Child | gr.Supervisor, **options: object) -> gr.Supervisor:
    """A temporary supervisor of this mode: its end is its own affair."""
    return gr.Supervisor("sup", *children, auto_shutdown=mode, restart="temporary", **options)  # type: ignore[arg-type]


async def test_otp_077_the_end_of_any_significant_child_stops_the_others_in_reverse_order() -> None:
    log = Log()
    significant = log.child("s", significant=True, restart="transient")
    sup = supervisor("any_significant", log.child("w1"), significant, log.child("w2"), log.child("w3"))
    async with below_top(sup) as runtime:
        events = runtime.events()
        log.take()
        runtime.ref("top/sup/s").tell(End("detail"))
        await settle()
        assert log.take() == ["end s", "stop w3", "stop w2", "stop w1"]
        assert exits(events, "top/sup") == [gr.Exit("shutdown")]


async def test_otp_077_the_end_of_one_significant_child_is_enough_though_another_runs_on() -> None:
    log = Log()
    pair = [log.child(name, significant=True, restart="transient") for name in ("s1", "s2")]
    async with below_top(supervisor("any_significant", *pair)) as runtime:
        events = runtime.events()
        log.take()
        runtime.ref("top/sup/s1").tell(End())
        await settle()
        assert log.take() == ["end s1", "stop s2"]
        assert exits(events, "top/sup") == [gr.Exit("shutdown")]


async def test_otp_077_an_automatic_shutdown_of_the_whole_tree_ends_its_block_in_good_order() -> None:
    log = Log()
    tree = gr.Supervisor(
        "sup",
        log.child("w"),
        log.child("s", significant=True, restart="transient"),
        auto_shutdown="any_significant",
    )
    runtime = gr.Runtime(tree)
    async with runtime:
        runtime.ref("sup/s").tell(End())
        await anyio.sleep_forever()
    assert runtime.exit == gr.Exit("shutdown")
    assert log.take() == ["start w", "start s", "end s", "stop w"]


async def test_otp_078_a_significant_transient_child_that_crashes_is_restarted_as_usual() -> None:
    log = Log()
    sup = supervisor("any_significant", log.child("a"), log.child("s", significant=True, restart="transient"))
    async with below_top(sup) as runtime:
        log.take()
        await crash(runtime.ref("top/sup/s"))
        assert log.take() == ["die s", "start s"]
        assert await states(runtime.ref("top/sup")) == {"a": "running", "s": "running"}


async def test_otp_078_a_significant_transient_child_that_is_killed_is_restarted_as_usual() -> None:
    log = Log()
    child = log.child("s", significant=True, restart="transient", shutdown=1.0)
    async with below_top(supervisor("any_significant", child)) as runtime:
        runtime.ref("top/sup/s").tell(End("killed"))
        await anyio.sleep(1.5)
        assert runtime.ref("top/sup/s").incarnation == 2
        assert await states(runtime.ref("top/sup")) == {"s": "running"}


async def test_otp_078_a_significant_temporary_child_that_crashes_ends_its_supervisor() -> None:
    log = Log()
    sup = supervisor("any_significant", log.child("a"), log.child("s", significant=True, restart="temporary"))
    async with below_top(sup) as runtime:
        events = runtime.events()
        log.take()
        await crash(runtime.ref("top/sup/s"))
        assert log.take() == ["die s", "stop a"]
        assert exits(events, "top/sup") == [gr.Exit("shutdown")]


@pytest.mark.parametrize("how", ["normal", "shutdown", "detail", "killed"])
async def test_otp_078_any_end_of_a_significant_temporary_child_ends_its_supervisor(how: How) -> None:
    log = Log()
    child = log.child("s", significant=True, restart="temporary", shutdown=1.0)
    async with below_top(supervisor("any_significant", log.child("a"), child)) as runtime:
        events = runtime.events()
        runtime.ref("top/sup/s").tell(End(how))
        await anyio.sleep(1.5)
        assert exits(events, "top/sup") == [gr.Exit("shutdown")]


@pytest.mark.parametrize("how", ["normal", "shutdown", "detail"])
async def test_otp_078_any_clean_end_of_a_significant_transient_child_ends_its_supervisor(how: How) -> None:
    log = Log()
    sup = supervisor("any_significant", log.child("a"), log.child("s", significant=True, restart="transient"))
    async with below_top(sup) as runtime:
        events = runtime.events()
        runtime.ref("top/sup/s").tell(End(how))
        await settle()
        assert exits(events, "top/sup") == [gr.Exit("shutdown")]


def two_significant(log: Log, **options: object) -> gr.Supervisor:
    return supervisor(
        "all_significant",
        log.child("s1", significant=True, restart="transient"),
        log.child("s2", significant=True, restart="transient"),
        log.child("w"),
        **options,
    )


async def test_otp_079_all_significant_waits_for_the_last_significant_child() -> None:
    log = Log()
    async with below_top(two_significant(log)) as runtime:
        events = runtime.events()
        log.take()
        runtime.ref("top/sup/s1").tell(End())
        await settle()
        assert await states(runtime.ref("top/sup")) == {"s1": "down", "s2": "running", "w": "running"}
        runtime.ref("top/sup/s2").tell(End())
        await settle()
        assert log.take() == ["end s1", "end s2", "stop w"]
        assert exits(events, "top/sup") == [gr.Exit("shutdown")]


async def test_otp_079_a_significant_child_that_was_stopped_by_hand_no_longer_counts_as_active() -> None:
    log = Log()
    async with below_top(two_significant(log)) as runtime:
        events = runtime.events()
        await runtime.ref("top/sup").terminate_child("s1")
        assert exits(events, "top/sup") == []
        runtime.ref("top/sup/s2").tell(End())
        await settle()
        assert exits(events, "top/sup") == [gr.Exit("shutdown")]


async def test_otp_079_a_significant_child_that_is_restarting_counts_as_active() -> None:
    log = Log()
    async with below_top(two_significant(log, backoff=gr.Backoff(60.0))) as runtime:
        await crash(runtime.ref("top/sup/s1"))
        runtime.ref("top/sup/s2").tell(End())
        await settle()
        assert await states(runtime.ref("top/sup")) == {"s1": "restarting", "s2": "down", "w": "running"}


@pytest.mark.parametrize("mode", ["any_significant", "all_significant"])
async def test_stopping_the_only_significant_child_by_hand_ends_nothing(mode: Mode) -> None:
    log = Log()
    sup = supervisor(mode, log.child("s", significant=True, restart="transient"), log.child("w"))
    async with below_top(sup) as runtime:
        await runtime.ref("top/sup").terminate_child("s")
        await settle()
        assert await states(runtime.ref("top/sup")) == {"s": "down", "w": "running"}


async def test_a_significant_child_that_was_stopped_and_started_again_by_hand_counts_again() -> None:
    log = Log()
    async with below_top(two_significant(log)) as runtime:
        events = runtime.events()
        await runtime.ref("top/sup").terminate_child("s1")
        await runtime.ref("top/sup").restart_child("s1")
        runtime.ref("top/sup/s2").tell(End())
        await settle()
        assert exits(events, "top/sup") == []
        runtime.ref("top/sup/s1").tell(End())
        await settle()
        assert exits(events, "top/sup") == [gr.Exit("shutdown")]


@pytest.mark.parametrize("mode", ["any_significant", "all_significant"])
@pytest.mark.parametrize("restart", ["transient", "temporary"])
async def test_otp_082_significant_siblings_of_a_group_restart_do_not_end_a_one_for_all_supervisor(
    mode: Mode, restart: RestartName
) -> None:
    log = Log()
    sup = supervisor(
        mode,
        log.child("a", significant=True, restart=restart),
        log.child("b"),
        log.child("c", significant=True, restart=restart),
        strategy="one_for_all",
    )
    async with below_top(sup) as runtime:
        log.take()
        await crash(runtime.ref("top/sup/b"))
        started = ["start a", "start b", "start c"] if restart == "transient" else ["start b"]
        assert log.take() == ["die b", "stop c", "stop a", *started]
        assert await runtime.ref("top/sup/b").ask(Touch()) == 1


@pytest.mark.parametrize("mode", ["any_significant", "all_significant"])
@pytest.mark.parametrize("restart", ["transient", "temporary"])
async def test_otp_082_significant_siblings_of_a_group_restart_do_not_end_a_rest_for_one_supervisor(
    mode: Mode, restart: RestartName
) -> None:
    log = Log()
    sup = supervisor(mode, log.child("b"), log.child("c", significant=True, restart=restart), strategy="rest_for_one")
    async with below_top(sup) as runtime:
        log.take()
        await crash(runtime.ref("top/sup/b"))
        started = ["start b", "start c"] if restart == "transient" else ["start b"]
        assert log.take() == ["die b", "stop c", *started]
        assert await runtime.ref("top/sup/b").ask(Touch()) == 1


@pytest.mark.parametrize("mode", ["never", "any_significant", "all_significant"])
@pytest.mark.parametrize("restart", ["transient", "temporary"])
@pytest.mark.parametrize("how", ["normal", "shutdown", "detail", "killed"])
async def test_otp_083_no_end_of_a_child_that_is_not_significant_ends_its_supervisor(
    mode: Mode, restart: RestartName, how: How
) -> None:
    log = Log()
    async with below_top(supervisor(mode, log.child("a", restart=restart, shutdown=1.0), log.child("b"))) as runtime:
        events = runtime.events()
        runtime.ref("top/sup/a").tell(End(how))
        await anyio.sleep(1.5)
        assert exits(events, "top/sup") == []
        assert await runtime.ref("top/sup/b").ask(Touch()) == 1


@pytest.mark.parametrize("mode", ["any_significant", "all_significant"])
async def test_otp_083_the_crash_of_the_last_child_that_is_not_significant_ends_nothing(mode: Mode) -> None:
    log = Log()
    async with below_top(supervisor(mode, log.child("a", restart="temporary"))) as runtime:
        await crash(runtime.ref("top/sup/a"))
        assert await states(runtime.ref("top/sup")) == {}


def test_otp_084_a_significant_child_of_a_supervisor_without_auto_shutdown_is_refused_at_birth() -> None:
    log = Log()
    with pytest.raises(gr.BadSpec, match=r"child 's' is significant.*'sup' has auto_shutdown='never'.*any_significant"):
        gr.Supervisor("sup", log.child("s", significant=True, restart="transient"))


def test_otp_084_a_significant_permanent_child_is_refused_at_birth() -> None:
    log = Log()
    with pytest.raises(gr.BadSpec, match=r"child 's'.*never end for good.*transient or temporary"):
        log.child("s", significant=True)


def test_otp_084_a_significant_permanent_supervisor_is_refused_at_birth() -> None:
    with pytest.raises(gr.BadSpec, match=r"supervisor 'inner'.*never end for good"):
        gr.Supervisor("inner", significant=True)


async def test_otp_084_a_significant_child_is_refused_by_start_child_of_a_supervisor_without_auto_shutdown() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        log.take()
        with pytest.raises(gr.BadSpec, match=r"child 's' is significant.*'sup'"):
            await runtime.ref("sup").start_child(log.child("s", significant=True, restart="transient"))
        assert log.take() == []
        assert await states(runtime.ref("sup")) == {"a": "running"}


async def test_otp_084_a_significant_spec_is_refused_as_a_replacement_too() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("s"))) as runtime:
        with pytest.raises(gr.BadSpec, match=r"child 's' is significant"):
            await runtime.ref("sup").replace_childspec(log.child("s", significant=True, restart="transient"))
        assert (await runtime.ref("sup").get_childspec("s")).significant is False


def test_otp_084_a_significant_template_of_a_dynamic_supervisor_is_refused() -> None:
    log = Log()
    with pytest.raises(gr.BadSpec, match=r"child 's' is significant"):
        gr.DynamicSupervisor("dyn", log.child("s", significant=True, restart="transient"))


def inner(log: Log, restart: RestartName, *, significant: bool) -> gr.Supervisor:
    """A supervisor that ends when its child `s` does."""
    return gr.Supervisor(
        "inner",
        log.child("s", significant=True, restart="transient"),
        auto_shutdown="any_significant",
        restart=restart,
        significant=significant,
    )


async def test_otp_085_the_automatic_shutdown_of_a_significant_supervisor_ends_the_outer_one() -> None:
    log = Log()
    outer = supervisor("any_significant", log.child("a"), inner(log, "transient", significant=True), log.child("b"))
    async with below_top(outer) as runtime:
        events = runtime.events()
        log.take()
        runtime.ref("top/sup/inner/s").tell(End())
        await settle()
        assert log.take() == ["end s", "stop b", "stop a"]
        assert exits(events, "top/sup") == [gr.Exit("shutdown")]


async def test_otp_085_the_automatic_shutdown_of_another_transient_supervisor_leaves_it_down() -> None:
    log = Log()
    outer = supervisor("any_significant", log.child("a"), inner(log, "transient", significant=False))
    async with below_top(outer) as runtime:
        log.take()
        runtime.ref("top/sup/inner/s").tell(End())
        await settle()
        assert log.take() == ["end s"]
        assert await states(runtime.ref("top/sup")) == {"a": "running", "inner": "down"}


async def test_otp_085_the_automatic_shutdown_of_a_permanent_supervisor_is_followed_by_its_restart() -> None:
    log = Log()
    async with below_top(supervisor("never", inner(log, "permanent", significant=False))) as runtime:
        log.take()
        runtime.ref("top/sup/inner/s").tell(End())
        await settle()
        assert log.take() == ["end s", "start s"]
        assert runtime.ref("top/sup/inner").incarnation == 2


async def test_the_restart_limit_comes_before_automatic_shutdown() -> None:
    log = Log()
    child = log.child("s", significant=True, restart="transient")
    async with below_top(supervisor("any_significant", child, intensity=0)) as runtime:
        events = runtime.events()
        await crash(runtime.ref("top/sup/s"))
        seen = events.pending()
        (gave_up,) = [e for e in seen if isinstance(e, gr.SupervisorReport) and e.context == "shutdown"]
        assert gave_up.reason == "reached_max_restart_intensity"
        (exit,) = [e.exit for e in seen if isinstance(e, gr.ActorEnded) and e.path == "top/sup"]
        assert exit.kind == "shutdown"
        assert isinstance(exit.cause, gr.RestartLimitExceeded)


async def test_an_automatic_shutdown_is_no_fault_and_is_not_reported() -> None:
    log = Log()
    sup = supervisor("any_significant", log.child("w"), log.child("s", significant=True, restart="transient"))
    async with below_top(sup) as runtime:
        events = runtime.events()
        runtime.ref("top/sup/s").tell(End())
        await settle()
        assert reports(events) == []


async def test_a_significant_child_that_has_nothing_to_do_at_its_start_ends_nothing() -> None:
    log = Log()
    log.next_starts("s", gr.Ignore())
    sup = supervisor("any_significant", log.child("s", significant=True, restart="transient"), log.child("w"))
    async with below_top(sup) as runtime:
        await settle()
        assert await states(runtime.ref("top/sup")) == {"s": "down", "w": "running"}


async def test_a_significant_child_started_by_a_call_can_end_its_supervisor() -> None:
    log = Log()
    async with below_top(supervisor("any_significant", log.child("w"))) as runtime:
        events = runtime.events()
        await runtime.ref("top/sup").start_child(log.child("s", significant=True, restart="temporary"))
        runtime.ref("top/sup/s").tell(Crash(Boom("for good")))
        await settle()
        assert exits(events, "top/sup") == [gr.Exit("shutdown")]
