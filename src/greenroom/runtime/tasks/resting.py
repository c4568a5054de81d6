"""`Resting`: how a run waits for something new: by a driver that is parked while something is in flight, and without any while nothing is."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from greenroom.actors import Timer
    from greenroom.mailbox import Slot
    from greenroom.runtime.tasks.run import Run


class Left(Enum):
    """How a run was left that has not ended its segment."""

    RESTING = "resting"
    """It waits for something durable and stays in memory, and no event-loop task is needed for that."""
    EVICTED = "evicted"
    """It waits for something durable."""
    STOPPED = "stopped"
    """It was told to stop, and may go on at once."""
    UNRESOLVED = "unresolved"
    """Only an operator can say whether an operation happened."""


class Resting:
    """See the module. For the event loop's thread."""

    __slots__ = ("_alarm", "_run", "_slot", "rests")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._slot: Slot | None = None
        """Where the driver is parked, if it is."""
        self._alarm: Timer | None = None
        """When there is something to do again, while it waits."""
        self.rests = False
        """It has no driver: who wakes it, makes it one."""

    def end(self) -> None:
        """There is something new: the driver goes on."""
        if self.rests:
            self.rests = False
            self._run.activation.drive()
        elif self._slot is not None and not self._slot.done():
            self._slot.set_result(None)

    def stop(self) -> None:
        """The run is over."""
        self._disarm()

    async def wait(self) -> None:
        """Wait for something new, while something is in flight. What stands meanwhile is noted."""
        self._arm()
        try:
            if not self._run.notes.due:
                self._run.express.open = True
                await self.park()
            else:
                while self._run.notes.due and await self._note():
                    await self.park()
        finally:
            self._run.express.open = False
            self._disarm()

    async def _note(self) -> bool:
        """What has stood for a while is noted. False: meanwhile something else has come, or its time."""
        run = self._run
        await run.commits.note()
        until = run.wakes_at
        return run.nothing_new and not run.activation.evicted and (until is None or until > run.storage.now())

    async def rest(self) -> Left | None:
        """Wait for something durable, without a driver; or make room, if that was asked for. None: it goes on."""
        run = self._run
        run.activation.rest()
        if run.activation.evicted:
            return Left.EVICTED
        run.notes.soon()
        self._arm()
        if run.notes.due:
            return await self.rise()
        run.vigil.rest()
        run.engine.machine.rest()
        run.operations.rest()
        self.rests = True
        return Left.RESTING

    async def rise(self) -> Left | None:
        """It was woken from its rest. None: it has a place, and goes on."""
        if self._run.notes.due and await self._note():
            self.rests = True
            return Left.RESTING
        self._disarm()
        if self._run.activation.evicted and self._run.nothing_new:
            return Left.EVICTED
        await self._run.activation.rise()
        return None

    def _arm(self) -> None:
        """Be woken when there is something to do by the clock."""
        until = self._run.wakes_at
        if until is not None:
            seconds = max(0.0, (until - self._run.storage.now()).total_seconds())
            self._alarm = self._run.activation.timers.after(seconds, self._run.wake)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def park(self) -> None:
        """Let the driver wait until it is woken."""
        self._slot = self._run.loop.slot()
        try:
            await self._slot
        finally:
            self._slot = None
