"""Watching tasks: who waits here for something to happen to one. What is told is a hint; what the store says is the truth."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

import anyio

from greenroom.mailbox import EventLoop, Slot


class Watch(Protocol):
    """One who waits, for the length of a `with` block."""

    def __enter__(self) -> Watch: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def news(self) -> None:
        """Return when something may have happened since this returned last, or the block began; or when it is time to look again."""


class Watchers:
    """All of one runtime. For the event loop's thread.

    Args:
        patience: seconds between two looks at a task, whatever was heard of it.
    """

    def __init__(self, loop: EventLoop, patience: float) -> None:
        self.loop, self.patience = loop, patience
        self._by_address: dict[str, list[Watching]] = {}

    def watch(self, address: str, *, rows: bool = False) -> Watching:
        """Watch a task. `rows`: also each row of its journal."""
        return Watching(self, address, rows=rows)

    def add(self, watching: Watching) -> None:
        self._by_address.setdefault(watching.address, []).append(watching)

    def remove(self, watching: Watching) -> None:
        others = self._by_address[watching.address]
        others.remove(watching)
        if not others:
            del self._by_address[watching.address]

    def changed(self, address: str) -> None:
        """Something has happened to a task."""
        for watching in self._by_address.get(address, ()):
            watching.notify()

    def written(self, address: str) -> None:
        """Its journal has grown."""
        for watching in self._by_address.get(address, ()):
            if watching.rows:
                watching.notify()

    def look(self) -> None:
        """Something has changed elsewhere: it may be any of them."""
        for address in self._by_address:
            self.changed(address)


class Watching:
    """See `Watch`."""

    def __init__(self, watchers: Watchers, address: str, *, rows: bool) -> None:
        self._watchers, self.address, self.rows = watchers, address, rows
        self._news = False
        self._slot: Slot | None = None

    def __enter__(self) -> Watching:
        self._watchers.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watchers.remove(self)

    def notify(self) -> None:
        self._news = True
        if self._slot is not None and not self._slot.done():
            self._slot.set_result(None)

    async def news(self) -> None:
        if not self._news:
            self._slot = self._watchers.loop.slot()
            with anyio.move_on_after(self._watchers.patience):
                await self._slot
        self._news = False
