"""Virtual time for trio, by its public interfaces: a clock that is also an instrument of the run it keeps time for.

Trio asks its clock how long to sleep only when no task can run. The clock cannot just move the time there, for two
reasons: something may have arrived from outside, and a test may wait in `trio.testing.wait_all_tasks_blocked`, which
must be served before time moves. So it asks for a very long sleep and looks at what trio makes of it:

1. `before_io_wait`: trio shortens the sleep if somebody waits for all tasks to be blocked; then this turn is theirs.
   Else the clock wakes the sleep at once, by an empty callback.
2. `after_io_wait`: if that callback is all that has happened, the run is idle, and time moves to the deadline. Trio
   looks for expired deadlines right after this.

(`trio.testing.MockClock` cannot be told to stand still for one turn only, and trio lets no other class do its jump.)
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final, NoReturn

import trio
from trio.testing import active_thread_count, wait_all_tasks_blocked

from greenroom.testing.blocked import describe, trio_tasks
from greenroom.testing.seeded_order import SeededOrder, TrioOrder
from greenroom.testing.timeline import Deadlock

if TYPE_CHECKING:
    from greenroom.testing.timeline import Timeline

LONG: Final = 3600.0
"""Real seconds asked for, and never slept. Trio cuts longer sleeps to a day, which would hide whether it shortened it."""

TRIOS_OWN_WAITS: Final = 1
"""Trio always waits for one descriptor: the one its callbacks from outside arrive by."""


def _nothing() -> None:
    """Wakes the run, and does nothing."""


def _descriptors_waited_for(io_statistics: object) -> int:
    """How many waits for descriptors there are, under the names that trio's I/O backends give them."""
    names = ("tasks_waiting_read", "tasks_waiting_write", "tasks_waiting", "monitors", "completion_key_monitors")
    return sum(int(getattr(io_statistics, name, 0)) for name in names)


def _raise_in_leaves(deadlock: Deadlock) -> None:
    """Raise it wherever a task waits for something else than its own nursery, shielded or not.

    This is how trio itself delivers a cancellation, but for the shields; a private method, for want of a public one.
    Ending the run by an error of its clock would leave coroutines for the garbage collector to close, with their
    clean-up code failing outside of any run.
    """

    def raise_it() -> NoReturn:
        raise Deadlock(deadlock.at, deadlock.blocked)

    for task in trio_tasks():
        if not task.child_nurseries and task._abort_func is not None:
            task._attempt_abort(raise_it)


class JumpingClock(trio.abc.Clock, trio.abc.Instrument):
    """A clock for one `trio.run`. The virtual clock it serves hangs at `virtual_clock` for those who need to hold it."""

    def __init__(self, timeline: Timeline) -> None:
        self.virtual_clock = timeline.owner
        self._timeline = timeline
        self._order = None if timeline.seed is None else TrioOrder(SeededOrder(timeline.seed))
        self._token: trio.lowlevel.TrioToken | None = None
        self._deadline = math.inf
        self._asked: float | None = None  # the sleep asked for in this turn; None: trio did not ask, it was not idle
        self._probing = False
        self._listening_since: float | None = None
        self._silent = False
        self._broken_off = False

    # the clock

    def start_clock(self) -> None:
        self._timeline.begin()
        self._timeline.wait_idle = wait_all_tasks_blocked
        self._token = trio.lowlevel.current_trio_token()
        trio.lowlevel.add_instrument(self)
        if self._order is not None:
            self._order.take()

    def current_time(self) -> float:
        return self._timeline.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        timeline = self._timeline
        timeline.idle()
        self._deadline = deadline
        self._asked = self._sleep_until(deadline)
        if self._silent and deadline == math.inf:
            self._stalled()
            self._asked = 0.0
        self._silent = False
        return self._asked

    def _sleep_until(self, deadline: float) -> float:
        timeline = self._timeline
        if deadline <= timeline.now:
            return 0.0
        if timeline.held or active_thread_count() > 0:
            return math.inf
        if deadline < math.inf:
            return LONG
        waits = _descriptors_waited_for(trio.lowlevel.current_statistics().io_statistics)
        return math.inf if waits > TRIOS_OWN_WAITS else timeline.patience

    def _stalled(self) -> None:
        try:
            self._timeline.stalled([describe(task.name, task.coro) for task in trio_tasks()])
        except Deadlock as deadlock:
            if self._broken_off:
                raise  # trio ends the run at once, as after any error of its clock
            self._broken_off = True
            _raise_in_leaves(deadlock)

    # the instrument: trio logs and drops an instrument that raises, so nothing here does

    def after_run(self) -> None:
        if self._order is not None:
            self._order.give_back()

    def before_io_wait(self, timeout: float) -> None:
        if timeout == 0 or timeout != self._asked:
            return
        if self._deadline < math.inf:
            self._probing = True
            if self._token is not None:
                self._token.run_sync_soon(_nothing, idempotent=True)
        else:
            self._listening_since = time.perf_counter()

    def after_io_wait(self, timeout: float) -> None:
        if self._asked is None:
            self._timeline.turn(self._next_deadline)
        elif self._probing:
            statistics = trio.lowlevel.current_statistics()
            if statistics.tasks_runnable == 1 and statistics.run_sync_soon_queue_size == 1:
                self._timeline.jump(self._deadline)
        elif self._listening_since is not None and trio.lowlevel.current_statistics().tasks_runnable == 0:
            # Sleeps are rounded to the milliseconds of the system call, down as well.
            self._silent = time.perf_counter() - self._listening_since >= timeout - 0.002
        self._asked = None
        self._probing = False
        self._listening_since = None

    def _next_deadline(self) -> float:
        return self._timeline.now + trio.lowlevel.current_statistics().seconds_to_next_deadline
