"""What an activation begins with: a segment's request and rows, and what is known of operations that were sent before."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from attrs import frozen

from greenroom.persistence.journal import JournalEntry, ReadJournal
from greenroom.persistence.operations import OperationRecord, ReadInvocations, ReadOperations
from greenroom.persistence.tasks import TaskRecord
from greenroom.runtime.replay import CallId, Intent, JournalRow, OutcomeRow
from greenroom.runtime.tasks.journal import row_of

if TYPE_CHECKING:
    from greenroom.runtime.durable.storage import Storage
    from greenroom.runtime.tasks.codec import TaskCodec

PAGE = 1000


@frozen(kw_only=True)
class Tries:
    """How far the invocations of one operation are that has no outcome."""

    latest: int
    began: datetime


@frozen(kw_only=True)
class Segment:
    """See the module."""

    task: TaskRecord
    request: Any
    rows: tuple[JournalRow, ...]
    operations: dict[CallId, OperationRecord]
    """Those with an intent and without an outcome."""
    intents: tuple[Intent, ...]
    tries: dict[CallId, Tries]


async def load(storage: Storage, codec: TaskCodec, task: TaskRecord) -> Segment:
    """Read what the store has of a task's current segment.

    Raises:
        Undecodable: the request is of no known class, or something that belongs to the task is gone.
    """
    request = codec.decode(await storage.fetch(task.request), source=f"the request of task {task.task_id!r}")
    rows = tuple([await row_of(entry, storage.fetch) for entry in await _entries(storage, task)])
    fresh = task.attempt == task.segment == task.generation == 1
    # One that was cancelled may have its outcome and be unresolved all the same (T13).
    ended = {row.call for row in rows if isinstance(row, OutcomeRow)}
    sent = {} if fresh else await _operations(storage, task)
    operations = {call: record for call, record in sent.items() if call not in ended}
    intents = [
        Intent(call=call, name=record.name, params=await storage.fetch(record.params))
        for call, record in operations.items()
    ]
    return Segment(
        task=task,
        request=request,
        rows=rows,
        operations=operations,
        intents=tuple(intents),
        tries={} if fresh else await _tries(storage, task),
    )


async def _entries(storage: Storage, task: TaskRecord) -> list[JournalEntry]:
    entries: list[JournalEntry] = []
    while len(entries) < task.journal_seq:
        query = ReadJournal(
            address=task.address, attempt=task.attempt, segment=task.segment, after=len(entries), limit=PAGE
        )
        page = await storage.surely(storage.store.read, query)
        if not page:
            break
        entries.extend(page)
    return entries


async def _operations(storage: Storage, task: TaskRecord) -> dict[CallId, OperationRecord]:
    query = ReadOperations(address=task.address, attempt=task.attempt, unsettled=True)
    records = await storage.surely(storage.store.read, query)
    return {CallId.read(record.call): record for record in records if record.segment == task.segment}


async def _tries(storage: Storage, task: TaskRecord) -> dict[CallId, Tries]:
    query = ReadInvocations(address=task.address, attempt=task.attempt)
    tries: dict[CallId, Tries] = {}
    for record in await storage.surely(storage.store.read, query):
        if record.segment == task.segment:
            call = CallId.read(record.call)
            known = tries.get(call)
            tries[call] = Tries(
                latest=max(record.invocation, 0 if known is None else known.latest),
                began=record.started_at if known is None else min(record.started_at, known.began),
            )
    return tries
