"""The local fence: until when this execution may make effects, by its own clock, compared at each use (R10).

It closes before the lease ends in the database, by a margin, and by comparison, not by a timer: a process that was stopped or
suspended finds it closed at its first look.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from greenroom.errors import LeaseLost


class Fence:
    """Ask it right before each effect, and after each resume. May be asked from any thread.

    Args:
        boot: seconds since the machine's boot, suspension included.
        until: when it closes, on that clock.
    """

    __slots__ = ("_boot", "_until", "_why", "execution_id")

    def __init__(self, execution_id: str, boot: Callable[[], float], until: float) -> None:
        self.execution_id = execution_id
        self._boot = boot
        self._until = until
        self._why = "it was not renewed in time"

    @property
    def is_open(self) -> bool:
        """May effects be made now?"""
        return self._boot() < self._until

    @property
    def seconds_left(self) -> float:
        """Until it closes, if the lease is not renewed before; 0 when it is closed."""
        return max(0.0, self._until - self._boot())

    def check(self) -> None:
        """Raise `LeaseLost` when it is closed."""
        if self._boot() >= self._until:
            raise LeaseLost(self.execution_id, self._why)

    def extend(self, until: float) -> bool:
        """Keep it open for longer, if it is open still: what has closed stays so. Returns whether it is open."""
        if not self.is_open:
            self.close(self._why)
            return False
        self._until = max(self._until, until)
        return True

    def close(self, why: str) -> None:
        """Close it for good."""
        self._until, self._why = -math.inf, why
