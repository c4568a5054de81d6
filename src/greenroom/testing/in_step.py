"""Stores in step with the event loop, so that the same run of a scenario asks the same of them in the same order.

What is asked of all stores under one `Stepper` is kept in one queue, in the order of asking. Whenever every event-loop task waits,
the first is handed to its store's thread; the next one comes when that is done, and all that it set off on the loop. So no two
store threads ever work at once, and no two transitions share a commit. What happened elsewhere is not told, for that would come by
real time: it is found by whoever looks, as when no hint comes through.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import anyio

from greenroom.errors import Misuse
from greenroom.mailbox import current_loop
from greenroom.persistence.driver import News
from greenroom.testing.attendants import Attendants
from greenroom.testing.wrapped_driver import WrappedDriver

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from greenroom.persistence import Driver
    from greenroom.persistence.driver import Inbox


class Stopped(Exception):
    """Ends a store thread that is to do nothing more. Callers see `StoreUnavailable`."""


class Stepper:
    """Keeps stores in step, for the length of an `async with` block, under a virtual clock.

    Args:
        rested: called on the loop's thread whenever a step is over and every event-loop task waits.
    """

    def __init__(self, rested: Callable[[], object]) -> None:
        self._rested = rested
        self._queue: deque[tuple[SteppingInbox, object]] = deque()
        self._inboxes: set[SteppingInbox] = set()
        self._stopped = False
        self._asked = anyio.Event()
        self._done = anyio.Event()
        self._attendants = Attendants()

    async def __aenter__(self) -> Stepper:
        self._loop = current_loop()
        if self._loop.virtual_clock is None:
            raise Misuse(
                "a store can keep in step with the event loop only under a VirtualClock: start the run with it"
            )
        await self._attendants.__aenter__()
        self._attendants.start(self._conduct)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._attendants.__aexit__(kind, error, trace)

    def post(self, function: Callable[[], object]) -> None:
        """Run a function on the loop soon. From any thread."""
        self._loop.post(function)

    def stop(self) -> None:
        """Let no store do anything more. On the loop's thread."""
        self._stopped = True
        self._queue.clear()
        for inbox in self._inboxes:
            inbox.end()

    async def _conduct(self) -> None:
        clock = self._loop.virtual_clock
        while not self._stopped:
            if not self._queue:
                self._asked = anyio.Event()
                await self._asked.wait()
            with clock.hold():  # or time might pass before what was answered has had its effect
                await clock.wait_idle()
                if self._queue:
                    inbox, item = self._queue.popleft()
                    self._done = anyio.Event()
                    inbox.hand(item)
                    await self._done.wait()
                    await clock.wait_idle()
                    self._rested()

    # -------------------------------------------------------------------------------------------------- for its inboxes

    def ask(self, inbox: SteppingInbox, item: object) -> None:
        """On the loop's thread."""
        if self._stopped:
            inbox.hand(item)
        else:
            self._inboxes.add(inbox)
            self._queue.append((inbox, item))
            self._asked.set()

    def done(self) -> None:
        """A store thread has done what it was handed, or has ended. From any thread."""
        self._loop.post(self._done.set)


class SteppingInbox:
    """Gives the store thread one item at a time, when its turn has come."""

    def __init__(self, inner: Inbox, stepper: Stepper) -> None:
        self._inner = inner
        self._stepper = stepper
        self._busy = False
        """The store thread works at what it was handed."""

    def put(self, item: object) -> None:
        if item is None:
            self._inner.put(None)  # it only makes the thread look up
        else:
            self._stepper.ask(self, item)

    def hand(self, item: object) -> None:
        self._inner.put(item)

    def end(self) -> None:
        self._inner.put(Stopped())

    async def get(self, timeout: float | None) -> object | None:
        self.finished()
        item = await self._inner.get(None)
        if isinstance(item, Stopped):
            raise item
        self._busy = item is not None
        return item

    def get_nowait(self) -> object | None:
        return None

    def finished(self) -> None:
        """In the store thread."""
        if self._busy:
            self._busy = False
            self._stepper.done()


class SteppingDriver(WrappedDriver):
    """A driver whose store thread keeps in step."""

    def __init__(self, inner: Driver, stepper: Stepper) -> None:
        super().__init__(inner)
        self._stepping = SteppingInbox(inner.inbox, stepper)

    @property
    def inbox(self) -> Any:
        return self._stepping

    async def news(self) -> News:
        return News()

    async def close(self) -> None:
        self._stepping.finished()
        await self.inner.close()
