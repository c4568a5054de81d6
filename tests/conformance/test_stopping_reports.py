"""What is said about a stop: which ends are silent, and which are reported. Behaviours 64, 65 and 76."""

from __future__ import annotations

from typing import Literal

import anyio
import attrs
import pytest

import greenroom as gr
from tests.conformance.probes import Boom, Crash, Hold, Log, Step, below_top, reports, settle, states
from tests.conformance.witnesses import released

RestartName = Literal["permanent", "transient", "temporary"]
RESTARTS: tuple[RestartName, ...] = ("permanent", "transient", "temporary")


async def test_otp_064_a_brutal_kill_that_was_asked_for_is_not_reported() -> None:
    log = Log()
    tree = gr.Supervisor("sup", *(log.child(name, shutdown="kill", restart=name) for name in RESTARTS))
    async with gr.Runtime(tree) as runtime:
        events = runtime.events()
    assert reports(events) == []


async def test_otp_065_a_kill_for_want_of_time_is_reported_unlike_a_brutal_one() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("victim", shutdown=0))) as runtime:
        events = runtime.events()
    (report,) = reports(events)
    assert (report.context, report.offender.name, report.reason) == ("shutdown_error", "victim", "killed")


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
