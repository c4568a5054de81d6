"""Addresses: who owns one, under which generation, and what it keeps between its lives."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Final

from attrs import field, frozen, validators

from greenroom.persistence.content import Payload, fits_inline
from greenroom.persistence.transitions import AddressWrite, OwnerWrite, Query


class AddressKind(Enum):
    MAILBOX = "mailbox"
    """An actor with a persistent mailbox."""
    ACTOR = "actor"
    """A durable actor: its state is here too."""
    TASK = "task"
    """A task: it has a row of its own. It is made, claimed and ended by transitions of its own."""


ACTORS: Final = (AddressKind.MAILBOX, AddressKind.ACTOR)


class ParkReason(Enum):
    """Why an address waits for an operator."""

    DIVERGED = "diverged"
    INCOMPATIBLE = "incompatible"
    UNDECODABLE = "undecodable"
    CRASH_LOOP = "crash_loop"
    OVERSIZE = "oversize"
    UNRESOLVED = "unresolved"


@frozen(kw_only=True)
class StateWrite:
    """A durable actor's state, as it is stored."""

    payload: Payload = field(validator=fits_inline)
    type: str
    version: int


@frozen(kw_only=True)
class ClaimAddress(AddressWrite["Claimed"]):
    """Become the owner of an address, which comes into being by it; the generation grows by one, also for who owns it already.

    Refused: `NOT_OWNER` while another execution that is alive owns it (with the seconds its lease lasts); `DRAINING`,
    `LEASE_EXPIRED`, `UNKNOWN_EXECUTION` for an execution that may claim nothing; `PARKED`; `CONFLICT` for a task.

    Args:
        capacity: messages (int > 0) that may wait; None is unbounded. Replaces what an earlier owner said.
    """

    address: str = field(validator=validators.min_len(1))
    kind: AddressKind = field(validator=validators.in_(ACTORS))
    execution_id: str
    capacity: int | None = field(default=None, validator=validators.optional(validators.ge(1)))


@frozen(kw_only=True)
class Claimed:
    """The address is the claimer's, under this generation."""

    generation: int
    handled_seq: int
    """Every message up to here has been dealt with."""
    last_seq: int
    state: Payload | None
    state_type: str | None
    state_version: int | None
    held: int = 0
    """Messages that it has sent and that wait for room at their recipients."""


@frozen(kw_only=True)
class OpenAddress(AddressWrite["Opened"]):
    """Make an address that nobody owns, so that mail may come before anybody has claimed it. One that is there stays as it is.

    Args:
        capacity: as of `ClaimAddress`; the first claim replaces it.
    """

    address: str = field(validator=validators.min_len(1))
    kind: AddressKind = field(validator=validators.in_(ACTORS))
    capacity: int | None = field(default=None, validator=validators.optional(validators.ge(1)))


@frozen
class Opened:
    """The address is there."""

    created: bool
    """It was not, before."""


@frozen(kw_only=True)
class ReleaseAddress(OwnerWrite["Released"]):
    """Own it no more. Its waiting mail becomes due to anybody."""


@frozen
class Released:
    """Nobody owns the address."""


@frozen(kw_only=True)
class CloseAddress(OwnerWrite["Closed"]):
    """Its actor has ended for good: what comes now is late. Its mail stays. A claim opens it again. `CONFLICT` for a task."""


@frozen
class Closed:
    """The address takes no messages."""


@frozen(kw_only=True)
class ParkAddress(OwnerWrite["Parked"]):
    """Let nobody run it until an operator says so. The owner stops owning it; mail and state stay, and mail is accepted."""

    reason: ParkReason
    detail: str


@frozen
class Parked:
    """The address waits for an operator."""


@frozen(kw_only=True)
class UnparkAddress(AddressWrite["Unparked"]):
    """Let it run again, by an operator. `NOT_PARKED` when it does not wait for that."""


@frozen
class Unparked:
    """The address may be claimed."""


@frozen(kw_only=True)
class AddressRecord:
    """An address, as it was when it was read."""

    address: str
    kind: AddressKind
    generation: int
    """0 until it is claimed for the first time."""
    owner: str | None
    capacity: int | None
    last_seq: int
    handled_seq: int
    queued: int
    """Messages that count against the capacity: waiting or delayed, timers apart."""
    ready: int
    """Messages and timers that could be delivered now."""
    delayed: int
    """Messages and timers whose time has not come."""
    held: int
    """Its own messages that wait for room at their recipients."""
    dead: int
    """Dead letters."""
    parked: ParkReason | None
    parked_detail: str | None
    due_at: datetime | None
    """When somebody should claim it; None while somebody owns it, and when nothing waits."""
    closed_at: datetime | None
    state: Payload | None
    state_type: str | None
    state_version: int | None


@frozen(kw_only=True)
class ReadAddress(Query["AddressRecord | None"]):
    """One address with its state; None when it is unknown."""

    address: str


@frozen(kw_only=True)
class ListAddresses(Query[tuple[AddressRecord, ...]]):
    """Addresses in order, a page at a time, without their states. `after` is the last address of the page before."""

    after: str = ""
    limit: int = field(default=100, validator=validators.ge(1))
    parked: bool = False
    """Only those that wait for an operator."""


@frozen
class DueAddress:
    """An address that somebody should claim, since then."""

    address: str
    due_at: datetime


@frozen(kw_only=True)
class DueAddresses(Query[tuple[DueAddress, ...]]):
    """Addresses of actors without an owner that have something to do, longest due first, a page at a time.

    Costs what is due, not what exists. `after` is the last one of the page before.
    """

    after: DueAddress | None = None
    limit: int = field(default=100, validator=validators.ge(1))


@frozen(kw_only=True)
class NextDue(Query["datetime | None"]):
    """When the first address of an actor without an owner will have something to do that has nothing to do now."""


@frozen(kw_only=True)
class OwnedReady(Query[tuple[str, ...]]):
    """Addresses that an execution owns and where a delivery could begin, in order, a page at a time.

    Costs what it owns. `after` is the last one of the page before.
    """

    execution_id: str
    after: str = ""
    limit: int = field(default=100, validator=validators.ge(1))


@frozen(kw_only=True)
class StoreNow(Query[datetime]):
    """The store's time."""
