"""Many segments read at once, each part of them by one statement (R6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from greenroom.persistence.applying.unit import Record
from greenroom.persistence.postgres.arrays import Statement
from greenroom.persistence.postgres.session import Connection
from greenroom.persistence.reading.segments import TRIES, facts_of, segment_record
from greenroom.persistence.reading.task_records import ENTRY, OPERATION
from greenroom.persistence.segments import ReadSegment, SegmentRecord

_PLACES: Final = "unnest($1, $2, $3) WITH ORDINALITY w(address, attempt, segment, n)"
_PLACE: Final = "x.address = w.address AND x.attempt = w.attempt AND x.segment = w.segment"
_TYPES: Final = "text[] bigint[] bigint[]"

# What there is of each segment.
_FACTS: Final = Statement.of(
    _TYPES, f"SELECT w.n, {facts_of('w.address', 'w.attempt', 'w.segment')} FROM {_PLACES} ORDER BY w.n"
)
# The first rows of each.
_ENTRIES: Final = Statement.of(
    f"{_TYPES} bigint[]",
    "SELECT w.n, j.* FROM unnest($1, $2, $3, $4) WITH ORDINALITY w(address, attempt, segment, most, n) CROSS JOIN LATERAL ("
    f"SELECT {ENTRY} FROM journal x WHERE {_PLACE} ORDER BY x.seq LIMIT w.most) j ORDER BY w.n, j.seq",
)
# The operations of each whose end is not known.
_UNSETTLED: Final = Statement.of(
    _TYPES,
    f"SELECT w.n, o.* FROM {_PLACES} CROSS JOIN LATERAL (SELECT {OPERATION}, intended_at FROM operations x "
    f"WHERE {_PLACE} AND x.status <> 'settled') o ORDER BY w.n, o.intended_at, o.call",
)
# How often the operations of each were tried.
_TRIES: Final = Statement.of(
    _TYPES,
    f"SELECT w.n, t.* FROM {_PLACES} CROSS JOIN LATERAL (SELECT {TRIES} FROM invocations x WHERE {_PLACE} GROUP BY call) t",
)


async def read_segments(connection: Connection, queries: Sequence[ReadSegment]) -> list[SegmentRecord]:
    """In the order of the queries."""
    places = [(query.address, query.attempt, query.segment) for query in queries]
    facts = await _by_place(connection, _FACTS, places, range(len(places)))
    entries = await _by_place(
        connection,
        _ENTRIES,
        [(*place, query.limit) for place, query in zip(places, queries, strict=True)],
        range(len(places)),
    )
    operations = await _by_place(connection, _UNSETTLED, places, [n for n, row in facts.items() if row[0][0]])
    tries = await _by_place(connection, _TRIES, places, [n for n, row in facts.items() if row[0][1]])
    return [
        segment_record(
            facts[n][0],
            entries.get(n, ()),
            [row[:-1] for row in operations.get(n, ())],  # without the moment that they are ordered by
            tries.get(n, ()),
        )
        for n in range(len(places))
    ]


async def _by_place(
    connection: Connection, statement: Statement, places: Sequence[tuple[object, ...]], of: Sequence[int]
) -> dict[int, list[Record]]:
    """The rows of a statement about some of the places, by the number of their place."""
    found: dict[int, list[Record]] = {}
    if of:
        columns = [list(column) for column in zip(*(places[n] for n in of), strict=True)]
        for number, *row in await connection.fetch(*statement.given(*columns)):
            found.setdefault(of[number - 1], []).append(row)
    return found
