"""The outbox: kept for the relay, or for room; sent, brought, given up."""

from __future__ import annotations

from typing import Any

from greenroom.persistence.applying.mail import receive
from greenroom.persistence.applying.rows import AddressRow
from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.clock import maybe_micros
from greenroom.persistence.content import body_of, columns_of
from greenroom.persistence.deliveries import Outgoing, ToOutside
from greenroom.persistence.outbox import (
    OUTBOX_MOVES,
    BeginSend,
    FailSend,
    FinishSend,
    Flushed,
    FlushHeld,
    OutboxEvent,
    OutboxMoved,
    OutboxStatus,
    OutboxWrite,
    RequeueSend,
    Sending,
)
from greenroom.persistence.transitions import RefusalReason, Refused

# Something to send, or to bring when there is room.
INSERT_OUTBOX = (
    "INSERT INTO outbox (address, ordinal, held, destination, message_id, digest, type, body, body_size, deliver_at, "
    "status, due_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'pending', $11)"
)
# What an address holds for some recipient, in order.
SELECT_HELD = (
    "SELECT ordinal, message_id, digest, type, body, body_size, deliver_at FROM outbox "
    "WHERE address = $1 AND destination = $2 AND status = 'pending' AND held ORDER BY ordinal"
)
# For whom an address holds messages.
SELECT_HELD_UP = "SELECT DISTINCT destination FROM outbox WHERE address = $1 AND status = 'pending' AND held"
# One row for an outside destination.
SELECT_OUTBOX = "SELECT status, attempts, due_at FROM outbox WHERE address = $1 AND ordinal = $2 AND NOT held"
# It is somebody's for a while.
UPDATE_SENDING = "UPDATE outbox SET attempts = $1, due_at = $2 WHERE address = $3 AND ordinal = $4"
# It is published, brought, or given up.
UPDATE_SETTLED = "UPDATE outbox SET status = $1, settled_at = $2 WHERE address = $3 AND ordinal = $4"
# It is to be tried (again) from then on.
UPDATE_PENDING = (
    "UPDATE outbox SET status = 'pending', settled_at = NULL, due_at = $1 WHERE address = $2 AND ordinal = $3"
)


async def hold(unit: Unit, row: AddressRow, message: Outgoing) -> None:
    """Keep a message for whose recipient there is no room."""
    row.last_ordinal += 1
    row.held += 1
    await unit.tx.change(
        INSERT_OUTBOX,
        row.address,
        row.last_ordinal,
        True,
        message.recipient,
        message.message_id,
        message.digest,
        message.type,
        *columns_of(message.body),
        maybe_micros(message.deliver_at),
        unit.now,
    )


async def held_up(unit: Unit, row: AddressRow) -> set[str]:
    """The recipients for whom an address holds messages."""
    return {recipient for (recipient,) in await unit.tx.all(SELECT_HELD_UP, row.address)}


async def to_outside(unit: Unit, row: AddressRow, message: ToOutside) -> None:
    """Give a message to the relay."""
    row.last_ordinal += 1
    await unit.tx.change(
        INSERT_OUTBOX,
        row.address,
        row.last_ordinal,
        False,
        message.destination,
        message.message_id,
        None,
        message.type,
        *columns_of(message.body),
        None,
        unit.now,
    )


async def flush_held(unit: Unit, item: FlushHeld) -> Flushed | Refused:
    row = unit.address(item.address)
    if row is None:
        return Refused(RefusalReason.UNKNOWN_ADDRESS, f"there is no address {item.address!r}")
    count = 0
    for recipient in dict.fromkeys(item.recipients):
        for ordinal, message_id, digest, type_name, data, size, deliver_at in await unit.tx.all(
            SELECT_HELD, item.address, recipient
        ):
            body = body_of(data, size)
            if await receive(unit, recipient, message_id, digest, type_name, body, item.address, deliver_at) is None:
                break
            await unit.tx.change(UPDATE_SETTLED, OutboxStatus.SENT.value, unit.now, item.address, ordinal)
            count += 1
    row.held -= count
    if count and row.held == 0:
        unit.wake(item.address)
    return Flushed(count, row.held)


async def _moved(unit: Unit, item: OutboxWrite[Any], event: OutboxEvent) -> OutboxStatus | Refused:
    """The state that the event leads to."""
    found = await _row(unit, item)
    if isinstance(found, Refused):
        return found
    following = OUTBOX_MOVES.get((found[0], event))
    return following or _not_pending(item, found[0])


async def _row(unit: Unit, item: OutboxWrite[Any]) -> tuple[OutboxStatus, int, int] | Refused:
    """A row's state, tries and due moment."""
    found = await unit.tx.one(SELECT_OUTBOX, item.address, item.ordinal)
    if found is None:
        return Refused(RefusalReason.UNKNOWN_MESSAGE, f"{item.address!r} has no outbox row {item.ordinal}")
    status, attempts, due_at = found
    return OutboxStatus(status), attempts, due_at


def _not_pending(item: OutboxWrite[Any], status: OutboxStatus) -> Refused:
    return Refused(RefusalReason.NOT_PENDING, f"the outbox row {item.ordinal} of {item.address!r} is {status.value}")


async def begin_send(unit: Unit, item: BeginSend) -> Sending | Refused:
    found = await _row(unit, item)
    if isinstance(found, Refused):
        return found
    status, attempts, due_at = found
    if status is not OutboxStatus.PENDING:
        return _not_pending(item, status)
    if due_at > unit.now:
        return Refused(
            RefusalReason.NOT_PENDING,
            f"the outbox row {item.ordinal} of {item.address!r} is somebody's now, or waits for its next try",
            (due_at - unit.now) / 1e6,
        )
    await unit.tx.change(UPDATE_SENDING, attempts + 1, unit.now + round(item.seconds * 1e6), item.address, item.ordinal)
    return Sending(attempts + 1)


async def finish_send(unit: Unit, item: FinishSend) -> OutboxMoved | Refused:
    following = await _moved(unit, item, OutboxEvent.SEND)
    if isinstance(following, Refused):
        return following
    await unit.tx.change(UPDATE_SETTLED, following.value, unit.now, item.address, item.ordinal)
    return OutboxMoved(following)


async def fail_send(unit: Unit, item: FailSend) -> OutboxMoved | Refused:
    following = await _moved(unit, item, OutboxEvent.GIVE_UP)
    if isinstance(following, Refused):
        return following
    if item.seconds is not None:
        await unit.tx.change(UPDATE_PENDING, unit.now + round(item.seconds * 1e6), item.address, item.ordinal)
        return OutboxMoved(OutboxStatus.PENDING)
    await unit.tx.change(UPDATE_SETTLED, following.value, unit.now, item.address, item.ordinal)
    return OutboxMoved(following)


async def requeue_send(unit: Unit, item: RequeueSend) -> OutboxMoved | Refused:
    following = await _moved(unit, item, OutboxEvent.REQUEUE)
    if isinstance(following, Refused):
        return following
    await unit.tx.change(UPDATE_PENDING, unit.now, item.address, item.ordinal)
    return OutboxMoved(following)
