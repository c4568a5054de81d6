"""Pools: what says that addresses may be opened below a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from greenroom.persistence.pools import PoolRecord, PoolRegistered, ReadPool, RegisterPool
from tests.persistence.stores import done

if TYPE_CHECKING:
    from tests.persistence.stores import Database


async def test_a_pool_is_known_once_it_was_registered(database: Database) -> None:
    async with database.open() as store:
        assert await store.read(ReadPool(pool="service/accounts")) is None
        assert await done(store, RegisterPool(pool="service/accounts", capacity=10)) == PoolRegistered()
    async with database.open() as store:
        assert await store.read(ReadPool(pool="service/accounts")) == PoolRecord(
            pool="service/accounts", capacity=10, registered_at=database.time.at(0)
        )
        assert await store.read(ReadPool(pool="service")) is None


async def test_a_pool_that_is_registered_again_is_as_it_was_said_last(database: Database) -> None:
    async with database.open() as store:
        await done(store, RegisterPool(pool="accounts", capacity=10))
        database.time.pass_time(5)
        await done(store, RegisterPool(pool="accounts", capacity=None))
        assert await store.read(ReadPool(pool="accounts")) == PoolRecord(
            pool="accounts", capacity=None, registered_at=database.time.at(0)
        )


@pytest.mark.parametrize("wrong", [{"pool": ""}, {"pool": "a", "capacity": 0}])
def test_a_pool_has_a_name_and_room(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"pool|capacity"):
        RegisterPool(**wrong)  # type: ignore[arg-type]
