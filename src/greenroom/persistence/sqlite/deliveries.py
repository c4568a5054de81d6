"""How SQLite applies the transitions of deliveries."""

from __future__ import annotations

from typing import Any

from greenroom.persistence.clock import maybe_micros, micros
from greenroom.persistence.content import Payload
from greenroom.persistence.deliveries import (
    BeginDelivery,
    BuryMessage,
    CancelTimer,
    DeadLettered,
    Delivery,
    FinishDelivery,
    Handled,
    SetTimer,
    UndoDelivery,
)
from greenroom.persistence.messages import Disposition
from greenroom.persistence.observations import ObservationKind
from greenroom.persistence.sqlite.mail import QUEUED, insert, receive, settle
from greenroom.persistence.sqlite.outbox import hold, to_outside
from greenroom.persistence.sqlite.rows import AddressRow, columns_of
from greenroom.persistence.sqlite.unit import Unit
from greenroom.persistence.transitions import OwnerWrite, RefusalReason, Refused

# A message that may be in hand.
SELECT_MESSAGE = "SELECT status, deliveries, timer FROM messages WHERE address = ? AND seq = ?"
# One more delivery is begun.
UPDATE_BEGUN = "UPDATE messages SET deliveries = ?, delivered_at = ? WHERE address = ? AND seq = ?"
# A delivery is taken back.
UPDATE_UNDONE = "UPDATE messages SET deliveries = ? WHERE address = ? AND seq = ?"
# A handled message that no number marks, or that was answered.
UPDATE_HANDLED = (
    "UPDATE messages SET status = 'handled', settled_at = ?, reply = ?, reply_content = ?, reply_size = ?, "
    "error = ?, error_content = ?, error_size = ? WHERE address = ? AND seq = ?"
)
# A message becomes a dead letter.
UPDATE_DEAD = (
    "UPDATE messages SET status = 'dead', settled_at = ?, reason = ?, error = ?, error_content = ?, error_size = ? "
    "WHERE address = ? AND seq = ?"
)
# The timer that waits under a key.
DELETE_TIMER = "DELETE FROM messages WHERE timer = ? AND address = ? AND status = 'delayed'"


def begin(unit: Unit, item: BeginDelivery) -> Delivery | DeadLettered | Refused:
    row = unit.fenced(item)
    if isinstance(row, Refused):
        return row
    return _begin(unit, row, item.seq, item.max_deliveries)


def _begin(unit: Unit, row: AddressRow, seq: int, max_deliveries: int) -> Delivery | DeadLettered | Refused:
    if row.held:
        return Refused(
            RefusalReason.HELD_BACK, f"{row.held} messages of {row.address!r} wait for room at their recipients"
        )
    found = _in_mailbox(unit, row, seq)
    if isinstance(found, Refused):
        return found
    deliveries, timer = found
    if deliveries >= max_deliveries:
        return _bury(unit, row, seq, deliveries, timer, f"it was delivered {deliveries} times", None)
    unit.execute(UPDATE_BEGUN, (deliveries + 1, unit.now, row.address, seq))
    return Delivery(seq, deliveries + 1)


def _in_mailbox(unit: Unit, row: AddressRow, seq: int) -> tuple[int, str | None] | Refused:
    """The deliveries and the timer's key of a message that is still to be handled."""
    found = unit.execute(SELECT_MESSAGE, (row.address, seq)).fetchone() if seq > row.handled_seq else None
    if found is None or found[0] != QUEUED:
        return Refused(RefusalReason.NOT_PENDING, f"no message at place {seq} of {row.address!r} waits to be handled")
    return found[1], found[2]


def _bury(
    unit: Unit, row: AddressRow, seq: int, deliveries: int, timer: str | None, reason: str, error: Payload | None
) -> DeadLettered:
    unit.execute(UPDATE_DEAD, (unit.now, reason, *columns_of(error), row.address, seq))
    if timer is None:
        row.queued -= 1
    settle(unit, row, seq)
    return DeadLettered(seq, deliveries)


def bury(unit: Unit, item: BuryMessage) -> DeadLettered | Refused:
    row = unit.fenced(item)
    if isinstance(row, Refused):
        return row
    found = _in_mailbox(unit, row, item.seq)
    if isinstance(found, Refused):
        return found
    deliveries, timer = found
    return _bury(unit, row, item.seq, deliveries, timer, item.reason, item.error)


def _in_hand(unit: Unit, row: AddressRow, item: OwnerWrite[Any], seq: int) -> tuple[int, str | None] | Refused:
    """As `_in_mailbox`, and a delivery has been begun. Whatever comes from an owner too late is kept."""
    found = _in_mailbox(unit, row, seq)
    if isinstance(found, Refused):
        return unit.refuse(item, found.reason, found.detail)
    if found[0] == 0:
        return unit.refuse(item, RefusalReason.NOT_PENDING, f"no delivery of place {seq} of {row.address!r} was begun")
    return found


def undo(unit: Unit, item: UndoDelivery) -> Delivery | Refused:
    row = unit.fenced(item)
    if isinstance(row, Refused):
        return row
    found = _in_hand(unit, row, item, item.seq)
    if isinstance(found, Refused):
        return found
    deliveries, _ = found
    unit.execute(UPDATE_UNDONE, (deliveries - 1, item.address, item.seq))
    return Delivery(item.seq, deliveries - 1)


def finish(unit: Unit, item: FinishDelivery) -> Handled | Refused:
    row = unit.fenced(item)
    if isinstance(row, Refused):
        return row
    found = _in_hand(unit, row, item, item.seq)
    if isinstance(found, Refused):
        return found
    if found[1] is None:
        row.queued -= 1
    if not settle(unit, row, item.seq) or item.reply is not None or item.error is not None:
        unit.execute(
            UPDATE_HANDLED, (unit.now, *columns_of(item.reply), *columns_of(item.error), item.address, item.seq)
        )
    if item.state is not None:
        unit.write_state(row, item.state)
    for timer in item.timers:
        _set_timer(unit, row, timer)
    outgoing = _send(unit, row, item) if item.outgoing else ()
    for message in item.outside:
        to_outside(unit, row, message)
    if item.next_seq is None:
        return Handled(outgoing=outgoing)
    following = _begin(unit, row, item.next_seq, item.max_deliveries)
    if isinstance(following, Delivery):
        return Handled(outgoing=outgoing, next=following)
    if isinstance(following, DeadLettered):
        return Handled(outgoing=outgoing, next_dead=following)
    return Handled(outgoing=outgoing, next_refused=following)


def _set_timer(unit: Unit, row: AddressRow, timer: SetTimer | CancelTimer) -> None:
    row.delayed -= unit.execute(DELETE_TIMER, (timer.key, row.address)).rowcount
    if not isinstance(timer, SetTimer):
        return
    moment = micros(timer.deliver_at)
    seq = insert(unit, row, timer.message_id, timer.digest, timer.type, timer.body, row.address, timer.key, moment)
    if seq is None:
        unit.observe(
            ObservationKind.CONFLICT,
            timer.type,
            row.address,
            message_id=timer.message_id,
            sender=row.address,
            detail=f"the timer {timer.key!r} was not set: its identity is taken",
            body=timer.body,
        )


def _send(unit: Unit, row: AddressRow, item: FinishDelivery) -> tuple[Disposition, ...]:
    """A handler's messages to addresses of the store. Where there is no room they are held, in order for each recipient."""
    dispositions: list[Disposition] = []
    crowded: set[str] = set()
    for message in item.outgoing:
        receipt = None
        if message.recipient not in crowded:
            receipt = receive(
                unit,
                message.recipient,
                message.message_id,
                message.digest,
                message.type,
                message.body,
                item.address,
                maybe_micros(message.deliver_at),
            )
        if receipt is None:
            crowded.add(message.recipient)
            hold(unit, row, message)
        dispositions.append(Disposition.HELD if receipt is None else receipt.disposition)
    return tuple(dispositions)
