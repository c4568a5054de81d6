"""The bare child of an anyio task group: what a supervised child costs before anybody supervises it.

Idle, it waits on an event of its own. For restarts it has a queue that outlives it, as a mailbox outlives an
incarnation: it raises, is caught by its parent, and is started again by `start_soon`.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter

import anyio
from anyio.abc import TaskGroup

from benchmarks.harness import Figures
from benchmarks.memory import ReadMemory, bytes_each, first_tenth
from benchmarks.meters import Bell, Countdown, CrashClock, meter_restart


async def _idle(stop: anyio.Event, started: Bell, ended: Bell) -> None:
    started.ring()
    await stop.wait()
    ended.ring()


async def _start(group: TaskGroup, n: int, ended: Bell) -> list[anyio.Event]:
    """Start n children, each when the one before runs. Answers the events they wait on; `ended` rings for each end."""
    started = Bell()
    stops = []
    for _ in range(n):
        stop = anyio.Event()
        group.start_soon(_idle, stop, started, ended)
        await started.wait()
        stops.append(stop)
    return stops


async def spawn(n: int) -> Figures:
    """Children per second: started one by one; ended one by one as well; or ended all together, by cancellation.

    One by one, since that is what starting a supervised child promises: when the call returns, the child runs. What it
    costs to wait for each is seen beside `spawn_together`.
    """
    ended = Bell()
    begin = perf_counter()
    async with anyio.create_task_group() as group:
        stops = await _start(group, n, ended)
        first_up = perf_counter()
        for stop in stops:
            stop.set()
            await ended.wait()
    each_down = perf_counter()
    async with anyio.create_task_group() as group:
        await _start(group, n, ended)
        second_up = perf_counter()
        group.cancel_scope.cancel()
    all_down = perf_counter()
    return {
        "spawn": 2 * n / (first_up - begin + second_up - each_down),
        "spawn_stop_each": n / (each_down - begin),
        "spawn_stop_all": n / (all_down - each_down),
    }


async def _counted(stop: anyio.Event, started: Countdown) -> None:
    started.hit()
    await stop.wait()


async def spawn_together(n: int) -> Figures:
    """Children per second when all are started before the first runs, and nobody answers for each start."""
    started = Countdown(n)
    begin = perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(n):
            group.start_soon(_counted, anyio.Event(), started)
        await started.bell.wait()
        up = perf_counter()
        group.cancel_scope.cancel()
    return {"spawn": n / (up - begin), "spawn_stop_all": n / (perf_counter() - begin)}


async def start_and_stop_all(n: int) -> float:
    """Seconds that n children take from the first start to the end of the last, when they are ended together."""
    begin = perf_counter()
    async with anyio.create_task_group() as group:
        await _start(group, n, Bell())
        group.cancel_scope.cancel()
    return perf_counter() - begin


async def hold_idle(n: int, read: ReadMemory) -> float:
    """Bytes of one child that waits, the event it waits on included."""
    async with anyio.create_task_group() as group:
        stops = await _start(group, first_tenth(n), Bell())
        before = read()
        stops += await _start(group, n - len(stops), Bell())
        each = bytes_each(before, read(), n)
        group.cancel_scope.cancel()
    return each


class _Crash(Exception):
    """What the child raises."""


class _RestartedChild:
    """A child that handles what is queued until it raises. The queue outlives it."""

    def __init__(self, clock: CrashClock) -> None:
        self._clock = clock
        self._queue: deque[str] = deque()
        self._filled = anyio.Event()

    def tell(self, message: str) -> None:
        self._queue.append(message)
        self._filled.set()

    async def run(self) -> None:
        while True:
            while self._queue:
                await self._handle(self._queue.popleft())
            self._filled = anyio.Event()
            await self._filled.wait()

    async def _handle(self, message: str) -> None:
        if message == "crash":
            self._clock.crashed()
            raise _Crash
        self._clock.handled()


async def _keep_running(child: _RestartedChild) -> None:
    """Its parent: what the child raises comes out of its task group, is caught there, and the child is started again."""
    while True:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(child.run)
        except* _Crash:
            pass


async def restart(n: int) -> Figures:
    """A child that raises, is caught by its parent and is started again."""
    clock = CrashClock()
    child = _RestartedChild(clock)
    async with anyio.create_task_group() as group:
        group.start_soon(_keep_running, child)
        figures = await meter_restart(child.tell, "crash", "after", clock, n)
        group.cancel_scope.cancel()
    return figures


async def _run_again(child: _RestartedChild, group: TaskGroup) -> None:
    try:
        await child.run()
    except _Crash:
        group.start_soon(_run_again, child, group)


async def restart_itself(n: int) -> Figures:
    """A child that catches itself and starts its own successor: nobody is told, nobody decides. The least there is."""
    clock = CrashClock()
    child = _RestartedChild(clock)
    async with anyio.create_task_group() as group:
        group.start_soon(_run_again, child, group)
        figures = await meter_restart(child.tell, "crash", "after", clock, n)
        group.cancel_scope.cancel()
    return figures
