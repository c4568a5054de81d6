"""A turn as it is put together: everything that is to be one commit (T26)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from attrs import define, field

from greenroom.runtime.replay import End, JournalRow, OperationCall, SignalReply

if TYPE_CHECKING:
    from greenroom.mailbox import Slot
    from greenroom.persistence import Outgoing
    from greenroom.persistence.operations import Dispatch, InvocationEnd


@define(eq=False)
class Turn:
    """What has been shown to control code, and is not committed yet, and what is to be done when it is."""

    rows: list[JournalRow] = field(factory=list)
    versions: dict[int, int] = field(factory=dict)
    """Of outcomes of operations with an intent, by number of the row: the version that was sent last."""
    consumed_seq: int | None = None
    intents: list[OperationCall] = field(factory=list)
    dispatches: list[Dispatch] = field(factory=list)
    invocations: list[InvocationEnd] = field(factory=list)
    outgoing: list[Outgoing] = field(factory=list)
    replies: list[SignalReply] = field(factory=list)
    submits: list[OperationCall] = field(factory=list)
    afterwards: list[Callable[[], object]] = field(factory=list)
    """What is told to actors in memory, after the commit."""
    again: list[Slot] = field(factory=list)
    """Of flights whose next invocation waits for the record of the last one."""
    send: list[OperationCall] = field(factory=list)
    tell: list[OperationCall] = field(factory=list)
    unresolved: list[OperationCall] = field(factory=list)
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
            self.afterwards,
        )
        self.rows, self.versions, self.consumed_seq = [], {}, None
        self.intents, self.dispatches, self.invocations = [], [], []
        self.outgoing, self.replies, self.submits, self.afterwards = [], [], [], []
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
