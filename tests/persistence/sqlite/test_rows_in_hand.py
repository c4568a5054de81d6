"""Rows of addresses stay in hand between batches, and are read again when somebody else has written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import anyio
import pytest

from greenroom.errors import TransitionFailed
from greenroom.persistence.addresses import ReadAddress, StateWrite
from greenroom.persistence.messages import Disposition
from tests.persistence.stores import SqliteDatabase, claiming, done, message, owner, register

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def database(tmp_path: Path) -> SqliteDatabase:
    return SqliteDatabase(tmp_path / "store.db")


async def test_two_processes_that_write_to_one_address_in_turn_see_each_other(database: SqliteDatabase) -> None:
    async with database.open() as here, database.open() as there:
        await owner(here)
        seqs = []
        for number in range(20):
            store = here if number % 3 else there
            seqs.append((await done(store, message("desk", f"m{number}"))).seq)
        assert seqs == list(range(1, 21))


async def test_an_address_that_another_process_makes_is_found(database: SqliteDatabase) -> None:
    async with database.open() as here, database.open() as there:
        assert (await done(here, message("desk", "m1"))).disposition is Disposition.UNMATCHED
        await owner(there)
        assert (await done(here, message("desk", "m1"))).disposition is Disposition.ACCEPTED


async def test_what_was_rolled_back_is_not_remembered(database: SqliteDatabase) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")

        async def bad() -> None:
            with pytest.raises(TransitionFailed):
                await desk.send("half a character \ud83d")

        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(desk.send, f"n{number}")
                group.start_soon(bad)
        record = await store.read(ReadAddress(address="desk"))
        assert record is not None
        assert (record.last_seq, record.queued, record.ready) == (6, 6, 6)
    with closing(sqlite3.connect(database.path)) as connection:
        assert connection.execute("SELECT count(*), max(seq) FROM messages").fetchone() == (6, 6)


async def test_state_may_be_written_in_the_batch_in_which_its_address_comes_into_being(
    database: SqliteDatabase,
) -> None:
    async with database.open() as store:
        await done(store, register("e1"))
        async with anyio.create_task_group() as group:  # all of it is submitted before the store thread looks again
            desk = await owner(store, "other")
            desk.address = "desk"
            for transition in (
                claiming("desk", "e1"),
                message("desk", "m1"),
                desk.begin(1),
                desk.finish(1, state=StateWrite(payload=b"first", type="S", version=1)),
                claiming("desk", "e1"),
            ):
                group.start_soon(store.commit, transition)
        record = await store.read(ReadAddress(address="desk"))
        assert record is not None
        assert record.generation == 2
