"""How questions about whole segments are answered: what is asked of nearly every task first, the rest of those that have it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from greenroom.persistence.applying.unit import Record
from greenroom.persistence.clock import instant
from greenroom.persistence.reading.task_records import ENTRY, OPERATION, entry_record, operation_record
from greenroom.persistence.segments import ReadSegment, ReadSegments, SegmentRecord, Tries
from greenroom.persistence.transitions import Query

if TYPE_CHECKING:
    from greenroom.persistence.reading.queries import Reader


def facts_of(address: str, attempt: str, segment: str) -> str:
    """What there is of a segment besides its journal, as columns: by SQL expressions of its key."""
    place = f"x.address = {address} AND x.attempt = {attempt} AND x.segment = {segment}"
    return (
        f"EXISTS (SELECT 1 FROM operations x WHERE {place} AND x.status <> 'settled'), "
        f"EXISTS (SELECT 1 FROM invocations x WHERE {place}), "
        f"EXISTS (SELECT 1 FROM tasks x WHERE x.parent = {address} AND x.outcome IS NULL), "
        f"EXISTS (SELECT 1 FROM callbacks x WHERE x.address = {address} AND x.status = 'open')"
    )


TRIES: Final = "call, max(invocation), min(started_at)"

# What there is of a segment.
READ_FACTS: Final = f"SELECT {facts_of('$1', '$2', '$3')}"
# The first rows of a segment.
READ_ENTRIES: Final = (
    f"SELECT {ENTRY} FROM journal WHERE address = $1 AND attempt = $2 AND segment = $3 ORDER BY seq LIMIT $4"
)
# Its operations whose end is not known.
READ_UNSETTLED: Final = (
    f"SELECT {OPERATION} FROM operations WHERE address = $1 AND attempt = $2 AND segment = $3 AND status <> 'settled' "
    "ORDER BY intended_at, call"
)
# How often its operations were tried.
READ_TRIES: Final = (
    f"SELECT {TRIES} FROM invocations WHERE address = $1 AND attempt = $2 AND segment = $3 GROUP BY call"
)


async def read_segment(reader: Reader, query: ReadSegment) -> SegmentRecord:
    tx, place = reader.tx, (query.address, query.attempt, query.segment)
    facts = await tx.one(READ_FACTS, *place)
    assert facts is not None  # a SELECT without a table
    entries = await tx.all(READ_ENTRIES, *place, query.limit) if query.limit else ()
    operations = await tx.all(READ_UNSETTLED, *place) if facts[0] else ()
    tries = await tx.all(READ_TRIES, *place) if facts[1] else ()
    return segment_record(facts, entries, operations, tries)


async def read_segments(reader: Reader, query: ReadSegments) -> tuple[SegmentRecord, ...]:
    return tuple(await reader.segments(query.queries))


def segment_record(
    facts: Record, entries: Iterable[Record], operations: Iterable[Record], tries: Iterable[Record]
) -> SegmentRecord:
    """Args: facts: the columns of `facts_of`. entries, operations, tries: rows of `ENTRY`, `OPERATION` and `TRIES`."""
    _, _, has_children, has_open_callbacks = facts
    return SegmentRecord(
        entries=tuple(map(entry_record, entries)),
        operations=tuple(map(operation_record, operations)),
        tries={call: Tries(latest=latest, began=instant(began)) for call, latest, began in tries},
        has_children=bool(has_children),
        has_open_callbacks=bool(has_open_callbacks),
    )


READERS: Final[dict[type[Query[Any]], Callable[[Reader, Any], Awaitable[Any]]]] = {
    ReadSegment: read_segment,
    ReadSegments: read_segments,
}
