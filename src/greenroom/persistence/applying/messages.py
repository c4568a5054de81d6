"""Messages: accepted, admitted when their time has come; dead letters settled."""

from __future__ import annotations

from greenroom.persistence.applying.mail import DEAD, may_be_due, next_due, receive, settle_due
from greenroom.persistence.applying.rows import AddressRow
from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.clock import maybe_instant, maybe_micros
from greenroom.persistence.messages import (
    MESSAGE_MOVES,
    AcceptMessage,
    AdmitDue,
    Admitted,
    DropDead,
    MessageEvent,
    MessageStatus,
    Receipt,
    RequeueDead,
    Settled,
    SettleDead,
)
from greenroom.persistence.transitions import RefusalReason, Refused

# Delayed messages whose time has come, the longest due first, and in the order of their acceptance.
SELECT_DUE = "SELECT seq FROM messages WHERE address = $1 AND seq < 0 AND deliver_at <= $2 ORDER BY deliver_at, seq DESC LIMIT $3"
# A delayed message takes its place.
UPDATE_ADMITTED = "UPDATE messages SET seq = $1, status = 'queued' WHERE address = $2 AND seq = $3"
# A message that may be a dead letter.
SELECT_DEAD = "SELECT seq, status, timer FROM messages WHERE message_id = $1 AND address = $2"
# A dead letter goes to the end of the mailbox.
UPDATE_REQUEUED = (
    "UPDATE messages SET seq = $1, status = 'queued', deliveries = 0, delivered_at = NULL, settled_at = NULL, "
    "error = NULL, error_size = NULL, reason = NULL WHERE address = $2 AND seq = $3"
)
# A dead letter is dropped.
UPDATE_DROPPED = "UPDATE messages SET status = 'dropped', settled_at = $1 WHERE address = $2 AND seq = $3"


async def accept(unit: Unit, item: AcceptMessage) -> Receipt | Refused:
    woken = item.address in unit.woken
    receipt = await receive(
        unit,
        item.address,
        item.message_id,
        item.digest,
        item.type,
        item.body,
        item.sender,
        maybe_micros(item.deliver_at),
        urgent=item.urgent,
    )
    if receipt is None:
        row = unit.address(item.address)
        capacity = None if row is None else row.capacity
        return Refused(RefusalReason.FULL, f"the mailbox holds its {capacity} messages")
    if item.hushed and not woken:
        unit.woken.discard(item.address)
    return receipt


async def admit_due(unit: Unit, item: AdmitDue) -> Admitted | Refused:
    row = unit.address(item.address)
    if row is None:
        return Refused(RefusalReason.UNKNOWN_ADDRESS, f"there is no address {item.address!r}")
    if row.delayed == 0:
        return Admitted(0, None)
    due = await unit.tx.all(SELECT_DUE, item.address, unit.now, item.limit)
    for (seq,) in due:
        row.last_seq += 1
        await unit.tx.change(UPDATE_ADMITTED, row.last_seq, item.address, seq)
    row.delayed -= len(due)
    row.ready += len(due)
    if due:
        unit.wake(item.address)
        await settle_due(unit, row)
    return Admitted(len(due), maybe_instant(await next_due(unit, row)))


async def _dead(unit: Unit, item: SettleDead, event: MessageEvent) -> tuple[AddressRow, int, str | None] | Refused:
    """A dead letter that an operator settles."""
    row = unit.address(item.address)
    found = None if row is None else (await unit.tx.one(SELECT_DEAD, item.message_id, item.address))
    if row is None or found is None:
        return Refused(RefusalReason.UNKNOWN_MESSAGE, f"{item.address!r} has no message {item.message_id!r} on record")
    seq, status, timer = found
    if status != DEAD or (MessageStatus.DEAD, event) not in MESSAGE_MOVES:
        return Refused(
            RefusalReason.NOT_PENDING, f"the message {item.message_id!r} of {item.address!r} is no dead letter"
        )
    return row, seq, timer


async def requeue(unit: Unit, item: RequeueDead) -> Settled | Refused:
    found = await _dead(unit, item, MessageEvent.REQUEUE)
    if isinstance(found, Refused):
        return found
    row, seq, timer = found
    if timer is None:
        if row.capacity is not None and row.queued >= row.capacity:
            return Refused(RefusalReason.FULL, f"the mailbox holds its {row.capacity} messages")
        row.queued += 1
    row.last_seq += 1
    await unit.tx.change(UPDATE_REQUEUED, row.last_seq, item.address, seq)
    if seq > row.handled_seq:
        row.settled_ahead -= 1  # it leaves a gap behind, which counts as nothing
    row.ready += 1
    may_be_due(row, unit.now)
    unit.wake(item.address)
    return Settled(MessageStatus.QUEUED, row.last_seq)


async def drop(unit: Unit, item: DropDead) -> Settled | Refused:
    found = await _dead(unit, item, MessageEvent.DROP)
    if isinstance(found, Refused):
        return found
    _, seq, _ = found
    await unit.tx.change(UPDATE_DROPPED, unit.now, item.address, seq)
    return Settled(MessageStatus.DROPPED, seq)
