"""The raw limits: how fast the databases take rows when nothing is asked of them but that the rows are durable.

One row a commit, and 100 rows a commit: on SQLite with a savepoint around each row, so that one bad row could be undone by itself, under
the pragmas of our stores; on PostgreSQL by one `INSERT … SELECT … FROM unnest(…)`, over one connection. Nothing is encoded, no row is
looked up, no thread is crossed.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Final

GROUP: Final = 100
"""Rows in a grouped commit."""

BODY: Final = b'{"n":123456,"text":"the words of a small message"}'


def open_sqlite(path: Path) -> sqlite3.Connection:
    """A connection whose COMMIT means fsync, as those of our stores."""
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("PRAGMA synchronous = full")
    connection.execute("PRAGMA cache_size = -16384")
    return connection


def sqlite_rows(path: Path, group: int, n: int) -> float:
    """Rows per second, so many in each commit."""
    with closing(open_sqlite(path)) as connection:
        execute = connection.execute
        execute("CREATE TABLE raw (seq INTEGER PRIMARY KEY, name TEXT NOT NULL, body BLOB NOT NULL)")
        insert = "INSERT INTO raw (name, body) VALUES (?, ?)"
        begin = perf_counter()
        for start in range(0, n, group):
            execute("BEGIN IMMEDIATE")
            for number in range(start, min(start + group, n)):
                if group > 1:
                    execute("SAVEPOINT one")
                execute(insert, (f"m{number}", BODY))
                if group > 1:
                    execute("RELEASE one")
            execute("COMMIT")
        return n / (perf_counter() - begin)


def postgres_rows(url: str, group: int, n: int) -> float:
    """The same over one connection of asyncpg."""
    return asyncio.run(_postgres_rows(url, group, n))


async def _postgres_rows(url: str, group: int, n: int) -> float:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        await connection.execute("DROP TABLE IF EXISTS raw")
        await connection.execute(
            "CREATE TABLE raw (seq bigserial PRIMARY KEY, name text NOT NULL, body bytea NOT NULL)"
        )
        single = await connection.prepare("INSERT INTO raw (name, body) VALUES ($1, $2)")
        many = await connection.prepare("INSERT INTO raw (name, body) SELECT * FROM unnest($1::text[], $2::bytea[])")
        begin = perf_counter()
        for start in range(0, n, group):
            names = [f"m{number}" for number in range(start, min(start + group, n))]
            if group > 1:
                await many.fetch(names, [BODY] * len(names))
            else:
                await single.fetch(*names, BODY)
        return n / (perf_counter() - begin)
    finally:
        await connection.close()
