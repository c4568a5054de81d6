"""What is most common, in its ordinary way, by one statement each. Whatever is not comes to None, unchanged, and is left to
`applying`, which says the same in more words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from greenroom.persistence.applying.deliveries import UPDATE_HANDLED
from greenroom.persistence.applying.mail import INSERT_MESSAGE, QUEUED, may_be_due
from greenroom.persistence.content import columns_of
from greenroom.persistence.deliveries import BeginDelivery, Delivery, FinishDelivery, Handled
from greenroom.persistence.journal import CommitTurn
from greenroom.persistence.messages import AcceptMessage, Disposition, Receipt
from greenroom.persistence.sqlite import turns
from greenroom.persistence.sqlite.rows import SqliteRow
from greenroom.persistence.sqlite.statements import rewritten
from greenroom.persistence.sqlite.unit import SqliteUnit
from greenroom.persistence.transitions import Transition

INSERT: Final = rewritten(INSERT_MESSAGE)
HANDLE: Final = rewritten(UPDATE_HANDLED)
# The first delivery of a message that waits, and is no timer.
BEGIN: Final = (
    "UPDATE messages SET deliveries = 1, delivered_at = ? "
    "WHERE address = ? AND seq = ? AND status = 'queued' AND deliveries = 0 AND timer IS NULL"
)
# Is a message in hand, and no timer?
IN_HAND: Final = (
    "SELECT 1 FROM messages WHERE address = ? AND seq = ? AND status = 'queued' AND deliveries > 0 AND timer IS NULL"
)


def accept(unit: SqliteUnit, item: AcceptMessage) -> Receipt | None:
    """A new message for which there is room."""
    row = unit.address(item.address)
    if row is None or row.closed_at is not None or item.deliver_at is not None:
        return None
    if row.capacity is not None and row.queued >= row.capacity:
        return None
    seq = row.last_seq + 1
    values = (item.address, seq, item.message_id, item.digest, item.type, *columns_of(item.body))
    if unit.cursor.execute(INSERT, (*values, item.sender, None, None, QUEUED, unit.now)).rowcount == 0:
        return None
    row.last_seq = seq
    row.queued += 1
    row.ready += 1
    may_be_due(row, unit.now)
    if not item.hushed:
        unit.wake(item.address)
    return Receipt(item.message_id, Disposition.ACCEPTED, seq)


def begin(unit: SqliteUnit, item: BeginDelivery) -> Delivery | None:
    """A message's first delivery, by its owner."""
    row = unit.owned(item)
    return None if row is None else _begin(unit, row, item.seq)


def _begin(unit: SqliteUnit, row: SqliteRow, seq: int) -> Delivery | None:
    if row.held or seq <= row.handled_seq:
        return None
    if unit.cursor.execute(BEGIN, (unit.now, row.address, seq)).rowcount == 0:
        return None
    row.begun.add(seq)
    return Delivery(seq, 1)


def finish(unit: SqliteUnit, item: FinishDelivery) -> Handled | None:
    """A message that was begun in its turn, and whose handler has sent nothing."""
    if item.outgoing or item.timers or item.outside:
        return None
    row = unit.owned(item)
    if row is None or item.seq != row.handled_seq + 1 or row.settled_ahead:
        return None
    if item.seq not in row.begun and unit.cursor.execute(IN_HAND, (item.address, item.seq)).fetchone() is None:
        return None
    following = None
    if item.next_seq is not None:
        following = _begin(unit, row, item.next_seq)
        if following is None:
            return None
    if item.reply is not None or item.error is not None:
        answered = (*columns_of(item.reply), *columns_of(item.error))
        unit.cursor.execute(HANDLE, (unit.now, *answered, item.address, item.seq))
    row.begun.discard(item.seq)
    row.handled_seq = item.seq
    row.ready -= 1
    row.queued -= 1
    if item.state is not None:
        unit.write_state(row, item.state)
    return Handled(next=following)


HOT: Final[dict[type[Transition[Any]], Callable[[SqliteUnit, Any], Any]]] = {
    AcceptMessage: accept,
    BeginDelivery: begin,
    CommitTurn: turns.commit,
    FinishDelivery: finish,
}
