"""`Mail`: the messages of a task's mailbox on their way into its journal, in the order in which they were accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.persistence import NextMessages
from greenroom.runtime.tasks.journal import row_of_message

if TYPE_CHECKING:
    from greenroom.runtime.tasks.run import Run
    from greenroom.runtime.tasks.turn import Turn

PAGE: Final = 64
"""Messages that become rows in one turn."""


class Mail:
    """See the module. For the event loop's thread."""

    __slots__ = ("_run", "_seen", "has_come")

    def __init__(self, run: Run) -> None:
        task = run.segment.task
        self._run = run
        self._seen = task.handled_seq
        """Messages up to here have rows."""
        self.has_come: bool = run.activation.mail_came or task.last_seq > task.handled_seq
        """There may be some without."""

    async def take(self, turn: Turn) -> None:
        """Give messages their rows, and show these to control code. Raises `Undecodable`, `NotOurs`."""
        self.has_come = False
        run = self._run
        query = NextMessages(address=run.activation.address, after=self._seen, limit=PAGE)
        page = await run.storage.surely(run.storage.store.read, query)
        if not page:  # something has happened to it, and it was no message: it may have been terminated
            await run.activation.read_again()
        self.has_come |= len(page) == PAGE
        for message in page:
            at = run.place.next_at(message.accepted_at)
            row = await row_of_message(message, run.place.seq + 1, at, run.activation.codec, run.storage.fetch)
            self._seen = turn.consumed_seq = message.seq or self._seen
            await run.show(turn, row)

    async def take_in_time(self, turn: Turn) -> bool:
        """A timer is due while messages are waited for: those that were accepted before count. True: there were some."""
        seen = self._seen
        if self._run.engine.machine.signals.are_awaited:
            await self.take(turn)
        return self._seen != seen
