"""`request_stop`, `stop`, `wait`, `wait_stopping`, `report`: who may ask, who is told, and what becomes of the body."""

from __future__ import annotations

import threading

import anyio
import anyio.to_thread
import attrs
import pytest

import greenroom as gr
from tests.conformance.probes import Crash, End, Hold, Log, settle
from tests.conformance.witnesses import released


@attrs.frozen
class Shut(gr.Message[None]):
    """Ask the tree to stop, in one of these ways."""

    how: str


class Janitor(gr.Actor):
    """An actor that stops the tree it is in."""

    @gr.handles
    async def shut(self, message: Shut) -> None:
        runtime = self.context.runtime
        if message.how == "request":
            runtime.request_stop("the janitor says so")
        elif message.how == "stop":
            await runtime.stop()
        else:
            await runtime.wait()


# ------------------------------------------------------------------------------------------------------------ the report


async def test_there_is_no_report_while_the_tree_stands() -> None:
    async with gr.Runtime(gr.Supervisor("sup")) as runtime:
        assert runtime.report is None
        assert not runtime.stopping
        assert runtime.exit is None


async def test_the_report_grows_while_the_tree_stops() -> None:
    log = Log()
    log.next_stops("a", 1.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"))) as runtime:
        runtime.request_stop()
        assert runtime.stopping
        assert runtime.report is not None
        assert (runtime.report.stopped, set(runtime.report.unknown)) == ((), {"sup/a", "sup/b"})
        await settle()
        assert (runtime.report.stopped, runtime.report.unknown) == (("sup/b",), ("sup/a",))
        await runtime.wait()
        assert (runtime.report.stopped, runtime.report.unknown) == (("sup/b", "sup/a"), ())


async def test_the_report_stays_as_it_is_when_the_tree_has_ended() -> None:
    log = Log()
    log.next_stops("a", 1.0)
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a")))
    async with runtime:
        pass
    report = runtime.report
    await anyio.sleep(10.0)
    assert report is not None
    assert runtime.report == report
    assert (report.seconds, report.stage) == (1.0, gr.Stage.REQUESTED)


async def test_the_report_says_in_words_what_it_holds() -> None:
    log = Log()
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b", shutdown=0.5)))
    async with runtime:
        with released() as never:
            runtime.ref("sup/b").tell(Hold(never))
            await settle()
            await runtime.stop()
    assert str(runtime.report) == "shutdown in 0.5 s (stage requested): 1 stopped on request; cancelled: sup/b"


async def test_a_tree_that_gives_up_begins_a_shutdown_of_its_own() -> None:
    log = Log()
    log.next_stops("b", 1.0)
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a"), log.child("b"), intensity=0))
    events = runtime.events()
    with pytest.raises(gr.TreeFailed):
        async with runtime:
            runtime.ref("sup/a").tell(Crash())
            await runtime.wait_stopping()
            assert runtime.exit is None
            assert runtime.report is not None
            assert runtime.report.unknown == ("sup/b",)
            await anyio.sleep_forever()
    asked = [event for event in events.pending() if isinstance(event, gr.StopRequested)]
    assert [(event.stage, event.why) for event in asked] == [(gr.Stage.REQUESTED, "it gave up")]
    assert runtime.report is not None
    assert runtime.report.stopped == ("sup/b",)


async def test_a_tree_that_shuts_down_by_itself_begins_a_shutdown_of_its_own() -> None:
    log = Log()
    children = [log.child("a", restart="transient", significant=True), log.child("b")]
    runtime = gr.Runtime(gr.Supervisor("sup", *children, auto_shutdown="any_significant"))
    events = runtime.events()
    async with runtime:
        runtime.ref("sup/a").tell(End())
        await anyio.sleep_forever()
    asked = [event for event in events.pending() if isinstance(event, gr.StopRequested)]
    assert [(event.stage, event.why) for event in asked] == [(gr.Stage.REQUESTED, "it shuts down")]
    assert runtime.report is not None
    assert runtime.report.stopped == ("sup/b",)
    assert runtime.report.clean


# ------------------------------------------------------------------------------------------------------------------ stop


async def test_stop_waits_for_the_end_and_returns_the_report() -> None:
    log = Log()
    log.next_stops("a", 1.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        report = await runtime.stop()
        assert anyio.current_time() == 1.0
        assert report.stopped == ("sup/a",)
        assert runtime.exit == gr.Exit("shutdown")


async def test_stop_does_not_escalate_a_shutdown_that_is_under_way() -> None:
    log = Log()
    log.next_stops("a", 1.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        runtime.request_stop()
        report = await runtime.stop()
        assert report.stage is gr.Stage.REQUESTED
        assert report.clean


async def test_stop_may_be_called_by_many_and_after_the_end() -> None:
    log = Log()
    log.next_stops("a", 1.0)
    reports: list[gr.ShutdownReport] = []
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:

        async def stop() -> None:
            reports.append(await runtime.stop())

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(stop)
        await stop()
    reports.append(await runtime.stop())
    assert len(set(reports)) == 1
    assert reports[0].clean


async def test_request_stop_twice_moves_a_stage_on_and_after_the_end_does_nothing() -> None:
    log = Log()
    log.next_stops("a", 1.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        runtime.request_stop()
        await settle()
        runtime.request_stop()
        report = await runtime.stop()
        runtime.request_stop()
        assert runtime.report == report
    assert report.stage is gr.Stage.CANCELLED
    assert report.cancelled == ("sup/a",)


@pytest.mark.parametrize("how", ["stop", "wait"])
async def test_an_actor_that_waits_for_the_end_of_its_own_tree_is_told_the_way_out(how: str) -> None:
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("janitor", Janitor))) as runtime:
        with pytest.raises(gr.ActorCrashed) as caught:
            await runtime.ref("sup/janitor").ask(Shut(how))
    assert isinstance(caught.value.__cause__, gr.WouldDeadlock)
    assert "request_stop" in str(caught.value.__cause__)


@pytest.mark.real_time
async def test_request_stop_from_another_thread_is_refused_and_changes_nothing() -> None:
    async with gr.Runtime(gr.Supervisor("sup")) as runtime:
        with pytest.raises(gr.WrongThread):
            await anyio.to_thread.run_sync(runtime.request_stop)
        assert not runtime.stopping


@pytest.mark.real_time
async def test_stop_can_be_called_from_another_thread_through_from_thread() -> None:
    log = Log()
    reports: list[gr.ShutdownReport] = []
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a")))
    with pytest.raises(gr.RuntimeNotRunning):
        runtime.from_thread
    async with runtime:
        thread = threading.Thread(target=lambda: reports.append(runtime.from_thread.call(runtime.stop)))
        thread.start()
        await runtime.wait()
    await anyio.to_thread.run_sync(thread.join)
    assert reports == [runtime.report]


# ------------------------------------------------------------------------------------------------------------------ wait


async def test_wait_returns_when_a_requested_stop_is_done() -> None:
    log = Log()
    log.next_stops("a", 1.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        runtime.request_stop()
        await runtime.wait()
        assert anyio.current_time() == 1.0


async def test_wait_outside_of_the_body_raises_the_failure_of_the_tree() -> None:
    log = Log()
    seen: list[BaseException] = []
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a"), intensity=0))

    async def watch() -> None:
        try:
            await runtime.wait()
        except gr.TreeFailed as error:
            seen.append(error)

    async with anyio.create_task_group() as group:
        with pytest.raises(gr.TreeFailed) as caught:
            async with runtime:
                group.start_soon(watch)
                runtime.ref("sup/a").tell(Crash())
                await anyio.sleep_forever()
    assert seen == [caught.value]


async def test_wait_stopping_returns_at_the_request() -> None:
    log = Log()
    log.next_stops("a", 1.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime, anyio.create_task_group() as group:

        async def ask() -> None:
            await anyio.sleep(0.5)
            runtime.request_stop()

        group.start_soon(ask)
        await runtime.wait_stopping()
        assert anyio.current_time() == 0.5
        assert runtime.exit is None


@pytest.mark.parametrize("wait", ["stop", "wait", "wait_stopping"])
async def test_waiting_for_what_has_happened_is_a_checkpoint_too(wait: str) -> None:
    async with gr.Runtime(gr.Supervisor("sup")) as runtime:
        await runtime.stop()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await getattr(runtime, wait)()
        assert scope.cancelled_caught


async def test_a_cancelled_wait_leaves_the_tree_alone() -> None:
    async with gr.Runtime(gr.Supervisor("sup")) as runtime:
        with anyio.move_on_after(1.0):
            await runtime.wait()
        assert not runtime.stopping


# -------------------------------------------------------------------------------------------------- what the body gets


async def test_a_body_that_asked_for_the_stop_itself_goes_on_when_the_tree_has_ended() -> None:
    done = False
    async with gr.Runtime(gr.Supervisor("sup")) as runtime:
        runtime.request_stop()
        await anyio.sleep(10.0)
        done = True
    assert done


async def test_a_stop_that_an_actor_asked_for_cancels_the_body_when_the_tree_has_ended() -> None:
    log = Log()
    log.next_stops("a", 1.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"), gr.Child("janitor", Janitor))) as runtime:
        runtime.ref("sup/janitor").tell(Shut("request"))
        await anyio.sleep_forever()
    assert anyio.current_time() == 1.0
    assert runtime.report is not None
    assert runtime.report.clean


async def test_a_stop_that_another_task_asked_for_cancels_the_body_when_the_tree_has_ended() -> None:
    runtime = gr.Runtime(gr.Supervisor("sup"))
    async with anyio.create_task_group() as group:

        async def ask() -> None:
            await anyio.sleep(1.0)
            runtime.request_stop()

        async with runtime:
            group.start_soon(ask)
            await anyio.sleep_forever()
    assert anyio.current_time() == 1.0
