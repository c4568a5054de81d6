"""Rows of addresses in hand: read once, decided about in Python, written back once a batch."""

from __future__ import annotations

from typing import Any, Final

from greenroom.persistence.addresses import AddressKind
from greenroom.persistence.applying.task_rows import TaskRow

TASK: Final = AddressKind.TASK.value

COUNTERS: Final = (
    "last_seq",
    "handled_seq",
    "settled_ahead",
    "queued",
    "ready",
    "delayed",
    "last_delayed",
    "held",
    "last_ordinal",
)
"""What every message changes."""

OWNERSHIP: Final = ("kind", "generation", "owner", "capacity", "parked", "parked_detail", "closed_at", "due_at")
"""What a claim changes, and what is indexed."""

PLAIN: Final = (*COUNTERS, *OWNERSHIP)

STATE: Final = ("state", "state_size", "state_type", "state_version")
"""A durable actor's state. It may be large, and is read for a claim only."""

State = tuple[bytes | None, int | None, str | None, int | None]
"""The columns of a state."""

NONE: Final[State] = (None, None, None, None)


class AddressRow:
    """An address's row. Its attributes are the columns of `PLAIN`, and what there is to tell of its state, or of its task."""

    __slots__ = ("address", "state", "state_changed", "stored", "task", *PLAIN)

    last_seq: int
    handled_seq: int
    settled_ahead: int
    queued: int
    ready: int
    delayed: int
    last_delayed: int
    held: int
    last_ordinal: int
    kind: str
    generation: int
    owner: str | None
    capacity: int | None
    parked: str | None
    parked_detail: str | None
    closed_at: int | None
    due_at: int | None

    def __init__(self, address: str, stored: tuple[Any, ...] | None, state: State | None = None) -> None:
        self.address = address
        self.stored = stored
        """Its columns as they are in the database; None for a row that is not there yet."""
        self.state = state
        """As far as it is known; None when it has not been read."""
        self.state_changed = False
        self.task: TaskRow | None = None
        """As far as it is known; None when it has not been read."""
        (
            self.last_seq,
            self.handled_seq,
            self.settled_ahead,
            self.queued,
            self.ready,
            self.delayed,
            self.last_delayed,
            self.held,
            self.last_ordinal,
            self.kind,
            self.generation,
            self.owner,
            self.capacity,
            self.parked,
            self.parked_detail,
            self.closed_at,
            self.due_at,
        ) = NEW if stored is None else stored

    def values(self) -> tuple[Any, ...]:
        """The columns as they are to be."""
        return (
            self.last_seq,
            self.handled_seq,
            self.settled_ahead,
            self.queued,
            self.ready,
            self.delayed,
            self.last_delayed,
            self.held,
            self.last_ordinal,
            self.kind,
            self.generation,
            self.owner,
            self.capacity,
            self.parked,
            self.parked_detail,
            self.closed_at,
            self.due_at,
        )

    @property
    def claimable(self) -> bool:
        """May anybody claim it who wants to?"""
        return self.owner is None and self.parked is None and self.closed_at is None


NEW: Final[tuple[Any, ...]] = (0,) * len(COUNTERS) + ("mailbox", 0) + (None,) * (len(OWNERSHIP) - 2)
