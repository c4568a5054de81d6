"""What an activation begins with: a segment's request and rows, and what is known of operations that were sent before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from greenroom.persistence.journal import JournalEntry, ReadJournal
from greenroom.persistence.operations import OperationRecord
from greenroom.persistence.segments import ReadSegment, SegmentRecord, Tries
from greenroom.persistence.tasks import TaskRecord
from greenroom.runtime.replay import CallId, Intent, JournalRow, OutcomeRow
from greenroom.runtime.tasks.journal import rows_of_entries

if TYPE_CHECKING:
    from greenroom.runtime.durable.storage import Storage
    from greenroom.runtime.tasks.codec import TaskCodec

PAGE = 1000

NONE: Final[Mapping[Any, Any]] = MappingProxyType({})
"""Of nothing, as most tasks have it: one for all of them."""

_NOTHING: Final = SegmentRecord(entries=(), operations=(), tries={}, has_children=False, has_open_callbacks=False)


@frozen(kw_only=True)
class Segment:
    """See the module."""

    task: TaskRecord
    request: Any
    rows: tuple[JournalRow, ...]
    operations: Mapping[CallId, OperationRecord]
    """Those with an intent and without an outcome."""
    intents: tuple[Intent, ...]
    """Of those, the ones that today's code must have open when it has come to the end of the journal."""
    tries: Mapping[CallId, Tries]
    has_children: bool
    """Tasks that it has submitted have not ended."""
    has_open_callbacks: bool


async def load(storage: Storage, codec: TaskCodec, task: TaskRecord) -> Segment:
    """Read what the store has of a task's current segment.

    Raises:
        Undecodable: the request is of no known class, or something that belongs to the task is gone.
    """
    request = codec.decode(await storage.fetch(task.request), source=f"the request of task {task.task_id!r}")
    record = await _record(storage, task)
    rows = await rows_of_entries(await _entries(storage, task, record), storage.fetch)
    # One that was cancelled may have its outcome and be unresolved all the same (T13).
    ended = {row.call for row in rows if isinstance(row, OutcomeRow)} if record.operations else ()
    sent = {CallId.read(operation.call): operation for operation in record.operations}
    operations = {call: operation for call, operation in sent.items() if call not in ended}
    # What an operator has decided about may be of an attempt before, and today's not have come to it yet: that is compared then.
    intents = [await intent_of(storage, call, each) for call, each in operations.items() if each.decision is None]
    return Segment(
        task=task,
        request=request,
        rows=rows,
        operations=operations or NONE,
        intents=tuple(intents),
        tries={CallId.read(call): tries for call, tries in record.tries.items()} or NONE,
        has_children=record.has_children,
        has_open_callbacks=record.has_open_callbacks,
    )


async def intent_of(storage: Storage, call: CallId, record: OperationRecord) -> Intent:
    """An operation that was sent before, to be compared with what today's code calls there."""
    return Intent(call=call, name=record.name, params=await storage.fetch(record.params))


async def _record(storage: Storage, task: TaskRecord) -> SegmentRecord:
    if task.attempt == task.segment == task.generation == 1:  # nobody can have written anything yet
        return _NOTHING
    query = ReadSegment(
        address=task.address, attempt=task.attempt, segment=task.segment, limit=min(PAGE, task.journal_seq)
    )
    return await storage.surely(storage.store.read, query)


async def _entries(storage: Storage, task: TaskRecord, record: SegmentRecord) -> Sequence[JournalEntry]:
    """All rows of the journal; the first of them have been read."""
    page: Sequence[JournalEntry] = record.entries
    entries = list(page)
    while page and len(entries) < task.journal_seq:
        query = ReadJournal(
            address=task.address, attempt=task.attempt, segment=task.segment, after=len(entries), limit=PAGE
        )
        page = await storage.surely(storage.store.read, query)
        entries += page
    return entries
