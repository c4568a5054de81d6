"""Event-loop tasks that attend to a block: they serve its stores' threads, also while the block is cancelled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from types import TracebackType


class Attendants:
    """Tasks beside the body of an `async with` block. They end with it, and neither its cancellation nor its exceptions are theirs."""

    def __init__(self) -> None:
        self.over = False
        self._scopes: set[anyio.CancelScope] = set()

    async def __aenter__(self) -> Attendants:
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over = True
        for scope in self._scopes:
            scope.cancel()
        # Not told of the body's exception, which would come out of it in a group.
        await self._group.__aexit__(None, None, None)

    def start(self, main: Callable[[], Awaitable[object]]) -> None:
        """On the loop's thread, within the block."""
        self._group.start_soon(self._attend, main)

    async def _attend(self, main: Callable[[], Awaitable[object]]) -> None:
        # A cancelled body still has stores to close, whose threads need us.
        with anyio.CancelScope(shield=True) as scope:
            if self.over:
                return
            self._scopes.add(scope)
            try:
                await main()
            finally:
                self._scopes.discard(scope)
