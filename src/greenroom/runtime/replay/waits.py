"""What branches wait for, for those who ask why a task does not move; and turns that do not end."""

from __future__ import annotations

from datetime import datetime

from attrs import frozen

from greenroom.runtime.replay.branch_state import Asking, BranchState, Receiving


@frozen
class Turn:
    """A turn in hand."""

    number: int
    """Counted over the activation: the same number is the same turn."""
    branch: str


@frozen
class BranchWait:
    """One branch, and what it waits for."""

    branch: str
    what: str
    until: datetime | None = None
    """When it stops waiting, at the latest."""
    endless: bool = False
    """It was told to wait for ever (`timeout=None`)."""


def wait_of(branch: BranchState) -> BranchWait:
    wait = branch.wait
    if wait is None:
        return BranchWait(branch.label, "its turn, or something that is not the task's")
    timer = wait.timer
    endless = timer is None and isinstance(wait, (Receiving, Asking))
    return BranchWait(branch.label, str(wait), None if timer is None else timer.due, endless)


@frozen
class ForeignWait:
    """A branch has kept its turn for long: it waits for something that is not `task.*`, and with it all other branches."""

    branch: str
    seconds: float


class ForeignWaits:
    """Notices turns that last longer than `limit` seconds. Each is reported once."""

    __slots__ = ("_limit", "_reported", "_since", "_turn")

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._turn: Turn | None = None
        self._since = 0.0
        self._reported = False

    def look(self, turn: Turn | None, now: float) -> ForeignWait | None:
        """Look at the turn in hand, now and then; `now` is in seconds on any one clock."""
        if turn != self._turn:
            self._turn, self._since, self._reported = turn, now, False
        if turn is None or self._reported or now - self._since < self._limit:
            return None
        self._reported = True
        return ForeignWait(turn.branch, now - self._since)
