"""One connection to a SQLite database: opened with what an acknowledgement promises, and checked that it is so."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from greenroom.errors import BadStoreUrl, IncompatibleStore
from greenroom.persistence.clock import StoreClock
from greenroom.persistence.driver import Durability, NotReached
from greenroom.persistence.schema.migrations import Newer, SchemaState, missing, sql_of, statements
from greenroom.persistence.urls import StoreUrl

OLDEST: Final = (3, 38, 0)
"""The first SQLite with everything that is used here."""

APPLICATION: Final = 0x67726E72
"""`PRAGMA application_id` of our databases ("grnr"): a file that is somebody else's is left alone."""

_SYNCHRONOUS: Final = {Durability.FULL: 2, Durability.REDUCED: 1, Durability.VOLATILE: 0}

Connect = Callable[..., sqlite3.Connection]


def durability_of(url: StoreUrl) -> Durability:
    """What the URL asks for.

    Raises:
        BadStoreUrl: an option that SQLite does not have.
    """
    wanted = url.options.get("durability", "full")
    if unknown := sorted(url.options.keys() - {"durability"}):
        raise BadStoreUrl(url.text, f"an sqlite store has no option {unknown[0]!r}")
    if wanted not in ("full", "reduced"):
        raise BadStoreUrl(url.text, f"durability={wanted}: choose full or reduced")
    if url.path == ":memory:":
        return Durability.VOLATILE
    return Durability.FULL if wanted == "full" else Durability.REDUCED


def code_of(error: BaseException) -> int:
    """The primary result code of SQLite's error, 0 when it has none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


_PASSING: Final = {
    sqlite3.SQLITE_BUSY: "another process holds its write lock and does not let it go (it may have been stopped)",
    sqlite3.SQLITE_LOCKED: "another process holds its write lock and does not let it go (it may have been stopped)",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk, or the file system, gives errors",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_READONLY: "the file cannot be written to",
    sqlite3.SQLITE_PROTOCOL: "other processes hold the locks that opening it needs",
    sqlite3.SQLITE_NOMEM: "there is no memory left for it",
}


def not_reached(error: sqlite3.Error) -> NotReached | None:
    """What an error says of the database as a whole; None when it is about one statement."""
    why = _PASSING.get(code_of(error))
    return None if why is None else NotReached(f"{why} ({error})")


def connect(url: StoreUrl, clock: StoreClock, *, patience: float, factory: Connect) -> sqlite3.Connection:
    """A connection of the calling thread, in autocommit mode, with its promises checked and the schema up to date.

    Args:
        patience: seconds that a statement waits for another process's lock.
    Raises:
        NotReached, IncompatibleStore.
    """
    if sqlite3.sqlite_version_info < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise IncompatibleStore(
            url.text, f"it needs SQLite {needed} or later, and this Python has {sqlite3.sqlite_version}"
        )
    try:
        connection = factory(url.path, timeout=patience, isolation_level=None, cached_statements=256)
    except sqlite3.Error as error:
        raise not_reached(error) or IncompatibleStore(url.text, str(error)) from error
    try:
        prepare(connection, url, clock, patience)
    except sqlite3.Error as error:
        connection.close()
        raise not_reached(error) or IncompatibleStore(url.text, str(error)) from error
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(connection: sqlite3.Connection, url: StoreUrl, clock: StoreClock, patience: float) -> None:
    connection.create_function("greenroom_now", 0, clock.now)
    volatile = url.path == ":memory:"
    if not volatile:
        refuse_foreign(connection, url)
        journal = become_wal(connection, patience)
        if journal != "wal":
            raise IncompatibleStore(
                url.text, f"its journal mode is {journal!r} and cannot be made 'wal' (a network file system?)"
            )
    wanted = _SYNCHRONOUS[durability_of(url)]
    connection.execute(f"PRAGMA synchronous = {wanted}")
    got = pragma(connection, "synchronous")
    if got < wanted:
        raise IncompatibleStore(
            url.text, f"it is at synchronous={got}, which does not keep what was acknowledged; asked for {wanted}"
        )
    if sys.platform == "darwin":  # fsync alone leaves the bytes in the disk's cache there
        connection.execute("PRAGMA fullfsync = 1")
        connection.execute("PRAGMA checkpoint_fullfsync = 1")
    connection.execute("PRAGMA cache_size = -16384")
    migrate(connection, url)


def pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def become_wal(connection: sqlite3.Connection, patience: float) -> str:
    """Switch to a write-ahead log. The switch itself heeds no busy timeout, so that two processes at once take turns here."""
    deadline = time.monotonic() + patience
    while True:
        try:
            mode: str = connection.execute("PRAGMA journal_mode = wal").fetchone()[0]
        except sqlite3.OperationalError as error:
            if code_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(0.005)
        else:
            return mode


def refuse_foreign(connection: sqlite3.Connection, url: StoreUrl) -> None:
    if pragma(connection, "application_id") == APPLICATION:
        return
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        raise IncompatibleStore(url.text, "the file is a database of something else: give Greenroom a file of its own")


def schema_state(connection: sqlite3.Connection) -> SchemaState:
    """What the database says of its schema."""
    if connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'meta'").fetchone()[0] == 0:
        return SchemaState(0, 0)
    return SchemaState(*connection.execute("SELECT version, oldest_code FROM meta").fetchone())


def migrate(connection: sqlite3.Connection, url: StoreUrl) -> None:
    """Bring the schema up to date, under the write lock: of two processes the second finds nothing left to do."""
    try:
        if not missing(schema_state(connection)):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            for migration in missing(schema_state(connection)):
                for statement in statements(sql_of(migration, "sqlite")):
                    connection.execute(statement)
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS meta ("
                    "one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, oldest_code INTEGER NOT NULL)"
                )
                connection.execute(
                    "INSERT OR REPLACE INTO meta (one, version, oldest_code) VALUES (1, ?, ?)",
                    (migration.number, migration.oldest_code),
                )
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    except Newer as error:
        raise IncompatibleStore(url.text, str(error)) from None


def path_of(url: StoreUrl) -> Path | None:
    """Where the database's file is; None for one in memory."""
    return None if url.path == ":memory:" else Path(url.path).absolute()
