"""Wake-ups: which addresses may have something to do. A hint that saves polling; what the store says is the truth."""

from __future__ import annotations

from types import TracebackType

from attrs import frozen

from greenroom.mailbox.parking import EventLoop, Slot


@frozen
class Wakeup:
    """Something happened."""

    addresses: frozenset[str]
    """These have new mail, an answered callback, or became free to be claimed."""
    due: frozenset[str]
    """Delayed mail of these has come due: `AdmitDue` gives it its place."""
    elsewhere: bool
    """Another process has changed something: look at everything that is waited for."""


class Subscription:
    """Wake-ups from its creation on. What comes while nobody waits is kept as one, so that none is lost and none piles up.

    One event-loop task reads it. Close it, or use it as a context manager.
    """

    def __init__(self, loop: EventLoop, subscribers: set[Subscription]) -> None:
        self._loop = loop
        self._subscribers = subscribers
        self._addresses: set[str] = set()
        self._due: set[str] = set()
        self._elsewhere = False
        self._closed = False
        self._slot: Slot | None = None
        subscribers.add(self)

    def notify(
        self, addresses: frozenset[str] = frozenset(), *, due: frozenset[str] = frozenset(), elsewhere: bool = False
    ) -> None:
        """On the loop's thread."""
        self._addresses |= addresses
        self._due |= due
        self._elsewhere |= elsewhere
        self._wake()

    async def wait(self) -> Wakeup | None:
        """The next wake-up, at once when there was one since the last; None when the store or the subscription is closed."""
        while not (self._news or self._closed):
            self._slot = self._loop.slot()
            try:
                await self._slot
            finally:
                self._slot = None
        if not self._news:
            return None
        wakeup = Wakeup(frozenset(self._addresses), frozenset(self._due), self._elsewhere)
        self._addresses, self._due, self._elsewhere = set(), set(), False
        return wakeup

    @property
    def _news(self) -> bool:
        return bool(self._addresses or self._due or self._elsewhere)

    def close(self) -> None:
        """Listen no more. Safe to call twice."""
        self._closed = True
        self._subscribers.discard(self)
        self._wake()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wake(self) -> None:
        if self._slot is not None and not self._slot.done():
            self._slot.set_result(None)
