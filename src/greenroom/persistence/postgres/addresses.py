"""How PostgreSQL applies the transitions of addresses."""

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
from greenroom.persistence.postgres.mail import settle_due
from greenroom.persistence.postgres.rows import payload_of
from greenroom.persistence.postgres.unit import Unit
from greenroom.persistence.transitions import RefusalReason, Refused


async def claim(unit: Unit, item: ClaimAddress) -> Claimed | Refused:
    view = await unit.execution(item.execution_id)
    if view is None:
        return Refused(RefusalReason.UNKNOWN_EXECUTION, f"no execution {item.execution_id} is registered")
    if view.seconds_left <= 0:
        return Refused(RefusalReason.LEASE_EXPIRED, f"the lease of the execution {item.execution_id} has passed")
    if view.state == "draining":
        return Refused(RefusalReason.DRAINING, f"the execution {item.execution_id} is stopping")
    row = unit.address(item.address)
    if row is None:
        row = unit.new_address(item.address)
    if row.parked is not None:
        return Refused(RefusalReason.PARKED, f"{item.address!r} is parked ({row.parked}): {row.parked_detail}")
    if row.owner is not None and row.owner != item.execution_id:
        seconds = await unit.seconds_alive(row.owner)
        if seconds > 0:
            detail = f"{item.address!r} is owned by {row.owner}, which is alive"
            return Refused(RefusalReason.NOT_OWNER, detail, seconds)
    row.kind = item.kind.value
    row.capacity = item.capacity
    row.generation += 1
    row.owner = item.execution_id
    row.closed_at = None
    row.due_at = None
    return Claimed(
        generation=row.generation,
        handled_seq=row.handled_seq,
        last_seq=row.last_seq,
        state=payload_of(row.state, row.state_content, row.state_size),
        state_type=row.state_type,
        state_version=row.state_version,
    )


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
    if row.due_at is not None:
        unit.wake(row.address)
    return Released()


async def close(unit: Unit, item: CloseAddress) -> Closed | Refused:
    row = await unit.fenced(item)
    if isinstance(row, Refused):
        return row
    row.owner = None
    row.closed_at = unit.now
    await settle_due(unit, row)
    return Closed()


async def park(unit: Unit, item: ParkAddress) -> Parked | Refused:
    row = await unit.fenced(item)
    if isinstance(row, Refused):
        return row
    row.owner = None
    row.parked, row.parked_detail = item.reason.value, item.detail
    await settle_due(unit, row)
    return Parked()


async def unpark(unit: Unit, item: UnparkAddress) -> Unparked | Refused:
    row = unit.address(item.address)
    if row is None:
        return Refused(RefusalReason.UNKNOWN_ADDRESS, f"there is no address {item.address!r}")
    if row.parked is None:
        return Refused(RefusalReason.NOT_PARKED, f"{item.address!r} is not parked")
    row.parked = row.parked_detail = None
    await settle_due(unit, row)
    unit.wake(row.address)
    return Unparked()
