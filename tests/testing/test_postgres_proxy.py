"""The proxy before PostgreSQL makes the failures it is asked for, and the store comes through them (R5)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import pytest

from greenroom.errors import StoreUnavailable
from greenroom.persistence import Disposition, ListMessages, ReadAddress, open_store, system_clock
from greenroom.testing import Cut, PostgresProxy
from tests.testing.desks import claim, register

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.testing.desks import Desk

pytestmark = pytest.mark.real_time


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[PostgresProxy]:
    with PostgresProxy(postgres_url) as proxy:
        yield proxy


@asynccontextmanager
async def desk_at(url: str, *, bound: float = 20.0) -> AsyncIterator[Desk]:
    async with open_store(url, bound=bound) as store:
        await register(store, system_clock(), "e1", lease=60.0)
        yield await claim(store, "e1")


async def waiting(desk: Desk) -> list[str]:
    return [record.message_id for record in await desk.store.read(ListMessages(address="desk"))]


async def test_r05_a_connection_that_is_cut_at_a_commit_loses_and_doubles_nothing(proxy: PostgresProxy) -> None:
    async with desk_at(proxy.url) as desk:
        for cut in Cut:
            proxy.plan(cut)
            assert (await desk.send(cut.value)).disposition is Disposition.ACCEPTED
        assert proxy.done == len(Cut)
        assert await waiting(desk) == [cut.value for cut in Cut]


async def test_all_connections_can_be_cut_and_are_made_again(proxy: PostgresProxy) -> None:
    async with desk_at(proxy.url) as desk:
        before = proxy.connections
        proxy.cut()
        await desk.send("m1")
        assert proxy.connections > before


async def test_while_connections_are_refused_the_store_is_unavailable(proxy: PostgresProxy, postgres_url: str) -> None:
    async with desk_at(proxy.url, bound=0.5) as desk:
        proxy.refuse()
        proxy.cut()
        with pytest.raises(StoreUnavailable):
            await desk.store.read(ReadAddress(address="desk"))
        proxy.refuse(False)
        await desk.send("m1")
        assert await waiting(desk) == ["m1"]


async def test_what_is_stalled_goes_on_where_it_was(proxy: PostgresProxy) -> None:
    async with desk_at(proxy.url) as desk:
        proxy.stall()
        async with anyio.create_task_group() as group:
            group.start_soon(desk.send, "m1")
            with anyio.move_on_after(0.3) as limit:
                await anyio.sleep_forever()
            assert limit.cancelled_caught
            proxy.resume()
        assert await waiting(desk) == ["m1"]
        assert proxy.connections == 1


async def test_what_is_delayed_takes_its_time(proxy: PostgresProxy) -> None:
    async with desk_at(proxy.url) as desk:
        proxy.delay(0.02)
        before = anyio.current_time()
        await desk.send("m1")
        assert anyio.current_time() - before >= 0.04  # there and back
        proxy.delay(0.0)
        assert await waiting(desk) == ["m1"]
