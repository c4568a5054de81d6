"""Deliveries: begun, finished with all that goes with it, taken back, buried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from greenroom.persistence.applying.mail import QUEUED, insert, receive, settle
from greenroom.persistence.applying.outbox import held_up, hold, to_outside
from greenroom.persistence.applying.rows import AddressRow
from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.clock import maybe_micros, micros
from greenroom.persistence.content import Payload, columns_of
from greenroom.persistence.deliveries import (
    BeginDelivery,
    BuryMessage,
    CancelTimer,
    DeadLettered,
    Delivery,
    FinishDelivery,
    Handled,
    Outgoing,
    SetTimer,
    UndoDelivery,
)
from greenroom.persistence.messages import Disposition, Receipt
from greenroom.persistence.observations import ObservationKind
from greenroom.persistence.transitions import OwnerWrite, RefusalReason, Refused

# A message that may be in hand.
SELECT_MESSAGE = "SELECT status, deliveries, timer FROM messages WHERE address = $1 AND seq = $2"
# One more delivery is begun.
UPDATE_BEGUN = "UPDATE messages SET deliveries = $1, delivered_at = $2 WHERE address = $3 AND seq = $4"
# A delivery is taken back.
UPDATE_UNDONE = "UPDATE messages SET deliveries = $1 WHERE address = $2 AND seq = $3"
# A handled message that no number marks, or that was answered.
UPDATE_HANDLED = (
    "UPDATE messages SET status = 'handled', settled_at = $1, reply = $2, reply_size = $3, error = $4, error_size = $5 "
    "WHERE address = $6 AND seq = $7"
)
# A message becomes a dead letter.
UPDATE_DEAD = (
    "UPDATE messages SET status = 'dead', settled_at = $1, reason = $2, error = $3, error_size = $4 "
    "WHERE address = $5 AND seq = $6"
)
# The timer that waits under a key.
DELETE_TIMER = "DELETE FROM messages WHERE timer = $1 AND address = $2 AND status = 'delayed'"


async def begin(unit: Unit, item: BeginDelivery) -> Delivery | DeadLettered | Refused:
    row = await unit.fenced(item)
    if isinstance(row, Refused):
        return row
    return await _begin(unit, row, item.seq, item.max_deliveries)


async def _begin(unit: Unit, row: AddressRow, seq: int, max_deliveries: int) -> Delivery | DeadLettered | Refused:
    if row.held:
        return Refused(
            RefusalReason.HELD_BACK, f"{row.held} messages of {row.address!r} wait for room at their recipients"
        )
    found = await _in_mailbox(unit, row, seq)
    if isinstance(found, Refused):
        return found
    deliveries, timer = found
    if deliveries >= max_deliveries:
        return await _bury(unit, row, seq, deliveries, timer, f"it was delivered {deliveries} times", None)
    await unit.tx.change(UPDATE_BEGUN, deliveries + 1, unit.now, row.address, seq)
    return Delivery(seq, deliveries + 1)


async def _in_mailbox(unit: Unit, row: AddressRow, seq: int) -> tuple[int, str | None] | Refused:
    """The deliveries and the timer's key of a message that is still to be handled."""
    found = (await unit.tx.one(SELECT_MESSAGE, row.address, seq)) if seq > row.handled_seq else None
    if found is None or found[0] != QUEUED:
        return Refused(RefusalReason.NOT_PENDING, f"no message at place {seq} of {row.address!r} waits to be handled")
    return found[1], found[2]


async def _bury(
    unit: Unit, row: AddressRow, seq: int, deliveries: int, timer: str | None, reason: str, error: Payload | None
) -> DeadLettered:
    await unit.tx.change(UPDATE_DEAD, unit.now, reason, *columns_of(error), row.address, seq)
    if timer is None:
        row.queued -= 1
    await settle(unit, row, seq)
    return DeadLettered(seq, deliveries)


async def bury(unit: Unit, item: BuryMessage) -> DeadLettered | Refused:
    row = await unit.fenced(item)
    if isinstance(row, Refused):
        return row
    found = await _in_mailbox(unit, row, item.seq)
    if isinstance(found, Refused):
        return found
    deliveries, timer = found
    return await _bury(unit, row, item.seq, deliveries, timer, item.reason, item.error)


async def _in_hand(unit: Unit, row: AddressRow, item: OwnerWrite[Any], seq: int) -> tuple[int, str | None] | Refused:
    """As `_in_mailbox`, and a delivery has been begun. Whatever comes from an owner too late is kept."""
    found = await _in_mailbox(unit, row, seq)
    if isinstance(found, Refused):
        return unit.refuse(item, found.reason, found.detail)
    if found[0] == 0:
        return unit.refuse(item, RefusalReason.NOT_PENDING, f"no delivery of place {seq} of {row.address!r} was begun")
    return found


async def undo(unit: Unit, item: UndoDelivery) -> Delivery | Refused:
    row = await unit.fenced(item)
    if isinstance(row, Refused):
        return row
    found = await _in_hand(unit, row, item, item.seq)
    if isinstance(found, Refused):
        return found
    deliveries, _ = found
    await unit.tx.change(UPDATE_UNDONE, deliveries - 1, item.address, item.seq)
    return Delivery(item.seq, deliveries - 1)


async def finish(unit: Unit, item: FinishDelivery) -> Handled | Refused:
    row = await unit.fenced(item)
    if isinstance(row, Refused):
        return row
    found = await _in_hand(unit, row, item, item.seq)
    if isinstance(found, Refused):
        return found
    if found[1] is None:
        row.queued -= 1
    if not await settle(unit, row, item.seq) or item.reply is not None or item.error is not None:
        await unit.tx.change(
            UPDATE_HANDLED, unit.now, *columns_of(item.reply), *columns_of(item.error), item.address, item.seq
        )
    if item.state is not None:
        unit.write_state(row, item.state)
    for timer in item.timers:
        await _set_timer(unit, row, timer)
    outgoing = await send(unit, row, item.outgoing)
    for message in item.outside:
        await to_outside(unit, row, message)
    if item.next_seq is None:
        return Handled(outgoing=outgoing)
    following = await _begin(unit, row, item.next_seq, item.max_deliveries)
    if isinstance(following, Delivery):
        return Handled(outgoing=outgoing, next=following)
    if isinstance(following, DeadLettered):
        return Handled(outgoing=outgoing, next_dead=following)
    return Handled(outgoing=outgoing, next_refused=following)


async def _set_timer(unit: Unit, row: AddressRow, timer: SetTimer | CancelTimer) -> None:
    row.delayed -= await unit.tx.change(DELETE_TIMER, timer.key, row.address)
    if not isinstance(timer, SetTimer):
        return
    moment = micros(timer.deliver_at)
    seq = await insert(
        unit, row, timer.message_id, timer.digest, timer.type, timer.body, row.address, timer.key, moment
    )
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


async def send(unit: Unit, row: AddressRow, outgoing: Sequence[Outgoing]) -> tuple[Disposition, ...]:
    """An owner's messages to addresses of the store. Where there is no room they are held, in order for each recipient."""
    dispositions: list[Disposition] = []
    crowded = await held_up(unit, row) if outgoing and row.held else set()
    for message in outgoing:
        receipt = None
        if message.recipient not in crowded:
            receipt = await receive(
                unit,
                message.recipient,
                message.message_id,
                message.digest,
                message.type,
                message.body,
                row.address,
                maybe_micros(message.deliver_at),
            )
        if receipt is None and message.recipient == row.address:
            # Waiting for room in its own mailbox, it would wait for itself.
            receipt = await _send_itself(unit, row, message)
        if receipt is None:
            crowded.add(message.recipient)
            await hold(unit, row, message)
        dispositions.append(Disposition.HELD if receipt is None else receipt.disposition)
    return tuple(dispositions)


async def _send_itself(unit: Unit, row: AddressRow, message: Outgoing) -> Receipt:
    moment = maybe_micros(message.deliver_at)
    seq = await insert(
        unit, row, message.message_id, message.digest, message.type, message.body, row.address, None, moment
    )
    assert seq is not None  # a known identity is not refused for lack of room
    return Receipt(message.message_id, Disposition.ACCEPTED, seq if seq > 0 else None)
