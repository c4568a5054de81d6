"""What happens to a mailbox in one transaction: messages come in, take their places, are settled. Used by several nouns."""

from __future__ import annotations

from typing import Final

from greenroom.persistence.applying.rows import TASK, AddressRow
from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.content import Payload, columns_of
from greenroom.persistence.messages import Disposition, MessageStatus, Receipt
from greenroom.persistence.observations import ObservationKind

DELAYED: Final = MessageStatus.DELAYED.value
QUEUED: Final = MessageStatus.QUEUED.value
HANDLED: Final = MessageStatus.HANDLED.value
DEAD: Final = MessageStatus.DEAD.value

AHEAD: Final = 1024
"""Rows that one settling looks at, at most: what is left is caught up with by the next."""

# A message of an address, unless its identity is taken there.
INSERT_MESSAGE = (
    "INSERT INTO messages (address, seq, message_id, digest, type, body, body_size, sender, timer, "
    "deliver_at, status, accepted_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) "
    "ON CONFLICT (message_id, address) DO NOTHING"
)
# The message that has an identity.
SELECT_IDENTITY = "SELECT seq, digest FROM messages WHERE message_id = $1 AND address = $2"
# What lies behind the handled part of a mailbox.
SELECT_AHEAD = "SELECT seq, status FROM messages WHERE address = $1 AND seq > $2 ORDER BY seq LIMIT $3"
# When the first delayed message of an address is due.
SELECT_NEXT_DUE = "SELECT min(deliver_at) FROM messages WHERE address = $1 AND seq < 0"


async def receive(
    unit: Unit,
    address: str,
    message_id: str,
    digest: str,
    type_name: str,
    body: Payload,
    sender: str | None,
    deliver_at: int | None,
    *,
    urgent: bool = False,
) -> Receipt | None:
    """Bring a message to an address. None: there is no room, and it needs some."""
    row = unit.address(address)
    if row is None:
        unit.observe(
            ObservationKind.UNMATCHED,
            type_name,
            address,
            message_id=message_id,
            sender=sender,
            detail="nothing has that address",
            body=body,
        )
        return Receipt(message_id, Disposition.UNMATCHED)
    full = not urgent and row.capacity is not None and row.queued >= row.capacity
    if not full and row.closed_at is None:
        seq = await insert(unit, row, message_id, digest, type_name, body, sender, None, deliver_at)
        if seq is not None:
            return Receipt(message_id, Disposition.ACCEPTED, seq if seq > 0 else None)
    known = await unit.tx.one(SELECT_IDENTITY, message_id, address)
    if known is not None:
        seq, first_digest = known
        kind, disposition = (
            (ObservationKind.DUPLICATE, Disposition.DUPLICATE)
            if first_digest == digest
            else (ObservationKind.CONFLICT, Disposition.CONFLICT)
        )
        detail = "that message was accepted before" if first_digest == digest else "another message has that identity"
    elif row.closed_at is not None:
        seq, kind, disposition = 0, ObservationKind.LATE, Disposition.LATE
        detail = "the address's actor has ended for good"
    else:
        return None
    unit.observe(
        kind,
        type_name,
        address,
        message_id=message_id,
        sender=sender,
        detail=detail,
        body=None if disposition is Disposition.DUPLICATE else body,
    )
    return Receipt(message_id, disposition, seq if seq > 0 and disposition is Disposition.DUPLICATE else None)


async def insert(
    unit: Unit,
    row: AddressRow,
    message_id: str,
    digest: str,
    type_name: str,
    body: Payload,
    sender: str | None,
    timer: str | None,
    deliver_at: int | None,
) -> int | None:
    """Put a message into a mailbox, whatever room there is. Returns its place, negative while delayed; None: identity taken."""
    delayed = deliver_at is not None and deliver_at > unit.now
    seq = -row.last_delayed - 1 if delayed else row.last_seq + 1
    inserted = await unit.tx.change(
        INSERT_MESSAGE,
        row.address,
        seq,
        message_id,
        digest,
        type_name,
        *columns_of(body),
        sender,
        timer,
        deliver_at,
        DELAYED if delayed else QUEUED,
        unit.now,
    )
    if inserted == 0:
        return None
    if timer is None:
        row.queued += 1  # timers never count against the capacity (P18)
    if delayed:
        row.last_delayed += 1
        row.delayed += 1
        may_be_due(row, deliver_at)
    else:
        row.last_seq = seq
        row.ready += 1
        may_be_due(row, unit.now)
        unit.wake(row.address)
    return seq


async def settle(unit: Unit, row: AddressRow, seq: int) -> bool:
    """A message is queued no more. True: the handled part of the mailbox now reaches past it, which marks it handled.

    `handled_seq` moves on over all that is settled. Invariant: nothing at or before it is queued still, and `settled_ahead`
    counts the settled rows behind it.
    """
    row.ready -= 1
    if seq == row.handled_seq + 1 and row.settled_ahead == 0:
        row.handled_seq = seq
        return True
    passed = False
    for place, status in await unit.tx.all(SELECT_AHEAD, row.address, row.handled_seq, AHEAD):
        if place == seq:
            passed = True
        elif status == QUEUED:
            break
        else:
            row.settled_ahead -= 1
        row.handled_seq = place
        if passed and row.settled_ahead == 0:
            break
    if not passed:
        row.settled_ahead += 1
    return passed


def may_be_due(row: AddressRow, moment: int | None) -> None:
    """Something of the address is due at a moment: somebody should claim it then, if nobody owns it."""
    if row.claimable and moment is not None and (row.due_at is None or moment < row.due_at):
        row.due_at = moment


async def settle_due(unit: Unit, row: AddressRow) -> None:
    """Say anew when somebody should claim the address, after its ownership or its mail has changed."""
    row.due_at = None
    if row.claimable:
        # What else a task waits for is in its journal: whoever claims it finds out.
        may_be_due(row, unit.now if row.ready or row.kind == TASK else await next_due(unit, row))


async def next_due(unit: Unit, row: AddressRow) -> int | None:
    """When the first delayed message is due."""
    if row.delayed == 0:
        return None
    record = await unit.tx.one(SELECT_NEXT_DUE, row.address)
    moment: int | None = None if record is None else record[0]
    return moment
