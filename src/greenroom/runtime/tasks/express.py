"""`Express`: the usual turn, taken by callbacks, where its events happen.

Nearly every turn is the same: an operation lands, control code calls the next one, that is committed and sent. For its driver each of the
three is a wake-up of its own. While the driver waits for news, such a turn is taken without it: in the event-loop task of the flight
that has landed, in that of the branch that waits next, and where the store tells its answers. As soon as there is anything else (a
message, a timer, an error, the end), the turn is handed to the driver as it stands, and the driver goes on with it.
"""

from __future__ import annotations

from contextvars import copy_context
from typing import TYPE_CHECKING

from greenroom.persistence import Refused
from greenroom.runtime.replay import Send
from greenroom.runtime.tasks.turn import Turn

if TYPE_CHECKING:
    from greenroom.persistence.pending import Pending
    from greenroom.runtime.tasks.flight import Landed
    from greenroom.runtime.tasks.run import Run


class Express:
    """See the module. For the event loop's thread."""

    __slots__ = ("_begun", "_context", "_run", "_turn", "open", "wanted")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._turn: Turn | None = None
        """The turn in hand."""
        self._begun: Pending | None = None
        """Its commit, once that has begun."""
        self._context = copy_context()
        """Of the driver: what is sent from here runs in it too."""
        self.open = False
        """The driver waits for news of what is in flight."""
        self.wanted = False
        """Somebody has wanted to wake the driver: it gets the turn in hand at its next step."""

    @property
    def has_turn(self) -> bool:
        """A turn is in hand, which the driver must not interrupt."""
        return self._turn is not None

    def take(self) -> tuple[Turn | None, Pending | None]:
        """For the driver: the turn that it is to go on with, and its commit if that has begun."""
        turn, begun = self._turn, self._begun
        self._turn = self._begun = None
        self.wanted = False
        return turn, begun

    async def ground(self) -> None:
        """The run is over: nothing more comes of the turn in hand."""
        _, begun = self.take()
        if begun is not None:
            await self._run.storage.store.withdraw(begun)

    # --------------------------------------------------------------------------------------------- the turn's three steps

    def landed(self, landed: Landed) -> bool:
        """An operation has ended: show that to control code. False: it is for the driver."""
        run = self._run
        if not self.open or self._turn is not None or landed.unknown or not self._is_usual():
            return False
        turn = self._turn = Turn()
        try:
            row = run.operations.landed(turn, landed)
            run.add(turn, row)
            run.vigil.begin(turn)
            run.engine.begin(row, self._shown)
        except Exception as error:  # noqa: BLE001 - a defect of ours: the driver raises it
            self._fail(error)
        return True

    def _shown(self) -> None:
        """Control code waits: commit what has come of it."""
        run, turn = self._run, self._turn
        assert turn is not None
        try:
            run.gone_on(turn)
            if self.wanted or not self._is_usual() or not self._settle(turn):
                self._hand_over()
        except Exception as error:  # noqa: BLE001 - a defect of ours: the driver raises it
            self._fail(error)

    def _settle(self, turn: Turn) -> bool:
        """Begin its commit. False: it is no usual one."""
        run, operations = self._run, self._run.operations
        step = run.engine.next_step(run.place.at)
        if not (isinstance(step, Send) and run.commits.is_usual(turn)):
            return False
        if step.cancellations or not all(map(operations.is_usual, step.calls)):
            return False
        turn.send = operations.within_limit(step.calls)
        operations.intend(turn)
        self._begun = run.commits.begin(turn, self._told)
        return True

    def _told(self) -> None:
        """The store has answered."""
        self._context.run(self._committed)

    def _committed(self) -> None:
        run, turn, begun = self._run, self._turn, self._begun
        if turn is None or begun is None:
            return  # the run was cut short
        answer = begun.answer
        if self.wanted or begun.error is not None or isinstance(answer, Refused) or run.is_too_long(answer.seq):
            self._hand_over()
            return
        try:
            run.commits.done(turn, answer)
            self.take()
            run.send(turn)
        except Exception as error:  # noqa: BLE001 - a defect of ours: the driver raises it
            self._fail(error)
        if not run.nothing_new:
            run.wake()

    # -------------------------------------------------------------------------------------------------------- inside

    def _is_usual(self) -> bool:
        """There is nothing that only the driver can deal with."""
        run = self._run
        engine = run.engine
        return (
            run.nothing_new
            and not engine.closed
            and engine.machine.earliest is None
            and not run.callbacks.are_awaited
            and not run.commits.saving
            and not run.notes.due
        )

    def _hand_over(self) -> None:
        self.open = False
        self._run.resume()

    def _fail(self, error: Exception) -> None:
        self._run.failure = error
        self._hand_over()
