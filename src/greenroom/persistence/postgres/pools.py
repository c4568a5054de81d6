"""How PostgreSQL applies the transitions of pools."""

from __future__ import annotations

from greenroom.persistence.pools import PoolRegistered, RegisterPool
from greenroom.persistence.postgres.unit import Unit

# A pool as it is now.
UPSERT_POOL = (
    "INSERT INTO pools (pool, capacity, registered_at) VALUES ($1, $2, $3) "
    "ON CONFLICT (pool) DO UPDATE SET capacity = excluded.capacity, registered_at = excluded.registered_at"
)


async def register(unit: Unit, item: RegisterPool) -> PoolRegistered:
    await unit.change(UPSERT_POOL, item.pool, item.capacity, unit.now)
    return PoolRegistered()
