"""What transitions decide by of a task's row, with the last row of its journal."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from greenroom.persistence.applying.rows import TASK, AddressRow
from greenroom.persistence.applying.unit import Unit


def last_row(column: str) -> str:
    """A column of the last journal row of the segment of `tasks t`."""
    return (
        f"(SELECT j.{column} FROM journal j WHERE j.address = t.address AND j.attempt = t.attempt "
        "AND j.segment = t.segment ORDER BY j.seq DESC LIMIT 1)"
    )


# One task, to be decided about.
SELECT_TASK: Final = (
    "SELECT t.pool, t.turn, t.runnable, t.attempt, t.segment, t.segment_at, t.suspicions, t.next_due, t.phase, "
    f"{last_row('seq')}, {last_row('at')} FROM tasks t WHERE t.address = $1"
)


@frozen
class TaskRow:
    """A task's row, as it was when it was read."""

    pool: str
    turn: int
    runnable: bool
    attempt: int
    segment: int
    segment_at: int
    suspicions: int
    next_due: int | None
    phase: str | None
    seq: int
    """Of the segment's last row; 0 for none."""
    last_at: int
    """Of that row, or when the segment began."""


async def task_of(unit: Unit, row: AddressRow | None) -> TaskRow | None:
    """The task at an address; None when there is none."""
    if row is None or row.kind != TASK:
        return None
    record = await unit.tx.one(SELECT_TASK, row.address)
    assert record is not None  # an address of that kind is made with its row
    *columns, seq, last_at = record
    pool, turn, runnable, attempt, segment, segment_at, suspicions, next_due, phase = columns
    return TaskRow(
        pool,
        turn,
        bool(runnable),
        attempt,
        segment,
        segment_at,
        suspicions,
        next_due,
        phase,
        seq or 0,
        last_at or segment_at,
    )
