"""`Patience`: which turns of a pool's tasks take long. What those were shown is saved without waiting for their ends (T26), and they are
watched (R21)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from greenroom.actors.timers import Timer, Timers
    from greenroom.runtime.tasks.vigil import Vigil

TICK = 0.005
"""Seconds."""

TICKS = 3
"""So many ticks a turn may last. Where a loop is so busy that each pass of it takes longer than a tick, these are passes: a turn that has to
wait for its neighbours does not take long by itself, and a commit more for each would make all of them slower still."""


class Patience:
    """See the module. One timer, which runs only while a turn does."""

    __slots__ = ("_now", "_since", "_timer", "_timers")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._timer: Timer | None = None
        self._now = 0
        self._since: dict[Vigil, int] = {}
        """When each turn began, in ticks: the oldest first."""

    def begin(self, vigil: Vigil) -> None:
        """A turn begins."""
        self._since[vigil] = self._now
        if self._timer is None:
            self._timer = self._timers.after(TICK, self._tick)

    def end(self, vigil: Vigil) -> None:
        """It is over."""
        self._since.pop(vigil, None)

    def _tick(self) -> None:
        self._now += 1
        for vigil in [vigil for vigil, since in self._since.items() if self._now - since == TICKS]:
            del self._since[vigil]  # it is told once
            vigil.take_long()
        self._timer = self._timers.after(TICK, self._tick) if self._since else None
