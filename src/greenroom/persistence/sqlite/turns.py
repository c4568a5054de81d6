"""The most common turn of a task: outcomes of operations without intents, and perhaps the end, by one statement a row."""

from __future__ import annotations

from typing import Final

from greenroom.persistence.applying.turns import INSERT_ENTRY, entry_columns, is_plain
from greenroom.persistence.clock import maybe_micros
from greenroom.persistence.content import columns_of
from greenroom.persistence.journal import CommitTurn, TurnCommitted
from greenroom.persistence.lists import EMPTY
from greenroom.persistence.sqlite.statements import rewritten
from greenroom.persistence.sqlite.unit import SqliteUnit

INSERT: Final = f"{rewritten(INSERT_ENTRY)} ON CONFLICT DO NOTHING"
# Rows that were written before one that has no place.
TAKE_BACK: Final = "DELETE FROM journal WHERE address = ? AND attempt = ? AND segment = ? AND seq > ?"


def commit(unit: SqliteUnit, item: CommitTurn) -> TurnCommitted | None:
    """A turn of a task in hand, which goes on where the journal is and changes nothing else of it."""
    if not is_plain(item):
        return None
    row = unit.owned(item)
    task = None if row is None else row.task
    if row is None or task is None or item.after != task.seq or task.intended or task.suspicions:
        return None
    if item.ending is not None and task.placed:
        return None  # others wait for its place
    if item.phase != task.phase or maybe_micros(item.next_due) != task.next_due:
        return None
    place, owner = (item.address, task.attempt, task.segment), (item.execution_id, item.generation)
    seq, last_at = task.seq, task.last_at
    rows = []
    for entry in item.rows:
        columns = entry_columns(entry)
        if columns[0] != seq + 1 or columns[1] < last_at:
            return None
        seq, last_at = columns[0], columns[1]
        rows.append((*place, *columns, *owner))
    for values in rows:
        if unit.cursor.execute(INSERT, values).rowcount == 0:
            unit.cursor.execute(TAKE_BACK, (*place, task.seq))
            return None
    task.seq, task.last_at = seq, last_at
    ending = item.ending
    if ending is not None:
        row.owner = None
        row.closed_at = task.contact_at = unit.now
        task.next_due, task.waits = None, EMPTY
        task.state_version += 1
        task.ended = (ending.outcome.value, *columns_of(ending.result), *columns_of(ending.error), None, unit.now)
        unit.fall_behind(item.address)
        unit.tell_others()
    return TurnCommitted(seq=seq)
