"""Virtual time for asyncio: a selector event loop whose selector jumps instead of sleeping.

The selector is the one place where an asyncio loop ever waits, and it is told how long. Everything else of the loop is
asyncio's own. Three private attributes of the loop are used, because there is no public way to them: `_scheduled`
(its heap of timers, for the exact second of the next one: the timeout it passes on has been rounded by a subtraction),
`_clock_resolution` (how far ahead of the time a timer may fire; one nanosecond would vanish beside a large time,
and the loop would then spin at a timer for ever), and `_ready` (its queue of what can run, for a seed to shuffle).
"""

from __future__ import annotations

import asyncio
import math
import selectors
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from anyio.to_thread import current_default_thread_limiter

from greenroom.testing.blocked import asyncio_tasks, describe
from greenroom.testing.seeded_order import SeededOrder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Executor

    from _typeshed import FileDescriptorLike

    from greenroom.testing.timeline import Timeline

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class JumpingSelector(selectors.BaseSelector):
    """Serves what is ready; where it would sleep until a timer, it moves the time to that timer."""

    def __init__(self, timeline: Timeline) -> None:
        self.loop: VirtualTimeLoop | None = None
        self._timeline = timeline
        self._inner = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        loop, timeline = self.loop, self._timeline
        if loop is None:
            return self._inner.select(timeout)
        if timeout is not None and timeout <= 0:
            loop.shuffle()
            timeline.turn(loop.next_timer)
            loop.widen_resolution()
            return self._inner.select(0)
        timeline.idle()
        if events := self._inner.select(0):
            return events
        if loop.wake_those_waiting_for_idleness():
            return []
        if timeline.held or loop.threads_at_work():
            return self._inner.select(None)
        when = loop.next_timer()
        if when < math.inf:  # sleeping for ever is a timer too, at infinity
            timeline.jump(when)
            loop.widen_resolution()
            return []
        return self._wait_for_the_world(loop)

    def _wait_for_the_world(self, loop: VirtualTimeLoop) -> list[tuple[selectors.SelectorKey, int]]:
        """No timer is set: only something outside can wake the loop, if there is anything outside."""
        the_loops_own_pipe = 1
        if len(self._inner.get_map()) > the_loops_own_pipe:
            return self._inner.select(None)
        patience = self._timeline.patience
        events = self._inner.select(None if math.isinf(patience) else patience)
        if not events:
            self._timeline.stalled([describe(task.get_name(), task.get_coro()) for task in asyncio_tasks(loop)])
        return events

    def register(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.modify(fileobj, events, data)

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._inner.get_map()

    def close(self) -> None:
        self._inner.close()


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop under a virtual clock, which hangs at `virtual_clock` for those who need to hold it."""

    def __init__(self, timeline: Timeline) -> None:
        timeline.begin()
        self.virtual_clock = timeline.owner
        self._timeline = timeline
        self._executor_calls = 0
        self._waiting_for_idleness: list[asyncio.Future[None]] = []
        self._order = None if timeline.seed is None else SeededOrder(timeline.seed)
        timeline.wait_idle = self.wait_idle
        selector = JumpingSelector(timeline)
        super().__init__(selector)
        self.widen_resolution()
        selector.loop = self

    def time(self) -> float:
        return self._timeline.now

    def next_timer(self) -> float:
        """The virtual second of the next timer that has not been cancelled, as asyncio has just sorted them."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]  # see the module's docstring
        return timers[0].when() if timers else math.inf

    def widen_resolution(self) -> None:
        self._clock_resolution = math.ulp(self._timeline.now)

    def shuffle(self) -> None:
        """Let the seed, if there is one, decide in which order the tasks run that can run now."""
        if self._order is not None:
            self._order.shuffle(self._ready)  # type: ignore[attr-defined]  # see the module's docstring

    async def wait_idle(self) -> None:
        waiter = self.create_future()
        self._waiting_for_idleness.append(waiter)
        await waiter

    def wake_those_waiting_for_idleness(self) -> bool:
        waiters = [waiter for waiter in self._waiting_for_idleness if not waiter.done()]
        self._waiting_for_idleness.clear()
        for waiter in waiters:
            waiter.set_result(None)
        return bool(waiters)

    def threads_at_work(self) -> bool:
        """Whether a worker thread is busy whose result a task waits for (executors, and anyio's default limiter)."""
        if self._executor_calls:
            return True
        try:
            return current_default_thread_limiter().borrowed_tokens > 0
        except RuntimeError:  # outside anyio.run there is no current limiter to ask
            return False

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: Unpack[Ts]
    ) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._executor_calls += 1
        future.add_done_callback(self._executor_call_done)
        return future

    def _executor_call_done(self, _: asyncio.Future[Any]) -> None:
        self._executor_calls -= 1

    async def shutdown_default_executor(self, *args: Any, **options: Any) -> None:
        """Join the executor's threads. They end in real time, so the time limit newer asyncio sets must not jump."""
        self._executor_calls += 1
        try:
            await super().shutdown_default_executor(*args, **options)
        finally:
            self._executor_calls -= 1
