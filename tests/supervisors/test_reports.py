"""What supervisors report (OTP's supervisor and progress reports): as log records that carry a value, and as events."""

from __future__ import annotations

import functools
import logging

import anyio
import attrs
import pytest

import greenroom as gr
from tests.conformance.probes import Boom, Crash, Log, Probe, below_top, crash, reports, settle

LEVELS = {
    "progress": logging.INFO,
    "child_terminated": logging.ERROR,
    "start_error": logging.ERROR,
    "shutdown": logging.ERROR,
    "shutdown_error": logging.ERROR,
}


def logged(caplog: pytest.LogCaptureFixture) -> list[gr.SupervisorReport]:
    return [record.report for record in caplog.records if hasattr(record, "report")]


async def test_every_report_is_a_log_record_and_an_event_with_the_same_value(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "greenroom.supervisor")
    log = Log()
    log.next_starts("a", None, Boom("no"))
    log.next_stops("b", Boom("on its way out"))
    sup = gr.Supervisor("sup", log.child("a"), log.child("b"), intensity=2, restart="temporary")
    async with below_top(sup) as runtime:
        caplog.clear()
        events = runtime.events()
        await crash(runtime.ref("top/sup/a"), runtime.ref("top/sup/a"))
        found = [event for event in events.pending() if isinstance(event, gr.SupervisorReport)]
        assert [report.context for report in found] == [
            "child_terminated",
            "start_error",
            "progress",
            "child_terminated",
            "shutdown",
            "shutdown_error",
            "child_terminated",
        ]
        assert [report.path for report in found] == ["top/sup"] * 6 + ["top"]
        assert logged(caplog) == found
        assert [record.levelno for record in caplog.records] == [LEVELS[report.context] for report in found]


async def test_a_progress_report_is_made_of_each_good_start_restarts_included() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", intensity=1)) as runtime:
        events = runtime.events()
        ref = await runtime.ref("sup").start_child(log.child("a"))
        await crash(ref)
        found = reports(events, "progress")
        assert [(report.path, report.offender.path, report.offender.incarnation) for report in found] == [
            ("sup", "sup/a", 1),
            ("sup", "sup/a", 2),
        ]


async def test_dynamic_children_make_no_progress_reports() -> None:
    log = Log()
    pool = gr.DynamicSupervisor("pool", functools.partial(Probe, log))
    async with gr.Runtime(gr.Supervisor("sup", pool)) as runtime:
        events = runtime.events()
        await crash(await runtime.ref("sup/pool").start_child("x"))
        assert [report.context for report in reports(events, "progress", "child_terminated")] == ["child_terminated"]


async def test_the_record_of_a_child_says_what_it_is_and_not_what_it_was_given() -> None:
    log = Log()
    child = gr.Child("a", functools.partial(Probe, log), "a secret", restart="transient", shutdown=2.5)
    async with gr.Runtime(gr.Supervisor("sup", child)) as runtime:
        events = runtime.events()
        await crash(runtime.ref("sup/a"))
        (report,) = reports(events)
        assert report.offender == gr.ChildRecord(
            name="a",
            path="sup/a",
            incarnation=1,
            factory="tests.conformance.probes:Probe",
            restart="transient",
            significant=False,
            shutdown=2.5,
            kind="worker",
        )
        assert "secret" not in repr(report)


async def test_a_fault_report_carries_the_exception_also_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    boom = Boom("why")
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        runtime.ref("sup/a").tell(Crash(boom))
        await settle()
        (report,) = logged(caplog)
        assert report.exit == gr.Exit("error", boom)
        assert "Boom: why" in report.reason
        (record,) = [record for record in caplog.records if hasattr(record, "report")]
        assert record.exc_info is not None
        assert record.exc_info[1] is boom


async def test_the_moment_of_a_report_is_that_of_the_loops_clock() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        events = runtime.events()
        await anyio.sleep_until(12.0)
        runtime.ref("sup/a").tell(Crash())
        await settle()
        assert [report.at for report in reports(events)] == [12.0]


async def test_a_bulk_stop_of_dynamic_children_makes_one_report_for_each_reason_with_their_number() -> None:
    log = Log()
    for name in ("a", "b", "c"):
        log.next_stops(name, Boom("one reason"))
    log.next_stops("d", Boom("another"))
    pool = gr.DynamicSupervisor("pool", functools.partial(Probe, log), restart="transient")
    async with gr.Runtime(gr.Supervisor("sup", pool)) as runtime:
        for name in "abcde":
            await runtime.ref("sup/pool").start_child(name)
        events = runtime.events()
        await runtime.ref("sup").terminate_child("pool")
        found = reports(events)
        assert {(report.context, report.reason, report.offender.count) for report in found} == {
            ("shutdown_error", "error: Boom: one reason", 3),
            ("shutdown_error", "error: Boom: another", 1),
        }


async def test_a_report_is_a_frozen_value() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        events = runtime.events()
        await crash(runtime.ref("sup/a"))
        (report,) = reports(events)
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            report.reason = "another"  # type: ignore[misc]
