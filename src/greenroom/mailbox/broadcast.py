"""One publisher, any number of readers, nobody waits for the slowest."""

from __future__ import annotations

from collections import deque
from threading import get_ident
from types import TracebackType
from typing import Generic, TypeVar

from greenroom.errors import Misuse, WrongThread
from greenroom.mailbox.options import is_whole
from greenroom.mailbox.parking import Slot, current_loop

T = TypeVar("T")

IN_A_ROW = 64
"""Items that a reader takes without letting others run."""


class Subscription(Generic[T]):
    """An async iterator over what is published from its creation on. Ends when the publisher closes or on `close()`.

    Holds at most `buffer` items for a reader that lags; beyond that the oldest are dropped and counted in `missed`, since a
    reader that is slow must not cost the service its memory. One event-loop task reads one subscription.
    """

    def __init__(self, stream: Broadcast[T], buffer: int) -> None:
        self._stream = stream
        self._items: deque[T] = deque(maxlen=buffer)
        self._slot: Slot | None = None
        self._closed = False
        self._in_a_row = 0
        self.missed = 0
        """Items dropped because this reader was slow."""

    def _put(self, item: T) -> None:
        if len(self._items) == self._items.maxlen:
            self.missed += 1
        self._items.append(item)
        self._wake()

    def _wake(self) -> None:
        if self._slot is not None and not self._slot.done():
            self._slot.set_result(None)

    def close(self) -> None:
        """Stop listening; an iteration under way ends after what is buffered. Safe to call twice."""
        self._closed = True
        self._stream._subscriptions.pop(self, None)
        self._wake()

    def __aiter__(self) -> Subscription[T]:
        return self

    async def __anext__(self) -> T:
        self._in_a_row += 1
        if self._in_a_row >= IN_A_ROW:
            # However far behind it is, a reader lets others run now and then, and stays cancellable.
            self._in_a_row = 0
            await current_loop().checkpoint()
        while not self._items:
            self._in_a_row = 0
            if self._closed:
                raise StopAsyncIteration
            if self._stream.thread not in (None, get_ident()):
                raise WrongThread  # the publisher would wake an event loop that is not its own
            if self._slot is not None:
                raise Misuse(
                    "another event-loop task is reading this already: give each reader a subscription of its own"
                )
            self._slot = current_loop().slot()
            try:
                await self._slot
            finally:
                self._slot = None
        return self._items.popleft()

    def pending(self) -> list[T]:
        """Take what is buffered, without waiting."""
        items = list(self._items)
        self._items.clear()
        return items

    def __enter__(self) -> Subscription[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Broadcast(Generic[T]):
    """The publisher's side. Used on the event loop's thread only."""

    def __init__(self) -> None:
        self._subscriptions: dict[Subscription[T], None] = {}
        self._closed = False
        self.thread: int | None = None
        """The thread of the event loop on which items are published, once that is known."""

    def belong_to(self, thread: int) -> None:
        """From now on only this thread, the event loop's, may wait for items."""
        self.thread = thread

    @property
    def listened_to(self) -> bool:
        """Is there anybody to publish to? Saves making an item for nobody."""
        return bool(self._subscriptions)

    def publish(self, item: T) -> None:
        """Hand an item to every subscription; never waits."""
        for subscription in tuple(self._subscriptions):
            subscription._put(item)

    def subscribe(self, *, buffer: int = 10_000) -> Subscription[T]:
        """Start listening. `buffer`: items (int > 0) kept for a reader that lags; anything else raises `ValueError`."""
        if not is_whole(buffer, least=1):
            raise ValueError(f"buffer={buffer!r}: a whole number of items above 0 is kept for a reader that lags")
        subscription = Subscription(self, buffer)
        if self._closed:
            subscription._closed = True
        else:
            self._subscriptions[subscription] = None
        return subscription

    def close(self) -> None:
        """End every subscription, after what it has buffered. Later ones are born ended."""
        self._closed = True
        for subscription in tuple(self._subscriptions):
            subscription.close()
