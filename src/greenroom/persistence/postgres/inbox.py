"""The queue into a store thread that runs an asyncio loop."""

from __future__ import annotations

import asyncio
from collections import deque


class AsyncInbox:
    """Many threads put, the store thread's loop gets. A producer pays for a wake-up only when the consumer is parked."""

    def __init__(self) -> None:
        self._items: deque[object] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._parked = False

    def put(self, item: object) -> None:
        """From any thread, also before the store thread runs."""
        self._items.append(item)
        # The consumer says that it parks before it looks at the queue for the last time: one of the two sees the other.
        if self._parked and self._loop is not None:
            self._parked = False
            try:
                self._loop.call_soon_threadsafe(self._wake)
            except RuntimeError:  # the store thread has ended; whoever submits is told so by the committer
                return

    async def get(self, timeout: float | None) -> object | None:
        """In the store thread: the next item; None after `timeout` seconds."""
        if self._items:
            await asyncio.sleep(0)  # let notifications and ends of connections be seen under steady load too
            return self._items.popleft()
        self._loop = asyncio.get_running_loop()
        self._waiter = self._loop.create_future()
        timer = None if timeout is None else self._loop.call_later(timeout, self._wake)
        self._parked = True
        try:
            if not self._items:
                await self._waiter
        finally:
            self._parked = False
            self._waiter = None
            if timer is not None:
                timer.cancel()
        return self.get_nowait()

    def get_nowait(self) -> object | None:
        """In the store thread: the next item, or None."""
        return self._items.popleft() if self._items else None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
