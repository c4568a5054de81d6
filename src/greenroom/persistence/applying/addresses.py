"""Addresses: opened, claimed, released, closed, parked."""

from __future__ import annotations

from greenroom.persistence.addresses import (
    ClaimAddress,
    Claimed,
    CloseAddress,
    Closed,
    OpenAddress,
    Opened,
    ParkAddress,
    Parked,
    ReleaseAddress,
    Released,
    UnparkAddress,
    Unparked,
)
from greenroom.persistence.applying.limits import leave_place
from greenroom.persistence.applying.mail import settle_due
from greenroom.persistence.applying.rows import TASK, AddressRow
from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.content import payload_of
from greenroom.persistence.lists import EMPTY
from greenroom.persistence.transitions import RefusalReason, Refused


async def claim(unit: Unit, item: ClaimAddress) -> Claimed | Refused:
    row = unit.address(item.address)
    refused = await refuse_claim(unit, row, item.execution_id)
    if refused is not None:
        return refused
    if row is None:
        row = unit.new_address(item.address)
    if row.kind == TASK:
        return Refused(RefusalReason.CONFLICT, f"{item.address!r} is a task")
    row.kind = item.kind.value
    row.capacity = item.capacity
    row.generation += 1
    row.owner = item.execution_id
    row.closed_at = None
    row.due_at = None
    data, size, state_type, state_version = await unit.state(row)
    return Claimed(
        generation=row.generation,
        handled_seq=row.handled_seq,
        last_seq=row.last_seq,
        state=payload_of(data, size),
        state_type=state_type,
        state_version=state_version,
        held=row.held,
    )


async def refuse_claim(unit: Unit, row: AddressRow | None, execution_id: str) -> Refused | None:
    """Why an execution may not become the owner of an address now; None: it may."""
    view = await unit.execution(execution_id)
    if view is None:
        return Refused(RefusalReason.UNKNOWN_EXECUTION, f"no execution {execution_id} is registered")
    if view.seconds_left <= 0:
        return Refused(RefusalReason.LEASE_EXPIRED, f"the lease of the execution {execution_id} has passed")
    if view.state == "draining":
        return Refused(RefusalReason.DRAINING, f"the execution {execution_id} is stopping")
    if row is None:
        return None
    if row.parked is not None:
        return Refused(RefusalReason.PARKED, f"{row.address!r} is parked ({row.parked}): {row.parked_detail}")
    if row.owner is not None and row.owner != execution_id:
        seconds = await unit.seconds_alive(row.owner)
        if seconds > 0:
            return Refused(RefusalReason.NOT_OWNER, f"{row.address!r} is owned by {row.owner}, which is alive", seconds)
    return None


async def open(unit: Unit, item: OpenAddress) -> Opened:
    if unit.address(item.address) is not None:
        return Opened(created=False)
    row = unit.new_address(item.address)
    row.kind, row.capacity = item.kind.value, item.capacity
    return Opened(created=True)


async def release(unit: Unit, item: ReleaseAddress) -> Released | Refused:
    row = await unit.fenced(item)
    if isinstance(row, Refused):
        return row
    row.owner = None
    await settle_due(unit, row)
    if row.due_at is not None and row.due_at <= unit.now:
        unit.wake(row.address)
    return Released()


async def close(unit: Unit, item: CloseAddress) -> Closed | Refused:
    row = await unit.fenced(item)
    if isinstance(row, Refused):
        return row
    if row.kind == TASK:
        return unit.refuse(item, RefusalReason.CONFLICT, f"{item.address!r} is a task, which ends by its outcome")
    row.owner = None
    row.closed_at = unit.now
    await settle_due(unit, row)
    return Closed()


async def park(unit: Unit, item: ParkAddress) -> Parked | Refused:
    row = await unit.fenced(item)
    if isinstance(row, Refused):
        return row
    await stop_for_operator(unit, row, item)
    return Parked()


async def stop_for_operator(unit: Unit, row: AddressRow, item: ParkAddress) -> None:
    """Nobody owns the address, and nobody claims it, until an operator says so."""
    row.owner = None
    row.parked, row.parked_detail = item.reason.value, item.detail
    task = await unit.task(row)
    if task is not None:
        leave_place(unit, task)
    await settle_due(unit, row)


async def unpark(unit: Unit, item: UnparkAddress) -> Unparked | Refused:
    row = unit.address(item.address)
    if row is None:
        return Refused(RefusalReason.UNKNOWN_ADDRESS, f"there is no address {item.address!r}")
    if row.parked is None:
        return Refused(RefusalReason.NOT_PARKED, f"{item.address!r} is not parked")
    await let_run(unit, row)
    return Unparked()


async def let_run(unit: Unit, row: AddressRow) -> None:
    """An operator lets a parked address run again: what was counted against it is forgiven."""
    row.parked = row.parked_detail = None
    task = await unit.task(row)
    if task is not None:
        task.suspicions, task.restarts = 0, EMPTY
    await settle_due(unit, row)
    unit.wake(row.address)
