"""P11: cancellation of the host becomes a stop request; the ordered ladder runs, and nothing tears through the tree."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest
import sniffio
import trio

import greenroom as gr
from greenroom.testing import VirtualClock
from tests.conformance.probes import Crash, Hold, Log, settle


def tree(log: Log) -> gr.Supervisor:
    return gr.Supervisor("top", log.child("a"), gr.Supervisor("in", log.child("b"), log.child("c")), log.child("d"))


STARTS = ["start a", "start b", "start c", "start d"]
STOPS = ["stop d", "stop c", "stop b", "stop a"]


async def test_p11_a_cancelled_host_scope_runs_the_ordered_ladder() -> None:
    log = Log()
    runtime = gr.Runtime(tree(log))
    with anyio.CancelScope() as scope:
        async with runtime:
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert log.take() == STARTS + STOPS
    assert runtime.report is not None
    assert runtime.report.clean


async def test_p11_the_ordered_ladder_takes_the_time_it_needs() -> None:
    log = Log()
    for name in "abcd":
        log.next_stops(name, 1.0)
    began = anyio.current_time()
    with anyio.move_on_after(2.0) as scope:
        async with gr.Runtime(tree(log)):
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert anyio.current_time() - began == 2.0 + 4 * 1.0


async def test_p11_a_deadline_that_passes_while_the_tree_stops_does_not_cut_the_stop_short() -> None:
    log = Log()
    for name in "abcd":
        log.next_stops(name, 1.0)
    runtime = gr.Runtime(tree(log))
    with anyio.move_on_after(1.5) as scope:
        async with runtime:
            pass
    assert scope.cancelled_caught
    assert runtime.report is not None
    assert runtime.report.clean
    assert runtime.report.seconds == 4.0


async def test_p11_the_stop_is_requested_at_once_though_the_body_takes_its_time_to_leave() -> None:
    log = Log()
    with anyio.CancelScope() as scope:
        async with gr.Runtime(tree(log)):
            try:
                scope.cancel()
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(1.0)
                assert log.take() == STARTS + STOPS


async def test_p11_the_body_stays_cancellable_while_the_tree_stops() -> None:
    log = Log()
    log.next_stops("a", 3.0)
    runtime = gr.Runtime(tree(log))
    async with runtime:
        runtime.request_stop()
        began = anyio.current_time()
        with anyio.move_on_after(1.0):
            await anyio.sleep_forever()
        assert anyio.current_time() - began == 1.0
        assert runtime.exit is None


async def test_p11_cancellation_while_a_child_starts_stops_what_has_started() -> None:
    log = Log()
    log.next_starts("c", 10.0)
    entered = False
    runtime = gr.Runtime(tree(log))
    with anyio.move_on_after(4.0) as scope:
        async with runtime:
            entered = True
    assert scope.cancelled_caught
    assert not entered
    assert log.take() == ["start a", "start b", "start c", "stop b", "stop a"]
    assert anyio.current_time() == 4.0 + 5.0  # c had its shutdown time to finish its start
    assert runtime.exit is not None


async def test_p11_the_bodys_own_exception_survives_a_cancelled_host() -> None:
    log = Log()
    with pytest.raises(ValueError, match="mine") as caught, anyio.CancelScope() as scope:
        async with gr.Runtime(tree(log)):
            scope.cancel()
            try:
                await anyio.sleep_forever()
            finally:
                raise ValueError("mine")
    assert type(caught.value) is ValueError
    assert log.take() == STARTS + STOPS


async def test_p11_a_cancelled_host_does_not_keep_the_loop_busy_while_the_tree_stops() -> None:
    log = Log()
    log.next_stops("a", 1.0)
    turns = Turns()
    with anyio.CancelScope() as scope, turns.counted():
        async with gr.Runtime(tree(log)):
            scope.cancel()
            await anyio.sleep_forever()
    assert turns.count < 200


class Turns:
    """How often the event loop has turned."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, _timeout: float) -> None:
        self.count += 1

    @contextmanager
    def counted(self) -> Iterator[None]:
        if sniffio.current_async_library() == "trio":
            instrument = _Instrument(self)
            trio.lowlevel.add_instrument(instrument)
            yield
            trio.lowlevel.remove_instrument(instrument)
        else:
            loop = asyncio.get_running_loop()
            selector = loop._selector  # type: ignore[attr-defined]  # there is no public way to count turns
            select = selector.select

            def counting(timeout: float | None = None) -> object:
                self.count += 1
                return select(timeout)

            selector.select = counting
            yield
            selector.select = select


class _Instrument(trio.abc.Instrument):
    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def before_io_wait(self, timeout: float) -> None:
        self._turns.count += 1


# ------------------------------------------------------------------------------------------------ native cancellation


@pytest.mark.backends("asyncio")
async def test_p11_only_asyncio_a_native_cancel_runs_the_ordered_ladder_and_leaves_as_cancelled_error() -> None:
    log = Log()
    runtime = gr.Runtime(tree(log))

    async def host() -> None:
        async with runtime:
            await anyio.sleep_forever()

    task = asyncio.create_task(host())
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log.take() == STARTS + STOPS
    assert runtime.report is not None
    assert runtime.report.clean


@pytest.mark.backends("asyncio")
async def test_p11_only_asyncio_a_native_timeout_around_the_block_becomes_a_timeout_error() -> None:
    log = Log()
    log.next_stops("a", 1.0)
    began = anyio.current_time()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.0), gr.Runtime(tree(log)):
            await anyio.sleep_forever()
    assert anyio.current_time() - began == 3.0


@pytest.mark.backends("asyncio")
@pytest.mark.parametrize(("cancels", "stage"), [(1, gr.Stage.REQUESTED), (2, gr.Stage.CANCELLED), (3, gr.Stage.FORCED)])
async def test_p11_only_asyncio_each_further_native_cancel_moves_the_shutdown_a_stage_on(
    cancels: int, stage: gr.Stage
) -> None:
    log = Log()
    log.next_stops("d", anyio.Event())
    runtime = gr.Runtime(tree(log))

    async def host() -> None:
        async with runtime:
            runtime.ref("top/d").tell(Hold(anyio.Event()))
            await anyio.sleep_forever()

    task = asyncio.create_task(host())
    await settle()
    for _ in range(cancels):
        task.cancel()
        await settle()
    assert runtime.report is not None
    assert runtime.report.stage is stage
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.backends("asyncio")
async def test_p11_only_asyncio_a_native_cancel_that_comes_while_the_tree_stops_is_a_request_and_no_escalation() -> (
    None
):
    log = Log()
    log.next_stops("d", 1.0)
    runtime = gr.Runtime(tree(log))

    async def host() -> None:
        async with runtime:
            pass

    task = asyncio.create_task(host())
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert runtime.report is not None
    assert runtime.report.stage is gr.Stage.REQUESTED
    assert runtime.report.clean


@pytest.mark.backends("trio")
@pytest.mark.parametrize(("times", "stage"), [(1, gr.Stage.REQUESTED), (2, gr.Stage.CANCELLED)])
async def test_p11_only_trio_ctrl_c_runs_the_ladder_and_each_further_one_moves_it_on(
    times: int, stage: gr.Stage
) -> None:
    log = Log()
    log.next_stops("d", 9.0)
    runtime = gr.Runtime(gr.Supervisor("top", log.child("a"), log.child("d", shutdown=None)))
    began = anyio.current_time()
    async with trio.open_nursery() as nursery:

        async def press() -> None:
            token = trio.lowlevel.current_trio_token()
            for _ in range(times):
                await trio.sleep(1.0)
                token.run_sync_soon(signal.raise_signal, signal.SIGINT)  # from there trio passes it to the main task

        nursery.start_soon(press)
        with pytest.raises(KeyboardInterrupt):
            async with runtime:
                await trio.sleep_forever()
    assert runtime.report is not None
    assert runtime.report.stage is stage
    assert anyio.current_time() - began == pytest.approx(10.0 if times == 1 else 2.0)


# -------------------------------------------------------------------------------------------- at every moment there is


async def turn() -> None:
    """Let the event loop turn once."""
    if sniffio.current_async_library() == "trio":
        await trio.lowlevel.checkpoint()
    else:
        await asyncio.sleep(0)


def leftovers() -> list[str]:
    """Event-loop tasks other than the calling one."""
    if sniffio.current_async_library() == "asyncio":
        return [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    return [child.name for nursery in trio.lowlevel.current_task().child_nurseries for child in nursery.child_tasks]


MOMENTS = range(60)
"""Turns of the loop after which the host is cancelled: more than it takes to start and to stop the tree."""


def check(log: Log, runtime: gr.Runtime, moment: int) -> None:
    """What has started has stopped, in order; what was cut off at its start counts as well."""
    starts = [entry.removeprefix("start ") for entry in log.entries if entry.startswith("start")]
    ends = [entry.partition(" ")[2] for entry in log.entries if not entry.startswith("start")]
    assert ends == starts[::-1], f"cancelled after {moment} turns"
    assert not starts or runtime.exit is not None


@pytest.mark.parametrize("body", [0, 3])
async def test_p11_a_cancelled_scope_at_any_moment_leaves_nothing_behind(body: int) -> None:
    async def host(runtime: gr.Runtime, scope: anyio.CancelScope) -> None:
        with scope:
            async with runtime:
                for _ in range(body):
                    await turn()

    for moment in MOMENTS:
        log = Log()
        runtime = gr.Runtime(tree(log))
        async with anyio.create_task_group() as group:
            scope = anyio.CancelScope()
            group.start_soon(host, runtime, scope)
            for _ in range(moment):
                await turn()
            scope.cancel()
        check(log, runtime, moment)
        for _ in range(3):
            await turn()
        assert leftovers() == []


@pytest.mark.backends("asyncio")
@pytest.mark.parametrize("again_after", [None, 0, 1, 3, 7])
async def test_p11_only_asyncio_native_cancels_at_any_moment_leave_nothing_behind(again_after: int | None) -> None:
    for moment in MOMENTS:
        log = Log()
        runtime = gr.Runtime(tree(log))

        async def host(runtime: gr.Runtime = runtime) -> None:
            async with runtime:
                for _ in range(3):
                    await turn()

        task = asyncio.create_task(host())
        for _ in range(moment):
            await turn()
        task.cancel()
        if again_after is not None:
            for _ in range(again_after):
                await turn()
            task.cancel()
        await asyncio.wait([task])
        started = {entry.partition(" ")[2] for entry in log.entries if entry.startswith("start")}
        ended = {entry.partition(" ")[2] for entry in log.entries if not entry.startswith("start")}
        assert ended == started
        await turn()
        assert leftovers() == []


@pytest.mark.backends("trio")
@pytest.mark.parametrize("seed", range(10))
def test_p11_only_trio_in_whatever_order_its_tasks_run(
    seed: int, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setattr("trio._core._run._r", random.Random(seed))
    clock = VirtualClock()
    clock.run(test_p11_a_cancelled_scope_at_any_moment_leaves_nothing_behind, 3, backend="trio")


@pytest.mark.backends("asyncio")
@pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited:RuntimeWarning"
)  # of tasks that never had a first step
async def test_p11_only_asyncio_cancelling_all_tasks_of_the_loop_at_any_moment_ends_the_block() -> None:
    for moment in MOMENTS:
        log = Log()
        runtime = gr.Runtime(tree(log))

        async def host(runtime: gr.Runtime = runtime) -> None:
            async with runtime:
                await anyio.sleep_forever()

        task = asyncio.create_task(host())
        for _ in range(moment):
            await turn()
        for one in asyncio.all_tasks() - {asyncio.current_task()}:
            one.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await turn()
        assert leftovers() == []


@pytest.mark.backends("asyncio")
async def test_only_asyncio_a_tree_whose_root_was_cancelled_from_outside_has_failed() -> None:
    log = Log()
    with pytest.raises(gr.TreeFailed):
        async with gr.Runtime(tree(log)) as runtime:
            (root,) = (task for task in asyncio.all_tasks() if "Root.run" in task.get_name())
            root.cancel()
            await anyio.sleep_forever()
    assert runtime.exit is not None
    assert not runtime.exit.clean


async def test_crashes_in_the_middle_of_a_cancellation_do_not_bring_a_child_back() -> None:
    log = Log()
    log.next_stops("d", 1.0)
    runtime = gr.Runtime(tree(log))
    with anyio.CancelScope() as scope:
        async with runtime:
            a = runtime.ref("top/a")
            scope.cancel()
            with anyio.CancelScope(shield=True):
                await settle()
                log.take()
                a.tell(Crash())
                await settle()
            assert log.take() == ["die a"]
    assert runtime.report is not None
    assert runtime.report.failed == ("top/a",)


@pytest.mark.backends("asyncio")
@pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited:RuntimeWarning"
)  # of tasks that never had a first step
@pytest.mark.parametrize("seed", range(40))
async def test_only_asyncio_native_cancels_of_whatever_task_do_not_keep_the_block_from_ending(seed: int) -> None:
    choose = random.Random(seed)

    class Mother(gr.Actor):
        async def on_start(self) -> None:
            self.context.nursery.start_soon(anyio.sleep_forever)

        async def on_stop(self, exit: gr.Exit) -> None:
            await anyio.sleep(0.1)

    inner = gr.Supervisor("in", gr.Child("b", Mother), gr.Child("c", Mother), intensity=50)
    runtime = gr.Runtime(gr.Supervisor("top", gr.Child("a", Mother), inner, intensity=50))

    async def host() -> None:
        async with runtime:
            await anyio.sleep_forever()

    task = asyncio.create_task(host())
    for _ in range(20):
        for _ in range(choose.randrange(4)):
            await turn()
        if choose.random() < 0.2:
            await anyio.sleep(0.05)
        others = sorted(asyncio.all_tasks() - {task, asyncio.current_task()}, key=lambda one: one.get_name())
        if others:
            choose.choice(others).cancel()
    await anyio.sleep(1.0)
    task.cancel()
    await asyncio.wait([task])
    await turn()
    assert leftovers() == []
    assert task.cancelled() or isinstance(task.exception(), (gr.TreeFailed, gr.StartFailed))
