"""Turns: what the owner of a task commits at once, and how segments and attempts end and begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from greenroom.persistence.applying.attempts import end
from greenroom.persistence.applying.deliveries import send
from greenroom.persistence.applying.operations import Calls, judge, write
from greenroom.persistence.applying.rows import AddressRow
from greenroom.persistence.applying.task_rows import TaskRow, task_of
from greenroom.persistence.applying.tasks import accept
from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.clock import maybe_micros, micros
from greenroom.persistence.content import columns_of
from greenroom.persistence.journal import CommitTurn, ContinueAs, EntryKind, JournalEntry, TurnCommitted
from greenroom.persistence.lists import list_text
from greenroom.persistence.tasks import Submission
from greenroom.persistence.transitions import RefusalReason, Refused

# One row of a journal.
INSERT_ENTRY: Final = (
    "INSERT INTO journal (address, attempt, segment, seq, at, kind, call, name, status, version, effect_possible, "
    "unresolved, params, params_size, body, body_size, basis, digest, marks, message_id, type, answers, failed, "
    f"execution_id, generation) VALUES ({', '.join(f'${n}' for n in range(1, 26))})"
)
# Messages that get their rows: how many wait, how many of these count against the capacity, how many there are at all.
SELECT_CONSUMED: Final = (
    "SELECT coalesce(sum(CASE WHEN status = 'queued' THEN 1 ELSE 0 END), 0), "
    "coalesce(sum(CASE WHEN status = 'queued' AND timer IS NULL THEN 1 ELSE 0 END), 0), count(*) "
    "FROM messages WHERE address = $1 AND seq > $2 AND seq <= $3"
)
# What a turn has changed of a task.
UPDATE_TURN: Final = (
    "UPDATE tasks SET suspicions = $1, next_due = $2, phase = $3, contact_at = $4, state_version = state_version + $5 "
    "WHERE address = $6"
)
# Another segment goes on.
UPDATE_SEGMENT: Final = (
    "UPDATE tasks SET segment = segment + 1, segment_at = $1, segment_request = $2, segment_request_size = $3, "
    "segment_request_type = $4, state_version = state_version + 1 WHERE address = $5"
)


async def commit(unit: Unit, item: CommitTurn) -> TurnCommitted | Refused:
    row = await unit.fenced(item)
    if isinstance(row, Refused):
        return row
    task = await task_of(unit, row)
    if task is None:
        return unit.refuse(item, RefusalReason.CONFLICT, f"{item.address!r} is no task")
    outcomes = [entry for entry in item.rows if entry.kind is EntryKind.OUTCOME]
    calls = Calls(unit, item.address, task)
    refused = misplaced(item, row, task) or await judge(calls, outcomes, item) or await _homeless(unit, item)
    if refused is not None:
        return unit.refuse(item, refused.reason, refused.detail)
    await _write_entries(unit, item, task.attempt, task.segment, item.rows)
    versions = await write(calls, outcomes, item)
    if item.consumed_seq is not None:
        await _consume(unit, row, item.consumed_seq)
    await _keep_up(unit, item, task, progress=bool(outcomes))
    dispositions = await send(unit, row, item.sent)
    submissions = [await _submit(unit, item, number) for number in range(len(item.submits))]
    seq = task.seq + len(item.rows)
    if item.continue_as is not None:
        seq = await _go_on(unit, item, task, item.continue_as)
    elif item.ending is not None:
        await end(unit, row, task, item.ending)
    return TurnCommitted(seq=seq, versions=versions, outgoing=dispositions, submits=tuple(submissions))


def misplaced(item: CommitTurn, row: AddressRow, task: TaskRow) -> Refused | None:
    """Why the rows of a turn do not go on where the journal and the mailbox are; None: they do."""
    if item.after != task.seq:
        return _conflict(
            f"the journal of {item.address!r} is at row {task.seq}, and this goes on after row {item.after}"
        )
    problem = _out_of_order(item.rows, task.seq, task.last_at)
    if problem is None and item.continue_as is not None:
        problem = _out_of_order(item.continue_as.handed_over, 0, _last_at(item, task))
    if problem is None and item.consumed_seq is not None and not row.handled_seq <= item.consumed_seq <= row.last_seq:
        problem = f"message {item.consumed_seq} does not lie between {row.handled_seq} and {row.last_seq}"
    return None if problem is None else _conflict(f"{item.address!r}: {problem}")


def _conflict(detail: str) -> Refused:
    return Refused(RefusalReason.CONFLICT, detail)


def _last_at(item: CommitTurn, task: TaskRow) -> int:
    return micros(item.rows[-1].at) if item.rows else task.last_at


def _out_of_order(rows: Sequence[JournalEntry], seq: int, last_at: int) -> str | None:
    for entry in rows:
        seq += 1
        at = micros(entry.at)
        if entry.seq != seq:
            return f"row {entry.seq} stands where row {seq} belongs"
        if at < last_at:
            return f"row {seq} is earlier than what is ahead of it"
        last_at = at
    return None


async def _homeless(unit: Unit, item: CommitTurn) -> Refused | None:
    """A child's pool that was never registered."""
    for task in item.submits:
        if await unit.queues.pool(task.pool) is None:
            detail = f"no pool of tasks {task.pool!r} was ever registered, and {task.task_id!r} is submitted to it"
            return Refused(RefusalReason.UNKNOWN_POOL, detail)
    return None


async def _write_entries(
    unit: Unit, item: CommitTurn, attempt: int, segment: int, entries: Sequence[JournalEntry]
) -> None:
    if entries:
        place, owner = (item.address, attempt, segment), (item.execution_id, item.generation)
        await unit.tx.many(INSERT_ENTRY, [(*place, *entry_columns(entry), *owner) for entry in entries])


def entry_columns(entry: JournalEntry) -> tuple[Any, ...]:
    """A row of the journal as its columns, in the order of `INSERT_ENTRY`."""
    return (
        entry.seq,
        micros(entry.at),
        entry.kind.value,
        entry.call,
        entry.name,
        None if entry.status is None else entry.status.value,
        entry.version,
        entry.effect_possible,
        entry.unresolved,
        *columns_of(entry.params),
        *columns_of(entry.body),
        entry.basis,
        entry.digest,
        list_text(entry.marks) if entry.marks else None,
        entry.message_id,
        entry.type,
        entry.answers,
        entry.failed,
    )


async def _consume(unit: Unit, row: AddressRow, consumed_seq: int) -> None:
    """Messages up to there have got their rows."""
    if consumed_seq == row.handled_seq:
        return
    record = await unit.tx.one(SELECT_CONSUMED, row.address, row.handled_seq, consumed_seq)
    assert record is not None  # sums are one row
    waiting, counted, all_rows = record
    row.ready -= waiting
    row.queued -= counted
    row.settled_ahead -= all_rows - waiting
    row.handled_seq = consumed_seq


async def _keep_up(unit: Unit, item: CommitTurn, task: TaskRow, *, progress: bool) -> None:
    """Change the task's row where the turn has changed something that stands there; most turns have not."""
    suspicions = 0 if progress else task.suspicions
    commands = sum(entry.kind is EntryKind.CONTROL for entry in item.rows)
    next_due = maybe_micros(item.next_due)
    if commands or (suspicions, next_due, item.phase) != (task.suspicions, task.next_due, task.phase):
        await unit.tx.change(UPDATE_TURN, suspicions, next_due, item.phase, unit.now, commands, item.address)


async def _submit(unit: Unit, item: CommitTurn, number: int) -> Submission:
    answer = await accept(unit, item.submits[number], limited=False)
    return Submission.CONFLICT if isinstance(answer, Refused) else answer.disposition


async def _go_on(unit: Unit, item: CommitTurn, task: TaskRow, following: ContinueAs) -> int:
    """Begin another segment. Returns the number of its last row."""
    await unit.tx.change(
        UPDATE_SEGMENT, _last_at(item, task), *columns_of(following.request), following.request_type, item.address
    )
    await _write_entries(unit, item, task.attempt, task.segment + 1, following.handed_over)
    return len(following.handed_over)
