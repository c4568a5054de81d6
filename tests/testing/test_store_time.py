"""A store's time, steered by hand or by a virtual clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import anyio

from greenroom.persistence import StoreNow, open_store
from greenroom.testing import StoreTime, VirtualClock
from greenroom.testing.store_time import UPTIME

START = datetime(2030, 1, 1, tzinfo=UTC)


def test_it_stands_until_it_is_moved() -> None:
    time = StoreTime(START)
    clock = time.store_clock
    assert (time.now(), clock.now(), clock.boot()) == (START, round(START.timestamp() * 1e6), UPTIME)
    time.pass_time(90.5)
    assert (time.now(), clock.now()) == (START + timedelta(seconds=90.5), round((START.timestamp() + 90.5) * 1e6))
    assert clock.boot() == UPTIME + 90.5


def test_it_goes_on_from_one_virtual_clock_to_the_next() -> None:
    time = StoreTime(START)
    for seconds in (10.0, 20.0):
        clock = VirtualClock()
        time.follow(clock.now)
        clock.run(partial(anyio.sleep, seconds))
        time.pass_time(1.0)
    assert time.passed() == 32.0


async def test_a_store_shows_it(store_url: str, clock: VirtualClock) -> None:
    time = StoreTime(START)
    time.follow(clock.now)
    async with open_store(store_url, clock=time.store_clock) as store:
        assert await store.read(StoreNow()) == START
        await anyio.sleep(3600.25)
        assert await store.read(StoreNow()) == START + timedelta(seconds=3600.25)
