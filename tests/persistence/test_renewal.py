"""Leases and the local fence (R10): renewed in time, lost for good, closed before the lease ends."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from greenroom.errors import LeaseLost
from greenroom.mailbox.parking import current_loop
from greenroom.persistence.driver import NotReached
from greenroom.persistence.executions import EndExecution, ExecutionState, ReadExecution
from greenroom.persistence.fence import Fence
from greenroom.persistence.renewal import Renewal, start_execution
from greenroom.persistence.transitions import RefusalReason
from tests.persistence.stores import claiming, done, refused, register, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from greenroom.persistence.driver import Renewer
    from greenroom.persistence.store import Store
    from tests.persistence.stores import Database, SteeredClock

LEASE = 30.0


# ------------------------------------------------------------------------------------------------------------- fence


class Boot:
    """The clock since the boot, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_fence_is_open_until_its_moment_and_then_names_what_was_lost() -> None:
    boot = Boot()
    fence = Fence("e1", boot, until=110.0)
    fence.check()
    assert (fence.is_open, fence.seconds_left) == (True, 10.0)
    boot.now = 110.0
    assert (fence.is_open, fence.seconds_left) == (False, 0.0)
    with pytest.raises(LeaseLost, match="the execution e1 has lost its lease: it was not renewed in time"):
        fence.check()


def test_a_fence_is_extended_and_never_shortened() -> None:
    boot = Boot()
    fence = Fence("e1", boot, until=110.0)
    assert fence.extend(120.0)
    assert fence.extend(115.0)
    assert fence.seconds_left == 20.0


def test_a_fence_that_has_closed_is_not_opened_again_by_a_late_renewal() -> None:
    boot = Boot()
    fence = Fence("e1", boot, until=110.0)
    boot.now = 111.0
    assert not fence.extend(140.0)
    boot.now = 105.0
    assert not fence.is_open


def test_a_fence_that_was_closed_says_why() -> None:
    fence = Fence("e1", Boot(), until=110.0)
    fence.close("the execution has ended")
    with pytest.raises(LeaseLost, match="the execution has ended"):
        fence.check()


# ----------------------------------------------------------------------------------------------------------- rounds


class Scene:
    """One renewal, played round by round in the test's own thread."""

    def __init__(self, store: Store, time: SteeredClock) -> None:
        self.time = time
        self.lost = 0
        boot = time.store_clock.boot
        self.fence = Fence("e1", boot, boot() + LEASE * 0.9)
        self.renewal = Renewal(store, self.fence, current_loop(), boot, lease=LEASE, on_lost=self._on_lost)

    def _on_lost(self) -> None:
        self.lost += 1

    async def turn(self) -> None:
        """Let the event loop tick."""
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()


@contextmanager
def scene(store: Store, database: Database) -> Iterator[Scene]:
    made = Scene(store, database.time)
    try:
        yield made
    finally:
        made.renewal.stop()
        made.renewal.close()


async def test_r10_each_round_keeps_lease_and_fence_open(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1", lease=LEASE))
        with scene(store, database) as it:
            for _ in range(10):
                database.time.pass_time(10)
                assert it.renewal.round() == pytest.approx(LEASE / 3)
                await it.turn()
            record = await store.read(ReadExecution(execution_id="e1"))
            assert record is not None
            assert record.seconds_left == pytest.approx(LEASE, abs=0.01)
            assert it.fence.seconds_left == pytest.approx(LEASE * 0.9, abs=0.01)
            assert it.lost == 0


async def test_r10_the_fence_closes_before_the_lease_ends_in_the_database(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1", lease=LEASE))
        with scene(store, database) as it:
            database.time.pass_time(LEASE * 0.9)
            record = await store.read(ReadExecution(execution_id="e1"))
            assert record is not None
            assert record.alive
            assert not it.fence.is_open


async def test_r10_an_event_loop_that_does_not_tick_for_half_a_lease_is_not_kept_alive(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1", lease=LEASE))
        with scene(store, database) as it:
            database.time.pass_time(10)
            it.renewal.round()  # the loop has not come to its tick when the next rounds begin
            left = it.fence.seconds_left
            database.time.pass_time(10)
            assert it.renewal.round() == pytest.approx(1.0)
            assert it.fence.seconds_left == pytest.approx(left - 10)
            database.time.pass_time(20)
            assert it.renewal.round() is None
            await it.turn()
            assert it.lost == 1


async def test_r10_an_event_loop_that_ticks_again_in_time_is_renewed_again(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1", lease=LEASE))
        with scene(store, database) as it:
            database.time.pass_time(16)
            it.renewal.round()
            assert it.fence.seconds_left == pytest.approx(11.0)
            await it.turn()
            it.renewal.round()
            assert it.fence.seconds_left == pytest.approx(27.0)


async def test_a_lease_that_the_database_renews_no_more_closes_the_fence_at_once(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1", lease=LEASE))
        with scene(store, database) as it:
            await done(store, EndExecution(execution_id="e1"))
            database.time.pass_time(10)
            assert it.renewal.round() is None
            await it.turn()
            assert it.lost == 1
            with pytest.raises(LeaseLost, match="renews it no more"):
                it.fence.check()


class AwayRenewer:
    """A database that cannot be reached."""

    def renew(self, execution_id: str, lease: float) -> bool:
        raise NotReached("away")

    def close(self) -> None:
        pass


class AwayStore:
    """As far as a renewal needs it."""

    def renewer(self) -> Renewer:
        return AwayRenewer()


async def test_a_renewal_that_does_not_reach_the_database_is_tried_again_until_the_fence_closes(
    database: Database,
) -> None:
    it = Scene(AwayStore(), database.time)  # type: ignore[arg-type]  # it needs no more of a store
    rounds = 0
    while (pause := it.renewal.round()) is not None:
        assert 0 < pause <= 1.0
        rounds += 1
        database.time.pass_time(1)
        await it.turn()
    await it.turn()
    assert rounds == 27
    assert it.lost == 1


# ----------------------------------------------------------------------------------------------------- the execution


async def test_an_execution_is_registered_drains_and_ends(database: Database) -> None:
    async with database.open() as store:
        lost: list[str] = []
        clock = database.time.store_clock
        execution = await start_execution(store, on_lost=lambda: lost.append("lost"), clock=clock)
        execution.fence.check()
        record = await store.read(ReadExecution(execution_id=execution.id))
        assert record is not None
        assert (record.state, record.alive) == (ExecutionState.ACTIVE, True)
        await execution.drain()
        assert await refused(store, claiming("desk", execution.id)) is RefusalReason.DRAINING
        await execution.end()
        with pytest.raises(LeaseLost, match="has ended"):
            execution.fence.check()
        with pytest.raises(LeaseLost):
            await execution.drain()
        record = await store.read(ReadExecution(execution_id=execution.id))
        assert record is not None
        assert record.state is ExecutionState.ENDED
        assert lost == []


async def test_p07_an_abandoned_execution_leaves_its_lease_to_lapse(database: Database) -> None:
    async with database.open() as store:
        execution = await start_execution(store, on_lost=lambda: None, clock=database.time.store_clock)
        await done(store, claiming("desk", execution.id))
        execution.abandon()
        await done(store, register("e2"))
        assert await refused(store, claiming("desk", "e2")) is RefusalReason.NOT_OWNER
        database.time.pass_time(31)
        await done(store, register("e3"))
        await done(store, claiming("desk", "e3"))


async def test_an_execution_id_that_is_taken_is_not_started_again(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1"))
        with pytest.raises(LeaseLost, match="was registered before"):
            await start_execution(store, on_lost=lambda: None, execution_id="e1", clock=database.time.store_clock)


@pytest.mark.real_time
async def test_the_renewal_thread_renews_by_itself(database: Database) -> None:
    async with database.open() as store:
        execution = await start_execution(store, on_lost=lambda: None, lease=0.3, clock=database.time.store_clock)
        database.time.pass_time(0.2)
        await until(lambda: execution.fence.seconds_left >= 0.2)
        await execution.end()


@pytest.mark.real_time
async def test_the_loss_of_a_lease_is_told_on_the_loops_thread(database: Database) -> None:
    async with database.open() as store:
        loop = current_loop()
        told = anyio.Event()

        def on_lost() -> None:
            loop.check_thread()
            told.set()

        execution = await start_execution(store, on_lost=on_lost, lease=0.3, clock=database.time.store_clock)
        database.time.pass_time(1)
        await told.wait()
        assert not execution.fence.is_open
