"""How SQLite applies the transitions of pools."""

from __future__ import annotations

from greenroom.persistence.pools import PoolRegistered, RegisterPool
from greenroom.persistence.sqlite.unit import Unit

# A pool as it is now.
UPSERT_POOL = (
    "INSERT INTO pools (pool, capacity, registered_at) VALUES (?, ?, ?) "
    "ON CONFLICT (pool) DO UPDATE SET capacity = excluded.capacity, registered_at = excluded.registered_at"
)


def register(unit: Unit, item: RegisterPool) -> PoolRegistered:
    unit.execute(UPSERT_POOL, (item.pool, item.capacity, unit.now))
    return PoolRegistered()
