"""Event-loop tasks that belong to a body: they run in the supervisor's nursery, beside the life's own, and end before it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio

from greenroom.mailbox import EventLoop
from greenroom.mailbox.parking import CancelScope


class BodyTasks:
    """Starts tasks and ends them together. What a task does must not raise."""

    __slots__ = ("_ended", "_loop", "_scopes", "_spawn")

    def __init__(self, loop: EventLoop, spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]) -> None:
        self._loop = loop
        self._spawn = spawn
        self._scopes: set[CancelScope] = set()
        self._ended: anyio.Event | None = None

    def start(self, work: Callable[[], Awaitable[None]]) -> CancelScope:
        """Run `work` as a task; returns the scope that ends it alone."""
        scope = self._loop.cancel_scope()
        self._scopes.add(scope)

        async def main() -> None:
            try:
                with scope:
                    await work()
            finally:
                self._scopes.discard(scope)
                if not self._scopes and self._ended is not None:
                    self._ended.set()

        self._spawn(main)
        return scope

    async def end(self) -> None:
        """Cancel those that run and wait for their end. Nothing is started afterwards."""
        while self._scopes:
            self._ended = anyio.Event()
            for scope in self._scopes:
                scope.cancel()
            await self._ended.wait()
