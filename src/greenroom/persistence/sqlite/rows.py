"""Rows of addresses that stay in hand from one batch to the next, while no other connection changes the database."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from greenroom.persistence.applying.rows import PLAIN, AddressRow, State

MOST: Final = 20_000
"""Rows kept in hand. When there are more, all are let go."""

# One address, to be decided about.
SELECT_ADDRESS: Final = f"SELECT {', '.join(PLAIN)} FROM addresses WHERE address = ?"


class SqliteRow(AddressRow):
    """An address's row, with what is known of its messages in hand."""

    __slots__ = ("begun",)

    def __init__(self, address: str, stored: tuple[Any, ...] | None, state: State | None = None) -> None:
        super().__init__(address, stored, state)
        self.begun: set[int] = set()
        """Places of waiting messages, no timers, whose delivery has been begun. There may be others."""


class RowsInHand:
    """The rows that one connection has in hand.

    Invariant: between batches every row in hand is as it is stored, but for its state, which is not kept. When a transaction
    is rolled back, `let_go`.
    """

    def __init__(self) -> None:
        self._rows: dict[str, SqliteRow | None] = {}
        self._version = -1

    def begin(self, cursor: sqlite3.Cursor) -> None:
        """In a transaction that has just begun: keep the rows only if no other connection has written meanwhile."""
        version = cursor.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version or len(self._rows) > MOST:
            self.let_go()
            self._version = version

    def let_go(self) -> None:
        """Forget all rows, changed or not."""
        self._rows.clear()

    def get(self, cursor: sqlite3.Cursor, address: str) -> SqliteRow | None:
        """The address's row; None when there is none."""
        try:
            return self._rows[address]
        except KeyError:
            values = cursor.execute(SELECT_ADDRESS, (address,)).fetchone()
            row = self._rows[address] = None if values is None else SqliteRow(address, values)
            return row

    def drop(self, address: str) -> None:
        """An address is there no more."""
        self._rows[address] = None

    def add(self, row: SqliteRow) -> None:
        """Take in hand what has just been made."""
        self._rows[row.address] = row
