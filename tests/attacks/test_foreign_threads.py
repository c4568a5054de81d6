"""Calls from a thread with an event loop of its own, which must be refused before they wake the wrong loop."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

import greenroom as gr
from greenroom.testing.virtual_clock import Backend
from tests.actors.helpers import Puppet

TREE = gr.Supervisor("app", gr.Child("puppet", Puppet))


async def raised_elsewhere(call: Callable[[], Awaitable[Any]], backend: Backend) -> list[BaseException]:
    """What a call raises on a loop of this kind in another thread."""
    raised: list[BaseException] = []

    async def main() -> None:
        try:
            with anyio.fail_after(1):
                await call()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it
            raised.append(error)

    thread = threading.Thread(target=lambda: anyio.run(main, backend=backend))
    thread.start()
    await anyio.to_thread.run_sync(thread.join)
    return raised


@pytest.mark.parametrize("call", ["stop", "wait", "wait_stopping"])
async def test_waiting_for_the_runtime_on_another_loop_is_refused_and_stops_nothing(
    call: str, backend: Backend
) -> None:
    async with gr.Runtime(TREE) as runtime:
        (error,) = await raised_elsewhere(getattr(runtime, call), backend)
        assert isinstance(error, gr.WrongThread)
        assert not runtime.stopping


async def test_reading_events_on_another_loop_is_refused(backend: Backend) -> None:
    async with gr.Runtime(TREE) as runtime:
        with runtime.events() as events:
            (error,) = await raised_elsewhere(events.__anext__, backend)
    assert isinstance(error, gr.WrongThread)


async def test_reading_dead_letters_on_another_loop_is_refused(backend: Backend) -> None:
    async with gr.Runtime(TREE) as runtime:
        with runtime.dead_letters() as letters:
            (error,) = await raised_elsewhere(letters.__anext__, backend)
    assert isinstance(error, gr.WrongThread)


async def test_what_is_left_of_a_stream_may_be_read_anywhere_once_the_runtime_has_ended(backend: Backend) -> None:
    runtime = gr.Runtime(TREE)
    events = runtime.events()
    async with runtime:
        pass
    read: list[gr.Event] = []

    async def drain() -> None:
        read.extend([event async for event in events])

    assert await raised_elsewhere(drain, backend) == []
    assert any(isinstance(event, gr.ActorEnded) for event in read)


async def test_a_second_reader_of_one_subscription_is_refused_instead_of_never_woken() -> None:
    async with gr.Runtime(TREE) as runtime:
        with runtime.events() as events:
            async with anyio.create_task_group() as readers:
                readers.start_soon(events.__anext__)
                await anyio.sleep(1)
                with pytest.raises(gr.Misuse, match="subscription of its own"):
                    await events.__anext__()
                readers.cancel_scope.cancel()
