"""Pools of tasks: registered."""

from __future__ import annotations

from typing import Final

from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.task_pools import RegisterTaskPool, TaskPoolRegistered

# A pool of tasks as it is now. Its queue stays as it is.
UPSERT_POOL: Final = (
    "INSERT INTO task_pools (pool, queue_limit, per_group, rate_count, rate_period, registered_at) "
    "VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (pool) DO UPDATE SET queue_limit = excluded.queue_limit, "
    "per_group = excluded.per_group, rate_count = excluded.rate_count, rate_period = excluded.rate_period, "
    "registered_at = excluded.registered_at"
)
# An execution serves it.
INSERT_SERVER: Final = (
    "INSERT INTO task_servers (pool, execution_id) VALUES ($1, $2) ON CONFLICT (pool, execution_id) DO NOTHING"
)
# Executions that serve it no more.
DELETE_SERVERS: Final = (
    "DELETE FROM task_servers WHERE pool = $1 AND NOT EXISTS ("
    "SELECT 1 FROM executions e WHERE e.execution_id = task_servers.execution_id AND e.state <> 'ended')"
)


async def register(unit: Unit, item: RegisterTaskPool) -> TaskPoolRegistered:
    count, period = (None, None) if item.rate is None else (item.rate[0], round(item.rate[1] * 1e6))
    await unit.tx.change(UPSERT_POOL, item.pool, item.queue_limit, item.per_group, count, period, unit.now)
    if item.execution_id is not None:
        await unit.tx.change(INSERT_SERVER, item.pool, item.execution_id)
    await unit.tx.change(DELETE_SERVERS, item.pool)
    return TaskPoolRegistered()
