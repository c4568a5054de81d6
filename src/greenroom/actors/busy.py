"""Who is handling messages just now, and for how long: finds handlers that are slow without a timer for each message."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from greenroom.actors.events import Event, SlowHandler
from greenroom.actors.timers import Timers
from greenroom.logs import logger_named
from greenroom.mailbox import Broadcast, EventLoop

if TYPE_CHECKING:
    from greenroom.actors.life import ActorLife

logger = logger_named("greenroom.actors")


class BusyLives:
    """The lives that have been woken and have not parked again. Looked through twice in each `threshold`, while there are any."""

    __slots__ = ("_armed", "_beside", "_events", "_lives", "_loop", "_threshold", "_timers", "leave")

    def __init__(self, loop: EventLoop, timers: Timers, events: Broadcast[Event], threshold: float) -> None:
        self._loop = loop
        self._timers = timers
        self._events = events
        self._threshold = threshold
        self._lives: set[Any] = set()
        self.leave: Callable[[ActorLife], None] = self._lives.discard
        """It parks, or ends. The set's own method: every parking passes here."""
        self._beside: set[Any] = set()
        self._armed = False

    def enter(self, life: ActorLife) -> None:
        """It begins to handle messages."""
        self._lives.add(life)
        if not self._armed:
            self._arm()

    def enter_beside(self, life: ActorLife) -> None:
        """It begins to run concurrent handlers, beside its message loop."""
        self._beside.add(life)
        if not self._armed:
            self._arm()

    def leave_beside(self, life: ActorLife) -> None:
        """The last of them has ended."""
        self._beside.discard(life)

    def _arm(self) -> None:
        self._armed = True
        self._timers.after(self._threshold / 2, self._look)

    def _look(self) -> None:
        self._armed = bool(self._lives or self._beside)
        if not self._armed:
            return
        self._timers.after(self._threshold / 2, self._look)
        now, stopwatch = self._loop.now(), self._loop.stopwatch()
        for life in self._lives | self._beside:
            for kind, since, stack in life.messages.find_slow(stopwatch - self._threshold):
                age = stopwatch - since
                logger.warning("slow handler: %s has had a %s in hand for %.1f s", life.cell.path, kind, age)
                self._events.publish(
                    SlowHandler(
                        at=now,
                        path=life.cell.path,
                        incarnation=life.incarnation,
                        message_type=kind,
                        age=age,
                        stack=stack,
                    )
                )
