"""The outbox: what handlers sent to destinations outside of the store, and what waits for room inside of it.

What is in the outbox was committed together with the handled message that sent it. A relay takes a row for a while, publishes
it, and marks it. One that is killed in between leaves the row to the next: it is published again under the same identity, and
the consumer removes the duplicate (C20).
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Final

from attrs import field, frozen, validators

from greenroom.persistence.content import Payload
from greenroom.persistence.states import Moves
from greenroom.persistence.transitions import AddressWrite, Query, Row, T_co, Transition


class OutboxStatus(Enum):
    PENDING = "pending"
    SENT = "sent"
    DEAD = "dead"
    """Given up; an operator sees it."""


class OutboxEvent(Enum):
    SEND = "send"
    GIVE_UP = "give_up"
    REQUEUE = "requeue"


OUTBOX_MOVES: Final[Moves[OutboxStatus, OutboxEvent]] = {
    (OutboxStatus.PENDING, OutboxEvent.SEND): OutboxStatus.SENT,
    (OutboxStatus.PENDING, OutboxEvent.GIVE_UP): OutboxStatus.DEAD,
    (OutboxStatus.DEAD, OutboxEvent.REQUEUE): OutboxStatus.PENDING,
}


@frozen(kw_only=True)
class OutboxWrite(AddressWrite[T_co]):
    """A change of one outbox row, under its address's lock. `UNKNOWN_MESSAGE`, or `NOT_PENDING` when it is done."""

    ordinal: int


@frozen(kw_only=True)
class BeginSend(OutboxWrite["Sending"]):
    """Take a row that is due, for `seconds`: nobody else is given it meanwhile. The try is counted."""

    seconds: float = field(validator=validators.gt(0))


@frozen
class Sending:
    """The row may be published; this is its `attempts`-th try, counted from 1."""

    attempts: int


@frozen(kw_only=True)
class FinishSend(OutboxWrite["OutboxMoved"]):
    """It has been published."""


@frozen(kw_only=True)
class FailSend(OutboxWrite["OutboxMoved"]):
    """It could not be published.

    Args:
        seconds: until the next try; None gives up.
    """

    seconds: float | None


@frozen(kw_only=True)
class RequeueSend(OutboxWrite["OutboxMoved"]):
    """Try a row again that was given up, by an operator. `NOT_PENDING` when it was not."""


@frozen
class OutboxMoved:
    status: OutboxStatus


@frozen(kw_only=True)
class FlushHeld(Transition["Flushed"]):
    """Bring messages that an address holds for lack of room to their recipients, in order, as far as there is room now.

    Args:
        recipients: the ones to look at, all of which are locked.
    """

    address: str
    recipients: tuple[str, ...]

    @property
    def locks(self) -> tuple[Row, ...]:
        return tuple(Row("addresses", address) for address in {self.address, *self.recipients})

    @property
    def exclusive(self) -> tuple[Row, ...]:
        return (Row("addresses", self.address),)


@frozen
class Flushed:
    """How many were brought, and how many the address still holds, for any recipient."""

    count: int
    held: int


@frozen(kw_only=True)
class OutboxRecord:
    """An outbox row, as it was when it was read."""

    address: str
    ordinal: int
    destination: str
    message_id: str
    type: str
    body: Payload
    status: OutboxStatus
    attempts: int
    due_at: datetime
    sent_at: datetime | None


@frozen(kw_only=True)
class DueOutbox(Query[tuple[OutboxRecord, ...]]):
    """Rows for one outside destination whose time has come, longest first."""

    destination: str
    limit: int = field(default=100, validator=validators.ge(1))


@frozen(kw_only=True)
class ReadOutbox(Query[tuple[OutboxRecord, ...]]):
    """All rows for outside destinations of an address, in order, a page at a time; `after` is the last ordinal seen."""

    address: str
    after: int = 0
    limit: int = field(default=100, validator=validators.ge(1))


@frozen
class Held:
    """Messages of `address` wait for room at `recipient`."""

    address: str
    recipient: str


@frozen(kw_only=True)
class FlushableHeld(Query[tuple[Held, ...]]):
    """Which addresses hold messages that have room now. For the sweep."""

    limit: int = field(default=100, validator=validators.ge(1))


@frozen(kw_only=True)
class HeldForHolders(Query[tuple[Held, ...]]):
    """Which addresses hold messages that have no room now, at recipients that hold messages themselves, a page at a time.

    `after` is the last one of the page before.
    """

    after: Held = field(factory=lambda: Held("", ""))
    limit: int = field(default=100, validator=validators.ge(1))
