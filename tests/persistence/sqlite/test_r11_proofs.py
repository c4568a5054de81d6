"""Proofs of death on SQLite (R11): another boot, and a lock that the operating system has let go."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from greenroom.persistence.clock import system_clock
from greenroom.persistence.executions import EndExecution, ListExecutions, ReadExecution, ReleaseLost
from greenroom.persistence.sqlite.liveness import FileHold, LockFiles
from greenroom.persistence.store import open_store
from greenroom.persistence.transitions import RefusalReason
from tests.persistence.stores import SqliteDatabase, claiming, done, owner, refused, register

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def database(tmp_path: Path) -> SqliteDatabase:
    return SqliteDatabase(tmp_path / "store.db")


async def test_another_boot_proves_death_and_allows_takeover_at_once(database: SqliteDatabase) -> None:
    async with database.open() as store:
        before = await owner(store, execution_id="e1", lease=300.0)
    database.time.boot_id = "boot-2"
    async with database.open() as store:
        record = await store.read(ReadExecution(execution_id="e1"))
        assert record is not None
        assert not record.alive
        await done(store, register("e2", boot_id="boot-2"))
        claimed = await done(store, claiming("desk", "e2"))
        assert claimed.generation == before.generation + 1


async def test_an_execution_of_another_boot_neither_writes_nor_renews(database: SqliteDatabase) -> None:
    async with database.open() as store:
        desk = await owner(store, lease=300.0)
        await desk.send("m1")
    database.time.boot_id = "boot-2"
    async with database.open() as store:
        desk.store = store
        assert await refused(store, desk.begin(1)) is RefusalReason.LEASE_EXPIRED
        renewer = store.renewer()
        assert not renewer.renew("e1", 300.0)
        renewer.close()


async def test_an_execution_that_holds_its_file_is_alive_and_one_that_let_it_go_is_dead(
    database: SqliteDatabase,
) -> None:
    async with database.open() as store:
        hold = store.hold("e1")
        assert hold is not None
        await done(store, evolve(register("e1", lease=300.0), locked=True))
        await done(store, claiming("desk", "e1"))
        await done(store, register("e2"))
        assert await refused(store, claiming("desk", "e2")) is RefusalReason.NOT_OWNER
        assert await refused(store, ReleaseLost(execution_id="e1")) is RefusalReason.STILL_ALIVE
        assert isinstance(hold, FileHold)
        hold.let_go()  # as the system does when the process ends
        record = await store.read(ReadExecution(execution_id="e1"))
        assert record is not None
        assert (record.alive, record.seconds_left) == (False, 0.0)
        assert (await done(store, claiming("desk", "e2"))).generation == 2


async def test_a_lock_file_that_is_missing_proves_nothing(database: SqliteDatabase) -> None:
    async with database.open() as store:
        hold = store.hold("e1")
        assert hold is not None
        await done(store, evolve(register("e1", lease=300.0), locked=True))
        hold.release()
        hold.release()
        record = await store.read(ReadExecution(execution_id="e1"))
        assert record is not None
        assert record.alive


def test_a_lock_is_held_against_everybody_in_the_same_process_too(tmp_path: Path) -> None:
    locks = LockFiles(tmp_path / "store.db")
    hold = locks.hold("e1")
    assert not locks.prove_dead("e1")
    with pytest.raises(BlockingIOError):
        locks.hold("e1")
    hold.release()


HOLDER = """
import sys
import anyio
from greenroom.persistence.addresses import AddressKind, ClaimAddress
from greenroom.persistence.renewal import start_execution
from greenroom.persistence.store import open_store

async def main():
    async with open_store(sys.argv[1]) as store:
        execution = await start_execution(store, on_lost=lambda: None, execution_id="holder", lease=300.0)
        await store.commit(ClaimAddress(address="desk", kind=AddressKind.ACTOR, execution_id="holder"))
        print("ready", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


@pytest.mark.real_time
async def test_what_a_killed_process_owned_is_taken_over_without_waiting_for_its_lease(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with subprocess.Popen([sys.executable, "-c", HOLDER, url], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        async with open_store(url) as store:
            await done(store, register("e2", boot_id=system_clock().boot_id))
            assert await refused(store, claiming("desk", "e2")) is RefusalReason.NOT_OWNER
            process.send_signal(signal.SIGSTOP)  # stopped is not dead: only its lease tells
            assert await refused(store, claiming("desk", "e2")) is RefusalReason.NOT_OWNER
            process.kill()
            process.wait()
            (dead, alive) = await store.read(ListExecutions())
            assert (dead.execution_id, dead.alive, alive.alive) == ("holder", False, True)
            assert (await done(store, claiming("desk", "e2"))).generation == 2
            await done(store, EndExecution(execution_id="e2"))
