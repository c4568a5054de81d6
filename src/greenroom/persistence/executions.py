"""Executions: physical activations of a worker process, each the holder of one lease."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import ClassVar, Final

from attrs import field, frozen, validators

from greenroom.persistence.states import Moves
from greenroom.persistence.transitions import Query, Row, Transition


class ExecutionState(Enum):
    """Where an execution stands. Whether it is alive is another question, which its lease answers."""

    ACTIVE = "active"
    DRAINING = "draining"
    """It finishes what it has and claims nothing."""
    ENDED = "ended"


class ExecutionEvent(Enum):
    DRAIN = "drain"
    END = "end"


EXECUTION_MOVES: Final[Moves[ExecutionState, ExecutionEvent]] = {
    (ExecutionState.ACTIVE, ExecutionEvent.DRAIN): ExecutionState.DRAINING,
    (ExecutionState.ACTIVE, ExecutionEvent.END): ExecutionState.ENDED,
    (ExecutionState.DRAINING, ExecutionEvent.END): ExecutionState.ENDED,
}


@frozen(kw_only=True)
class ExecutionWrite(Transition["ExecutionMoved"]):
    """A change of an execution's own row. Every owner's write depends on that row, and reads it without a lock (R2)."""

    alone: ClassVar[bool] = True

    execution_id: str

    @property
    def locks(self) -> tuple[Row, ...]:
        return (Row("executions", self.execution_id),)

    @property
    def exclusive(self) -> tuple[Row, ...]:
        return (Row("executions", self.execution_id),)


@frozen
class ExecutionMoved:
    """The execution is in that state now."""

    state: ExecutionState


@frozen(kw_only=True)
class RegisterExecution(ExecutionWrite):
    """Make an execution known, active, with a lease from now on. `CONFLICT` when the id is taken.

    Args:
        lease: seconds (> 0).
        locked: the execution holds a file lock whose release proves its death.
    """

    host: str
    pid: int
    boot_id: str
    lease: float = field(validator=validators.gt(0))
    locked: bool = False


@frozen(kw_only=True)
class DrainExecution(ExecutionWrite):
    """It claims nothing from now on. `LEASE_EXPIRED` when it has ended."""


@frozen(kw_only=True)
class EndExecution(ExecutionWrite):
    """It is over, and owns nothing from now on: whatever it owned may be claimed at once. Ending twice is ending once."""


@frozen(kw_only=True)
class ReleaseLost(Transition["LostReleased"]):
    """Give back up to `limit` addresses of an execution that is dead, so that their mail becomes due. For the sweep.

    The execution counts as ended when nothing is left. `STILL_ALIVE`, with the seconds its lease lasts, when it is not dead.

    Args:
        suspect: its tasks may be what has killed it; not when its process lives, and has only lost its lease (R22).
    """

    alone: ClassVar[bool] = True

    execution_id: str
    suspect: bool = True
    limit: int = field(default=1000, validator=validators.ge(1))


@frozen
class LostReleased:
    """How many addresses were given back, and whether there are more."""

    addresses: int
    more: bool


@frozen(kw_only=True)
class ExecutionRecord:
    """An execution, as it was when it was read."""

    execution_id: str
    host: str
    pid: int
    boot_id: str
    started_at: datetime
    state: ExecutionState
    alive: bool
    """Its lease lasts, and nothing proves its death."""
    seconds_left: float
    """Of its lease; 0 when it has passed or counts no more."""


@frozen(kw_only=True)
class ListExecutions(Query[tuple[ExecutionRecord, ...]]):
    """Executions that have not ended, alive and dead; with `ended`, all that are still on record. Oldest first."""

    ended: bool = False


@frozen(kw_only=True)
class ReadExecution(Query["ExecutionRecord | None"]):
    execution_id: str
