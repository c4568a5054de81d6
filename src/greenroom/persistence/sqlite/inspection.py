"""Looking at a SQLite database's schema from outside."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from greenroom.errors import IncompatibleStore, NoSuchStore, StoreUnavailable
from greenroom.persistence.clock import system_clock
from greenroom.persistence.driver import NotReached
from greenroom.persistence.inspection import SchemaReport
from greenroom.persistence.schema.migrations import CODE, MIGRATIONS
from greenroom.persistence.sqlite.connection import connect, migrate, not_reached, refuse_foreign, schema_state
from greenroom.persistence.urls import StoreUrl

PATIENCE = 5.0
"""Seconds that looking, or bringing up to date, waits for another process's lock."""

# Every table, index and trigger with the text that made it.
SELECT_SCHEMA = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL"


def find(url: StoreUrl) -> None:
    """Raises: NoSuchStore, StoreUnavailable, IncompatibleStore."""
    with suppress(PermissionError):  # SQLite will say the same
        if not Path(url.path).exists():
            raise NoSuchStore(url.text)
    if inspect(url).state.version == 0:
        raise NoSuchStore(url.text)


def inspect(url: StoreUrl) -> SchemaReport:
    """Raises: StoreUnavailable, IncompatibleStore."""
    try:
        with closing(sqlite3.connect(f"file:{quote(url.path)}?mode=ro", uri=True, timeout=PATIENCE)) as connection:
            refuse_foreign(connection, url)
            state = schema_state(connection)
            found = schema_of(connection)
    except sqlite3.Error as error:
        passing = not_reached(error)
        if passing is None:
            raise IncompatibleStore(url.text, str(error)) from error
        raise StoreUnavailable(url.text, str(passing)) from error
    missing = tuple(migration.number for migration in MIGRATIONS if migration.number > state.version)
    differences = differences_of(found, url) if state.version == CODE else ()
    return SchemaReport(state=state, code=CODE, missing=missing, differences=differences)


def bring_up_to_date(url: StoreUrl) -> None:
    """Raises: StoreUnavailable, IncompatibleStore."""
    try:
        connect(url, system_clock(), patience=PATIENCE, factory=sqlite3.connect).close()
    except NotReached as error:
        raise StoreUnavailable(url.text, str(error)) from error


def schema_of(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """What there is, by kind and name."""
    return {(kind, name): re.sub(r"\s+", " ", sql) for kind, name, sql in connection.execute(SELECT_SCHEMA)}


def differences_of(found: dict[tuple[str, str], str], url: StoreUrl) -> tuple[str, ...]:
    """What a database lacks, or has otherwise, of what the migrations make of an empty one."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, url)
        wanted = schema_of(connection)
    lines = []
    for (kind, name), sql in sorted(wanted.items()):
        if (kind, name) not in found:
            lines.append(f"the {kind} {name} is missing")
        elif found[kind, name] != sql:
            lines.append(f"the {kind} {name} is another than it should be")
    return tuple(lines)
