"""Rows of addresses stay in hand between batches, and are read again when somebody else has written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from greenroom.errors import TransitionFailed
from greenroom.persistence.addresses import ReadAddress, StateWrite
from greenroom.persistence.deliveries import BeginDelivery, FinishDelivery, ToOutside
from greenroom.persistence.messages import Disposition
from greenroom.persistence.outbox import ReadOutbox
from tests.persistence.stores import SqliteDatabase, claiming, done, drive, message, owner, register

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


def test_state_may_be_written_in_the_batch_in_which_its_address_comes_into_being(database: SqliteDatabase) -> None:
    driver = database.driver()
    fence: dict[str, Any] = {"address": "desk", "execution_id": "e1", "generation": 1}
    state = StateWrite(payload=b"first", type="S", version=1)

    async def work() -> list[Any]:
        await driver.open()
        await driver.apply("batch-1", [register("e1")])
        items = [
            claiming("desk", "e1"),
            message("desk", "m1"),
            BeginDelivery(**fence, seq=1),
            FinishDelivery(**fence, seq=1, state=state),
            claiming("desk", "e1"),
        ]
        applied = await driver.apply("batch-2", items)
        await driver.close()
        return list(applied.answers)

    first, _, _, _, last = drive(driver, work)
    assert (first.generation, first.state) == (1, None)
    assert (last.generation, last.state, last.state_type) == (2, b"first", "S")


def test_what_follows_a_state_in_the_batch_in_which_its_address_comes_into_being_is_kept(
    database: SqliteDatabase,
) -> None:
    driver = database.driver()
    fence: dict[str, Any] = {"address": "desk", "execution_id": "e1", "generation": 1}
    outside = (ToOutside(destination="mail", message_id="o", type="Mail", body=b"hello"),)

    async def work() -> list[Any]:
        await driver.open()
        await driver.apply("batch-1", [register("e1")])
        items = [
            claiming("desk", "e1"),
            message("desk", "m1"),
            BeginDelivery(**fence, seq=1),
            FinishDelivery(**fence, seq=1, state=StateWrite(payload=b"", type="S", version=1), outside=outside),
        ]
        await driver.apply("batch-2", items)
        await driver.apply("batch-3", [message("desk", "m2"), BeginDelivery(**fence, seq=2)])
        await driver.apply("batch-4", [FinishDelivery(**fence, seq=2, outside=outside)])
        rows = await driver.read(ReadOutbox(address="desk"))
        await driver.close()
        return [row.ordinal for row in rows]

    assert drive(driver, work) == [1, 2]
