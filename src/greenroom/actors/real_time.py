"""Keeping a virtual clock from jumping while something outside the event loop works in real time for an actor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class RealTime:
    """Who works outside just now. Without a virtual clock it does nothing. For the loop's thread."""

    __slots__ = ("_held", "_hold", "_waits", "_works")

    def __init__(self, virtual_clock: Any) -> None:
        self._hold = virtual_clock.hold() if virtual_clock is not None else None
        self._held = False
        self._works = 0
        self._waits = 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """The outside works in real time."""
        self._works += 1
        self._update()
        try:
            yield
        finally:
            self._works -= 1
            self._update()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Though it works, it waits for something on the event loop, whose time may go on."""
        self._waits += 1
        self._update()
        try:
            yield
        finally:
            self._waits -= 1
            self._update()

    def _update(self) -> None:
        wanted = self._works > 0 and self._waits == 0
        if self._hold is None or wanted is self._held:
            return
        self._held = wanted
        if wanted:
            self._hold.__enter__()
        else:
            self._hold.__exit__(None, None, None)
