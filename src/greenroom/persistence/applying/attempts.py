"""Attempts: how one ends, by its owner or by the store alone, and how another begins."""

from __future__ import annotations

from typing import Any, Final

from greenroom.persistence.applying.callbacks import close_all
from greenroom.persistence.applying.deliveries import send
from greenroom.persistence.applying.limits import leave_place
from greenroom.persistence.applying.operations import SELECT_UNRESOLVED, UPDATE_LEFT
from greenroom.persistence.applying.rows import AddressRow
from greenroom.persistence.applying.task_rows import TaskRow
from greenroom.persistence.applying.tasks import queued
from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.content import columns_of
from greenroom.persistence.lists import EMPTY
from greenroom.persistence.tasks import (
    AttemptBegun,
    Ending,
    NewAttempt,
    TaskOutcome,
    Terminated,
    TerminateTask,
)
from greenroom.persistence.transitions import RefusalReason, Refused

# Children that are to end with their parent.
SELECT_CHILDREN: Final = (
    "SELECT address FROM tasks WHERE parent = $1 AND outcome IS NULL AND parent_policy = 'stop' ORDER BY address"
)
# The attempt that was the last one until now.
INSERT_ATTEMPT: Final = (
    "INSERT INTO attempts (address, attempt, started_at, ended_at, outcome, reason, result, result_size, error, error_size) "
    "SELECT address, attempt, attempt_at, ended_at, outcome, attempt_reason, result, result_size, error, error_size "
    "FROM tasks WHERE address = $1"
)
KEPT: Final = (
    "seq, at, kind, call, name, status, version, effect_possible, unresolved, params, params_size, body, body_size, admitted, basis, "
    "digest, marks, message_id, type, answers, failed, handed_over, execution_id, generation"
)
# Rows that another attempt keeps.
COPY_ENTRIES: Final = (
    f"INSERT INTO journal (address, attempt, segment, {KEPT}) SELECT address, attempt + 1, segment, {KEPT} "
    "FROM journal WHERE address = $1 AND attempt = $2 AND segment = $3 AND seq <= $4"
)
INTENDED: Final = (
    "intended_at, name, effect, key, params, params_size, params_digest, version, decision, result, result_size, decided_by, "
    "decided_at, decisions"
)
# Operations that another attempt knows: those whose outcomes it keeps, and those that an operator has decided about.
COPY_OPERATIONS: Final = (
    f"INSERT INTO operations (address, attempt, segment, call, status, {INTENDED}) "
    "SELECT o.address, o.attempt + 1, o.segment, o.call, CASE WHEN o.kept THEN 'settled' ELSE 'pending' END, "
    f"{INTENDED} FROM (SELECT *, EXISTS (SELECT 1 FROM journal j WHERE j.kind = 'outcome' "
    "AND j.call = x.call AND j.address = x.address AND j.attempt = x.attempt + 1 AND j.segment = x.segment) AS kept "
    "FROM operations x WHERE x.address = $1 AND x.attempt = $2 AND x.segment = $3) o "
    "WHERE o.kept OR o.decision IS NOT NULL"
)
# Another attempt, from the beginning or from where the last one was.
UPDATE_AGAIN: Final = (
    "UPDATE tasks SET attempt = attempt + 1, attempt_at = $1, attempt_reason = $2, seed = $3, "
    "segment_request = CASE WHEN $4 THEN segment_request END, "
    "segment_request_size = CASE WHEN $4 THEN segment_request_size END, "
    "segment_request_type = CASE WHEN $4 THEN segment_request_type END, outcome = NULL, result = NULL, result_size = NULL, "
    "error = NULL, error_size = NULL, end_reason = NULL, ended_at = NULL WHERE address = $5"
)
# How many rows of a segment are on record, up to one.
SELECT_COUNT: Final = "SELECT count(*) FROM journal WHERE address = $1 AND attempt = $2 AND segment = $3 AND seq <= $4"
# When a row was.
SELECT_LAST: Final = "SELECT at FROM journal WHERE address = $1 AND attempt = $2 AND segment = $3 AND seq = $4"
# Messages that an attempt did not get to.
SELECT_LEFT: Final = "SELECT seq, timer FROM messages WHERE address = $1 AND seq > $2 AND status = 'queued'"
# They are dead letters.
UPDATE_TOO_LATE: Final = (
    "UPDATE messages SET status = 'dead', settled_at = $1, reason = 'it came too late for the attempt before' "
    "WHERE address = $2 AND seq = $3"
)


async def end(unit: Unit, row: AddressRow, task: TaskRow, ending: Ending, reason: str | None = None) -> None:
    """The task is terminal: nobody owns it, and what comes now is late. Without a reason, its owner says so."""
    row.owner = row.parked = row.parked_detail = row.due_at = None
    row.closed_at = task.contact_at = unit.now
    task.runnable = False
    task.next_due = None
    task.waits = EMPTY
    leave_place(unit, task)
    task.state_version += 1
    task.ended = (ending.outcome.value, *columns_of(ending.result), *columns_of(ending.error), reason, unit.now)
    unit.fall_behind(row.address)
    if task.intended:
        await unit.tx.change(UPDATE_LEFT, row.address, task.attempt)
    await close_all(unit, row.address, ending.callbacks)
    if reason is None and not ending.callbacks:  # its owner knows
        unit.tell_others()
    else:
        unit.wake(row.address)


async def terminate(unit: Unit, item: TerminateTask) -> Terminated | Refused:
    found = await queued(unit, item)
    if isinstance(found, Refused):
        return found
    row, task, pool = found
    if row.closed_at is not None:
        return Refused(RefusalReason.NOT_PENDING, f"{item.address!r} has ended")
    if task.runnable:
        pool.runnable -= 1
    row.generation += 1
    ending = Ending(outcome=TaskOutcome.CANCELLED, error=item.error, callbacks=item.callbacks)
    await end(unit, row, task, ending, item.reason)
    await send(unit, row, () if item.to_parent is None else (item.to_parent,))
    await unit.flush()  # of its children, too, some may have ended in this transaction
    children = await unit.tx.all(SELECT_CHILDREN, item.address)
    return Terminated(children=tuple(address for (address,) in children))


async def begin_again(unit: Unit, item: NewAttempt) -> AttemptBegun | Refused:
    row = unit.address(item.address)
    task = await unit.task(row)
    if row is None or task is None:
        return Refused(RefusalReason.UNKNOWN_ADDRESS, f"there is no task {item.address!r}")
    if row.closed_at is None:
        return Refused(RefusalReason.NOT_PENDING, f"{item.address!r} has not ended")
    unresolved = await unit.tx.one(SELECT_UNRESOLVED, item.address, task.attempt)
    if unresolved is not None:
        return Refused(
            RefusalReason.CONFLICT,
            f"the operation {unresolved[1]} of {item.address!r} (segment {unresolved[0]}) is unresolved: decide about it first",
        )
    if item.rows > task.seq:
        return Refused(
            RefusalReason.CONFLICT, f"the last segment of {item.address!r} has {task.seq} rows, and not {item.rows}"
        )
    await unit.catch_up(item.address)
    kept = item.rows > 0 or item.in_segment
    segment = task.segment if kept else 1
    place: tuple[Any, ...] = (item.address, task.attempt, segment)
    if await unit.tx.one(SELECT_COUNT, *place, item.rows) != (item.rows,):
        return Refused(
            RefusalReason.CONFLICT,
            f"retention has begun to forget the journal of {item.address!r}: another attempt can only start from the beginning",
        )
    await unit.tx.change(INSERT_ATTEMPT, item.address)
    await unit.tx.change(COPY_ENTRIES, *place, item.rows)
    task.intended = await unit.tx.change(COPY_OPERATIONS, *place) > 0
    await unit.tx.change(UPDATE_AGAIN, unit.now, item.reason, item.seed, kept, item.address)
    task.attempt += 1
    task.version = task.next_due = task.phase = None
    task.restarts, task.suspicions = EMPTY, 0
    task.state_version += 1
    task.seq = item.rows
    if not kept:
        task.segment = 1
        task.segment_at = task.last_at = unit.now
    elif item.rows:
        last = await unit.tx.one(SELECT_LAST, item.address, task.attempt, task.segment, task.seq)
        assert last is not None  # it has just been copied
        (task.last_at,) = last
    else:
        task.last_at = task.segment_at
    await _bury_left(unit, row)
    row.closed_at = None
    row.due_at = unit.now
    unit.wake(row.address)
    return AttemptBegun(task.attempt)


async def _bury_left(unit: Unit, row: AddressRow) -> None:
    """Whoever speaks to a new attempt has to say it to that: a command to the last one must not hit it."""
    left = await unit.tx.all(SELECT_LEFT, row.address, row.handled_seq)
    if left:
        await unit.tx.many(UPDATE_TOO_LATE, [(unit.now, row.address, seq) for seq, _ in left])
    row.ready -= len(left)
    row.queued -= sum(timer is None for _, timer in left)
    row.settled_ahead += len(left)
