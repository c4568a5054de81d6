"""Turns of tasks, many at once, by one call of a plpgsql function (R6)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from greenroom.persistence.applying.turns import is_plain
from greenroom.persistence.clock import maybe_micros, micros
from greenroom.persistence.content import columns_of
from greenroom.persistence.journal import CommitTurn, JournalEntry, TurnCommitted
from greenroom.persistence.lists import list_text
from greenroom.persistence.postgres.arrays import Statement
from greenroom.persistence.postgres.functions import NAMES
from greenroom.persistence.postgres.hot import LEFT, Frame, Result
from greenroom.persistence.postgres.session import Connection

_TURN: Final = Statement.calling(
    NAMES["turn"],
    "text text[] bigint text text[] bigint[] bigint[] bigint[] bigint[] bigint[] text[] "
    "text[] bytea[] bigint[] bytea[] bigint[] "
    "bigint[] text[] bigint[] bigint[] text[] text[] text[] bigint[] bytea[] bigint[] bytea[] bigint[] bigint[] bigint[] bytea[] "
    "text[]",
    "numbers, news",
)


class Turns:
    """Plain turns. Those that say more are decided one by one."""

    def fits(self, item: CommitTurn) -> bool:
        return is_plain(item) and _in_order(item.after, item.rows)

    def are_one_group(self, items: Sequence[CommitTurn]) -> bool:
        return len({item.address for item in items}) == len(items)

    async def call(self, connection: Connection, frame: Frame, items: Sequence[CommitTurn]) -> Result | None:
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
        ended = frozenset(item.address for item in mine if item.ending is not None and item.address in answers)
        return Result([answers.get(item.address, LEFT) for item in items], ended, news)


def _in_order(seq: int, rows: Sequence[JournalEntry]) -> bool:
    """Rows that go on by themselves, each for another operation."""
    if len(rows) == 1:
        return rows[0].seq == seq + 1
    numbered = all(entry.seq == number for number, entry in enumerate(rows, seq + 1))
    timed = all(one.at <= other.at for one, other in pairwise(rows))
    return numbered and timed and len({entry.call for entry in rows}) == len(rows)
