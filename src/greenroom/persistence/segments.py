"""What an activation begins with: all that the store has of a task's current segment, in one question.

Whoever takes over from a lost worker asks this of hundreds of tasks at once, so that questions which wait together become one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from attrs import field, frozen, validators

from greenroom.persistence.journal import JournalEntry
from greenroom.persistence.operations import OperationRecord
from greenroom.persistence.transitions import Query

MOST_ROWS: Final = 2000
"""Rows of journals that are asked for by questions which become one, so that none waits for much more than its own."""


@frozen(kw_only=True)
class Tries:
    """How far the invocations of one operation are."""

    latest: int
    """The number of the last one."""
    began: datetime
    """When the first one was made."""


@frozen(kw_only=True)
class SegmentRecord:
    """One segment of an attempt, as it was when it was read."""

    entries: tuple[JournalEntry, ...]
    """The first rows of its journal."""
    operations: tuple[OperationRecord, ...]
    """Those with an intent whose end is not known, oldest first, those of one turn by call."""
    tries: dict[str, Tries]
    """By call."""
    has_children: bool
    """There are tasks that this one has submitted, in whichever segment, and that have not ended."""
    has_open_callbacks: bool
    """There are open ones, of whichever segment."""


@frozen(kw_only=True)
class ReadSegment(Query[SegmentRecord]):
    """One segment of an attempt. Of its journal at most `limit` rows, from the first on: `ReadJournal` has the others."""

    address: str
    attempt: int
    segment: int
    limit: int = field(default=1000, validator=validators.ge(0))


@frozen(kw_only=True)
class ReadSegments(Query[tuple[SegmentRecord, ...]]):
    """Several segments, in this order. The store thread makes it of questions that wait together."""

    queries: tuple[ReadSegment, ...] = ()


def together(queries: Sequence[Query[object]]) -> Iterator[tuple[list[int], Query[object]]]:
    """What to ask the database for these: each question, with the places of those which it answers.

    Of several places, the answer has one for each.
    """
    places: list[int] = []
    asked: list[ReadSegment] = []
    rows = 0
    for place, query in enumerate(queries):
        if not isinstance(query, ReadSegment):
            yield [place], query
            continue
        if asked and rows + query.limit > MOST_ROWS:
            yield places, _one(asked)
            places, asked, rows = [], [], 0
        places.append(place)
        asked.append(query)
        rows += query.limit
    if asked:
        yield places, _one(asked)


def _one(queries: Sequence[ReadSegment]) -> ReadSegment | ReadSegments:
    return queries[0] if len(queries) == 1 else ReadSegments(queries=tuple(queries))
