"""Running a driver's coroutines in a thread of their own, without an event loop: SQLite's never suspend."""

from __future__ import annotations

import queue
from collections.abc import Coroutine
from typing import Any, TypeVar

from greenroom.errors import Defect

T = TypeVar("T")


def run_blocking(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that blocks instead of suspending."""
    try:
        main.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    main.close()
    raise Defect("a coroutine of the SQLite driver has suspended: nothing there can resume it")


class BlockingInbox:
    """The queue into a thread that waits by blocking."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.put = self._queue.put  # from any thread

    async def get(self, timeout: float | None) -> object | None:
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            return None

    def get_nowait(self) -> object | None:
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            return None
