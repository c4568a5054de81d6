"""What a store is asked: transitions, which change it, and queries, which do not. Both are values; drivers know how.

A transition says of itself which rows it touches, so that many can be committed together: see `packing`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import ClassVar, Generic, NamedTuple, TypeVar

from attrs import field, frozen

from greenroom.persistence.ids import new_id
from greenroom.persistence.values import value

T_co = TypeVar("T_co", covariant=True)


class Row(NamedTuple):
    """One row, by its table and its key. Rows compare in the canonical order of locking only through `lock_order`."""

    table: str
    key: str


LOCK_RANKS = {"task_pools": 0, "executions": 1, "addresses": 2, "callbacks": 3}
"""The order in which tables are locked. Tables that are not here have no row locks of their own."""


def lock_order(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows, each once, in the one order in which every batch locks: tables by rank, keys by code point (R7)."""
    return tuple(sorted(set(rows), key=lambda row: (LOCK_RANKS[row.table], row.key)))


@value(kw_only=True)
class Transition(Generic[T_co]):
    """A change that is committed whole or not at all, and is answered by a `T_co` or by `Refused`."""

    transition_id: str = field(factory=new_id)
    """By which its answer can be looked up for a while, whatever became of the caller."""

    alone: ClassVar[bool] = False
    """It shares its commit with no other: it touches rows that nobody can name beforehand, or all others depend on it."""

    @property
    def locks(self) -> tuple[Row, ...]:
        """Rows that it may change and that others may want to change too."""
        return ()

    @property
    def exclusive(self) -> tuple[Row, ...]:
        """Keys that it must have for itself within a group: it does more to them than counting up."""
        return ()


@frozen(kw_only=True)
class Query(Generic[T_co]):
    """A question to the store: it sees what was committed, and changes nothing."""


class RefusalReason(Enum):
    """Why a transition was refused."""

    STALE_GENERATION = "stale_generation"
    """The address has been given to another owner since."""
    LEASE_EXPIRED = "lease_expired"
    """The execution's lease has passed, or it has ended; nobody need have taken over."""
    NOT_OWNER = "not_owner"
    """Somebody else owns the address, or nobody does."""
    DRAINING = "draining"
    """The execution is stopping and takes nothing new."""
    FULL = "full"
    """The mailbox, the pool's queue, or one of the pool's limits has no room."""
    HELD_BACK = "held_back"
    """Messages of the address wait for room at their recipients; they must go first."""
    CONFLICT = "conflict"
    """The identity is taken by something else."""
    UNKNOWN_EXECUTION = "unknown_execution"
    UNKNOWN_ADDRESS = "unknown_address"
    UNKNOWN_POOL = "unknown_pool"
    UNKNOWN_MESSAGE = "unknown_message"
    UNKNOWN_OPERATION = "unknown_operation"
    UNKNOWN_CALLBACK = "unknown_callback"
    UNKNOWN_TOKEN = "unknown_token"
    ALREADY_ANSWERED = "already_answered"
    NOT_PENDING = "not_pending"
    """It has been dealt with, or its time has not come."""
    PARKED = "parked"
    """The address waits for an operator."""
    NOT_PARKED = "not_parked"
    STILL_ALIVE = "still_alive"
    """The execution has not been lost."""


@frozen
class Refused:
    """A transition was turned down and has changed nothing, an observation apart. An answer, not an exception."""

    reason: RefusalReason
    detail: str
    """For people."""
    seconds: float | None = None
    """How long until it may be worth trying again, where that is known."""


@value(kw_only=True)
class AddressWrite(Transition[T_co]):
    """A change under the lock of one address, which it has for itself."""

    address: str

    @property
    def locks(self) -> tuple[Row, ...]:
        return (Row("addresses", self.address),)

    @property
    def exclusive(self) -> tuple[Row, ...]:
        return (Row("addresses", self.address),)


@value(kw_only=True)
class OwnerWrite(AddressWrite[T_co]):
    """A change that only the current owner of an address may make (R2, R3).

    Refused with `STALE_GENERATION`, `NOT_OWNER` or `LEASE_EXPIRED` when it comes from anybody else; what it carried is kept
    as an observation.
    """

    execution_id: str
    generation: int
