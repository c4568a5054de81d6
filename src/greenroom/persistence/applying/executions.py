"""Executions: registered, draining, ended, lost. How their leases are told is the database's own affair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from greenroom.persistence.applying.limits import leave_place
from greenroom.persistence.applying.mail import settle_due
from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.executions import (
    DrainExecution,
    EndExecution,
    ExecutionMoved,
    ExecutionState,
    LostReleased,
    RegisterExecution,
    ReleaseLost,
)
from greenroom.persistence.transitions import RefusalReason, Refused

# A new execution.
INSERT_EXECUTION = (
    "INSERT INTO executions (execution_id, host, pid, boot_id, locked, started_at, lease_until, state) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7, 'active') ON CONFLICT (execution_id) DO NOTHING"
)
# It claims nothing more.
UPDATE_DRAINING = "UPDATE executions SET state = 'draining' WHERE execution_id = $1"
# It is over.
UPDATE_ENDED = "UPDATE executions SET state = 'ended', ended_at = $1 WHERE execution_id = $2 AND state <> 'ended'"
# What an execution owns, or a part of it, locked in order.
LOCK_OWNED = "SELECT address FROM addresses WHERE owner = $1 ORDER BY address LIMIT $2 FOR NO KEY UPDATE"
# An execution that may be dead. Nobody claims in its name while this lock is held.
LOCK_EXECUTION = "SELECT 1 FROM executions WHERE execution_id = $1 FOR NO KEY UPDATE"

ALL: Final = 2**62
"""A limit that is none."""


async def register(unit: Unit, item: RegisterExecution) -> ExecutionMoved | Refused:
    inserted = await unit.tx.change(
        INSERT_EXECUTION,
        item.execution_id,
        item.host,
        item.pid,
        item.boot_id,
        item.locked,
        unit.now,
        unit.lease_until(item.lease),
    )
    if inserted == 0:
        return Refused(RefusalReason.CONFLICT, f"an execution {item.execution_id} was registered before")
    return ExecutionMoved(ExecutionState.ACTIVE)


async def drain(unit: Unit, item: DrainExecution) -> ExecutionMoved | Refused:
    view = await unit.execution(item.execution_id)
    if view is None:
        return Refused(RefusalReason.UNKNOWN_EXECUTION, f"no execution {item.execution_id} is registered")
    if view.state == "ended":
        return Refused(RefusalReason.LEASE_EXPIRED, f"the execution {item.execution_id} has ended")
    await unit.tx.change(UPDATE_DRAINING, item.execution_id)
    unit.forget_executions()
    return ExecutionMoved(ExecutionState.DRAINING)


async def end(unit: Unit, item: EndExecution) -> ExecutionMoved | Refused:
    if await unit.execution(item.execution_id) is None:
        return Refused(RefusalReason.UNKNOWN_EXECUTION, f"no execution {item.execution_id} is registered")
    await _disown(unit, [address for (address,) in await unit.tx.all(LOCK_OWNED, item.execution_id, ALL)])
    await unit.tx.change(UPDATE_ENDED, unit.now, item.execution_id)
    unit.forget_executions()
    return ExecutionMoved(ExecutionState.ENDED)


async def _disown(unit: Unit, owned: Sequence[str]) -> None:
    """Nobody owns these locked addresses now. The generations stay: whoever owned them is fenced by its end, the next owner by
    its claim."""
    await unit.load(owned)
    await unit.load_tasks(owned)
    for address in owned:
        row = unit.address(address)
        assert row is not None  # it was selected in this transaction
        row.owner = None
        task = await unit.task(row)
        if task is not None:
            leave_place(unit, task)
        await settle_due(unit, row)
        if row.due_at is not None and row.due_at <= unit.now:
            unit.wake(address)


async def _suspect(unit: Unit, addresses: Sequence[str]) -> None:
    """Tasks among these were lost with their owner, which may be their fault (R22)."""
    for address in addresses:
        task = await unit.task(unit.address(address))
        if task is not None:
            task.suspicions += 1


async def release_lost(unit: Unit, item: ReleaseLost) -> LostReleased | Refused:
    await unit.tx.all(LOCK_EXECUTION, item.execution_id)
    await unit.read_time()
    if await unit.execution(item.execution_id) is None:
        return Refused(RefusalReason.UNKNOWN_EXECUTION, f"no execution {item.execution_id} is registered")
    seconds = await unit.seconds_alive(item.execution_id)
    if seconds > 0:
        return Refused(RefusalReason.STILL_ALIVE, f"the execution {item.execution_id} is alive", seconds)
    owned = [address for (address,) in await unit.tx.all(LOCK_OWNED, item.execution_id, item.limit + 1)]
    await _disown(unit, owned[: item.limit])
    if item.suspect:
        await _suspect(unit, owned[: item.limit])
    more = len(owned) > item.limit
    if not more:
        await unit.tx.change(UPDATE_ENDED, unit.now, item.execution_id)
        unit.forget_executions()
    return LostReleased(min(len(owned), item.limit), more)
