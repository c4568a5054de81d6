"""Faults are what real failures would show to whoever uses the store (R5), and each message is applied once all the same."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import pytest

from greenroom.errors import StoreUnavailable, TransitionFailed
from greenroom.persistence import AnswerTo, Disposition, ListMessages, Receipt, open_store
from greenroom.testing import (
    Away,
    Contention,
    OutcomeLost,
    Slow,
    StatementError,
    StoreFaults,
    StoreTime,
    VirtualClock,
    fresh_store,
)
from tests.testing.desks import claim, message, register

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from greenroom.persistence import Store
    from greenroom.testing import Fault
    from tests.testing.desks import Desk

ACCEPT = "AcceptMessage desk m1"


@asynccontextmanager
async def desk_with(faults: StoreFaults, url: str, *, bound: float = 30.0) -> AsyncIterator[Desk]:
    time = StoreTime()
    async with faults, open_store(url, clock=time.store_clock, driver=faults.wrap, bound=bound) as store:
        await register(store, time.store_clock, "e1")
        yield await claim(store, "e1")


async def waiting(store: Store) -> list[str]:
    return [record.message_id for record in await store.read(ListMessages(address="desk"))]


async def test_while_the_store_is_away_a_commit_waits_in_virtual_time(clock: VirtualClock, store_url: str) -> None:
    async with desk_with(StoreFaults({ACCEPT: Away(20.0)}), store_url) as desk:
        assert (await desk.send("m1")).disposition is Disposition.ACCEPTED
        assert 20.0 <= clock.now() < 20.1
        assert await waiting(desk.store) == ["m1"]


async def test_while_the_store_is_away_nothing_is_read_either(clock: VirtualClock, sqlite_url: str) -> None:
    async with desk_with(faults := StoreFaults(), sqlite_url) as desk:
        faults.go_away(3.0)
        assert await waiting(desk.store) == []
        assert 3.0 <= clock.now() < 3.1


async def test_a_store_that_does_not_come_back_within_the_bound_is_unavailable(sqlite_url: str) -> None:
    async with desk_with(faults := StoreFaults({ACCEPT: Away()}), sqlite_url, bound=0.2) as desk:
        with pytest.raises(StoreUnavailable) as failure:
            await desk.send("m1")
        assert not failure.value.unknown
        faults.heal()
        assert await waiting(desk.store) == []


async def test_a_slow_commit_takes_its_time_while_others_go_on(clock: VirtualClock, store_url: str) -> None:
    async with desk_with(StoreFaults({ACCEPT: Slow(60.0)}), store_url) as desk:
        ticks = 0
        async with anyio.create_task_group() as group:

            async def tick() -> None:
                nonlocal ticks
                while True:
                    await anyio.sleep(1.0)
                    ticks += 1

            group.start_soon(tick)
            await desk.send("m1")
            group.cancel_scope.cancel()
        assert clock.now() == 60.0
        assert ticks in (59, 60)


async def test_a_callers_time_limit_ends_a_slow_commit_only_when_it_is_done(
    clock: VirtualClock, sqlite_url: str
) -> None:
    async with desk_with(StoreFaults({ACCEPT: Slow(60.0)}), sqlite_url) as desk:
        with anyio.move_on_after(5.0) as limit:
            await desk.send("m1")
            await anyio.lowlevel.checkpoint()
        assert limit.cancelled_caught
        assert clock.now() == 60.0
        assert await waiting(desk.store) == ["m1"]


async def test_a_contended_commit_is_tried_again(store_url: str) -> None:
    faults = StoreFaults({ACCEPT: [Contention(), Contention()]})
    async with desk_with(faults, store_url) as desk:
        assert (await desk.send("m1")).disposition is Disposition.ACCEPTED
    assert faults.struck == [(ACCEPT, Contention())] * 2


async def test_a_statement_that_fails_spoils_nobody_elses_commit(store_url: str) -> None:
    async with desk_with(StoreFaults({ACCEPT: StatementError()}), store_url) as desk:
        failed: list[str] = []

        async def send(message_id: str) -> None:
            try:
                await desk.send(message_id)
            except TransitionFailed:
                failed.append(message_id)

        async with anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(send, f"m{number}")
        assert failed == ["m1"]
        assert sorted(await waiting(desk.store)) == ["m0", "m2", "m3"]


@pytest.mark.parametrize("committed", [False, True])
async def test_r05_a_lost_outcome_is_looked_up_and_applied_once(
    clock: VirtualClock, store_url: str, *, committed: bool
) -> None:
    async with desk_with(StoreFaults({ACCEPT: OutcomeLost(committed=committed, seconds=2.0)}), store_url) as desk:
        # Had it been applied twice, the second time would say "duplicate".
        assert await desk.send("m1") == Receipt("m1", Disposition.ACCEPTED, 1)
        assert await waiting(desk.store) == ["m1"]
        assert clock.now() >= 2.0


@pytest.mark.parametrize("committed", [False, True])
async def test_r05_a_lost_acknowledgement_is_unknown_and_can_be_looked_up(store_url: str, *, committed: bool) -> None:
    faults = StoreFaults({ACCEPT: OutcomeLost(committed=committed, seconds=math.inf)})
    async with desk_with(faults, store_url, bound=0.3) as desk:
        item = message("desk", "m1")
        with pytest.raises(StoreUnavailable) as failure:
            await desk.store.commit(item)
        assert (failure.value.unknown, failure.value.transition_id) == (True, item.transition_id)
        faults.heal()
        answer = await desk.store.read(AnswerTo(transition_id=item.transition_id))
        assert answer == (Receipt("m1", Disposition.ACCEPTED, 1) if committed else None)


async def test_a_pattern_strikes_the_next_transitions_that_fit(sqlite_url: str) -> None:
    faults = StoreFaults({"AcceptMessage desk *": [Contention(), Slow(1.0)], "FinishDelivery *": Contention()})
    async with desk_with(faults, sqlite_url) as desk:
        for number in range(3):
            await desk.send(f"m{number}")
    assert faults.struck == [("AcceptMessage desk m0", Contention()), ("AcceptMessage desk m0", Slow(1.0))]
    assert faults.left == ("FinishDelivery *",)


async def test_deliveries_are_struck_by_the_identity_of_their_message(sqlite_url: str) -> None:
    faults = StoreFaults({"FinishDelivery desk m1": Contention()})
    async with desk_with(faults, sqlite_url) as desk:
        await desk.send("m0")
        await desk.send("m1")
        await desk.handle_all()
    assert faults.left == ()


def struck_by(seed: int) -> list[tuple[str, Fault]]:
    """What is struck under a seed while twenty messages are sent; each is accepted once all the same."""
    faults = StoreFaults(seed=seed, rate=0.3)

    async def main(url: str) -> None:
        async with desk_with(faults, url) as desk:
            for number in range(20):
                assert (await desk.send(f"m{number}")).disposition is Disposition.ACCEPTED
            assert len(await waiting(desk.store)) == 20

    with fresh_store() as url:
        VirtualClock().run(main, url)
    return faults.struck


def test_the_same_seed_strikes_the_same_transitions() -> None:
    assert struck_by(1) == struck_by(1)
    assert struck_by(1) != struck_by(2)


@pytest.mark.real_time
async def test_on_the_real_clock_a_store_is_away_for_real(sqlite_url: str) -> None:
    async with desk_with(StoreFaults({ACCEPT: Away(0.1)}), sqlite_url) as desk:
        before = anyio.current_time()
        await desk.send("m1")
        assert anyio.current_time() - before >= 0.1
