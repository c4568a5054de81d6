"""What goes wrong under SQLite, and what the caller sees of it (R5, R12)."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from greenroom.errors import StoreUnavailable, TransitionFailed
from greenroom.mailbox.parking import current_loop
from greenroom.persistence.addresses import ReadAddress
from greenroom.persistence.committer import Committer
from greenroom.persistence.messages import Disposition
from greenroom.persistence.store import make_driver
from tests.persistence.sqlite.faults import Faults, disk_error
from tests.persistence.stores import SqliteDatabase, done, message, owner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
def database(tmp_path: Path) -> SqliteDatabase:
    return SqliteDatabase(tmp_path / "store.db")


@asynccontextmanager
async def faulty(database: SqliteDatabase, faults: Faults, *, bound: float = 30.0) -> AsyncIterator[Committer]:
    driver = make_driver(database.url, clock=database.time.store_clock, bound=bound, connect=faults.connect)
    store = Committer(driver, current_loop(), bound=bound)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def rows(database: SqliteDatabase) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database.path)) as connection:
        return connection.execute("SELECT message_id, seq FROM messages ORDER BY seq").fetchall()


async def test_r05_a_commit_that_failed_before_it_was_made_is_made_after_reopening(database: SqliteDatabase) -> None:
    faults = Faults()
    async with faulty(database, faults) as store:
        desk = await owner(store)
        faults.before_commit.append(disk_error())
        assert (await desk.send("m1")).disposition is Disposition.ACCEPTED
        assert faults.connections == 2
    assert rows(database) == [("m1", 1)]


async def test_r05_a_commit_that_failed_after_it_was_made_is_looked_up_and_not_made_twice(
    database: SqliteDatabase,
) -> None:
    faults = Faults()
    async with faulty(database, faults) as store:
        desk = await owner(store)
        faults.after_commit.append(disk_error())
        receipt = await desk.send("m1")
        assert (receipt.disposition, receipt.seq) == (Disposition.ACCEPTED, 1)
        assert faults.connections == 2
        record = await store.read(ReadAddress(address="desk"))
        assert record is not None
        assert record.queued == 1
    assert rows(database) == [("m1", 1)]


async def test_r05_what_an_fsync_failed_for_is_written_again_elsewhere_before_it_is_acknowledged(
    database: SqliteDatabase, tmp_path: Path
) -> None:
    """The kernel does not try again by itself, and says of the next fsync of the log that all is well."""
    faults = Faults()
    async with faulty(database, faults) as store:
        desk = await owner(store)
        with closing(
            sqlite3.connect(database.path)
        ) as other:  # or the log would be settled by closing the only connection
            other.execute("SELECT count(*) FROM messages").fetchall()
            faults.after_commit.append(disk_error())
            await desk.send("m1")
            shutil.copy(database.path, tmp_path / "without its log")
    assert rows(SqliteDatabase(tmp_path / "without its log")) == [("m1", 1)]


async def test_r05_an_unknown_commit_stays_unknown_while_its_log_cannot_be_settled(database: SqliteDatabase) -> None:
    faults = Faults()
    async with faulty(database, faults, bound=0.3) as store:
        desk = await owner(store)
        with closing(sqlite3.connect(database.path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM messages").fetchall()
            faults.after_commit.append(disk_error())
            with pytest.raises(StoreUnavailable) as caught:
                await desk.send("m1")
            assert caught.value.unknown
        assert (await desk.send("m1")).disposition is Disposition.DUPLICATE
    assert rows(database) == [("m1", 1)]


async def test_r05_while_the_file_cannot_be_opened_again_an_unknown_commit_stays_unknown(
    database: SqliteDatabase,
) -> None:
    faults = Faults()
    async with faulty(database, faults, bound=0.1) as store:
        desk = await owner(store)
        faults.after_commit.append(disk_error())
        cannot_open = disk_error(sqlite3.SQLITE_CANTOPEN, "unable to open database file")
        faults.connects.extend([cannot_open] * 1000)
        with pytest.raises(StoreUnavailable, match="COMMIT failed: disk I/O error") as caught:
            await desk.send("m1")
        assert caught.value.unknown
        faults.connects.clear()
        assert (await desk.send("m1")).disposition is Disposition.DUPLICATE
    assert rows(database) == [("m1", 1)]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (sqlite3.SQLITE_FULL, "the disk is full"),
        (sqlite3.SQLITE_IOERR_WRITE, "the disk, or the file system, gives errors"),
        (sqlite3.SQLITE_READONLY, "cannot be written to"),
    ],
)
async def test_trouble_with_the_file_is_waited_for_and_then_named(
    database: SqliteDatabase, code: int, why: str
) -> None:
    faults = Faults()
    async with faulty(database, faults, bound=0.5) as store:
        desk = await owner(store)
        faults.before_begin.extend([disk_error(code)] * 2)
        await desk.send("m1")
        faults.before_begin.extend([disk_error(code)] * 1000)
        with pytest.raises(StoreUnavailable, match=why) as caught:
            await desk.send("m2")
        assert not caught.value.unknown
        faults.before_begin.clear()
    assert rows(database) == [("m1", 1)]


async def test_a_database_that_is_no_database_any_more_ends_the_store_loudly(database: SqliteDatabase) -> None:
    faults = Faults()
    async with faulty(database, faults) as store:
        desk = await owner(store)
        faults.before_begin.append(disk_error(sqlite3.SQLITE_CORRUPT, "database disk image is malformed"))
        with pytest.raises(StoreUnavailable, match="database disk image is malformed"):
            await desk.send("m1")
        with pytest.raises(StoreUnavailable, match="has died"):
            await desk.send("m2")


async def test_r05_an_item_that_sqlite_cannot_take_spoils_no_other(database: SqliteDatabase) -> None:
    async with database.open() as store:
        desk = await owner(store)
        outcomes: dict[str, object] = {}

        async def send(message_id: str) -> None:
            try:
                outcomes[message_id] = (await desk.send(message_id)).disposition
            except TransitionFailed as error:
                outcomes[message_id] = error

        names = ("m1", "half a character \ud83d", "m2")
        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(send, name)
        assert outcomes["m1"] is outcomes["m2"] is Disposition.ACCEPTED
        failure = outcomes[names[1]]
        assert isinstance(failure, TransitionFailed)
        assert isinstance(failure.__cause__, UnicodeEncodeError)
        record = await store.read(ReadAddress(address="desk"))
        assert record is not None
        assert record.queued == 2


@pytest.mark.real_time
async def test_r12_a_process_that_holds_the_write_lock_stops_others_only_up_to_the_bound(
    database: SqliteDatabase,
) -> None:
    async with database.open(bound=0.3) as store:
        desk = await owner(store)
        with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="another process holds its write lock") as caught:
                await desk.send("m1")
            assert not caught.value.unknown
            assert await store.read(ReadAddress(address="desk")) is not None  # readers do not wait for it
            other.execute("ROLLBACK")
        assert (await desk.send("m1")).disposition is Disposition.ACCEPTED
    assert rows(database) == [("m1", 1)]


STOPPED = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.real_time
async def test_r12_a_stopped_process_inside_a_transaction_stops_others_only_up_to_the_bound(
    database: SqliteDatabase,
) -> None:
    async with database.open(bound=0.3) as store:
        desk = await owner(store)
        with subprocess.Popen([sys.executable, "-c", STOPPED, str(database.path)]) as process:
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            with pytest.raises(StoreUnavailable, match="it may have been stopped"):
                await desk.send("m1")
            process.kill()
        assert (await desk.send("m1")).disposition is Disposition.ACCEPTED


@pytest.mark.real_time
async def test_a_write_lock_that_is_let_go_in_time_is_waited_for(database: SqliteDatabase) -> None:
    async with database.open(bound=20) as store:
        desk = await owner(store)
        with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with anyio.create_task_group() as group:
                group.start_soon(done, store, message("desk", "m1"))
                await anyio.sleep(0.05)
                other.execute("ROLLBACK")
        assert await desk.waiting() == ["m1"]


async def test_the_answers_of_old_batches_are_trimmed_as_new_ones_come(database: SqliteDatabase) -> None:
    async with database.open() as store:
        desk = await owner(store, lease=1e6)
        for number in range(100):
            await desk.send(f"old{number}")
        database.time.pass_time(400)
        for number in range(160):
            await desk.send(f"new{number}")
    with closing(sqlite3.connect(database.path)) as connection:
        assert connection.execute("SELECT count(*) FROM batches").fetchone()[0] < 170
