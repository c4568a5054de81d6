"""What a client is shown of a store: frozen values of plain Python, and how they are made of the store's records.

Contents come from people, and may be private: they are left out of every `repr`. What cannot be decoded here, because its class is
not loaded or the data does not fit it, is shown as the JSON that it is, in dicts, lists and scalars; as bytes where it is no JSON.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, Literal, TypeAlias, TypeVar

from attrs import field, fields, frozen

from greenroom.errors import Undecodable
from greenroom.persistence import (
    AddressRecord,
    ExecutionRecord,
    MessageRecord,
    Observation,
    OutboxRecord,
    Payload,
    Store,
    fetch,
)
from greenroom.runtime.durable.payloads import Payloads

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


class Shown:
    """Makes these values of the store's records."""

    def __init__(self, store: Store, payloads: Payloads) -> None:
        self._store, self._payloads = store, payloads

    async def address(self, record: AddressRecord) -> AddressInfo:
        return _info(AddressInfo, record)

    def execution(self, record: ExecutionRecord) -> ExecutionInfo:
        return _info(ExecutionInfo, record)

    async def message(self, record: MessageRecord) -> MessageInfo:
        source = f"message {record.message_id!r} of {record.address!r}"
        content, body, undecodable = await self._told(record.body, source)
        _, reply, _ = await self._told(record.reply, f"the reply to {source}")
        _, error, _ = await self._told(record.error, f"the error of {source}")
        return _info(MessageInfo, record, content=content, body=body, undecodable=undecodable, reply=reply, error=error)

    async def observation(self, record: Observation) -> ObservationInfo:
        _, body, _ = await self._told(record.body, f"observation {record.id}")
        return _info(ObservationInfo, record, body=body)

    async def outbox(self, record: OutboxRecord) -> OutboxInfo:
        _, body, _ = await self._told(record.body, f"the send {record.ordinal} of {record.address!r}")
        return _info(OutboxInfo, record, body=body)

    async def value(self, payload: Payload | None, source: str) -> Any:
        """What a payload means here, as far as that can be told."""
        _, value, _ = await self._told(payload, source)
        return value

    async def _told(self, payload: Payload | None, source: str) -> tuple[bytes, Any, str | None]:
        """A payload's bytes, what they mean here, and why they do not mean what their class says."""
        if payload is None:
            return b"", None, None
        try:
            data = await fetch(self._store, payload)
        except Undecodable as error:
            return b"", b"", str(error)
        try:
            return data, self._payloads.decode(data, source), None
        except Undecodable as error:
            why = str(error)
        try:
            return data, self._payloads.decode_plain(data, source), why
        except Undecodable:
            return data, data, why


def _info(info: type[Info], record: Any, **more: object) -> Info:
    """A record as one of these values: fields of the same name, states as words, and `more`, which it does not have."""
    wanted = {each.name for each in fields(info)} - more.keys()  # type: ignore[arg-type]  # all of them are attrs classes
    values = {name: getattr(record, name) for name in wanted}
    return info(**{name: value.value if isinstance(value, Enum) else value for name, value in values.items()}, **more)
