"""Connections to SQLite that fail where a test wants it."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from typing import Any

from attrs import define, field


def disk_error(code: int = sqlite3.SQLITE_IOERR_FSYNC, text: str = "disk I/O error") -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


@define
class Faults:
    """Scripts for connections. Each step is used once: the exception to raise, or None to let one pass."""

    before_begin: deque[Exception | None] = field(factory=deque)
    before_commit: deque[Exception | None] = field(factory=deque)
    after_commit: deque[Exception | None] = field(factory=deque)
    connects: deque[Exception | None] = field(factory=deque)
    connections: int = 0

    @property
    def connect(self) -> Callable[..., sqlite3.Connection]:
        """For the driver, in place of `sqlite3.connect`."""
        faults = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
                if sql == "BEGIN IMMEDIATE":
                    raise_next(faults.before_begin)
                if sql == "COMMIT":
                    raise_next(faults.before_commit)
                cursor = super().execute(sql, parameters)
                if sql == "COMMIT":
                    raise_next(faults.after_commit)
                return cursor

        def connect(path: str, **options: Any) -> sqlite3.Connection:
            raise_next(faults.connects)
            faults.connections += 1
            return sqlite3.connect(path, factory=Connection, **options)

        return connect


def raise_next(steps: deque[Exception | None]) -> None:
    error = steps.popleft() if steps else None
    if error is not None:
        raise error
