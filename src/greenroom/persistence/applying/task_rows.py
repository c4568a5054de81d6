"""Rows of tasks in hand, each with its address's: read once, decided about in Python, written back once a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

CHANGING: Final = (
    "runnable",
    "attempt",
    "segment",
    "segment_at",
    "version",
    "state_version",
    "next_due",
    "phase",
    "waits",
    "contact_at",
    "restarts",
    "suspicions",
    "placed",
)
"""What a task's life changes, apart from its beginning and its end."""

ENDED: Final = ("outcome", "result", "result_size", "error", "error_size", "end_reason", "ended_at")
"""What its end writes."""


def _assign(names: Sequence[str]) -> str:
    return ", ".join(f"{name} = ${number}" for number, name in enumerate(names, 2))


def last_row(column: str) -> str:
    """A column of the last journal row of the segment of `tasks t`."""
    return (
        f"(SELECT j.{column} FROM journal j WHERE j.address = t.address AND j.attempt = t.attempt "
        "AND j.segment = t.segment ORDER BY j.seq DESC LIMIT 1)"
    )


IN_HAND: Final = (
    f"t.pool, t.turn, {', '.join(f't.{name}' for name in CHANGING)}, {last_row('seq')}, {last_row('at')}, "
    "EXISTS (SELECT 1 FROM operations o WHERE o.address = t.address AND o.attempt = t.attempt)"
)
"""The columns of a row in hand, of `tasks t`."""

IN_HAND_COLUMNS: Final = len(CHANGING) + 5

FIXED: Final = (
    "t.address, t.group_key, t.priority, coalesce(t.segment_request, t.request), "
    "CASE WHEN t.segment_request IS NULL THEN t.request_size ELSE t.segment_request_size END, "
    "coalesce(t.segment_request_type, t.request_type), t.request_digest, t.submitted_at, t.deadline, t.parent, "
    "t.parent_policy, t.seed, t.outcome, t.result, t.result_size, t.error, t.error_size, t.end_reason, t.ended_at"
)
"""What of a task is not in hand when it is decided about, for those who want all of it."""

# One task, to be decided about.
SELECT_TASK: Final = f"SELECT {IN_HAND} FROM tasks t WHERE t.address = $1"
# What else there is to know of a task.
SELECT_FIXED: Final = f"SELECT {FIXED} FROM tasks t WHERE t.address = $1"
# What has changed of a task.
UPDATE_TASK: Final = f"UPDATE tasks SET {_assign(CHANGING)} WHERE address = $1"
# The same of one whose attempt has ended.
UPDATE_ENDED: Final = f"UPDATE tasks SET {_assign((*CHANGING, *ENDED))} WHERE address = $1"


class TaskRow:
    """A task's row. Its attributes are the columns of `CHANGING`, and what else transitions decide by."""

    __slots__ = ("ended", "intended", "last_at", "pool", "seq", "stored", "turn", *CHANGING)

    runnable: bool
    attempt: int
    segment: int
    segment_at: int
    version: str | None
    state_version: int
    next_due: int | None
    phase: str | None
    waits: str
    contact_at: int | None
    restarts: str
    suspicions: int
    placed: bool
    """It takes a place among the tasks of its group."""

    def __init__(self, record: Sequence[Any]) -> None:
        """Args: record: the columns of `IN_HAND`."""
        pool, turn, *changing, seq, last_at, intended = record
        self.pool: str = pool
        self.turn: int = turn
        (
            runnable,
            self.attempt,
            self.segment,
            self.segment_at,
            self.version,
            self.state_version,
            self.next_due,
            self.phase,
            self.waits,
            self.contact_at,
            self.restarts,
            self.suspicions,
            placed,
        ) = changing
        self.runnable, self.placed = bool(runnable), bool(placed)
        self.seq: int = seq or 0
        """Of the segment's last row; 0 for none."""
        self.last_at: int = self.segment_at if last_at is None else last_at
        """Of that row, or when the segment began."""
        self.intended = bool(intended)
        """The attempt has operations with an intent."""
        self.ended: tuple[Any, ...] | None = None
        """The columns of `ENDED`, when they are to be written."""
        self.stored = self.values()
        """Its columns as they are in the database."""

    def values(self) -> tuple[Any, ...]:
        """The columns of `CHANGING` as they are to be."""
        return (
            self.runnable,
            self.attempt,
            self.segment,
            self.segment_at,
            self.version,
            self.state_version,
            self.next_due,
            self.phase,
            self.waits,
            self.contact_at,
            self.restarts,
            self.suspicions,
            self.placed,
        )
