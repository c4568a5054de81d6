"""Rows of addresses in hand: read once, decided about in Python, written back once a batch.

Rows stay in hand from one batch to the next for as long as no other connection changes the database, which SQLite tells. The
state of a durable actor is not among their columns: it may be large, and is needed at a claim only.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from greenroom.persistence.content import Content, Payload

COUNTERS: Final = (
    "last_seq",
    "handled_seq",
    "settled_ahead",
    "queued",
    "ready",
    "delayed",
    "last_delayed",
    "held",
    "last_ordinal",
)
OWNERSHIP: Final = ("kind", "generation", "owner", "capacity", "parked", "parked_detail", "closed_at", "due_at")
COLUMNS: Final = (*COUNTERS, *OWNERSHIP)

MOST: Final = 20_000
"""Rows kept in hand. When there are more, all are let go."""

# One address, to be decided about.
SELECT_ADDRESS = f"SELECT {', '.join(COLUMNS)} FROM addresses WHERE address = ?"
# A new address.
INSERT_ADDRESS = f"INSERT INTO addresses ({', '.join(COLUMNS)}, address) VALUES (?{', ?' * len(COLUMNS)})"
# What every message changes.
UPDATE_COUNTERS = f"UPDATE addresses SET {', '.join(f'{name} = ?' for name in COUNTERS)} WHERE address = ?"
# What a claim changes, and what is indexed.
UPDATE_OWNERSHIP = f"UPDATE addresses SET {', '.join(f'{name} = ?' for name in OWNERSHIP)} WHERE address = ?"
# A durable actor's state.
SELECT_STATE = "SELECT state, state_content, state_size, state_type, state_version FROM addresses WHERE address = ?"
# The state that a handled message left behind.
UPDATE_STATE = "UPDATE addresses SET state = ?, state_content = ?, state_size = ?, state_type = ?, state_version = ? WHERE address = ?"


class AddressRow:
    """An address's row in hand. Its attributes are the columns."""

    __slots__ = ("address", "new", "stored", *COLUMNS)

    last_seq: int
    handled_seq: int
    settled_ahead: int
    queued: int
    ready: int
    delayed: int
    last_delayed: int
    held: int
    last_ordinal: int
    kind: str
    generation: int
    owner: str | None
    capacity: int | None
    parked: str | None
    parked_detail: str | None
    closed_at: int | None
    due_at: int | None

    def __init__(self, address: str, values: tuple[Any, ...], *, new: bool) -> None:
        self.address, self.new, self.stored = address, new, values
        (
            self.last_seq,
            self.handled_seq,
            self.settled_ahead,
            self.queued,
            self.ready,
            self.delayed,
            self.last_delayed,
            self.held,
            self.last_ordinal,
            self.kind,
            self.generation,
            self.owner,
            self.capacity,
            self.parked,
            self.parked_detail,
            self.closed_at,
            self.due_at,
        ) = values

    def values(self) -> tuple[Any, ...]:
        return (
            self.last_seq,
            self.handled_seq,
            self.settled_ahead,
            self.queued,
            self.ready,
            self.delayed,
            self.last_delayed,
            self.held,
            self.last_ordinal,
            self.kind,
            self.generation,
            self.owner,
            self.capacity,
            self.parked,
            self.parked_detail,
            self.closed_at,
            self.due_at,
        )


NEW_ADDRESS: Final = (0,) * len(COUNTERS) + ("mailbox", 0) + (None,) * (len(OWNERSHIP) - 2)


class AddressRows:
    """The rows that one connection has in hand.

    Invariant: between batches every row in hand is as it is stored. Whatever reads or writes rows past this must `flush`
    first; when a transaction is rolled back, `let_go`.
    """

    def __init__(self) -> None:
        self._in_hand: dict[str, AddressRow | None] = {}
        self._touched: dict[str, AddressRow | None] = {}
        self._version = -1

    def begin(self, cursor: sqlite3.Cursor) -> None:
        """In a transaction that has just begun: keep the rows only if no other connection has written meanwhile."""
        version = cursor.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version or len(self._in_hand) > MOST:
            self.let_go()
            self._version = version
        self._touched.clear()

    def let_go(self) -> None:
        """Forget all rows, changed or not."""
        self._in_hand.clear()
        self._touched.clear()

    def get(self, cursor: sqlite3.Cursor, address: str) -> AddressRow | None:
        """The address's row; None when there is none."""
        try:
            return self._touched[address]
        except KeyError:
            pass
        try:
            row = self._in_hand[address]
        except KeyError:
            values = cursor.execute(SELECT_ADDRESS, (address,)).fetchone()
            row = self._in_hand[address] = None if values is None else AddressRow(address, values, new=False)
        self._touched[address] = row
        return row

    def add(self, address: str) -> AddressRow:
        """A row for an address that has none."""
        row = AddressRow(address, NEW_ADDRESS, new=True)
        self._in_hand[address] = self._touched[address] = row
        return row

    def flush(self, cursor: sqlite3.Cursor) -> None:
        """Write back what has changed. Rows stay touched: whoever has one in hand may go on changing it."""
        counted: list[tuple[Any, ...]] = []
        for address, row in self._touched.items():
            if row is None:
                continue
            values, stored = row.values(), row.stored
            if row.new:
                cursor.execute(INSERT_ADDRESS, (*values, address))
            elif values != stored:
                counters, ownership = values[: len(COUNTERS)], values[len(COUNTERS) :]
                if counters != stored[: len(COUNTERS)]:
                    counted.append((*counters, address))
                if ownership != stored[len(COUNTERS) :]:
                    cursor.execute(UPDATE_OWNERSHIP, (*ownership, address))
            row.new, row.stored = False, values
        if counted:
            cursor.executemany(UPDATE_COUNTERS, counted)


def columns_of(payload: Payload | None) -> tuple[bytes | None, str | None, int | None]:
    """A payload as its three columns."""
    if isinstance(payload, Content):
        return None, payload.digest, payload.size
    return payload, None, None


def payload_of(data: bytes | None, digest: str | None, size: int | None) -> Payload | None:
    """A payload from its three columns."""
    return data if digest is None or size is None else Content(digest, size)
