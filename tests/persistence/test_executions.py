"""Executions, leases and what proves a death (R10, R11, I4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.persistence.addresses import DueAddresses, ReadAddress
from greenroom.persistence.executions import (
    DrainExecution,
    EndExecution,
    ExecutionState,
    ListExecutions,
    LostReleased,
    ReadExecution,
    ReleaseLost,
)
from greenroom.persistence.transitions import RefusalReason
from tests.persistence.stores import claiming, done, owner, refused, register

if TYPE_CHECKING:
    from tests.persistence.stores import Database


async def test_a_registered_execution_is_alive_until_its_lease_has_passed(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1", lease=30.0))
        record = await store.read(ReadExecution(execution_id="e1"))
        assert record is not None
        assert (record.state, record.alive, record.host, record.pid) == (ExecutionState.ACTIVE, True, "here", 1)
        assert 29.9 < record.seconds_left <= 30.0
        assert record.started_at == database.time.at(0)

        database.time.pass_time(31)
        record = await store.read(ReadExecution(execution_id="e1"))
        assert record is not None
        assert (record.state, record.alive, record.seconds_left) == (ExecutionState.ACTIVE, False, 0.0)


async def test_an_unknown_execution_reads_as_none(database: Database) -> None:
    async with database.open() as store:
        assert await store.read(ReadExecution(execution_id="nobody")) is None


async def test_an_execution_id_is_used_once(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1"))
        assert await refused(store, register("e1")) is RefusalReason.CONFLICT


async def test_executions_are_listed_by_age_and_ended_ones_on_request(database: Database) -> None:
    async with database.open() as store:
        for execution_id in ("e2", "e1", "e3"):
            await done(store, register(execution_id))
            database.time.pass_time(1)
        await done(store, EndExecution(execution_id="e1"))
        in_work = await store.read(ListExecutions())
        every = await store.read(ListExecutions(ended=True))
        assert [record.execution_id for record in in_work] == ["e2", "e3"]
        assert [(record.execution_id, record.alive) for record in every] == [("e2", True), ("e1", False), ("e3", True)]


async def test_r10_renewal_makes_a_lease_longer(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1", lease=30.0))
        renewer = store.renewer()
        try:
            database.time.pass_time(20)
            assert renewer.renew("e1", 30.0)
            database.time.pass_time(20)
            record = await store.read(ReadExecution(execution_id="e1"))
            assert record is not None
            assert record.alive
        finally:
            renewer.close()


async def test_r03_a_lease_that_has_passed_is_not_renewed_though_nobody_took_over(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1", lease=30.0))
        renewer = store.renewer()
        try:
            database.time.pass_time(30.5)
            assert not renewer.renew("e1", 30.0)
        finally:
            renewer.close()


async def test_the_lease_of_an_ended_or_unknown_execution_is_not_renewed(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1"))
        await done(store, EndExecution(execution_id="e1"))
        renewer = store.renewer()
        try:
            assert not renewer.renew("e1", 30.0)
            assert not renewer.renew("nobody", 30.0)
        finally:
            renewer.close()


async def test_p07_a_draining_execution_claims_nothing_and_finishes_what_it_has(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, "desk")
        await desk.send("m1")
        await desk.begun(1)
        assert (await done(store, DrainExecution(execution_id="e1"))).state is ExecutionState.DRAINING
        await done(store, desk.finish(1))
        assert await refused(store, claiming("other", "e1")) is RefusalReason.DRAINING


async def test_draining_twice_is_draining_once(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1"))
        await done(store, DrainExecution(execution_id="e1"))
        assert (await done(store, DrainExecution(execution_id="e1"))).state is ExecutionState.DRAINING


async def test_an_ended_execution_does_not_drain(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1"))
        await done(store, EndExecution(execution_id="e1"))
        assert await refused(store, DrainExecution(execution_id="e1")) is RefusalReason.LEASE_EXPIRED


async def test_what_is_asked_of_an_unknown_execution_is_refused(database: Database) -> None:
    async with database.open() as store:
        for transition in (
            DrainExecution(execution_id="nobody"),
            EndExecution(execution_id="nobody"),
            ReleaseLost(execution_id="nobody"),
        ):
            assert await refused(store, transition) is RefusalReason.UNKNOWN_EXECUTION


async def test_the_end_of_an_execution_gives_its_addresses_back_at_once(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, "desk")
        await owner(store, "idle")
        await desk.send("m1")
        assert (await done(store, EndExecution(execution_id="e1"))).state is ExecutionState.ENDED
        assert [due.address for due in await store.read(DueAddresses())] == ["desk"]
        assert await refused(store, desk.begin(1)) is RefusalReason.NOT_OWNER
        successor = await owner(store, "desk", execution_id="e2")
        assert successor.generation == desk.generation + 1


async def test_ending_twice_is_ending_once(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1"))
        await done(store, EndExecution(execution_id="e1"))
        before = database.tables()
        assert (await done(store, EndExecution(execution_id="e1"))).state is ExecutionState.ENDED
        assert database.tables() == before


async def test_the_addresses_of_a_living_execution_are_not_given_back(database: Database) -> None:
    async with database.open() as store:
        await owner(store, "desk", lease=30.0)
        answer = await store.commit(ReleaseLost(execution_id="e1"))
        assert not isinstance(answer, LostReleased)
        assert answer.reason is RefusalReason.STILL_ALIVE
        assert answer.seconds is not None
        assert 29.9 < answer.seconds <= 30.0


async def test_k01_the_sweep_gives_back_all_that_a_lost_execution_owned_in_small_steps(database: Database) -> None:
    async with database.open() as store:
        for number in range(25):
            desk = await owner(store, f"desk{number:02}")
            await desk.send("m1")
        assert await store.read(DueAddresses()) == ()
        database.time.pass_time(31)
        steps = [await done(store, ReleaseLost(execution_id="e1", limit=10)) for _ in range(3)]
        assert steps == [LostReleased(10, True), LostReleased(10, True), LostReleased(5, False)]
        assert len(await store.read(DueAddresses())) == 25
        record = await store.read(ReadExecution(execution_id="e1"))
        assert record is not None
        assert record.state is ExecutionState.ENDED


async def test_a_lost_execution_that_wakes_up_finds_its_addresses_gone(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, "desk")
        database.time.pass_time(31)
        await done(store, ReleaseLost(execution_id="e1"))
        record = await store.read(ReadAddress(address="desk"))
        assert record is not None
        assert record.owner is None
        await desk.send("m1")
        assert await refused(store, desk.begin(1)) is RefusalReason.NOT_OWNER
