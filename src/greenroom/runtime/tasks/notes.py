"""Notes for people: what a task in hand waits for, and what its operations tell of themselves (`Operation.heartbeat`).

Nothing is decided by them, so they are not worth a commit each: what has stood for a while is written, and what the task's next turn
has overtaken is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.runtime.replay import BranchWait, OperationCall

if TYPE_CHECKING:
    from greenroom.actors import Timer
    from greenroom.runtime.tasks.run import Run

STANDING: Final = 1.0
"""Seconds after which something is worth a note, and between two of them."""

MOST_LINES: Final = 20
LONGEST_DETAIL: Final = 200


class Notes:
    """See the module. For the event loop's thread."""

    __slots__ = ("_heard", "_news", "_run", "_timer", "_written", "due")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._heard: dict[OperationCall, str] | None = None
        """What operations in flight have told last, if any has."""
        self._news = False
        self._timer: Timer | None = None
        self._written: tuple[str, ...] = ()
        self.due = False
        """Something has stood long enough."""

    def soon(self) -> None:
        """There is something to be noted, if it stands for a while."""
        if self._timer is None:
            self._timer = self._run.activation.timers.after(STANDING, self._is_due)

    def heard(self, call: OperationCall, detail: object) -> None:
        """An operation has given a sign of life."""
        told = "" if detail is None else str(detail)[:LONGEST_DETAIL]
        line = "".join(each if each.isprintable() else "·" for each in told)  # it has to be storable
        self._heard = {} if self._heard is None else self._heard
        self._heard[call] = line
        self._news = True
        self.soon()

    def landed(self, call: OperationCall) -> None:
        """It has ended."""
        if self._heard is not None:
            self._heard.pop(call, None)

    def stop(self) -> None:
        """Its activation ends."""
        if self._timer is not None:
            self._timer.cancel()

    def _is_due(self) -> None:
        self._timer = None
        self.due = True
        self._run.wake()

    def take(self) -> tuple[str, ...] | None:
        """What is to be written now. None: it stands there already."""
        self.due = False
        lines = self._lines()
        if lines == self._written and not self._news:
            return None
        self._written, self._news = lines, False
        return lines

    def overtaken(self) -> tuple[str, ...] | None:
        """The task has come further: what is to be written instead of the last note. None: there is none."""
        if not self._written:
            return None
        self._written = ()
        return ()

    def _lines(self) -> tuple[str, ...]:
        said = {str(call.id): detail for call, detail in (self._heard or {}).items() if detail}
        waits = lines_of(self._run.engine.waits())
        return (*waits, *(f"{call}: says {detail}" for call, detail in said.items()))[:MOST_LINES]


def lines_of(waits: tuple[BranchWait, ...]) -> tuple[str, ...]:
    """What branches wait for, a line each."""
    return tuple(f"{wait.branch}: {wait.what}" for wait in waits)[:MOST_LINES]
