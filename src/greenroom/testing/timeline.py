"""Virtual time of one run, whichever event loop keeps it.

The two adapters (`asyncio_loop`, `trio_clock`) tell it when their loop is idle and when it is not; it knows nothing of
either. Three things may happen to the time:

* The loop is idle, with nothing outstanding: time jumps to the next timer.
* A hold is out: time stands still, since somebody works in real time.
* The loop is never idle. A task that swallows its cancellation makes both loops spin, and on a real clock the spinning
  itself would bring the next timer nearer. So it does here, by the turn, after a good many turns without a pause.

Time only ever stands at zero or at a timer, so what a test reads from it is exact.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Literal

from greenroom.errors import Failure, Misuse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

FREE_TURNS: Final = 10_000
"""Turns of a loop without a pause that bring no timer nearer: far more than honest work between two waits needs."""

TURN: Final = 0.001
"""How much nearer each further turn brings the next timer, in virtual seconds."""

SHOWN_TASKS: Final = 10


class Deadlock(Failure):
    """A run under a virtual clock waits for ever: no timer is set, and nothing outside is known to be at work.

    It is not a timeout of the code under test, and not the real-time limit of a test: the event loop was idle when it
    was raised. Fields: `at`, the virtual second; `blocked`, one line for each event-loop task that waits.
    """

    def __init__(self, at: float, blocked: Sequence[str]) -> None:
        self.at = at
        self.blocked = tuple(blocked)
        super().__init__(at, self.blocked)

    def __str__(self) -> str:
        story = (
            f"at virtual second {self.at:g} every event-loop task waits, no timer is set, no hold is out and no file "
            "descriptor is waited for: nothing is left to wake this run. If a thread, a child process or an OS signal "
            "was to wake it, keep `with clock.hold():` around that work."
        )
        lines = [story, *(f"  {line}" for line in self.blocked[:SHOWN_TASKS])]
        if len(self.blocked) > SHOWN_TASKS:
            lines.append(f"  … and {len(self.blocked) - SHOWN_TASKS} more")
        return "\n".join(lines)


def has_spun_through(turns: int, distance: float) -> bool:
    """Whether a loop that is never idle has turned often enough to be at its next timer.

    Args:
        turns: how many turns the loop has made since it was last idle.
        distance: virtual seconds to the next timer; `math.inf` if none is set.
    """
    return (turns - FREE_TURNS) * TURN >= max(0.0, distance) and turns > FREE_TURNS


class Hold:
    """Keeps virtual time from jumping while it is entered. It may be entered again, inside itself or afterwards."""

    __slots__ = ("_by", "_timeline")

    def __init__(self, timeline: Timeline, by: int = 1) -> None:
        self._timeline = timeline
        self._by = by

    def __enter__(self) -> None:
        self._timeline.change_holds(self._by)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        self._timeline.change_holds(-self._by)
        return False


class Timeline:
    """The time of one run, its holds, and what to do when nothing can wake the run any more."""

    def __init__(self, owner: object, *, patience: float, seed: int | None = None) -> None:
        self.owner = owner
        self.patience = patience
        self.seed = seed
        self.now = 0.0
        self.deadlock: Deadlock | None = None
        self.cancel_run: Callable[[], object] | None = None
        self.wait_idle: Callable[[], Awaitable[None]] | None = None
        self._holds = 0
        self._turns = 0
        self._thread: int | None = None

    @property
    def held(self) -> bool:
        return self._holds > 0

    def begin(self) -> None:
        """Bind to the loop that starts in this thread.

        Raises:
            Misuse: if a loop has already run under this clock; its time could not start at zero again.
        """
        if self._thread is not None:
            raise Misuse("this VirtualClock has already served a run; make a new VirtualClock for each run")
        self._thread = threading.get_ident()

    def change_holds(self, by: int) -> None:
        """Count a hold in or out.

        Raises:
            Misuse: from another thread than the loop's. A loop that sleeps would not notice that the hold is gone.
        """
        if self._thread not in (None, threading.get_ident()):
            raise Misuse(
                "hold() of a VirtualClock belongs to the event loop's thread; take the hold there before the work "
                "starts, and post its release to the loop when the work is done"
            )
        self._holds += by

    def idle(self) -> None:
        """The loop has nothing to run."""
        self._turns = 0

    def turn(self, next_timer: Callable[[], float]) -> None:
        """The loop goes round with something to run."""
        self._turns += 1
        if self._turns <= FREE_TURNS or self.held:
            return
        when = next_timer()
        if has_spun_through(self._turns, when - self.now):
            self._turns = FREE_TURNS
            self.jump(when)

    def jump(self, when: float) -> None:
        """Go on to a timer. Time never runs backwards, whatever a deadline says."""
        self.now = max(self.now, when)

    def stalled(self, blocked: Sequence[str]) -> None:
        """Nothing can wake the run: cancel it, so that it can clean up.

        Raises:
            Deadlock: if that has been tried, or cannot be; the adapter then breaks the run off.
        """
        if self.deadlock is None:
            self.deadlock = Deadlock(self.now, blocked)
            if self.cancel_run is not None:
                self.cancel_run()
                return
        raise self.deadlock
