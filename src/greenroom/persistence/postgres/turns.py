"""Turns of tasks, many at once, by one call of a plpgsql function (R6)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from greenroom.persistence.applying.turns import is_plain
from greenroom.persistence.clock import maybe_micros, micros
from greenroom.persistence.content import columns_of
from greenroom.persistence.journal import CommitTurn, JournalEntry, TurnCommitted
from greenroom.persistence.lists import list_text
from greenroom.persistence.postgres.arrays import Statement
from greenroom.persistence.postgres.functions import NAMES, value_of
from greenroom.persistence.postgres.hot import LEFT, Frame, Result
from greenroom.persistence.postgres.session import Connection
from greenroom.persistence.tasks import Ending

_TURN: Final = Statement.calling(
    NAMES["turn"],
    "text text[] bigint text text[] bigint[] bigint[] bigint[] bigint[] bigint[] text[] "
    "text[] bytea[] bigint[] bytea[] bigint[] "
    "bigint[] text[] bigint[] bigint[] text[] text[] text[] bigint[] bytea[] bigint[] bytea[] bigint[] bigint[] bigint[] bytea[] "
    "text[]",
    "numbers, news",
)
_TURN_ONE: Final = value_of("turn_one", 27)
_NO_END: Final = (None,) * 5
_NO_ROW: Final = (None,) * 13


class Turns:
    """Plain turns. Those that say more are decided one by one."""

    def fits(self, item: CommitTurn) -> bool:
        return is_plain(item) and _in_order(item.after, item.rows)

    def are_one_group(self, items: Sequence[CommitTurn]) -> bool:
        return len({item.address for item in items}) == len(items)

    async def call(self, connection: Connection, frame: Frame, items: Sequence[CommitTurn]) -> Result | None:
        if len(items) == 1 and len(items[0].rows) < 2:
            return await self._one(connection, frame, items[0])
        return await self._many(connection, frame, items)

    async def _one(self, connection: Connection, frame: Frame, item: CommitTurn) -> Result | None:
        """A turn of one row at most."""
        ending = item.ending
        number = await connection.fetchval(
            _TURN_ONE,
            frame.batch_id,
            item.transition_id,
            frame.now,
            item.execution_id,
            item.address,
            item.generation,
            item.after,
            maybe_micros(item.next_due),
            item.phase,
            *(_NO_END if ending is None else _end(ending)),
            *(_row(item.rows[0]) if item.rows else _NO_ROW),
        )
        if number is None:
            return frame.left
        return Result([TurnCommitted(seq=number)], news=ending is not None)

    async def _many(self, connection: Connection, frame: Frame, items: Sequence[CommitTurn]) -> Result | None:
        execution_id = items[0].execution_id
        mine = [item for item in items if item.execution_id == execution_id]
        if frame.batch_id is not None and len(mine) < len(items):
            return None
        endings = [item.ending for item in mine]
        results = [columns_of(None if ending is None else ending.result) for ending in endings]
        errors = [columns_of(None if ending is None else ending.error) for ending in endings]
        rows = [(turn, item.address, entry) for turn, item in enumerate(mine, 1) for entry in item.rows]
        entries = [entry for _, _, entry in rows]
        params = [columns_of(entry.params) for entry in entries]
        bodies = [columns_of(entry.body) for entry in entries]
        row = await connection.fetchrow(
            *_TURN.given(
                frame.batch_id,
                [item.transition_id for item in mine],
                frame.now,
                execution_id,
                [item.address for item in mine],
                [item.generation for item in mine],
                [item.after for item in mine],
                [len(item.rows) for item in mine],
                [micros(item.rows[0].at) if item.rows else None for item in mine],
                [maybe_micros(item.next_due) for item in mine],
                [item.phase for item in mine],
                [None if ending is None else ending.outcome.value for ending in endings],
                *([column[n] for column in columns] for columns in (results, errors) for n in (0, 1)),
                [turn for turn, _, _ in rows],
                [address for _, address, _ in rows],
                [entry.seq for entry in entries],
                [micros(entry.at) for entry in entries],
                [entry.call for entry in entries],
                [entry.name for entry in entries],
                [entry.status and entry.status.value for entry in entries],
                [int(entry.effect_possible) for entry in entries],
                *([column[n] for column in columns] for columns in (params, bodies) for n in (0, 1)),
                [entry.admitted for entry in entries],
                [entry.basis for entry in entries],
                [entry.digest for entry in entries],
                [list_text(entry.marks) if entry.marks else None for entry in entries],
            )
        )
        assert row is not None  # a function with OUT arguments gives one
        numbers, news = row
        if numbers is None:
            return None
        answers = {
            item.address: TurnCommitted(seq=number)
            for item, number in zip(mine, numbers, strict=True)
            if number is not None
        }
        return Result([answers.get(item.address, LEFT) for item in items], news=news)


def _in_order(seq: int, rows: Sequence[JournalEntry]) -> bool:
    """Rows that go on by themselves, each for another operation."""
    if len(rows) == 1:
        return rows[0].seq == seq + 1
    numbered = all(entry.seq == number for number, entry in enumerate(rows, seq + 1))
    timed = all(one.at <= other.at for one, other in pairwise(rows))
    return numbered and timed and len({entry.call for entry in rows}) == len(rows)


def _end(ending: Ending) -> tuple[Any, ...]:
    """An end as the columns that `turn_one` takes."""
    return (ending.outcome.value, *columns_of(ending.result), *columns_of(ending.error))


def _row(entry: JournalEntry) -> tuple[Any, ...]:
    """A row as the columns that `turn_one` takes, from its time on."""
    return (
        micros(entry.at),
        entry.call,
        entry.name,
        entry.status and entry.status.value,
        entry.effect_possible,
        *columns_of(entry.params),
        *columns_of(entry.body),
        entry.admitted,
        entry.basis,
        entry.digest,
        list_text(entry.marks) if entry.marks else None,
    )
