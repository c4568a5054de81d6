"""How a store thread waits for time to pass on the event loop: the kit's drivers run there, and time is the loop's."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from greenroom.mailbox import current_loop
from greenroom.testing.attendants import Attendants

if TYPE_CHECKING:
    from types import TracebackType

LOOK_EVERY: Final = 1.0
"""Real seconds between looks whether there is a loop still, for a thread that waits for it."""


def _nothing() -> None:
    """Posted to find out whether the loop is there."""


class Pace:
    """The loop's time for store threads, for the length of an `async with` block."""

    async def __aenter__(self) -> Pace:
        self._loop = current_loop()
        self._attendants = Attendants()
        await self._attendants.__aenter__()
        self._sleepers: set[threading.Event] = set()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._attendants.__aexit__(kind, error, trace)
        finally:
            for sleeper in self._sleepers:
                sleeper.set()

    # --------------------------------------------------------------------------------------------- from other threads

    @property
    def virtual(self) -> bool:
        """Does the loop run under a virtual clock?"""
        return self._loop.virtual_clock is not None

    def now(self) -> float:
        """Seconds on the loop's clock."""
        return self._loop.now()

    def sleep(self, seconds: float) -> None:
        """Block for a time on the loop's clock, which is not held by the store meanwhile; at most for as long as there is a loop."""
        sleeper = threading.Event()
        self._loop.post(partial(self._put_to_sleep, seconds, sleeper))
        while not sleeper.wait(LOOK_EVERY):
            self._loop.post(_nothing)

    # ------------------------------------------------------------------------------------------- on the loop's thread

    def _put_to_sleep(self, seconds: float, sleeper: threading.Event) -> None:
        if self._attendants.over:
            sleeper.set()
        else:
            self._sleepers.add(sleeper)
            self._attendants.start(partial(self._sleep, seconds, sleeper))

    async def _sleep(self, seconds: float, sleeper: threading.Event) -> None:
        clock = self._loop.virtual_clock
        with nullcontext() if clock is None else clock.lift_hold():
            await anyio.sleep(seconds)
        self._sleepers.discard(sleeper)
        sleeper.set()
