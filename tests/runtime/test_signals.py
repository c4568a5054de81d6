"""P5, P15: OS signals within this process: whose they are, and what each does."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import anyio
import anyio.to_thread
import pytest

import greenroom as gr
from tests.conformance.probes import Hold, Log, settle
from tests.conformance.witnesses import released


@pytest.fixture(autouse=True)
def _handlers_are_put_back() -> Iterator[None]:
    """Whatever a test does, the handlers that were there before it are there after it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    assert {number: signal.getsignal(number) for number in before} == before


def raise_signal(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_p05_a_signal_starts_the_ordered_shutdown_and_cancels_the_body_at_its_end(number: int) -> None:
    log = Log()
    log.next_stops("a", 1.0)
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a")), signals=True)
    events = runtime.events()
    async with runtime:
        raise_signal(number)
        await anyio.sleep_forever()
    asked = [event for event in events.pending() if isinstance(event, gr.StopRequested)]
    assert [(event.stage, event.why) for event in asked] == [
        (gr.Stage.REQUESTED, f"{signal.Signals(number).name} arrived")
    ]
    assert runtime.report is not None
    assert runtime.report.clean
    assert runtime.report.seconds == 1.0


async def test_p05_each_further_signal_moves_one_stage_on() -> None:
    log = Log()
    log.next_stops("a", anyio.Event())
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a", shutdown=None)), signals=True, kill_time=60.0)
    stages: list[gr.Stage] = []
    with released() as never:
        async with runtime:
            runtime.ref("sup/a").tell(Hold(never))
            await settle()
            for _ in range(2):
                raise_signal()
                await settle()
                assert runtime.report is not None
                stages.append(runtime.report.stage)
            raise_signal()
            await anyio.sleep_forever()
    assert stages == [gr.Stage.REQUESTED, gr.Stage.CANCELLED]
    assert runtime.report is not None
    assert runtime.report.stage is gr.Stage.FORCED


async def test_p05_two_signals_in_one_turn_of_the_loop_are_two() -> None:
    log = Log()
    log.next_stops("a", 1.0)
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a")), signals=True)
    async with runtime:
        raise_signal()
        raise_signal()
        await anyio.sleep_forever()
    assert runtime.report is not None
    assert runtime.report.stage is gr.Stage.CANCELLED


async def test_p05_the_first_signal_during_a_shutdown_is_no_escalation_and_the_second_is() -> None:
    log = Log()
    log.next_stops("a", 10.0)
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a", shutdown=None)), signals=True)
    async with runtime:
        runtime.request_stop()
        raise_signal()
        await settle()
        assert runtime.report is not None
        first = runtime.report.stage
        raise_signal()
        await settle()
        second = runtime.report.stage
    assert (first, second) == (gr.Stage.REQUESTED, gr.Stage.CANCELLED)


async def test_p15_an_embedded_runtime_leaves_the_signals_alone_unless_asked() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    async with gr.Runtime(gr.Supervisor("sup")):
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


async def test_p15_the_signals_are_given_back_when_the_block_ends() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    async with gr.Runtime(gr.Supervisor("sup"), signals=True):
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


async def test_p15_they_are_given_back_when_the_tree_does_not_start() -> None:
    log = Log()
    log.next_starts("a", ValueError("no"))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(gr.StartFailed):
        async with gr.Runtime(gr.Supervisor("sup", log.child("a")), signals=True):
            pass
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.real_time
async def test_p15_off_the_main_thread_signals_are_refused_with_the_way_out(backend: str) -> None:
    async def main() -> None:
        async with gr.Runtime(gr.Supervisor("sup"), signals=True):
            pass

    def thread() -> None:
        with pytest.raises(gr.Misuse, match="main thread"):
            anyio.run(main, backend=backend)

    await anyio.to_thread.run_sync(thread)
    assert [t for t in threading.enumerate() if t.name == "greenroom-watchdog"] == []
