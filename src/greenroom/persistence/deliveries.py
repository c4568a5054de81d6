"""Deliveries: a message in its owner's hand, and all that is committed together when it has been handled (I3)."""

from __future__ import annotations

from datetime import datetime

from attrs import field, frozen, validators

from greenroom.persistence.addresses import StateWrite
from greenroom.persistence.clock import aware
from greenroom.persistence.content import Payload, fits_inline
from greenroom.persistence.messages import Disposition
from greenroom.persistence.transitions import OwnerWrite, Refused, Row, T_co
from greenroom.persistence.values import value


@value(kw_only=True)
class DeliveryWrite(OwnerWrite[T_co]):
    """An owner's change of one message of its mailbox."""

    seq: int


@value(kw_only=True)
class BeginDelivery(DeliveryWrite["Delivery | DeadLettered"]):
    """Count a delivery, before the handler runs: a message that kills its process must be counted (R22).

    A message that was delivered `max_deliveries` times becomes a dead letter instead. Refused: `NOT_PENDING` when it has been
    dealt with, `HELD_BACK`, `PARKED`.
    """

    max_deliveries: int = field(default=5, validator=validators.ge(1))


@value
class Delivery:
    """The message may be handled; this is its `deliveries`-th delivery, counted from 1."""

    seq: int
    deliveries: int


@frozen
class DeadLettered:
    """The message is a dead letter and must not be handled."""

    seq: int
    deliveries: int


@frozen(kw_only=True)
class Outgoing:
    """A message that a handler sent to an address of the same store. It goes into that mailbox in the same transaction.

    Where there is no room it is held; only its own mailbox, whose room it would hold up itself, takes it beyond the capacity.
    """

    recipient: str
    message_id: str = field(validator=validators.min_len(1))
    """By `outgoing_id`."""
    type: str
    body: Payload = field(validator=fits_inline)
    digest: str
    deliver_at: datetime | None = field(default=None, validator=aware)


def outgoing_id(sender: str, incoming_id: str, ordinal: int) -> str:
    """The identity of a handler's `ordinal`-th message: the same whenever the incoming message is handled again (R25)."""
    return f"{sender}|{incoming_id}|{ordinal}"


@frozen(kw_only=True)
class SetTimer:
    """A delayed message of an address to itself, under a key. It replaces the one that waits under the same key."""

    key: str = field(validator=validators.min_len(1))
    message_id: str = field(validator=validators.min_len(1))
    type: str
    body: Payload = field(validator=fits_inline)
    digest: str
    deliver_at: datetime = field(validator=aware)


@frozen(kw_only=True)
class CancelTimer:
    """Drop the timer that waits under a key, if one does."""

    key: str


@frozen(kw_only=True)
class ToOutside:
    """A message to a destination outside of the store, for the outbox relay."""

    destination: str = field(validator=validators.min_len(1))
    message_id: str = field(validator=validators.min_len(1))
    type: str
    body: Payload = field(validator=fits_inline)


@value(kw_only=True)
class FinishDelivery(OwnerWrite["Handled"]):
    """The message has been handled: its mark, the reply, the new state and everything that was sent, in one transaction.

    `NOT_PENDING` when it is not a message in hand; nothing is changed then, the state neither.

    Args:
        reply: kept under the message's identity, for an ask that is repeated.
        error: the same, for an ask that failed.
        next_seq: a message to begin at once, as by `BeginDelivery`: one commit for both.
    """

    seq: int
    reply: Payload | None = field(default=None, validator=fits_inline)
    error: Payload | None = field(default=None, validator=fits_inline)
    state: StateWrite | None = None
    outgoing: tuple[Outgoing, ...] = ()
    timers: tuple[SetTimer | CancelTimer, ...] = ()
    outside: tuple[ToOutside, ...] = ()
    next_seq: int | None = None
    max_deliveries: int = field(default=5, validator=validators.ge(1))

    @property
    def locks(self) -> tuple[Row, ...]:
        if not self.outgoing:
            return (Row("addresses", self.address),)
        return tuple(Row("addresses", address) for address in {self.address, *(m.recipient for m in self.outgoing)})


@value(kw_only=True)
class Handled:
    """The message counts as handled. Of the last three, the one that became of `next_seq` is set."""

    outgoing: tuple[Disposition, ...] = ()
    """What became of each message to an address of the store."""
    next: Delivery | None = None
    next_dead: DeadLettered | None = None
    next_refused: Refused | None = None


@frozen(kw_only=True)
class UndoDelivery(DeliveryWrite["Delivery"]):
    """Take the count of a delivery back: it was broken off by a drain or a lost lease, and was not the message's fault. Answers what is left of the count."""


@frozen(kw_only=True)
class BuryMessage(DeliveryWrite["DeadLettered"]):
    """Make the message a dead letter, whatever its count: it cannot be handled at all."""

    reason: str
    error: Payload | None = field(default=None, validator=fits_inline)
