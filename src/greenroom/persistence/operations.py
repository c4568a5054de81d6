"""Operations with an intent, and the physical tries of any operation. A SAFE one has no row but its outcome in the journal (R1)."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Final

from attrs import field, frozen, validators

from greenroom.persistence.content import Payload, fits_inline
from greenroom.persistence.states import Moves
from greenroom.persistence.transitions import AddressWrite, Query


class OperationStatus(Enum):
    PENDING = "pending"
    """It is going to be sent, or has been; nothing is known of its end."""
    SETTLED = "settled"
    """Its outcome is in the journal."""
    UNRESOLVED = "unresolved"
    """Whether it happened is for an operator to find out (I8)."""


class OperationEvent(Enum):
    SETTLE = "settle"
    LOSE = "lose"
    """It was sent, and nobody can tell any more whether it happened."""
    DECIDE = "decide"
    """An operator has said what is to be done: it may be sent again."""


OPERATION_MOVES: Final[Moves[OperationStatus, OperationEvent]] = {
    (OperationStatus.PENDING, OperationEvent.SETTLE): OperationStatus.SETTLED,
    (OperationStatus.PENDING, OperationEvent.LOSE): OperationStatus.UNRESOLVED,
    (OperationStatus.UNRESOLVED, OperationEvent.SETTLE): OperationStatus.SETTLED,
    (OperationStatus.UNRESOLVED, OperationEvent.DECIDE): OperationStatus.PENDING,
}


class EffectKind(Enum):
    """What an operation's receiver makes of a second invocation."""

    SAFE = "safe"
    KEYED = "keyed"
    RECONCILED = "reconciled"
    ONCE = "once"


class Decision(Enum):
    """What an operator says of an unresolved operation."""

    REPEAT = "repeat"
    """Send it again, under the same key."""
    SUCCEEDED = "succeeded"
    """It happened, with this result."""
    FAILED = "failed"
    """It did not happen, and is not to be sent again."""


@frozen
class DecisionRecord:
    """What an operator has said of an operation, once."""

    decision: Decision
    by: str
    at: datetime


@frozen(kw_only=True)
class Intent:
    """An operation with an effect that must not be guessed at: recorded before it is sent. Refused where an outcome exists."""

    call: str
    name: str
    effect: EffectKind
    key: str
    """What the receiver recognises a repetition by; the same for ever."""
    params: Payload = field(validator=fits_inline)
    params_digest: str


@frozen(kw_only=True)
class Dispatch:
    """An operation is sent now; of one with an intent the version grows, and a result under an older one is refused (R1)."""

    call: str
    invocation: int = field(validator=validators.ge(1))
    """Counted from 1 over all executions: each has its number for itself."""
    intended: bool
    """It has an intent."""


@frozen(kw_only=True)
class InvocationEnd:
    """How one physical try of an operation ended."""

    call: str
    invocation: int
    status: str
    """`succeeded`, `failed`, `cancelled`, `timed_out`."""
    error: str | None = None
    links: tuple[tuple[str, str], ...] = ()
    """What it is known by elsewhere: provider request ids, traces (C01)."""


@frozen(kw_only=True)
class DecideOperation(AddressWrite["Decided"]):
    """Settle what is to become of an unresolved operation, by an operator. When no other is left, the task that is parked for it can go
    on. `UNKNOWN_OPERATION`; `NOT_PENDING` when it is not unresolved.

    One that has its outcome in the journal is settled by that; any other is pending again, and the task's next activation acts on the
    decision.

    Args:
        attempt, segment: where the operation is; None: the current ones.
        result: of one that `SUCCEEDED`.
        by: who says so.
    """

    call: str
    decision: Decision
    by: str
    attempt: int | None = None
    segment: int | None = None
    result: Payload | None = field(default=None, validator=fits_inline)

    def __attrs_post_init__(self) -> None:
        if self.result is not None and self.decision is not Decision.SUCCEEDED:
            raise ValueError(f"the decision {self.decision.value!r} has no result")


@frozen
class Decided:
    """It is written down."""

    status: OperationStatus
    released: bool
    """The task was parked for it, and may run again."""


@frozen(kw_only=True)
class OperationRecord:
    """An operation with an intent, as it was when it was read."""

    attempt: int
    segment: int
    call: str
    name: str
    effect: EffectKind
    key: str
    params: Payload
    params_digest: str
    status: OperationStatus
    version: int
    """How often it was sent."""
    decision: Decision | None
    """What is to be done, as long as it has not been."""
    result: Payload | None
    decided_by: str | None
    decided_at: datetime | None
    decisions: tuple[DecisionRecord, ...] = ()
    """All that was ever decided about it, in order."""


@frozen(kw_only=True)
class InvocationRecord:
    """One physical try, as it was when it was read."""

    attempt: int
    segment: int
    call: str
    invocation: int
    execution_id: str
    generation: int
    started_at: datetime
    ended_at: datetime | None
    status: str | None
    error: str | None
    links: tuple[tuple[str, str], ...]


@frozen(kw_only=True)
class ReadOperations(Query[tuple[OperationRecord, ...]]):
    """Operations with an intent, of one attempt: by segment, oldest first, those of one turn by call."""

    address: str
    attempt: int
    unsettled: bool = False
    """Only those whose end is not known."""


@frozen(kw_only=True)
class ReadInvocations(Query[tuple[InvocationRecord, ...]]):
    """The recorded tries of one attempt, oldest first."""

    address: str
    attempt: int
