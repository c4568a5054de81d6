"""P12, P15: a cancellation that is not ours is an error, and orders to the whole program come out of wherever they are raised."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import attrs
import pytest

import greenroom as gr
from tests.conformance.probes import Boom, Log, exits, settle

Work = Callable[[gr.Actor], Coroutine[Any, Any, None]]


@attrs.frozen
class Do(gr.Message[None]):
    """Run this in the handler."""

    work: Work


@attrs.frozen
class DoBeside(gr.Message[None]):
    """Run this in the actor's nursery."""

    work: Work


@attrs.frozen
class DoConcurrently(gr.Message[None]):
    """Run this in a concurrent handler."""

    work: Work


class Worker(gr.Actor):
    """Does what it is told, wherever it is told to; cleans up for a second."""

    def __init__(self, notes: list[str], start: Work | None = None) -> None:
        self.notes = notes
        self.start = start

    async def on_start(self) -> None:
        if self.start is not None:
            await self.start(self)

    async def on_stop(self, exit: gr.Exit) -> None:
        await anyio.sleep(1.0)
        self.notes.append(f"cleaned up after {exit.kind}")

    @gr.handles
    async def do(self, message: Do) -> None:
        await message.work(self)

    @gr.handles
    async def do_beside(self, message: DoBeside) -> None:
        self.context.nursery.start_soon(message.work, self)

    @gr.handles(concurrency=2)
    async def do_concurrently(self, message: DoConcurrently) -> None:
        await message.work(self)


WAYS: list[Callable[[Work], gr.Message[None]]] = [Do, DoBeside, DoConcurrently]
IDS = ["handler", "nursery", "concurrent handler"]


async def outcome(message: gr.Message[None]) -> tuple[gr.Exit, list[str], int]:
    """How the worker's first incarnation ended that was told this; its notes; which incarnation runs two seconds later."""
    notes: list[str] = []
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("worker", Worker, notes))) as runtime:
        events = runtime.events()
        runtime.ref("sup/worker").tell(message)
        await anyio.sleep(2.0)
        (exit,) = exits(events, "sup/worker")
        return exit, list(notes), runtime.ref("sup/worker").incarnation
    raise AssertionError


# -------------------------------------------------------------------------------------------- a cancellation not ours


async def await_a_cancelled_future(_actor: gr.Actor) -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def cancel_own_task(_actor: gr.Actor) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await anyio.sleep_forever()


async def await_a_cancelled_task(_actor: gr.Actor) -> None:
    task = asyncio.ensure_future(asyncio.sleep(60))
    task.cancel()
    await task


@pytest.mark.backends("asyncio")
@pytest.mark.parametrize("work", [await_a_cancelled_future, cancel_own_task, await_a_cancelled_task])
@pytest.mark.parametrize("way", WAYS, ids=IDS)
async def test_p12_only_asyncio_a_foreign_cancellation_is_an_error_exit_with_it_as_cause_and_a_restart(
    way: Callable[[Work], gr.Message[None]], work: Work
) -> None:
    exit, notes, incarnation = await outcome(way(work))
    assert exit.kind == "error"
    assert isinstance(exit.cause, asyncio.CancelledError)
    assert notes == ["cleaned up after error"]
    assert incarnation == 2


@pytest.mark.backends("asyncio")
async def test_p12_only_asyncio_a_foreign_cancellation_of_a_start_is_a_failed_start() -> None:
    with pytest.raises(gr.StartFailed) as caught:
        async with gr.Runtime(gr.Supervisor("sup", gr.Child("worker", Worker, [], await_a_cancelled_future))):
            pass
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)


@pytest.mark.backends("asyncio")
async def test_p12_only_asyncio_the_asker_is_told_of_the_crash() -> None:
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("worker", Worker, []))) as runtime:
        with pytest.raises(gr.ActorCrashed) as caught:
            await runtime.ref("sup/worker").ask(Do(await_a_cancelled_future))
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)


@pytest.mark.backends("asyncio")
async def test_p12_only_asyncio_a_native_cancel_from_outside_is_an_error_exit_and_on_stop_can_await() -> None:
    notes: list[str] = []
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("worker", Worker, notes))) as runtime:
        events = runtime.events()
        tasks: list[asyncio.Task[object]] = []

        async def hold(_actor: gr.Actor) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.append(task)
            await anyio.sleep_forever()

        runtime.ref("sup/worker").tell(Do(hold))
        await settle()
        tasks[0].cancel()
        await anyio.sleep(2.0)
        (exit,) = exits(events, "sup/worker")
        assert exit.kind == "error"
        assert isinstance(exit.cause, asyncio.CancelledError)
        assert notes == ["cleaned up after error"]
        assert runtime.ref("sup/worker").incarnation == 2


@pytest.mark.backends("asyncio")
async def test_p12_only_asyncio_a_native_cancel_while_the_nursery_cleans_up_waits_for_it_all_the_same() -> None:
    notes: list[str] = []
    async with gr.Runtime(gr.Supervisor("sup", gr.Child("worker", Worker, notes))) as runtime:
        tasks: list[asyncio.Task[object]] = []

        async def crash(actor: gr.Actor) -> None:
            async def slow() -> None:
                try:
                    await anyio.sleep_forever()
                finally:
                    with anyio.CancelScope(shield=True):
                        await anyio.sleep(1.0)
                    notes.append("the nursery has ended")

            actor.context.nursery.start_soon(slow)
            task = asyncio.current_task()
            assert task is not None
            tasks.append(task)
            await settle()
            raise Boom

        runtime.ref("sup/worker").tell(Do(crash))
        await anyio.sleep(0.5)
        tasks[0].cancel()
        await anyio.sleep(4.0)
        assert notes == ["the nursery has ended", "cleaned up after error"]
        assert runtime.ref("sup/worker").incarnation == 2


@pytest.mark.backends("asyncio")
async def test_p12_only_asyncio_a_cancelled_future_while_the_actor_is_being_cancelled_is_ours() -> None:
    notes: list[str] = []
    runtime = gr.Runtime(gr.Supervisor("sup", gr.Child("worker", Worker, notes, shutdown=1.0)))

    async def hold(actor: gr.Actor) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            await await_a_cancelled_future(actor)

    async with runtime:
        runtime.ref("sup/worker").tell(Do(hold))
        await settle()
    assert runtime.report is not None
    assert (runtime.report.cancelled, runtime.report.failed) == (("sup/worker",), ())
    assert notes == ["cleaned up after killed"]


# ----------------------------------------------------------------------------------------------- orders and groups


def raising(make: Callable[[], BaseException]) -> Work:
    async def work(_actor: gr.Actor) -> None:
        raise make()

    return work


def in_a_task_group(make: Callable[[], BaseException]) -> Work:
    async def work(_actor: gr.Actor) -> None:
        raise BaseExceptionGroup("tasks", [make()])

    return work


async def run_until_told(message: gr.Message[None], log: Log) -> None:
    tree = gr.Supervisor("sup", log.child("a"), gr.Child("worker", Worker, []), log.child("z"))
    async with gr.Runtime(tree) as runtime:
        log.take()
        runtime.ref("sup/worker").tell(message)
        await anyio.sleep_forever()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("wrap", [raising, in_a_task_group], ids=["bare", "grouped"])
@pytest.mark.parametrize("way", WAYS, ids=IDS)
async def test_p15_keyboard_interrupt_and_system_exit_end_the_tree_in_order_and_leave_the_block_bare(
    way: Callable[[Work], gr.Message[None]],
    wrap: Callable[[Callable[[], BaseException]], Work],
    kind: type[BaseException],
) -> None:
    log = Log()
    with pytest.raises(kind) as caught:
        await run_until_told(way(wrap(lambda: kind("on purpose"))), log)
    assert type(caught.value) is kind
    assert log.take() == ["stop z", "stop a"]


@pytest.mark.parametrize("way", WAYS, ids=IDS)
async def test_p15_the_errors_beside_an_order_do_not_hide_it(way: Callable[[Work], gr.Message[None]]) -> None:
    async def work(_actor: gr.Actor) -> None:
        raise BaseExceptionGroup("both", [Boom(), SystemExit(4)])

    with pytest.raises(SystemExit) as caught:
        await run_until_told(way(work), Log())
    assert caught.value.code == 4


@pytest.mark.parametrize("way", WAYS, ids=IDS)
async def test_p15_a_group_of_one_is_unwrapped(way: Callable[[Work], gr.Message[None]]) -> None:
    boom = Boom("the one")
    exit, _, incarnation = await outcome(way(in_a_task_group(lambda: boom)))
    assert exit == gr.Exit("error", boom)
    assert incarnation == 2


@pytest.mark.parametrize("way", WAYS, ids=IDS)
async def test_p15_several_errors_at_once_are_one_exit_and_one_restart(
    way: Callable[[Work], gr.Message[None]],
) -> None:
    async def work(_actor: gr.Actor) -> None:
        raise ExceptionGroup("several", [Boom("1"), Boom("2")])

    exit, _, incarnation = await outcome(way(work))
    assert isinstance(exit.cause, ExceptionGroup)
    assert [str(one) for one in exit.cause.exceptions] == ["1", "2"]
    assert incarnation == 2


async def test_p15_a_task_group_of_a_handler_that_fails_is_the_failure_of_its_task() -> None:
    async def work(_actor: gr.Actor) -> None:
        async def fail() -> None:
            raise Boom("in a task")

        async with anyio.create_task_group() as group:
            group.start_soon(fail)
            group.start_soon(anyio.sleep_forever)

    exit, _, _ = await outcome(Do(work))
    assert isinstance(exit.cause, Boom)


async def test_p15_a_second_order_does_not_replace_the_first() -> None:
    log = Log()
    log.next_stops("a", SystemExit(2))
    with pytest.raises(SystemExit) as caught:
        await run_until_told(Do(raising(lambda: SystemExit(1))), log)
    assert caught.value.code == 1


async def test_p15_an_order_is_not_a_reason_to_restart() -> None:
    runtime = gr.Runtime(gr.Supervisor("sup", gr.Child("worker", Worker, [])))
    events = runtime.events()
    with pytest.raises(SystemExit):
        async with runtime:
            runtime.ref("sup/worker").tell(Do(raising(SystemExit)))
            await anyio.sleep_forever()
    starts = [event for event in events.pending() if isinstance(event, gr.ActorStarted) and event.path == "sup/worker"]
    assert len(starts) == 1
