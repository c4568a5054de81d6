"""Looking at a store's schema from outside, and bringing it up to date in the open (R33)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from greenroom.errors import BadStoreUrl, IncompatibleStore, StoreUnavailable
from greenroom.persistence.inspection import check_store, migrate_store
from greenroom.persistence.schema.migrations import CODE, MIGRATIONS, SchemaState

if TYPE_CHECKING:
    from pathlib import Path


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


async def test_a_store_that_was_brought_up_to_date_is_good(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a store #1.db".replace(" ", "%20").replace("#", "%23")
    made = await migrate_store(url)
    assert made.is_good
    assert made.state == SchemaState(CODE, MIGRATIONS[-1].oldest_code)
    assert await check_store(url) == made
    assert (tmp_path / "a store #1.db").exists()


async def test_looking_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch()
    report = await check_store(f"sqlite:///{path}")
    assert not report.is_good
    assert (report.state, report.missing) == (SchemaState(0, 0), tuple(migration.number for migration in MIGRATIONS))
    assert path.stat().st_size == 0


async def test_what_was_changed_by_hand_is_named(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await migrate_store(f"sqlite:///{path}")
    change(
        path,
        "DROP TRIGGER messages_moves",
        "DROP INDEX addresses_due",
        "CREATE INDEX addresses_due ON addresses (due_at)",
        "CREATE INDEX of_our_own ON messages (type)",
    )
    report = await check_store(f"sqlite:///{path}")
    assert not report.is_good
    assert report.differences == (
        "the index addresses_due is another than it should be",
        "the trigger messages_moves is missing",
    )


async def test_a_schema_for_newer_code_only_is_not_good_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    url = f"sqlite:///{path}"
    await migrate_store(url)
    change(path, "UPDATE meta SET version = 9, oldest_code = 9")
    report = await check_store(url)
    assert not report.is_good
    assert report.state == SchemaState(9, 9)
    with pytest.raises(IncompatibleStore, match="needs code 9"):
        await migrate_store(url)


async def test_a_file_that_is_not_there_is_unavailable_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await check_store(f"sqlite:///{tmp_path}/nothing.db")
    assert list(tmp_path.iterdir()) == []


async def test_a_database_of_something_else_is_not_looked_into(tmp_path: Path) -> None:
    path = tmp_path / "contacts.db"
    change(path, "CREATE TABLE contacts (name TEXT)")
    for look in (check_store, migrate_store):
        with pytest.raises(IncompatibleStore, match="something else"):
            await look(f"sqlite:///{path}")


async def test_a_database_in_memory_cannot_be_looked_at_from_outside() -> None:
    with pytest.raises(BadStoreUrl, match="only inside its own store"):
        await check_store("sqlite://:memory:")
