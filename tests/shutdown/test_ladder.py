"""The shutdown ladder, rung by rung: ask, wait, cancel, force. And what a child may do on each."""

from __future__ import annotations

from typing import Literal

import anyio
import pytest

import greenroom as gr
from tests.conformance.probes import Boom, Crash, Hold, Log, Step, exits, settle
from tests.conformance.witnesses import released

KILL_TIME = 2.0


async def stopped(*children: gr.Child, log: Log, hold: str | None = None, cancelled_at: float | None = None) -> Ending:
    """Run a tree of these, make one hold a message, and stop it; at `cancelled_at` seconds the stop moves a stage on."""
    runtime = gr.Runtime(gr.Supervisor("sup", *children))
    async with runtime:
        with released() as never:
            if hold is not None:
                runtime.ref(f"sup/{hold}").tell(Hold(never))
            await settle()
            log.take()
            began = anyio.current_time()
            runtime.request_stop()
            if cancelled_at is not None:
                await anyio.sleep(cancelled_at)
                runtime.request_stop()
            await runtime.wait()
            return Ending(runtime, anyio.current_time() - began, log.take())
    raise AssertionError


class Ending:
    def __init__(self, runtime: gr.Runtime, seconds: float, entries: list[str]) -> None:
        assert runtime.report is not None
        self.report = runtime.report
        self.seconds = seconds
        self.entries = entries


# ------------------------------------------------------------------------------------------------------- stage by stage


async def test_a_child_that_ends_at_once_is_stopped_on_request_in_no_time() -> None:
    log = Log()
    ending = await stopped(log.child("a"), log=log)
    assert (ending.report.stopped, ending.seconds) == (("sup/a",), 0)
    assert ending.report.clean


async def test_a_stop_takes_effect_after_the_message_in_hand() -> None:
    log = Log()
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a", shutdown=5.0)))
    async with runtime:
        until = anyio.Event()
        runtime.ref("sup/a").tell(Hold(until))
        await settle()
        log.take()
        runtime.request_stop()
        await anyio.sleep(1.0)
        assert log.entries == []
        until.set()
        await runtime.wait()
    assert log.take() == ["stop a"]
    assert runtime.report is not None
    assert runtime.report.clean


async def test_a_child_that_needs_cancelling_is_cancelled_after_its_shutdown_time() -> None:
    log = Log()
    ending = await stopped(log.child("a", shutdown=1.5), log=log, hold="a")
    assert ending.seconds == 1.5
    assert ending.report.cancelled == ("sup/a",)
    assert ending.entries == ["kill a"]
    assert not ending.report.clean


async def test_p16_on_stop_runs_within_what_is_left_of_the_shutdown_time() -> None:
    log = Log()
    log.next_stops("a", 10.0)
    ending = await stopped(log.child("a", shutdown=1.5), log=log)
    assert ending.seconds == 1.5
    assert ending.report.cancelled == ("sup/a",)
    assert ending.entries == ["stop a"]


async def test_p16_after_a_cancellation_on_stop_gets_the_kill_time_once() -> None:
    log = Log()
    log.next_stops("a", 10.0)
    ending = await stopped(log.child("a", shutdown=1.0), log=log, hold="a")
    assert ending.entries == ["kill a"]
    assert ending.seconds == pytest.approx(1.0 + KILL_TIME)


@pytest.mark.parametrize("shutdown", ["kill", 0])
async def test_p08_a_brutal_shutdown_cancels_at_once_without_on_stop_and_is_clean(
    shutdown: Literal["kill"] | float,
) -> None:
    log = Log()
    ending = await stopped(log.child("a", shutdown=shutdown), log=log, hold="a")
    assert (ending.seconds, ending.entries) == (0, [])
    assert (ending.report.cancelled, ending.report.brutal) == (("sup/a",), ("sup/a",))
    assert ending.report.clean


async def test_p08_shutdown_none_waits_without_limit() -> None:
    log = Log()
    log.next_stops("a", 3600.0)
    ending = await stopped(log.child("a", shutdown=None), log=log)
    assert ending.seconds == 3600.0
    assert ending.report.clean


async def test_p08_a_second_request_passes_shutdown_none() -> None:
    log = Log()
    ending = await stopped(log.child("a", shutdown=None), log=log, hold="a", cancelled_at=7.0)
    assert ending.seconds == 7.0
    assert ending.report.cancelled == ("sup/a",)


async def test_p16_the_second_stage_cancels_everything_at_once_and_not_in_order() -> None:
    log = Log()
    for name in "abc":
        log.next_stops(name, 1.0)
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a"), gr.Supervisor("in", log.child("b")), log.child("c")))
    async with runtime:
        with released() as never:
            for path in ("sup/a", "sup/in/b", "sup/c"):
                runtime.ref(path).tell(Hold(never))
            await settle()
            log.take()
            began = anyio.current_time()
            runtime.request_stop()
            runtime.request_stop()
            await runtime.wait()
    assert anyio.current_time() - began == 1.0
    assert sorted(log.entries) == ["kill a", "kill b", "kill c"]
    assert [time - began for time in log.times] == [0, 0, 0]
    assert runtime.report is not None
    assert sorted(runtime.report.cancelled) == ["sup/a", "sup/c", "sup/in/b"]


async def test_the_third_stage_cuts_on_stop_short() -> None:
    log = Log()
    log.next_stops("a", anyio.Event())
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a")), kill_time=60.0)
    async with runtime:
        with released() as never:
            runtime.ref("sup/a").tell(Hold(never))
            await settle()
            began = anyio.current_time()
            for _ in range(3):
                runtime.request_stop()
                await anyio.sleep(1.0)
            await runtime.wait()
    assert anyio.current_time() - began == pytest.approx(3.0)
    assert runtime.report is not None
    assert (runtime.report.cancelled, runtime.report.stage) == (("sup/a",), gr.Stage.FORCED)


async def test_the_stages_are_events_with_their_reasons() -> None:
    log = Log()
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a", shutdown=None)))
    events = runtime.events()
    async with runtime:
        with released() as never:
            runtime.ref("sup/a").tell(Hold(never, swallow=True))
            await settle()
            runtime.request_stop("enough")
            for _ in range(4):
                runtime.request_stop("really")
        await runtime.wait()
        runtime.request_stop("too late")
    asked = [event for event in events.pending() if isinstance(event, gr.StopRequested)]
    assert [(event.path, event.stage, event.why) for event in asked] == [
        ("sup", gr.Stage.REQUESTED, "enough"),
        ("sup", gr.Stage.CANCELLED, "really"),
        ("sup", gr.Stage.FORCED, "really"),
        ("sup", gr.Stage.EXIT, "really"),
        ("sup", gr.Stage.EXIT, "really"),
    ]


# -------------------------------------------------------------------------------------------------------- what may fail


@pytest.mark.parametrize("error", [Boom("on purpose"), ExceptionGroup("two", [Boom("1"), Boom("2")])])
async def test_an_on_stop_that_raises_is_a_failed_stop_and_the_rest_goes_on(error: Exception) -> None:
    log = Log()
    log.next_stops("b", error)
    ending = await stopped(log.child("a"), log.child("b"), log.child("c"), log=log)
    assert ending.entries == ["stop c", "stop b", "stop a"]
    assert (ending.report.failed, ending.report.stopped) == (("sup/b",), ("sup/c", "sup/a"))
    assert not ending.report.clean


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
async def test_p15_an_on_stop_that_raises_keyboard_interrupt_or_system_exit_leaves_the_block_with_it(
    kind: type[BaseException],
) -> None:
    log = Log()
    log.next_stops("b", kind())
    with pytest.raises(kind):
        async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"))):
            log.take()
    assert log.take() == ["stop b", "stop a"]


async def test_a_child_that_crashes_while_its_elders_wait_to_be_asked_is_not_restarted() -> None:
    log = Log()
    log.next_stops("c", 1.0)
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("c")))
    async with runtime:
        log.take()
        runtime.request_stop()
        runtime.ref("sup/a").tell(Crash())
        await runtime.wait()
    assert sorted(log.take()) == ["die a", "stop c"]
    assert runtime.report is not None
    assert runtime.report.failed == ("sup/a",)


async def test_a_child_that_is_restarted_by_its_supervisor_during_the_shutdown_counts_once() -> None:
    log = Log()
    log.next_stops("z", 1.0)
    runtime = gr.Runtime(gr.Supervisor("top", gr.Supervisor("in", log.child("a")), log.child("z")))
    async with runtime:
        log.take()
        runtime.request_stop()
        await settle()
        runtime.ref("top/in/a").tell(Crash())
        await settle()
        report = runtime.report
        assert report is not None
        assert (report.failed, report.unknown) == ((), ("top/in/a", "top/z"))
        await runtime.wait()
    assert log.take() == ["stop z", "die a", "start a", "stop a"]
    assert runtime.report is not None
    assert runtime.report.stopped == ("top/z", "top/in/a")
    assert runtime.report.clean


@pytest.mark.parametrize("where", ["nursery", "on_stop"])
async def test_a_child_that_ends_only_after_its_cancellation_has_not_stopped_on_request(where: str) -> None:
    class Late(gr.Actor):
        async def on_start(self) -> None:
            if where == "nursery":
                self.context.nursery.start_soon(self.clean_up)

        async def clean_up(self) -> None:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(2.0)

        async def on_stop(self, _exit: gr.Exit) -> None:
            if where == "on_stop":
                await self.clean_up()

    runtime = gr.Runtime(gr.Supervisor("sup", gr.Child("late", Late, shutdown=1.0)))
    events = runtime.events()
    async with runtime:
        pass
    assert [exit.kind for exit in exits(events, "sup/late")] == ["killed"]
    assert runtime.report is not None
    assert (runtime.report.cancelled, runtime.report.stopped) == (("sup/late",), ())


# ------------------------------------------------------------------------------------------- scopes of the user's own


async def test_a_handlers_own_cancel_scope_just_works() -> None:
    class Timed(gr.Actor):
        @gr.handles
        async def hold(self, message: Hold) -> None:
            with anyio.move_on_after(1.0) as outer:
                with anyio.move_on_after(0.25) as inner:
                    await message.until.wait()
                assert inner.cancelled_caught
                await message.until.wait()
            assert outer.cancelled_caught

    async with gr.Runtime(gr.Supervisor("sup", gr.Child("timed", Timed))) as runtime:
        began = anyio.current_time()
        await runtime.ref("sup/timed").ask(Hold(anyio.Event()))
        assert anyio.current_time() - began == 1.0
        assert runtime.ref("sup/timed").incarnation == 1


async def test_a_handlers_own_scope_does_not_catch_the_actors_cancellation() -> None:
    caught: list[bool] = []

    class Timed(gr.Actor):
        @gr.handles
        async def hold(self, message: Hold) -> None:
            with anyio.move_on_after(60.0) as scope:
                try:
                    await message.until.wait()
                finally:
                    caught.append(scope.cancelled_caught)

    runtime = gr.Runtime(gr.Supervisor("sup", gr.Child("timed", Timed, shutdown=1.0)))
    async with runtime:
        runtime.ref("sup/timed").tell(Hold(anyio.Event()))
        await settle()
    assert caught == [False]
    assert runtime.report is not None
    assert runtime.report.cancelled == ("sup/timed",)


async def test_a_cancelled_handler_may_clean_up_behind_its_own_shield_within_the_kill_time() -> None:
    cleaned: list[float] = []

    class Tidy(gr.Actor):
        @gr.handles
        async def hold(self, message: Hold) -> None:
            try:
                await message.until.wait()
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(1.0)
                    cleaned.append(anyio.current_time())

    runtime = gr.Runtime(gr.Supervisor("sup", gr.Child("tidy", Tidy, shutdown=1.0)))
    async with runtime:
        runtime.ref("sup/tidy").tell(Hold(anyio.Event()))
        await settle()
        began = anyio.current_time()
    assert [time - began for time in cleaned] == [2.0]
    assert runtime.report is not None
    assert (runtime.report.cancelled, runtime.report.stuck) == (("sup/tidy",), ())


async def test_a_task_group_in_a_handler_is_cancelled_with_the_actor() -> None:
    ended: list[str] = []

    class Busy(gr.Actor):
        @gr.handles
        async def hold(self, message: Hold) -> None:
            async def work(name: str) -> None:
                try:
                    await message.until.wait()
                finally:
                    ended.append(name)

            async with anyio.create_task_group() as group:
                group.start_soon(work, "one")
                group.start_soon(work, "two")

    runtime = gr.Runtime(gr.Supervisor("sup", gr.Child("busy", Busy, shutdown=1.0)))
    async with runtime:
        runtime.ref("sup/busy").tell(Hold(anyio.Event()))
        await settle()
    assert sorted(ended) == ["one", "two"]
    assert runtime.report is not None
    assert runtime.report.cancelled == ("sup/busy",)


# ------------------------------------------------------------------------------------------------- starts under a stop


@pytest.mark.parametrize(("takes", "ends_after"), [(3.0, 2.0), (30.0, 5.0)])
async def test_p13_a_stop_during_a_start_waits_for_it_within_the_childs_shutdown_time(
    takes: float, ends_after: float
) -> None:
    log = Log()
    log.next_starts("b", takes)
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b", shutdown=5.0), log.child("c")))
    async with anyio.create_task_group() as group:

        async def stop() -> None:
            await anyio.sleep(1.0)
            runtime.request_stop()

        group.start_soon(stop)
        with pytest.raises(gr.StartFailed):
            async with runtime:
                pass
    assert anyio.current_time() == 1.0 + ends_after
    assert "start c" not in log.entries
    assert log.entries[-1] == "stop a"


async def test_p13_the_start_timeout_holds_when_a_stop_comes_meanwhile() -> None:
    log = Log()
    log.next_starts("b", anyio.Event())
    child = log.child("b", start_timeout=2.0, shutdown=None)
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a"), child))
    async with anyio.create_task_group() as group:

        async def stop() -> None:
            await anyio.sleep(1.0)
            runtime.request_stop()

        group.start_soon(stop)
        with pytest.raises(gr.StartFailed, match="a stop was requested"):
            async with runtime:
                pass
    assert anyio.current_time() == 2.0
    assert log.take() == ["start a", "start b", "stop a"]


async def test_p13_a_start_that_is_never_done_is_cancelled_by_the_second_stage() -> None:
    log = Log()
    log.next_starts("b", anyio.Event())
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b", shutdown=None)))
    async with anyio.create_task_group() as group:

        async def stop() -> None:
            for _ in range(2):
                await anyio.sleep(1.0)
                runtime.request_stop()

        group.start_soon(stop)
        with pytest.raises(gr.StartFailed):
            async with runtime:
                pass
    assert anyio.current_time() == 2.0
    assert log.take() == ["start a", "start b", "kill a"]
    assert runtime.report is not None
    assert sorted(runtime.report.cancelled) == ["sup/a", "sup/b"]


async def test_p13_a_start_that_swallows_its_cancellation_is_stuck_and_named() -> None:
    never = anyio.Event()

    class Deaf(gr.Actor):
        async def on_start(self) -> None:
            with anyio.CancelScope(shield=True):
                await never.wait()

    log = Log()
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a"), gr.Child("deaf", Deaf, shutdown=1.0)))
    reports: list[gr.ShutdownReport | None] = []
    async with anyio.create_task_group() as group:

        async def stop() -> None:
            await anyio.sleep(1.0)
            runtime.request_stop()
            await anyio.sleep(10.0)
            reports.append(runtime.report)
            never.set()

        group.start_soon(stop)
        with pytest.raises(gr.StartFailed):
            async with runtime:
                pass
    (report,) = reports
    assert report is not None
    assert (report.stopped, report.stuck) == (("sup/a",), ("sup/deaf",))


STEPS: list[Step] = [None, 1.0, Boom("on purpose")]


@pytest.mark.parametrize("step", STEPS, ids=["at once", "later", "failing"])
async def test_every_way_to_stop_is_in_the_report_once(step: Step) -> None:
    log = Log()
    log.next_stops("b", step)
    children = [log.child("a"), log.child("b"), log.child("c", shutdown="kill"), log.child("d", shutdown=0.5)]
    ending = await stopped(*children, log=log, hold="d")
    report = ending.report
    named = [*report.stopped, *report.cancelled, *report.failed, *report.killed, *report.abandoned, *report.unknown]
    assert sorted(named) == ["sup/a", "sup/b", "sup/c", "sup/d"]
