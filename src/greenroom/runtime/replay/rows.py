"""The journal: what is recorded of a segment, row by row, and nothing else (T1, T5).

A row is a delivery: something that came from outside the control code. Everything derived (starts, joins, cancellations, limits) has
no row. Rows of the task's owner carry a `Stamp`, which says what the control code had done when they were written (T25).
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from attrs import field, frozen, validators

from greenroom.runtime.replay.paths import CallId


@frozen(kw_only=True)
class Start:
    """What a segment begins with; it stands with the task, beside the journal."""

    at: datetime
    """Aware. The logical time until the first row."""
    seed: bytes = field(validator=validators.max_len(64))
    """Of the attempt: where `task.random` and `task.uuid` come from."""
    task_id: str
    attempt: int = 1
    segment: int = 1
    execution: str = ""
    """The execution that runs this activation: another one after each recovery."""
    deadline: datetime | None = None


@frozen(kw_only=True)
class Stamp:
    """How far the owner was when it wrote a row."""

    basis: int
    """Rows it had processed."""
    digest: bytes
    """Checksum of all calls that control code had made by then."""
    marks: tuple[str, ...] = ()
    """Version marks that were passed since the last row that carried them."""


class OutcomeStatus(Enum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @classmethod
    def of(cls, *, raised: bool, cancel_requested: bool) -> OutcomeStatus:
        """How an operation's end is recorded. No accepted effect is hidden, and no failure follows a request to cancel (T11)."""
        if not raised:
            return cls.SUCCEEDED
        return cls.CANCELLED if cancel_requested else cls.FAILED


class EffectKnown(Enum):
    """What is known of the effect of an operation that was cancelled (T13)."""

    NONE = "none"
    """It was never sent, or its receiver says that it did not happen."""
    POSSIBLE = "possible"


class ControlKind(Enum):
    CANCEL = "cancel"


@frozen(kw_only=True)
class JournalRow:
    seq: int
    """Its place, from 1, without gaps."""
    at: datetime
    """Aware; the store's clock. Never before that of the row ahead of it."""


@frozen(kw_only=True)
class OutcomeRow(JournalRow):
    """An operation has ended. To accept it is to deliver it: there is one such row for each admitted operation."""

    stamp: Stamp
    call: CallId
    name: str
    params: bytes
    status: OutcomeStatus
    body: bytes
    """The encoded result; an encoded `Fault` when it failed; may be empty when it was cancelled."""
    effect: EffectKnown = EffectKnown.POSSIBLE
    unresolved: bool = False
    """Whether what happened at the receiver is still for an operator to find out."""
    admitted: int = 0
    """The row with which it was admitted, 0 for the beginning. A task can be pursued anew from there (R19)."""
    cause: BaseException | None = field(default=None, eq=False, repr=False)
    """The exception itself, for tracebacks, in the execution that saw it. Not recorded."""


@frozen(kw_only=True)
class TimeRow(JournalRow):
    """The time of a timer had come while nothing else happened. Its `at` is not before that time."""

    stamp: Stamp
    timer: CallId
    """The call whose timer was due first; for comparison only."""


@frozen(kw_only=True)
class SignalRow(JournalRow):
    """A message to the task has arrived, or the answer to one of its waits."""

    message_id: str
    type: str
    body: bytes
    answers: str | None = None
    """The key of the wait that it answers (a child, a callback). Such a row stays readable; it is never taken by `receive`."""
    failed: bool = False
    """Of an answer: `body` is an encoded `Fault`."""


@frozen(kw_only=True)
class ControlRow(JournalRow):
    """A command about the task, from outside."""

    command_id: str
    kind: ControlKind
    reason: str = ""
    """Why, for people."""


@frozen
class Fault:
    """How an operation failed, as it is recorded; it becomes `OperationFailed`."""

    kind: str
    type: str
    message: str
    details: object = None


@frozen(kw_only=True)
class Intent:
    """That an operation was about to be sent, written before it was. It stands beside the journal and is no delivery."""

    call: CallId
    name: str
    params: bytes


class EndKind(Enum):
    RETURNED = "returned"
    RAISED = "raised"
    CANCELLED = "cancelled"
    CONTINUED = "continued"
    """Another segment goes on."""


@frozen(kw_only=True)
class End:
    """How the control code of a segment ended. It belongs to the row `seq`; later signals and commands were too late (T7)."""

    kind: EndKind
    seq: int
    digest: bytes
    body: bytes = b""
    """The encoded result, or the request of the next segment."""
    error: BaseException | None = field(default=None, eq=False)
    unread: tuple[SignalRow | ControlRow, ...] = ()
    """Signals that were never received, in their order; in a segment that is followed by another also what came too late for it."""
