"""`Vigil`: looks after a turn of control code. What it was shown is saved when it takes long (T26), and none takes for ever (R21)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from greenroom.runtime.tasks.stalls import PROGRESS_LIMIT

if TYPE_CHECKING:
    from greenroom.actors import Timer
    from greenroom.errors import Stalled
    from greenroom.runtime.tasks.run import Run
    from greenroom.runtime.tasks.turn import Turn


class Vigil:
    """See the module. For the event loop's thread."""

    __slots__ = ("_run", "_shown", "_timer", "stalled")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._shown: Turn | None = None
        """What control code is in, or was in last; None while what is committed is shown again."""
        self._timer: Timer | None = None
        """Looks whether a turn that takes long gets on."""
        self.stalled: Stalled | None = None
        """What control code was broken off by."""

    def begin(self, turn: Turn | None) -> None:
        """Control code goes on, for what was put into the turn."""
        self._shown = turn
        self._run.patience.begin(self)

    def end(self) -> None:
        """It waits again, or has ended."""
        self._run.patience.end(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def rest(self) -> None:
        """Control code waits for long: what it was in is of no use any more."""
        self._shown = None

    def take_long(self) -> None:
        """The turn in hand takes long."""
        if self._shown is not None:
            self._run.commits.save_early(self._shown)
        self._watch(self._run.engine.turns)

    def _watch(self, number: int) -> None:
        self._timer = self._run.activation.timers.after(PROGRESS_LIMIT, partial(self._look_at, number))

    def _look_at(self, number: int) -> None:
        """The turn of that number was in hand a while ago."""
        run, engine = self._run, self._run.engine
        if engine.turn is None or engine.turns > number:
            self._watch(engine.turns)
            return
        self.stalled = run.activation.stall(engine.turn.branch, engine.stack())
        engine.give_up(self.stalled)
