"""Rows in hand: addresses and executions as they are decided about in Python."""

from __future__ import annotations

from typing import Any, Final

import asyncpg
from attrs import define, fields, frozen

from greenroom.persistence.content import Content, Payload


@define
class AddressRow:
    """An address's row. What it holds is written back once, however many items of a batch touched it."""

    address: str
    last_seq: int = 0
    handled_seq: int = 0
    settled_ahead: int = 0
    queued: int = 0
    ready: int = 0
    delayed: int = 0
    last_delayed: int = 0
    held: int = 0
    last_ordinal: int = 0
    kind: str = "mailbox"
    generation: int = 0
    owner: str | None = None
    capacity: int | None = None
    parked: str | None = None
    parked_detail: str | None = None
    closed_at: int | None = None
    due_at: int | None = None
    state: bytes | None = None
    state_content: str | None = None
    state_size: int | None = None
    state_type: str | None = None
    state_version: int | None = None

    @classmethod
    def of(cls, record: asyncpg.Record) -> AddressRow:
        """The row that a record holds, whatever else the record holds."""
        return cls(*(record[name] for name in COLUMNS))

    def values(self, names: tuple[str, ...]) -> tuple[Any, ...]:
        """Some columns, in that order."""
        return tuple(getattr(self, name) for name in names)


COLUMNS: Final = tuple(attribute.name for attribute in fields(AddressRow))
STATE: Final = ("state", "state_content", "state_size", "state_type", "state_version")
PLAIN: Final = tuple(name for name in COLUMNS if name != "address" and name not in STATE)
"""What changes often; a state may be large, and is written only when it changes."""


@frozen
class ExecutionView:
    """An execution, as far as it matters to those that write in its name or want to take its place."""

    state: str
    seconds_left: float
    """Of its lease; not above 0 when the lease counts no more."""


def columns_of(payload: Payload | None) -> tuple[bytes | None, str | None, int | None]:
    """A payload as its three columns."""
    if isinstance(payload, Content):
        return None, payload.digest, payload.size
    return payload, None, None


def payload_of(data: bytes | None, digest: str | None, size: int | None) -> Payload | None:
    """A payload from its three columns."""
    return data if digest is None or size is None else Content(digest, size)


def body_of(data: bytes | None, digest: str | None, size: int | None) -> Payload:
    """A payload that the schema says is there."""
    payload = payload_of(data, digest, size)
    assert payload is not None
    return payload
