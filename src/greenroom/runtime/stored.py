"""What a client is shown of a store: frozen values of plain Python.

Contents come from people, and may be private: they are left out of every `repr`. What cannot be decoded here, because its class is
not loaded or the data does not fit it, is shown as the JSON that it is, in dicts, lists and scalars; as bytes where it is no JSON.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, Literal, TypeAlias, TypeVar

from attrs import field, fields, frozen

Info = TypeVar("Info")

MessageStatus: TypeAlias = Literal["delayed", "queued", "handled", "dead", "dropped"]
ObservationKind: TypeAlias = Literal["refused", "duplicate", "conflict", "late", "unmatched"]
AnswerDisposition: TypeAlias = Literal["accepted", "duplicate", "conflict", "late"]
Durability: TypeAlias = Literal["full", "reduced", "volatile"]


@frozen(kw_only=True)
class AddressInfo:
    """An address, as it was when it was read."""

    address: str
    kind: Literal["mailbox", "actor"]
    owner: str | None
    """The execution that serves it; it may be dead. None while nobody does."""
    generation: int
    """How often it was claimed."""
    capacity: int | None
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
    parked: str | None
    """Why it waits for an operator; None when it does not."""
    parked_detail: str | None
    closed_at: datetime | None
    """Since when its actor has ended for good."""
    state_type: str | None
    """What the store calls the class of a durable actor's state."""
    state_version: int | None


@frozen(kw_only=True)
class MessageInfo:
    """A message, as it was when it was read."""

    address: str
    message_id: str
    seq: int | None
    """Its place in the mailbox, counted from 1, with gaps; None while it is delayed."""
    type: str
    """What the store calls its class."""
    status: MessageStatus
    deliveries: int
    """How often handling it was begun."""
    sender: str | None
    """The address whose handler sent it; None from outside."""
    timer: str | None
    """The key of the timer that it is; None for a message."""
    accepted_at: datetime
    deliver_at: datetime | None
    delivered_at: datetime | None
    """When handling it was last begun."""
    reason: str | None
    """Why it is a dead letter."""
    body: Any = field(repr=False)
    """The message."""
    undecodable: str | None = field(repr=False)
    """Why `body` is not of the message's class; None when it is."""
    content: bytes = field(repr=False)
    """The message as it is stored: JSON."""
    reply: Any = field(repr=False)
    """What its handler returned; None before."""
    error: Any = field(repr=False)
    """What its handler raised, as `RemoteError`; None when it did not."""


@frozen(kw_only=True)
class ExecutionInfo:
    """An activation of a worker process, as it was when it was read."""

    execution_id: str
    host: str
    pid: int
    started_at: datetime
    state: Literal["active", "draining", "ended"]
    alive: bool
    """Its lease lasts, and nothing proves its death."""
    seconds_left: float
    """Of its lease; 0 when it has passed or counts no more."""


@frozen(kw_only=True)
class ObservationInfo:
    """Something that was refused, came late or matched nothing, and changed nothing."""

    id: int
    """Grows, with gaps, and not always in the order of commits: no cursor for what is new."""
    at: datetime
    kind: ObservationKind
    what: str
    """The kind of change, or the type of message."""
    address: str
    message_id: str | None
    sender: str | None
    execution_id: str | None
    generation: int | None
    detail: str
    body: Any = field(repr=False)
    """What it carried: a message, or a whole refused change as JSON; None when nothing was kept."""


@frozen(kw_only=True)
class OutboxInfo:
    """A message to a destination outside of the store, as it was when it was read."""

    address: str
    """Whose handler sent it."""
    ordinal: int
    """Its place in that address's outbox."""
    destination: str
    message_id: str
    type: str
    status: Literal["pending", "sent", "dead"]
    attempts: int
    due_at: datetime
    """When it is tried next, or was to be."""
    sent_at: datetime | None
    body: Any = field(repr=False)


def shown(info: type[Info], record: Any, **more: object) -> Info:
    """A record of the store as one of these values: fields of the same name, states as words, and `more`, which it has not."""
    wanted = {each.name for each in fields(info)} - more.keys()  # type: ignore[arg-type]  # all of them are attrs classes
    values = {name: getattr(record, name) for name in wanted}
    return info(**{name: value.value if isinstance(value, Enum) else value for name, value in values.items()}, **more)
