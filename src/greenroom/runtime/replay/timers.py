"""Timers over logical time, in a total order: by due time, then by branch path, then by call number (T2, T19)."""

from __future__ import annotations

import heapq
from datetime import datetime, timedelta
from typing import Any

from attrs import frozen

from greenroom.runtime.replay.paths import BranchPath, CallId


def after(moment: datetime, seconds: float) -> datetime:
    """So many seconds later. Raises `ValueError` when that is no date."""
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError as error:
        raise ValueError(f"{seconds!r} seconds from {moment.isoformat()} is no date") from error


@frozen(eq=False)
class Timer:
    due: datetime
    path: BranchPath
    call: CallId
    subject: Any
    """What it wakes: a wait or a scope."""


class Timers:
    """Armed timers. A call has at most one, ever, so its place names it."""

    __slots__ = ("_armed", "_heap")

    def __init__(self) -> None:
        self._armed: dict[CallId, Timer] = {}
        self._heap: list[tuple[datetime, BranchPath, int, CallId]] = []

    def __len__(self) -> int:
        return len(self._armed)

    def arm(self, timer: Timer) -> None:
        self._armed[timer.call] = timer
        heapq.heappush(self._heap, (timer.due, timer.path, timer.call.number, timer.call))

    def disarm(self, timer: Timer) -> None:
        self._armed.pop(timer.call, None)
        if len(self._heap) > 2 * len(self._armed) + 64:  # limits that never strike must not pile up
            self._heap = [entry for entry in self._heap if entry[3] in self._armed]
            heapq.heapify(self._heap)

    def earliest(self) -> Timer | None:
        """The one that is due first."""
        while self._heap:
            timer = self._armed.get(self._heap[0][3])
            if timer is not None:
                return timer
            heapq.heappop(self._heap)
        return None

    def pop_due(self, now: datetime) -> Timer | None:
        """Take the earliest, if its time has come."""
        timer = self.earliest()
        if timer is None or timer.due > now:
            return None
        heapq.heappop(self._heap)
        del self._armed[timer.call]
        return timer
