"""How SQLite applies the transitions of the outbox."""

from __future__ import annotations

from typing import Any

from greenroom.persistence.clock import maybe_micros
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
from greenroom.persistence.sqlite.mail import receive
from greenroom.persistence.sqlite.rows import AddressRow, columns_of, payload_of
from greenroom.persistence.sqlite.unit import Unit
from greenroom.persistence.transitions import RefusalReason, Refused

# Something to send, or to bring when there is room.
INSERT_OUTBOX = (
    "INSERT INTO outbox (address, ordinal, held, destination, message_id, digest, type, body, body_content, body_size, "
    "deliver_at, status, due_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', ?)"
)
# What an address holds for some recipient, in order.
SELECT_HELD = (
    "SELECT ordinal, destination, message_id, digest, type, body, body_content, body_size, deliver_at FROM outbox "
    "WHERE address = ? AND destination = ? AND status = 'pending' AND held = 1 ORDER BY ordinal"
)
# One row for an outside destination.
SELECT_OUTBOX = "SELECT status, attempts, due_at FROM outbox WHERE address = ? AND ordinal = ? AND held = 0"
# It is somebody's for a while.
UPDATE_SENDING = "UPDATE outbox SET attempts = ?, due_at = ? WHERE address = ? AND ordinal = ?"
# It is published, brought, or given up.
UPDATE_SETTLED = "UPDATE outbox SET status = ?, settled_at = ? WHERE address = ? AND ordinal = ?"
# It is to be tried (again) from then on.
UPDATE_PENDING = "UPDATE outbox SET status = 'pending', settled_at = NULL, due_at = ? WHERE address = ? AND ordinal = ?"


def hold(unit: Unit, row: AddressRow, message: Outgoing) -> None:
    """Keep a message for whose recipient there is no room."""
    row.last_ordinal += 1
    row.held += 1
    unit.execute(
        INSERT_OUTBOX,
        (
            row.address,
            row.last_ordinal,
            1,
            message.recipient,
            message.message_id,
            message.digest,
            message.type,
            *columns_of(message.body),
            maybe_micros(message.deliver_at),
            unit.now,
        ),
    )


def to_outside(unit: Unit, row: AddressRow, message: ToOutside) -> None:
    """Give a message to the relay."""
    row.last_ordinal += 1
    unit.execute(
        INSERT_OUTBOX,
        (
            row.address,
            row.last_ordinal,
            0,
            message.destination,
            message.message_id,
            None,
            message.type,
            *columns_of(message.body),
            None,
            unit.now,
        ),
    )


def flush_held(unit: Unit, item: FlushHeld) -> Flushed | Refused:
    row = unit.address(item.address)
    if row is None:
        return Refused(RefusalReason.UNKNOWN_ADDRESS, f"there is no address {item.address!r}")
    count = 0
    for recipient in dict.fromkeys(item.recipients):
        for ordinal, _, message_id, digest, type_name, *body, deliver_at in unit.execute(
            SELECT_HELD, (item.address, recipient)
        ).fetchall():
            payload = payload_of(*body)
            assert payload is not None  # the schema has it so
            if receive(unit, recipient, message_id, digest, type_name, payload, item.address, deliver_at) is None:
                break
            unit.execute(UPDATE_SETTLED, (OutboxStatus.SENT.value, unit.now, item.address, ordinal))
            count += 1
    row.held -= count
    if count and row.held == 0:
        unit.woken.add(item.address)
    return Flushed(count, row.held)


def _moved(unit: Unit, item: OutboxWrite[Any], event: OutboxEvent) -> OutboxStatus | Refused:
    """The state that the event leads to."""
    found = _row(unit, item)
    if isinstance(found, Refused):
        return found
    following = OUTBOX_MOVES.get((found[0], event))
    return following or _not_pending(item, found[0])


def _row(unit: Unit, item: OutboxWrite[Any]) -> tuple[OutboxStatus, int, int] | Refused:
    """A row's state, tries and due moment."""
    found = unit.execute(SELECT_OUTBOX, (item.address, item.ordinal)).fetchone()
    if found is None:
        return Refused(RefusalReason.UNKNOWN_MESSAGE, f"{item.address!r} has no outbox row {item.ordinal}")
    status, attempts, due_at = found
    return OutboxStatus(status), attempts, due_at


def _not_pending(item: OutboxWrite[Any], status: OutboxStatus) -> Refused:
    return Refused(RefusalReason.NOT_PENDING, f"the outbox row {item.ordinal} of {item.address!r} is {status.value}")


def begin_send(unit: Unit, item: BeginSend) -> Sending | Refused:
    found = _row(unit, item)
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
    unit.execute(UPDATE_SENDING, (attempts + 1, unit.now + round(item.seconds * 1e6), item.address, item.ordinal))
    return Sending(attempts + 1)


def finish_send(unit: Unit, item: FinishSend) -> OutboxMoved | Refused:
    following = _moved(unit, item, OutboxEvent.SEND)
    if isinstance(following, Refused):
        return following
    unit.execute(UPDATE_SETTLED, (following.value, unit.now, item.address, item.ordinal))
    return OutboxMoved(following)


def fail_send(unit: Unit, item: FailSend) -> OutboxMoved | Refused:
    following = _moved(unit, item, OutboxEvent.GIVE_UP)
    if isinstance(following, Refused):
        return following
    if item.seconds is not None:
        unit.execute(UPDATE_PENDING, (unit.now + round(item.seconds * 1e6), item.address, item.ordinal))
        return OutboxMoved(OutboxStatus.PENDING)
    unit.execute(UPDATE_SETTLED, (following.value, unit.now, item.address, item.ordinal))
    return OutboxMoved(following)


def requeue_send(unit: Unit, item: RequeueSend) -> OutboxMoved | Refused:
    following = _moved(unit, item, OutboxEvent.REQUEUE)
    if isinstance(following, Refused):
        return following
    unit.execute(UPDATE_PENDING, (unit.now, item.address, item.ordinal))
    return OutboxMoved(following)
