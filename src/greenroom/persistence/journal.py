"""The journal of a task, row by row, and what one turn of its owner commits (T1, T5, T26).

Only the owner of a task writes its journal, and proposes the numbers and times of the rows; the fence, the primary key and the number
that it expects dispose. What comes from outside (signals, answers, commands) lies in the task's mailbox until the owner gives it a row.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from attrs import field, frozen, validators

from greenroom.persistence.callbacks import NewCallback
from greenroom.persistence.clock import aware
from greenroom.persistence.content import Payload, fits_inline
from greenroom.persistence.deliveries import Outgoing
from greenroom.persistence.messages import Disposition, MessageReply
from greenroom.persistence.operations import DecisionRecord, Dispatch, Intent, InvocationEnd
from greenroom.persistence.tasks import Ending, NewTask, Submission
from greenroom.persistence.transitions import OwnerWrite, Query, Row
from greenroom.persistence.values import value


class EntryKind(Enum):
    """Outcomes and times are what the owner writes of its own; the others stand for messages of the mailbox."""

    OUTCOME = "outcome"
    """An operation has ended: its acceptance."""
    SIGNAL = "signal"
    """A message to the task, or the answer to one of its waits."""
    TIME = "time"
    """The time of a timer had come while nothing else happened."""
    CONTROL = "control"
    """A command about the task."""


class OutcomeKind(Enum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@value(kw_only=True)
class JournalEntry:
    """One row. Which fields it has depends on its kind."""

    seq: int
    """Its place in the segment, from 1, without gaps."""
    at: datetime
    """Aware. Never before that of the row ahead of it."""
    kind: EntryKind
    call: str | None = None
    """Of an outcome, the operation; of a time row, the timer: `root/1.2#3`."""
    name: str | None = None
    """Of the operation."""
    status: OutcomeKind | None = None
    version: int | None = None
    """Of an operation with an intent: the version that its outcome comes from, 0 when it was never sent; None of any other."""
    effect_possible: bool = False
    """Of a cancelled operation: it may have had an effect."""
    unresolved: bool = False
    """Of an operation with an intent: whether it happened is still for an operator to find out."""
    params: Payload | None = field(default=None, validator=fits_inline)
    body: Payload | None = field(default=None, validator=fits_inline)
    """The result or the failure; the content of a signal."""
    admitted: int | None = None
    """Of an outcome: the row with which the operation was called, 0 for the beginning."""
    basis: int | None = None
    """Rows that the owner had processed when it wrote this one."""
    digest: bytes | None = None
    """Checksum of what control code had done by then."""
    marks: tuple[str, ...] = ()
    message_id: str | None = None
    """Of a signal; of a command, its identity."""
    type: str | None = None
    """Of a signal's content; of a command, its kind."""
    answers: str | None = None
    """The key of the wait that a signal answers."""
    failed: bool = False
    """Of an answer: the content is a failure."""
    handed_over: bool = False
    """Of a signal or a command: it has stood in the segment before."""

    def __attrs_post_init__(self) -> None:
        kind = self.kind
        is_outcome = kind is EntryKind.OUTCOME
        is_own = is_outcome or kind is EntryKind.TIME
        if (self.status is None) is is_outcome or (self.name is None) is is_outcome:
            raise ValueError("an outcome has a name and a status, and nothing else has")
        if (self.call is None) is is_own or (self.basis is None) is is_own or (self.digest is None) is is_own:
            raise ValueError("an outcome and a time row have a call, a basis and a digest, and nothing else has")
        if (self.message_id is not None) is is_own or (self.type is not None) is is_own:
            raise ValueError("a signal and a command have an identity and a type, and nothing else has")
        if self.handed_over and is_own:
            raise ValueError("only a signal or a command is handed over")


@frozen(kw_only=True)
class ContinueAs:
    """The segment is over, and another goes on with this request. The new one begins at the time of the last row."""

    request: Payload = field(validator=fits_inline)
    request_type: str
    handed_over: tuple[JournalEntry, ...] = ()
    """Signals that nobody has received, and commands that came too late: the first rows of the new segment, numbered from 1."""
    version: str | None = None
    """Of the agent's code, when the new segment is made for another than the attempt began with; None: the same."""


@value(kw_only=True)
class CommitTurn(OwnerWrite["TurnCommitted"]):
    """What one turn of a task's owner comes to, in one transaction: rows, intents, dispatches, what it sent, and how it goes on (T26).

    Refused as a whole, and kept as an observation: `CONFLICT` when `after` is not the number of the last row, or the rows do not go on
    from there in number and time; when an outcome is for an operation that has one, or is not from the version that was sent last (R1);
    when an intent's operation has an outcome or an intent already. `NOT_PENDING` when an operation that is dispatched is not pending, or
    an operator has said how it ended.
    `UNKNOWN_POOL` when a child's pool was never registered. `CONFLICT` when it is no task, and when a callback's identity is taken.

    Args:
        after: number of the last row that the owner knows; 0 for none.
        consumed_seq: messages of the task's mailbox up to here have got their rows; None: no more than before.
        dispatches: operations with an intent that will be sent now: each raises its version.
        invocations: tries that have ended. One that was not dispatched is recorded now.
        outgoing: messages to other addresses, in order; where there is no room they are held.
        replies: what has become of messages that have their rows, for whoever has asked.
        submits: child tasks. They are accepted beyond the queue limits of their pools: they are part of accepted work.
        opens: callbacks. They can be answered from now on.
        next_due: when the earliest timer is due; None when there is none.
        phase: what it is at, for people; None: nothing in particular.
        waits: what it waits for, for people; None: as it was.
        ending: the task ends.
        continue_as: the segment ends and the task goes on.
    """

    after: int = field(validator=validators.ge(0))
    rows: tuple[JournalEntry, ...] = ()
    consumed_seq: int | None = None
    intents: tuple[Intent, ...] = ()
    dispatches: tuple[Dispatch, ...] = ()
    invocations: tuple[InvocationEnd, ...] = ()
    outgoing: tuple[Outgoing, ...] = ()
    replies: tuple[MessageReply, ...] = ()
    submits: tuple[NewTask, ...] = ()
    opens: tuple[NewCallback, ...] = ()
    next_due: datetime | None = field(default=None, validator=aware)
    phase: str | None = None
    waits: tuple[str, ...] | None = None
    ending: Ending | None = None
    continue_as: ContinueAs | None = None

    def __attrs_post_init__(self) -> None:
        if self.ending is not None and self.continue_as is not None:
            raise ValueError("a task that ends does not go on")
        if len({callback.callback_id for callback in self.opens}) < len(self.opens):
            raise ValueError("each callback has an identity of its own")

    @property
    def sent(self) -> tuple[Outgoing, ...]:
        """All its messages to other addresses, in order; that to the parent comes last."""
        if self.ending is None or self.ending.to_parent is None:
            return self.outgoing
        return (*self.outgoing, self.ending.to_parent)

    @property
    def locks(self) -> tuple[Row, ...]:
        if not (self.submits or self.opens or self.outgoing or self.ending):
            return (Row("addresses", self.address),)
        addresses = {self.address, *(m.recipient for m in self.sent), *(task.address for task in self.submits)}
        ended = () if self.ending is None else self.ending.callbacks
        callbacks = {*ended, *(callback.callback_id for callback in self.opens)}
        return (
            *(Row("task_pools", pool) for pool in {task.pool for task in self.submits}),
            *(Row("addresses", address) for address in addresses),
            *(Row("callbacks", callback) for callback in callbacks),
        )


@value(kw_only=True)
class TurnCommitted:
    """It is durable."""

    seq: int
    """Number of the last row; after `continue_as`, of the new segment."""
    versions: tuple[int, ...] = ()
    """Of the dispatched operations, in their order; 0 of one that has no intent."""
    outgoing: tuple[Disposition, ...] = ()
    """What became of each message, in order."""
    submits: tuple[Submission, ...] = ()
    """What became of each child."""


@frozen(kw_only=True)
class ReadJournal(Query[tuple[JournalEntry, ...]]):
    """Rows of one segment of an attempt, in order, a page at a time; `after` is the last number seen, 0 for none."""

    address: str
    attempt: int
    segment: int
    after: int = 0
    limit: int = field(default=1000, validator=validators.ge(1))


@frozen(kw_only=True)
class WrittenEntry:
    """A row of a journal, with where it stands and who wrote it."""

    attempt: int
    segment: int
    execution_id: str
    generation: int
    entry: JournalEntry
    decisions: tuple[DecisionRecord, ...] = ()
    """What operators have said of the operation that it is the outcome of."""

    @property
    def place(self) -> tuple[int, int, int]:
        """Rows of a task follow each other in this order."""
        return (self.attempt, self.segment, self.entry.seq)


@frozen(kw_only=True)
class ReadHistory(Query[tuple[WrittenEntry, ...]]):
    """Rows of all attempts and segments of a task, in order, a page at a time; `since` is the first place to look at."""

    address: str
    since: tuple[int, int, int] = (0, 0, 0)
    limit: int = field(default=1000, validator=validators.ge(1))
