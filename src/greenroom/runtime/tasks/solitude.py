"""Solitude: a task that is suspected of killing its processes runs once alone in a runtime, before it is parked (R22).

Everything that a process has in hand is lost with it, so that a task may become suspect through others. In solitude nothing else of
the runtime's pools has a place: a death tells of the suspect then, and of nobody else. It ends when the suspect has shown that it
lives: by an outcome, by waiting for something, by its end; and after a while in any case, so that a long operation holds up nobody.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from greenroom.mailbox import Slot
    from greenroom.runtime.tasks.activation import Activation
    from greenroom.runtime.tasks.desk import Desk

PATIENCE: Final = 30.0
"""Seconds for which others are waited for, and for which the suspect is alone then."""


class Solitude:
    """See the module. For the event loop's thread."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._suspect: Activation | None = None
        self._slot: Slot | None = None

    @property
    def is_taken(self) -> bool:
        """Nobody gets a place: a suspect runs alone, or is about to."""
        return self._suspect is not None

    async def enter(self, suspect: Activation) -> bool:
        """Wait until nothing else has a place. False: that cannot be had now."""
        if self.is_taken:
            return False
        self._suspect = suspect
        timer = suspect.timers.after(PATIENCE, self._wake)
        try:
            while self._others and not (timer.cancelled or suspect.stopping):
                self._slot = suspect.loop.slot()
                await self._slot
        except BaseException:  # it is cut short
            self.leave(suspect)
            raise
        finally:
            self._slot = None
            timer.cancel()
        if self._others or suspect.stopping:
            self.leave(suspect)
            return False
        suspect.timers.after(PATIENCE, partial(self.leave, suspect))
        return True

    @property
    def _others(self) -> bool:
        return sum(pool.busy for pool in self._desk.pools) > 1

    def look(self) -> None:
        """A place has been left, or somebody is to stop."""
        if self._suspect is not None:
            self._wake()

    def _wake(self) -> None:
        if self._slot is not None and not self._slot.done():
            self._slot.set_result(None)

    def leave(self, suspect: Activation) -> None:
        """Let others have places again, if it is this one that is alone."""
        if self._suspect is suspect:
            self._suspect = None
            for pool in self._desk.pools:
                pool.look()
