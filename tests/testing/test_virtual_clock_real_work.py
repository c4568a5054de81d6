"""What works in real time outside the event loop, under a virtual clock: threads, holds, processes, descriptors."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest
import trio
import trio.testing

from greenroom.errors import Misuse
from greenroom.testing import VirtualClock
from tests.testing.posting import in_loop_soon, void

if TYPE_CHECKING:
    from greenroom.testing.virtual_clock import Backend


def test_a_worker_thread_that_a_task_waits_for_keeps_time_from_jumping(backend: Backend) -> None:
    clock = VirtualClock()
    go = threading.Event()

    async def main() -> float:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 3600)
            release = threading.Timer(0.05, go.set)
            release.start()
            await anyio.to_thread.run_sync(go.wait)
            seen = clock.now()
            group.cancel_scope.cancel()
        release.join()
        return seen

    assert clock.run(main, backend=backend) == 0.0


def test_time_jumps_again_when_the_thread_has_been_abandoned(backend: Backend) -> None:
    clock = VirtualClock()
    go = threading.Event()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: anyio.to_thread.run_sync(go.wait, abandon_on_cancel=True))
            await clock.wait_idle()
            group.cancel_scope.cancel()
        await anyio.sleep(10)
        go.set()

    clock.run(main, backend=backend)
    assert clock.now() == 10.0


def test_a_call_in_an_asyncio_executor_keeps_time_from_jumping() -> None:
    clock = VirtualClock()
    go = threading.Event()

    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(3600, void, None)
        release = threading.Timer(0.05, go.set)
        release.start()
        await loop.run_in_executor(None, go.wait)
        release.join()
        return clock.now()

    assert clock.run(main) == 0.0


def test_time_stands_still_under_a_hold_and_a_thread_of_ones_own_can_wake_the_loop(backend: Backend) -> None:
    clock = VirtualClock()

    async def main() -> float:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 3600)
            done, post = anyio.Event(), in_loop_soon()
            worker = threading.Timer(0.05, lambda: post(done.set))
            with clock.hold():
                worker.start()
                await done.wait()
                seen = clock.now()
            worker.join()
            group.cancel_scope.cancel()
        return seen

    assert clock.run(main, backend=backend) == 0.0


def test_a_child_process_can_be_awaited_under_a_hold(backend: Backend) -> None:
    clock = VirtualClock()

    async def main() -> tuple[int, float]:
        with clock.hold(), anyio.fail_after(0.001):
            child = await anyio.run_process([sys.executable, "-c", "print('hello')"])
        return child.returncode, clock.now()

    assert clock.run(main, backend=backend) == (0, 0.0)


def test_holds_are_counted_and_time_moves_only_after_the_last(backend: Backend) -> None:
    clock = VirtualClock()
    seen: list[float] = []

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 3600)
            done, post = anyio.Event(), in_loop_soon()
            worker = threading.Timer(0.05, lambda: post(done.set))
            hold = clock.hold()
            with hold:
                with hold, clock.hold():
                    worker.start()
                await done.wait()
                seen.append(clock.now())
            worker.join()
        seen.append(clock.now())

    clock.run(main, backend=backend)
    assert seen == [0.0, 3600.0]


def test_a_hold_taken_in_another_thread_is_refused(backend: Backend) -> None:
    clock = VirtualClock()

    def elsewhere() -> None:
        with clock.hold():
            pass

    async def main() -> None:
        await anyio.to_thread.run_sync(elsewhere)

    with pytest.raises(Misuse, match="event loop's thread"):
        clock.run(main, backend=backend)


def test_the_runtime_finds_the_clock_from_inside_the_loop(backend: Backend) -> None:
    clock = VirtualClock()

    async def main() -> object:
        if backend == "trio":
            return getattr(trio.lowlevel.current_clock(), "virtual_clock", None)
        return getattr(asyncio.get_running_loop(), "virtual_clock", None)

    assert clock.run(main, backend=backend) is clock


def test_bytes_that_are_ready_are_served_before_time_jumps(backend: Backend) -> None:
    clock = VirtualClock()
    near, far = socket.socketpair()

    async def main() -> float:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 3600)
            near.send(b"x")
            await anyio.wait_readable(far)
            seen = clock.now()
            group.cancel_scope.cancel()
        return seen

    with near, far:
        assert clock.run(main, backend=backend) == 0.0


def test_a_descriptor_that_is_waited_for_does_not_stop_time(backend: Backend) -> None:
    clock = VirtualClock()
    near, far = socket.socketpair()

    async def main() -> float:
        with anyio.move_on_after(60):
            await anyio.wait_readable(far)
        return clock.now()

    with near, far:
        assert clock.run(main, backend=backend) == 60.0
