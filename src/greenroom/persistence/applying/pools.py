"""Pools: registered."""

from __future__ import annotations

from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.pools import PoolRegistered, RegisterPool

# A pool as it is now.
UPSERT_POOL = (
    "INSERT INTO pools (pool, capacity, registered_at) VALUES ($1, $2, $3) "
    "ON CONFLICT (pool) DO UPDATE SET capacity = excluded.capacity, registered_at = excluded.registered_at"
)


async def register(unit: Unit, item: RegisterPool) -> PoolRegistered:
    await unit.tx.change(UPSERT_POOL, item.pool, item.capacity, unit.now)
    return PoolRegistered()
