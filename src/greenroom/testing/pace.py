"""How a store thread waits for what happens on the event loop: the kit's drivers run there, and time is the loop's."""

from __future__ import annotations

import math
import threading
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from greenroom.mailbox import current_loop

if TYPE_CHECKING:
    from types import TracebackType

    from greenroom.testing.timeline import Hold

Work = Callable[[], Awaitable[object]]

LOOK_EVERY: Final = 1.0
"""Real seconds between looks whether there is a loop still, for a thread that waits for it."""


def _nothing() -> None:
    """Posted to find out whether the loop is there."""


class Pace:
    """Lets store threads wait for the loop, for the length of an `async with` block."""

    async def __aenter__(self) -> Pace:
        self._loop = current_loop()
        self._ahead, self._requests = anyio.create_memory_object_stream[tuple[Work, threading.Event]](math.inf)
        self._waiting: set[threading.Event] = set()
        self._over = False
        # A cancelled host still has stores to close, whose threads keep in step.
        self._scope = anyio.CancelScope(shield=True)
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._serve)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        for done in self._waiting:
            done.set()
        self._scope.cancel()
        try:
            # Not told of the body's exception, which would come out of it in a group.
            await self._group.__aexit__(None, None, None)
        finally:
            self._ahead.close()
            self._requests.close()

    # --------------------------------------------------------------------------------------------- from other threads

    @property
    def virtual(self) -> bool:
        """Does the loop run under a virtual clock?"""
        return self._loop.virtual_clock is not None

    def now(self) -> float:
        """Seconds on the loop's clock."""
        return self._loop.now()

    def post(self, function: Callable[[], object]) -> None:
        """Run a function on the loop soon. Raises `RuntimeError` when the loop has ended."""
        self._loop.post(function)

    def stop_time(self) -> Callable[[], object]:
        """Keep virtual time where it is, from the next turn of the loop on. Returns what is to be posted to let it go."""
        hold: Hold = self._loop.virtual_clock.hold()
        self._loop.post(hold.__enter__)
        return partial(hold.__exit__, None, None, None)

    def wait_idle(self) -> None:
        """Wait until every event-loop task waits. On the real clock it does not wait at all: there nothing ever is idle."""
        if self.virtual:
            self._wait(self._loop.virtual_clock.wait_idle)

    def sleep(self, seconds: float) -> None:
        """Wait for a time on the loop's clock, which is not held by the store meanwhile."""
        self._wait(partial(self._sleep, seconds))

    def _wait(self, work: Work) -> None:
        done = threading.Event()
        self._loop.post(partial(self._submit, work, done))
        while not done.wait(LOOK_EVERY):
            self._loop.post(_nothing)

    # ------------------------------------------------------------------------------------------- on the loop's thread

    def _submit(self, work: Work, done: threading.Event) -> None:
        if self._over:
            done.set()
        else:
            self._waiting.add(done)
            self._ahead.send_nowait((work, done))

    async def _serve(self) -> None:
        with self._scope:
            async with anyio.create_task_group() as group:
                async for work, done in self._requests:
                    group.start_soon(self._perform, work, done)

    async def _perform(self, work: Work, done: threading.Event) -> None:
        await work()
        self._waiting.discard(done)
        done.set()

    async def _sleep(self, seconds: float) -> None:
        clock = self._loop.virtual_clock
        with nullcontext() if clock is None else clock.lift_hold():
            await anyio.sleep(seconds)
