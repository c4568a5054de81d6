"""Values of tasks to bytes and back, and what Greenroom itself says to tasks."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from greenroom.codec import wire
from greenroom.errors import NotEncodable
from greenroom.persistence import HARD_LIMIT, message_digest
from greenroom.runtime.durable.payloads import Encoded, Payloads
from greenroom.runtime.replay import Fault


@wire("greenroom:Cancel")
@frozen
class CancelTask:
    """A task is told to stop: its control code is cancelled, and ends it when it has cleaned up."""

    reason: str


@wire("greenroom:ChildEnded")
@frozen
class ChildEnded:
    """A parent is told that a child task has ended."""

    task_id: str
    failed: bool
    body: bytes
    """The child's encoded result; an encoded `Fault` when it failed."""


class TaskCodec:
    """What the replay engine needs of a codec, over the runtime's payloads."""

    __slots__ = ("payloads",)

    def __init__(self, payloads: Payloads) -> None:
        self.payloads = payloads
        payloads.register(Fault, CancelTask, ChildEnded)

    def encode(self, value: object) -> bytes:
        """Raises `NotEncodable` for what could not come back, or takes more room than a payload may."""
        data = self.payloads.encode_value(value)
        if len(data) > HARD_LIMIT:
            what = type(value).__qualname__
            raise NotEncodable(what, (f"it takes {len(data):,} bytes, and {HARD_LIMIT:,} are the most that is stored",))
        return data

    def decode(self, data: bytes, *, source: str | None = None) -> Any:
        """Raises `Undecodable`."""
        return self.payloads.decode(data, source or "a value of a task")

    def tags(self, kind: type[Any]) -> tuple[str, ...]:
        """What messages of a class are called in the store: today's tag, then older ones. Raises `NotEncodable`."""
        return self.payloads.tags(kind)

    def message(self, value: object) -> Encoded:
        """A request, or a message to a task. Raises `NotEncodable`."""
        body = self.encode(value)
        tag = self.payloads.type_of(value)
        return Encoded(tag, body, message_digest(tag, body))
