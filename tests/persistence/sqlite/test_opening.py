"""Opening a SQLite store: what it promises, what it refuses, and bringing the schema up to date (C18, K18, R33)."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from greenroom.errors import BadStoreUrl, IncompatibleStore, StoreUnavailable
from greenroom.persistence.clock import system_clock
from greenroom.persistence.driver import Durability
from greenroom.persistence.schema import migrations
from greenroom.persistence.schema.migrations import CODE, MIGRATIONS, Migration, sql_of, statements
from greenroom.persistence.sqlite import connection as connecting
from greenroom.persistence.sqlite.connection import connect
from greenroom.persistence.store import open_store
from greenroom.persistence.transitions import RefusalReason
from greenroom.persistence.urls import parse_url
from tests.persistence.stores import SteeredClock, owner, refused

if TYPE_CHECKING:
    from pathlib import Path


def pragmas(url: str) -> tuple[str, int]:
    """The journal mode and the synchronous level of a connection as the store opens it."""
    with closing(connect(parse_url(url), system_clock(), patience=1.0, factory=sqlite3.connect)) as connection:
        journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
        return journal, connection.execute("PRAGMA synchronous").fetchone()[0]


async def test_c18_by_default_an_acknowledgement_means_fsync(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with open_store(url) as store:
        assert store.durability is Durability.FULL
    assert pragmas(url) == ("wal", 2)


async def test_c18_less_must_be_asked_for_and_is_shown(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db?durability=reduced"
    async with open_store(url) as store:
        assert store.durability is Durability.REDUCED
    assert pragmas(url) == ("wal", 1)


async def test_c24_a_store_in_memory_is_volatile_and_works_like_any_other() -> None:
    async with open_store("sqlite://:memory:", clock=SteeredClock().store_clock) as store:
        assert store.durability is Durability.VOLATILE
        desk = await owner(store, execution_id="e1")
        await desk.send("m1")
        assert await desk.waiting() == ["m1"]


async def test_a_lease_in_memory_is_renewed_too() -> None:
    time = SteeredClock()
    async with open_store("sqlite://:memory:", clock=time.store_clock) as store:
        desk = await owner(store, lease=30.0)
        renewer = store.renewer()
        time.pass_time(20)
        assert renewer.renew("e1", 30.0)
        time.pass_time(20)
        await desk.send("m1")
        await desk.handle(1)
        time.pass_time(20)
        renewer.renew("e1", 30.0)  # too late: what has lapsed stays so
        await desk.send("m2")
        assert await refused(store, desk.begin(2)) is RefusalReason.LEASE_EXPIRED
        renewer.close()


def test_r13_sql_reads_the_stores_time_by_one_function(tmp_path: Path) -> None:
    time = SteeredClock()
    url = parse_url(f"sqlite:///{tmp_path}/store.db")
    with closing(connect(url, time.store_clock, patience=1.0, factory=sqlite3.connect)) as connection:
        time.pass_time(7)
        now = connection.execute("SELECT greenroom_now()").fetchone()[0]
    assert now == round((time.start.timestamp() + 7) * 1e6)


async def test_two_stores_in_memory_share_nothing() -> None:
    clock = SteeredClock().store_clock
    async with (
        open_store("sqlite://:memory:", clock=clock) as one,
        open_store("sqlite://:memory:", clock=clock) as other,
    ):
        assert (await owner(one)).generation == (await owner(other)).generation == 1


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("store.db", "no store of the kind ''"),
        ("mysql://localhost/x", "no store of the kind 'mysql'"),
        ("sqlite://store.db", "three slashes"),
        ("sqlite:///", "three slashes"),
        ("sqlite:///a.db?synchronous=off", "no option 'synchronous'"),
        ("sqlite:///a.db?durability=none", "choose full or reduced"),
        ("sqlite:///a.db?durability=full&durability=reduced", "twice"),
        ("sqlite:///a#b.db", "fragment"),
    ],
)
async def test_a_url_that_will_not_do_is_refused_with_what_would(url: str, problem: str) -> None:
    with pytest.raises(BadStoreUrl, match=problem) as caught:
        async with open_store(url):
            raise AssertionError("not reached")
    assert "sqlite:///service.db" in str(caught.value)


def test_paths_in_urls_are_relative_absolute_and_may_be_quoted() -> None:
    assert parse_url("sqlite:///a/b.db").path == "a/b.db"
    assert parse_url("sqlite:////a/b.db").path == "/a/b.db"
    assert parse_url("sqlite:///a%23b%20c.db").path == "a#b c.db"


async def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "contacts.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE contacts (name TEXT)")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(IncompatibleStore, match="a database of something else"):
        async with open_store(f"sqlite:///{path}"):
            raise AssertionError("not reached")
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear reader, " * 100)
    with pytest.raises(IncompatibleStore, match="not a database"):
        async with open_store(f"sqlite:///{path}"):
            raise AssertionError("not reached")


async def test_a_file_in_a_folder_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        async with open_store(f"sqlite:///{tmp_path}/nowhere/store.db", bound=0.05):
            raise AssertionError("not reached")


async def test_an_older_sqlite_than_is_needed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "OLDEST", (99, 0, 0))
    with pytest.raises(IncompatibleStore, match=r"needs SQLite 99\.0\.0 or later"):
        async with open_store(f"sqlite:///{tmp_path}/store.db"):
            raise AssertionError("not reached")


# ------------------------------------------------------------------------------------------------------------ schema


def schema_of(path: Path) -> set[tuple[str, str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return set(connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))


async def test_r33_an_empty_database_is_brought_to_the_newest_schema(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/store.db"):
        pass
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("SELECT version, oldest_code FROM meta").fetchall() == [
            (CODE, MIGRATIONS[-1].oldest_code)
        ]


async def test_r33_code_refuses_a_schema_that_is_only_for_newer_code(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with open_store(url):
        pass
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        connection.execute("UPDATE meta SET version = 9, oldest_code = 9")
        connection.commit()
    with pytest.raises(
        IncompatibleStore, match=f"needs code 9 or later, and this is code {CODE}: install a newer greenroom"
    ):
        async with open_store(url):
            raise AssertionError("not reached")


async def test_k18_old_code_keeps_working_on_a_newer_schema_that_only_expands(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with open_store(url):
        pass
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        connection.execute("ALTER TABLE messages ADD COLUMN priority INTEGER NOT NULL DEFAULT 0")
        connection.execute("ALTER TABLE addresses ADD COLUMN colour TEXT")
        connection.execute("UPDATE meta SET version = version + 1")
        connection.commit()
    async with open_store(url, clock=SteeredClock().store_clock) as store:
        desk = await owner(store)
        await desk.send("m1")
        await desk.handle(1)


async def test_a_step_is_taken_only_once_and_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with open_store(url):
        pass
    texts = {
        **{migration.number: sql_of(migration, "sqlite") for migration in MIGRATIONS},
        CODE + 1: "CREATE TABLE next_step (x); CREATE INDEX next_index ON next_step (x)",
    }
    monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, Migration(CODE + 1, oldest_code=1)))
    monkeypatch.setattr(connecting, "sql_of", lambda migration, dialect: texts[migration.number])
    for _ in range(2):
        async with open_store(url):
            pass
    assert {name for _, name, _ in schema_of(tmp_path / "store.db")} >= {"next_step", "next_index", "messages"}
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("SELECT version FROM meta").fetchall() == [(CODE + 1,)]


async def test_a_step_that_fails_leaves_the_schema_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with open_store(url):
        pass
    before = schema_of(tmp_path / "store.db")
    monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, Migration(CODE + 1, oldest_code=1)))
    monkeypatch.setattr(connecting, "sql_of", lambda migration, dialect: "CREATE TABLE half (x); CREATE TABLE half (x)")
    with pytest.raises(IncompatibleStore, match="half"):
        async with open_store(url):
            raise AssertionError("not reached")
    assert schema_of(tmp_path / "store.db") == before


OPENER = """
import sys
import anyio
from greenroom.persistence.store import open_store

async def main():
    sys.stdin.readline()
    async with open_store(sys.argv[1]) as store:
        print(store.durability.value)

anyio.run(main)
"""


@pytest.mark.real_time
def test_k18_processes_that_open_an_empty_database_at_once_all_find_it_ready(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:  # each waits for its line, so that all begin together
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        out, err = process.communicate(timeout=50)
        assert (process.returncode, out.strip()) == (0, "full"), err


def test_statements_are_cut_at_semicolons_outside_of_triggers() -> None:
    text = """
    -- a comment; with a semicolon
    CREATE TABLE a (x); CREATE TRIGGER t BEFORE UPDATE ON a
    BEGIN
        SELECT 1;
        SELECT 2;
    END;
    CREATE TABLE b (x)
    """
    cut = list(statements(text))
    assert [statement.split()[1] for statement in cut] == ["TABLE", "TRIGGER", "TABLE"]
    assert "SELECT 2" in cut[1]
