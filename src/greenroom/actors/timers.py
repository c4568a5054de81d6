"""Time for a whole runtime: one heap and one event-loop task, however many actors set timers or ask with a timeout."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable

import anyio

from greenroom.errors import AskTimeout
from greenroom.mailbox import EventLoop, Slot, message_type


class Timer:
    """A callback that is due at a moment of the loop's clock, unless cancelled before."""

    __slots__ = ("callback", "deadline")

    def __init__(self, deadline: float, callback: Callable[[], object] | None) -> None:
        self.deadline = deadline
        self.callback = callback

    def cancel(self) -> None:
        """Never call back. Safe at any time, also twice."""
        self.callback = None

    @property
    def cancelled(self) -> bool:
        return self.callback is None


class Timers:
    """The heap and the task that serves it. Callbacks are our own, synchronous and short; timers of one moment fire in order of creation."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = 0
        self._slot: Slot | None = None
        self._sleeping_until = float("inf")
        self._compact_at = 1024

    def at(self, deadline: float, callback: Callable[[], object]) -> Timer:
        """Call back once, at `deadline` (seconds of the loop's clock)."""
        timer = Timer(deadline, callback)
        self.arm(timer)
        return timer

    def arm(self, timer: Timer) -> None:
        """Put a timer on the heap: a new one, or one that has fired and got a new deadline and callback."""
        self._count += 1
        if len(self._heap) >= self._compact_at:
            # Cancelled timers stay until they surface; a service that sets and cancels all day must not collect them.
            self._heap = [entry for entry in self._heap if not entry[2].cancelled]
            heapq.heapify(self._heap)
            self._compact_at = max(1024, 2 * len(self._heap))
        heapq.heappush(self._heap, (timer.deadline, self._count, timer))
        if timer.deadline < self._sleeping_until:
            self._wake()

    def after(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Call back once, in `delay` seconds."""
        return self.at(self._loop.now() + delay, callback)

    def _wake(self) -> None:
        self._sleeping_until = float("-inf")
        if self._slot is not None and not self._slot.done():
            self._slot.set_result(None)

    async def run(self) -> None:
        """Serve the heap until cancelled."""
        while True:
            self._fire(self._loop.now())
            deadline = self._heap[0][0] if self._heap else float("inf")
            self._sleeping_until = deadline
            self._slot = self._loop.slot()
            with anyio.CancelScope(deadline=deadline):
                await self._slot
            self._slot = None

    def _fire(self, now: float) -> None:
        while self._heap and (self._heap[0][0] <= now or self._heap[0][2].cancelled):
            timer = heapq.heappop(self._heap)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()


class AskDeadlines:
    """The timeouts of all asks that wait, without a heap entry for each.

    Asks with the same timeout fall due in the order they were made, so each timeout has one ordered queue and one timer for its
    head. An ask that is answered leaves its queue in constant time.
    """

    def __init__(self, loop: EventLoop, timers: Timers) -> None:
        self._loop = loop
        self._timers = timers
        self._queues: dict[float, OrderedDict[Slot, tuple[float, str, object, float]]] = {}

    def add(self, reply: Slot, timeout: float, recipient: str, message: object, whole: float | None = None) -> None:
        """Fail `reply` with `AskTimeout` in `timeout` seconds, unless it is forgotten before.

        `whole`: the timeout that the asker gave, a part of which may have been spent on waiting for room.
        """
        queue = self._queues.get(timeout)
        if queue is None:
            queue = self._queues[timeout] = OrderedDict()
            self._timers.after(timeout, lambda: self._expire(timeout))
        queue[reply] = (self._loop.now() + timeout, recipient, message, timeout if whole is None else whole)

    def forget(self, reply: Slot, timeout: float) -> None:
        """The ask has ended."""
        queue = self._queues.get(timeout)
        if queue is not None:
            queue.pop(reply, None)

    def _expire(self, timeout: float) -> None:
        queue = self._queues[timeout]
        now = self._loop.now()
        while queue:
            reply, (deadline, recipient, message, whole) = next(iter(queue.items()))
            if deadline > now:
                self._timers.at(deadline, lambda: self._expire(timeout))
                return
            del queue[reply]
            if not reply.done():
                reply.set_exception(AskTimeout(recipient, message_type(message), whole))
        del self._queues[timeout]
