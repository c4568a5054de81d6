"""Long lists, read a page at a time while they are walked through."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

R = TypeVar("R")
T = TypeVar("T")

PAGE: Final = 100
"""Records that are read at once."""


class Listing(AsyncIterator[T], Generic[R, T]):
    """Shows each record of a list, in order: `async for`. It may be left early, and what changes meanwhile may be seen or not.

    No generator: one that is left early would have to be closed, and trio warns when it was not.

    Args:
        read: the page that follows a record; the first one for None. One that is not full is the last.
        show: makes of a record what is shown.
    """

    def __init__(self, read: Callable[[R | None], Awaitable[Sequence[R]]], show: Callable[[R], Awaitable[T]]) -> None:
        self._read, self._show = read, show
        self._page: deque[R] = deque()
        self._last: R | None = None
        self._ended = False

    async def __anext__(self) -> T:
        if not self._page and not self._ended:
            page = await self._read(self._last)
            self._page.extend(page)
            self._ended = len(page) < PAGE
        if not self._page:
            raise StopAsyncIteration
        self._last = self._page.popleft()
        return await self._show(self._last)
