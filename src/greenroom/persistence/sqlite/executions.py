"""How SQLite applies the transitions of executions. Their leases run on the clock that counts since the boot (R11)."""

from __future__ import annotations

from greenroom.persistence.executions import (
    DrainExecution,
    EndExecution,
    ExecutionMoved,
    ExecutionState,
    LostReleased,
    RegisterExecution,
    ReleaseLost,
)
from greenroom.persistence.sqlite.mail import settle_due
from greenroom.persistence.sqlite.unit import Unit
from greenroom.persistence.transitions import RefusalReason, Refused

# A new execution.
INSERT_EXECUTION = (
    "INSERT INTO executions (execution_id, host, pid, boot_id, locked, started_at, lease_until, state) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, 'active') ON CONFLICT (execution_id) DO NOTHING"
)
# It claims nothing more.
UPDATE_DRAINING = "UPDATE executions SET state = 'draining' WHERE execution_id = ?"
# It is over.
UPDATE_ENDED = "UPDATE executions SET state = 'ended', ended_at = ? WHERE execution_id = ? AND state <> 'ended'"
# What an execution owns, or a part of it.
SELECT_OWNED = "SELECT address FROM addresses WHERE owner = ? LIMIT ?"


def register(unit: Unit, item: RegisterExecution) -> ExecutionMoved | Refused:
    lease_until = round((unit.boot + item.lease) * 1e6)
    inserted = unit.execute(
        INSERT_EXECUTION,
        (item.execution_id, item.host, item.pid, item.boot_id, item.locked, unit.now, lease_until),
    )
    if inserted.rowcount == 0:
        return Refused(RefusalReason.CONFLICT, f"an execution {item.execution_id} was registered before")
    return ExecutionMoved(ExecutionState.ACTIVE)


def drain(unit: Unit, item: DrainExecution) -> ExecutionMoved | Refused:
    view = unit.execution(item.execution_id)
    if view is None:
        return Refused(RefusalReason.UNKNOWN_EXECUTION, f"no execution {item.execution_id} is registered")
    if view.state == "ended":
        return Refused(RefusalReason.LEASE_EXPIRED, f"the execution {item.execution_id} has ended")
    unit.execute(UPDATE_DRAINING, (item.execution_id,))
    unit.forget_execution(item.execution_id)
    return ExecutionMoved(ExecutionState.DRAINING)


def end(unit: Unit, item: EndExecution) -> ExecutionMoved | Refused:
    if unit.execution(item.execution_id) is None:
        return Refused(RefusalReason.UNKNOWN_EXECUTION, f"no execution {item.execution_id} is registered")
    for (address,) in unit.execute(SELECT_OWNED, (item.execution_id, -1)).fetchall():
        _disown(unit, address)
    unit.execute(UPDATE_ENDED, (unit.now, item.execution_id))
    unit.forget_execution(item.execution_id)
    return ExecutionMoved(ExecutionState.ENDED)


def _disown(unit: Unit, address: str) -> None:
    """Nobody owns the address now. The generation stays: whoever owned it is fenced by its end, the next owner by its claim."""
    row = unit.address(address)
    assert row is not None  # it was selected in this transaction
    row.owner = None
    settle_due(unit, row)
    if row.due_at is not None:
        unit.woken.add(address)


def release_lost(unit: Unit, item: ReleaseLost) -> LostReleased | Refused:
    if unit.execution(item.execution_id) is None:
        return Refused(RefusalReason.UNKNOWN_EXECUTION, f"no execution {item.execution_id} is registered")
    seconds = unit.seconds_alive(item.execution_id)
    if seconds > 0:
        return Refused(RefusalReason.STILL_ALIVE, f"the execution {item.execution_id} is alive", seconds)
    owned = unit.execute(SELECT_OWNED, (item.execution_id, item.limit + 1)).fetchall()
    for (address,) in owned[: item.limit]:
        _disown(unit, address)
    more = len(owned) > item.limit
    if not more:
        unit.execute(UPDATE_ENDED, (unit.now, item.execution_id))
        unit.forget_execution(item.execution_id)
    return LostReleased(min(len(owned), item.limit), more)
