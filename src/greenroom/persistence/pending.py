"""What waits between the event loop and the store thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from greenroom.errors import GreenroomError
from greenroom.mailbox.parking import Slot
from greenroom.persistence.transitions import Query, Transition


class Stop:
    """Asks the store thread to end, after everything that was submitted before."""


Request = Transition[Any] | Query[Any] | Stop


class Pending:
    """One request and whoever awaits it, or is told of its answer.

    `claim` decides once, between the two threads, whose it is: the store thread seals it into a batch, or its caller, the
    bound or the end of the store withdraws it, and then it never happens. All else belongs to the loop's thread.
    """

    __slots__ = ("_unclaimed", "answer", "error", "request", "settled", "slot", "submitted", "told")

    def __init__(self, request: Request, told: Callable[[], object] | None = None) -> None:
        self.request = request
        self.slot: Slot | None = None
        """Where somebody waits."""
        self.told = told
        """Who is called, where nobody waits. Must not raise."""
        self.submitted = time.monotonic()
        self._unclaimed = bytearray(1)
        self.settled = False
        self.answer: Any = None
        self.error: GreenroomError | None = None

    def claim(self) -> bool:
        """True for the first who asks, whichever thread that is.

        (`bytearray.pop` is atomic, costs less than a lock, and is nothing that the garbage collector has to look at.)
        """
        try:
            self._unclaimed.pop()
        except IndexError:
            return False
        return True

    @property
    def transition_id(self) -> str | None:
        return self.request.transition_id if isinstance(self.request, Transition) else None

    def settle(self, answer: Any, error: GreenroomError | None) -> None:
        """On the loop's thread. What it came to is left here, also for a waiter that has been cancelled meanwhile."""
        if not self.settled:
            self.settled, self.answer, self.error = True, answer, error
            if self.slot is not None:
                if not self.slot.done():
                    self.slot.set_result(None)
            elif self.told is not None:
                self.told()

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.answer
