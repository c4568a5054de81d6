"""Shared SQL on SQLite, which never suspends: each statement is done when it is awaited."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any

from greenroom.persistence.applying.unit import Record


@cache
def rewritten(sql: str) -> str:
    """SQL with `$n` and a clause that locks rows, as SQLite takes it: `?n`, and nothing is locked but the database (R33)."""
    return re.sub(r"\$(\d+)", r"?\1", re.sub(r" FOR (NO KEY )?UPDATE( SKIP LOCKED)?$", "", sql))


class SqliteTx:
    """Statements by one cursor."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._execute, self._executemany = cursor.execute, cursor.executemany

    async def all(self, sql: str, *arguments: Any) -> Sequence[Record]:
        return self._execute(rewritten(sql), arguments).fetchall()

    async def one(self, sql: str, *arguments: Any) -> Record | None:
        record: Record | None = self._execute(rewritten(sql), arguments).fetchone()
        return record

    async def change(self, sql: str, *arguments: Any) -> int:
        return self._execute(rewritten(sql), arguments).rowcount

    async def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self._executemany(rewritten(sql), rows)
