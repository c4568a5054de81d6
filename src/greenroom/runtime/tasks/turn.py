"""A turn as it is put together: everything that is to be one commit (T26)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from attrs import define, field

from greenroom.runtime.replay import End, JournalRow, OperationCall, SignalReply

if TYPE_CHECKING:
    from greenroom.persistence import NewCallback, Outgoing
    from greenroom.persistence.operations import Dispatch, InvocationEnd
    from greenroom.runtime.tasks.flight import Flight

NONE: Final[Mapping[int, int]] = MappingProxyType({})


@define(eq=False)
class Turn:
    """What has been shown to control code, and is not committed yet, and what is to be done when it is.

    Nearly every turn is one row and what is sent then: so everything else begins as what costs nothing.
    """

    rows: list[JournalRow] = field(factory=list)
    versions: Mapping[int, int] = NONE
    """Of outcomes of operations with an intent, by number of the row: the version that was sent last."""
    consumed_seq: int | None = None
    intents: tuple[OperationCall, ...] = ()
    dispatches: tuple[Dispatch, ...] = ()
    invocations: tuple[InvocationEnd, ...] = ()
    outgoing: tuple[Outgoing, ...] = ()
    replies: tuple[SignalReply, ...] = ()
    submits: tuple[OperationCall, ...] = ()
    opens: tuple[NewCallback, ...] = ()
    afterwards: tuple[Callable[[], object], ...] = ()
    """What is told to actors in memory, after the commit."""
    again: tuple[Flight, ...] = ()
    """Those whose next invocation waits for the record of the last one."""
    send: Sequence[OperationCall] = ()
    tell: Sequence[OperationCall] = ()
    unresolved: tuple[OperationCall, ...] = ()
    """Operations of which only an operator can say whether they happened."""
    end: End | None = None

    @property
    def is_empty(self) -> bool:
        """There is nothing to commit."""
        return not (
            self.rows
            or self.intents
            or self.dispatches
            or self.invocations
            or self.outgoing
            or self.replies
            or self.submits
            or self.opens
            or self.consumed_seq is not None
        )

    def take(self) -> Turn:
        """What is to be committed by now, as a turn of its own: it is not in this one any more."""
        part = Turn(
            self.rows,
            self.versions,
            self.consumed_seq,
            self.intents,
            self.dispatches,
            self.invocations,
            self.outgoing,
            self.replies,
            self.submits,
            self.opens,
            self.afterwards,
        )
        self.rows, self.versions, self.consumed_seq = [], NONE, None
        self.intents = self.dispatches = self.invocations = ()
        self.outgoing = self.replies = self.submits = self.opens = self.afterwards = ()
        return part


@define(eq=False)
class Place:
    """Where a segment's journal stands, as far as it is committed or about to be."""

    seq: int
    at: datetime

    def next_at(self, now: datetime) -> datetime:
        """The time of the next row: the store's, and never before that of the last one."""
        return max(self.at, now)

    def passed(self, row: JournalRow) -> None:
        self.seq, self.at = row.seq, row.at
