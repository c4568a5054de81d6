"""Shared SQL on PostgreSQL: one statement is one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from greenroom.persistence.applying.unit import Record
from greenroom.persistence.postgres.session import Connection


class PostgresTx:
    """Statements by one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def all(self, sql: str, *arguments: Any) -> Sequence[Record]:
        return [tuple(row) for row in await self._connection.fetch(sql, *arguments)]

    async def one(self, sql: str, *arguments: Any) -> Record | None:
        row = await self._connection.fetchrow(sql, *arguments)
        return None if row is None else tuple(row)

    async def change(self, sql: str, *arguments: Any) -> int:
        tag = await self._connection.execute(sql, *arguments)
        return int(tag.rpartition(" ")[2])

    async def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        if len(rows) == 1:
            await self._connection.execute(sql, *rows[0])
        else:
            await self._connection.executemany(sql, rows)
