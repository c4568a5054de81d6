"""Turns: what the owner of a task commits at once, and how segments and attempts end and begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from greenroom.persistence.applying.attempts import end
from greenroom.persistence.applying.callbacks import open_all, refuse_open
from greenroom.persistence.applying.deliveries import send
from greenroom.persistence.applying.operations import Calls, judge, write
from greenroom.persistence.applying.rows import AddressRow
from greenroom.persistence.applying.task_rows import TaskRow
from greenroom.persistence.applying.tasks import accept
from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.clock import maybe_micros, micros
from greenroom.persistence.content import columns_of
from greenroom.persistence.journal import CommitTurn, ContinueAs, EntryKind, JournalEntry, TurnCommitted
from greenroom.persistence.lists import list_text
from greenroom.persistence.messages import MessageReply
from greenroom.persistence.tasks import Submission
from greenroom.persistence.transitions import RefusalReason, Refused

# One row of a journal.
INSERT_ENTRY: Final = (
    "INSERT INTO journal (address, attempt, segment, seq, at, kind, call, name, status, version, effect_possible, "
    "unresolved, params, params_size, body, body_size, admitted, basis, digest, marks, message_id, type, answers, failed, "
    f"handed_over, execution_id, generation) VALUES ({', '.join(f'${n}' for n in range(1, 28))})"
)
# Messages that get their rows: how many wait, how many of these count against the capacity, how many there are at all.
SELECT_CONSUMED: Final = (
    "SELECT coalesce(sum(CASE WHEN status = 'queued' THEN 1 ELSE 0 END), 0), "
    "coalesce(sum(CASE WHEN status = 'queued' AND timer IS NULL THEN 1 ELSE 0 END), 0), count(*) "
    "FROM messages WHERE address = $1 AND seq > $2 AND seq <= $3"
)
# A message that its handler has accepted.
UPDATE_TAKEN: Final = (
    "UPDATE messages SET delivered_at = coalesce(delivered_at, $1) WHERE message_id = $2 AND address = $3 AND seq <= $4"
)
# A message that was answered.
UPDATE_REPLIED: Final = (
    "UPDATE messages SET status = 'handled', settled_at = coalesce(settled_at, $1), delivered_at = coalesce(delivered_at, $2), "
    "reply = $3, reply_size = $4, error = $5, error_size = $6 WHERE message_id = $7 AND address = $8 AND seq <= $9"
)
# With what another segment goes on.
UPDATE_SEGMENT: Final = (
    "UPDATE tasks SET segment_request = $1, segment_request_size = $2, segment_request_type = $3 WHERE address = $4"
)


async def commit(unit: Unit, item: CommitTurn) -> TurnCommitted | Refused:
    row = await unit.fenced(item)
    if isinstance(row, Refused):
        return row
    task = await unit.task(row)
    if task is None:
        return unit.refuse(item, RefusalReason.CONFLICT, f"{item.address!r} is no task")
    outcomes = [entry for entry in item.rows if entry.kind is EntryKind.OUTCOME]
    calls = Calls(unit, item.address, task)
    refused = (
        misplaced(item, row, task)
        or await judge(calls, outcomes, item)
        or await _homeless(unit, item)
        or await refuse_open(unit, item.opens)
    )
    if refused is not None:
        return unit.refuse(item, refused.reason, refused.detail)
    _write_entries(unit, item, task, item.rows)
    versions = await write(calls, outcomes, item)
    if item.consumed_seq is not None:
        await _consume(unit, row, item.consumed_seq)
    for reply in item.replies:
        await _reply(unit, row, reply)
    _keep_up(unit, item, task, progress=bool(outcomes))
    await open_all(unit, item.address, item.opens)
    submissions = [await _submit(unit, item, number) for number in range(len(item.submits))]
    dispositions = await send(unit, row, item.sent)  # also to those that have just been submitted
    if item.continue_as is not None:
        await _go_on(unit, item, task, item.continue_as)
    elif item.ending is not None:
        await end(unit, row, task, item.ending)
    return TurnCommitted(seq=task.seq, versions=versions, outgoing=dispositions, submits=tuple(submissions))


def is_plain(item: CommitTurn) -> bool:
    """It says nothing but what operations without intents came to, and that the task has ended."""
    if (
        item.intents
        or item.dispatches
        or item.invocations
        or item.outgoing
        or item.submits
        or item.opens
        or item.replies
    ):
        return False
    if item.consumed_seq is not None or item.continue_as is not None or item.waits is not None:
        return False
    if item.ending is not None and (item.ending.callbacks or item.ending.to_parent is not None):
        return False
    return all(
        entry.kind is EntryKind.OUTCOME and entry.version is None and not entry.unresolved for entry in item.rows
    )


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


def _write_entries(unit: Unit, item: CommitTurn, task: TaskRow, entries: Sequence[JournalEntry]) -> None:
    if entries:
        place, owner = (item.address, task.attempt, task.segment), (item.execution_id, item.generation)
        unit.write_later(INSERT_ENTRY, [(*place, *entry_columns(entry), *owner) for entry in entries])
        task.seq, task.last_at = entries[-1].seq, micros(entries[-1].at)


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
        entry.admitted,
        entry.basis,
        entry.digest,
        list_text(entry.marks) if entry.marks else None,
        entry.message_id,
        entry.type,
        entry.answers,
        entry.failed,
        entry.handed_over,
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


async def _reply(unit: Unit, row: AddressRow, reply: MessageReply) -> None:
    """What has become of a message that has its row; said again, it is the same. One that has none is left alone."""
    which = (reply.message_id, row.address, row.handled_seq)
    begun = unit.now if reply.accepted else None
    if reply.reply is None and reply.error is None:
        await unit.tx.change(UPDATE_TAKEN, begun, *which)
    else:
        told = (*columns_of(reply.reply), *columns_of(reply.error))
        await unit.tx.change(UPDATE_REPLIED, unit.now, begun, *told, *which)


def _keep_up(unit: Unit, item: CommitTurn, task: TaskRow, *, progress: bool) -> None:
    """Change the task's row where the turn has changed something that stands there; most turns have not."""
    before = task.values()
    task.next_due, task.phase = maybe_micros(item.next_due), item.phase
    if item.waits is not None:
        task.waits = list_text(item.waits)
    task.state_version += sum(entry.kind is EntryKind.CONTROL for entry in item.rows)
    if progress:
        task.suspicions = 0
    if task.values() != before or item.waits is not None:
        task.contact_at = unit.now


async def _submit(unit: Unit, item: CommitTurn, number: int) -> Submission:
    answer = await accept(unit, item.submits[number], limited=False)
    return Submission.CONFLICT if isinstance(answer, Refused) else answer.disposition


async def _go_on(unit: Unit, item: CommitTurn, task: TaskRow, following: ContinueAs) -> None:
    """Begin another segment."""
    await unit.tx.change(UPDATE_SEGMENT, *columns_of(following.request), following.request_type, item.address)
    task.segment += 1
    task.version = following.version or task.version
    task.segment_at = task.last_at
    task.seq = 0
    task.state_version += 1
    _write_entries(unit, item, task, following.handed_over)
