"""Messages: how one is accepted at an address, waits, and can be looked at."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Final

from attrs import field, frozen, validators

from greenroom.persistence.clock import aware
from greenroom.persistence.content import Payload, fits_inline
from greenroom.persistence.states import Moves
from greenroom.persistence.transitions import AddressWrite, Query, Row, Transition
from greenroom.persistence.values import value


class MessageStatus(Enum):
    """Where a message stands.

    A row that says `QUEUED` and lies at or before its address's `handled_seq` has been handled: where messages are handled
    in order, one number marks them all. Records say `HANDLED` then.
    """

    DELAYED = "delayed"
    """Its time has not come. It has no place in the order yet."""
    QUEUED = "queued"
    HANDLED = "handled"
    DEAD = "dead"
    """A dead letter: an operator requeues or drops it."""
    DROPPED = "dropped"


class MessageEvent(Enum):
    COME_DUE = "come_due"
    FINISH = "finish"
    BURY = "bury"
    REQUEUE = "requeue"
    DROP = "drop"


MESSAGE_MOVES: Final[Moves[MessageStatus, MessageEvent]] = {
    (MessageStatus.DELAYED, MessageEvent.COME_DUE): MessageStatus.QUEUED,
    (MessageStatus.QUEUED, MessageEvent.FINISH): MessageStatus.HANDLED,
    (MessageStatus.QUEUED, MessageEvent.BURY): MessageStatus.DEAD,
    (MessageStatus.DEAD, MessageEvent.REQUEUE): MessageStatus.QUEUED,
    (MessageStatus.DEAD, MessageEvent.DROP): MessageStatus.DROPPED,
}


class Disposition(Enum):
    """What became of a message that was sent."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """The same message was accepted before; this one changed nothing."""
    CONFLICT = "conflict"
    """Another message has that identity."""
    UNMATCHED = "unmatched"
    """Nothing has that address."""
    LATE = "late"
    """The address's actor has ended for good."""
    HELD = "held"
    """A handler's own message: accepted, and waits in the sender's outbox for room at the recipient."""


@value(kw_only=True)
class AcceptMessage(Transition["Receipt"]):
    """Put a message into an address's mailbox. `FULL` when there is no room; everything else is told by the receipt.

    What is not accepted is kept as an observation, so that it can be looked up.

    Args:
        digest: of type and content, by `message_digest`: what tells a duplicate from a conflict.
        deliver_at: an aware instant before which it is not delivered. It takes its place in the order then.
        hushed: no wake-up in this process comes of it: the sender tells the owner, if that is here, by the receipt.
        urgent: it is accepted whatever room there is: what has to be obeyed must not wait behind what may wait.
    """

    address: str
    message_id: str = field(validator=validators.min_len(1))
    type: str
    body: Payload = field(validator=fits_inline)
    digest: str
    sender: str | None = None
    deliver_at: datetime | None = field(default=None, validator=aware)
    hushed: bool = False
    urgent: bool = False

    @property
    def locks(self) -> tuple[Row, ...]:
        return (Row("addresses", self.address),)

    @property
    def exclusive(self) -> tuple[Row, ...]:
        message = Row("messages", f"{self.address}\n{self.message_id}")
        # What is urgent goes a way of its own, on which it must not overtake what was sent before it.
        return (*self.locks, message) if self.urgent else (message,)


@value
class Receipt:
    """What became of a message. A duplicate gets the place of the first."""

    message_id: str
    disposition: Disposition
    seq: int | None = None
    """Its place in the mailbox, counted from 1, with gaps; None while it is delayed, and when it was not accepted."""


@frozen(kw_only=True)
class MessageReply:
    """News of a message that a task has got: its reply, or why there is none. With neither: a handler has accepted it.

    Args:
        accepted: its handler did not reject it. `MessageRecord.delivered_at` is when that was first said.
    """

    message_id: str
    accepted: bool
    reply: Payload | None = field(default=None, validator=validators.optional(fits_inline))
    error: Payload | None = field(default=None, validator=validators.optional(fits_inline))


@frozen(kw_only=True)
class AdmitDue(AddressWrite["Admitted"]):
    """Give up to `limit` delayed messages whose time has come their places in the order, the longest due first."""

    limit: int = field(default=1000, validator=validators.ge(1))


@frozen
class Admitted:
    """How many messages can be delivered now that could not before, and when the next one's time comes."""

    count: int
    next_due: datetime | None


@frozen(kw_only=True)
class SettleDead(AddressWrite["Settled"]):
    """What an operator does to one dead letter. `UNKNOWN_MESSAGE`, or `NOT_PENDING` when it is no dead letter."""

    message_id: str


@frozen(kw_only=True)
class RequeueDead(SettleDead):
    """Back into the mailbox, at its end, with no deliveries counted. `FULL` when there is no room."""


@frozen(kw_only=True)
class DropDead(SettleDead):
    """Never to be delivered. Its identity stays taken until retention forgets it."""


@frozen
class Settled:
    """The message is in that state now."""

    status: MessageStatus
    seq: int | None = None


@frozen(kw_only=True)
class MessageRecord:
    """A message, as it was when it was read."""

    address: str
    seq: int | None
    message_id: str
    type: str
    body: Payload
    sender: str | None
    timer: str | None
    status: MessageStatus
    deliveries: int
    """How often handling it was begun."""
    accepted_at: datetime
    deliver_at: datetime | None
    delivered_at: datetime | None
    """When handling it was last begun."""
    reply: Payload | None
    error: Payload | None
    reason: str | None
    """Why it is a dead letter."""


@frozen(kw_only=True)
class NextMessages(Query[tuple[MessageRecord, ...]]):
    """Messages that wait for delivery, in order, a page at a time; `after` is the last place seen, 0 for none."""

    address: str
    after: int = 0
    limit: int = field(default=64, validator=validators.ge(1))


@frozen(kw_only=True)
class ReadMessage(Query["MessageRecord | None"]):
    """One message with its reply, by its identity; None when it is unknown, or forgotten by retention."""

    address: str
    message_id: str


@frozen(kw_only=True)
class ListMessages(Query[tuple[MessageRecord, ...]]):
    """All messages on record of an address, in order, a page at a time; `after` is the last place seen, 0 for none.

    Delayed ones are not among them, see `DelayedMessages`.
    """

    address: str
    after: int = 0
    limit: int = field(default=100, validator=validators.ge(1))


@frozen(kw_only=True)
class DelayedMessages(Query[tuple[MessageRecord, ...]]):
    """Delayed messages and timers of an address, the next due first, those of one moment by identity, a page at a time.

    `after` is the moment and the identity of the last one seen.
    """

    address: str
    after: tuple[datetime, str] | None = None
    limit: int = field(default=100, validator=validators.ge(1))


@frozen(kw_only=True)
class DeadLetters(Query[tuple[MessageRecord, ...]]):
    """Dead letters in order of address and place, a page at a time; `after` is the last one of the page before."""

    address: str | None = None
    after: tuple[str, int] = ("", 0)
    limit: int = field(default=100, validator=validators.ge(1))
