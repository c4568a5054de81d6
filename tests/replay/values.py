"""What the replay tests speak with: messages, operations, and a codec that knows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from attrs import frozen

from greenroom.actors import Message
from greenroom.codec import Codec
from greenroom.errors import NotEncodable
from greenroom.runtime.replay.operations import Effect, operation
from greenroom.runtime.replay.rows import Fault, Start

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


@frozen
class Steer(Message[None]):
    text: str


@frozen
class Hint(Message[None]):
    text: str


@frozen
class Nudge(Message[str]):
    text: str


@frozen
class Plan(Message[str]):
    topic: str


@operation(effect=Effect.SAFE)
async def echo(value: str) -> str:
    return value


@operation(effect=Effect.KEYED)
async def pay(value: str) -> str:
    return f"paid {value}"


@operation(effect=Effect.SAFE)
async def burn(value: str) -> str:
    raise ValueError(f"{value} burns")


class TestCodec:
    """ValueCodec over the product's own codec."""

    __test__ = False

    def __init__(self) -> None:
        self.codec = Codec()
        self.codec.register(Steer, Hint, Nudge, Plan, Fault)

    def encode(self, value: object) -> bytes:
        return self.codec.encode(value)

    def decode(self, data: bytes, *, source: str | None = None) -> Any:
        return self.codec.decode(data, source=source)

    def tags(self, kind: type[Any]) -> tuple[str, ...]:
        tag = self.codec.tag_of(kind)
        if tag is None:
            raise NotEncodable(kind.__name__, ("its class is not registered",))
        return (tag,)


CODEC = TestCodec()


def start(seed: bytes = b"seed") -> Start:
    return Start(at=BEGIN, seed=seed, task_id="T1")
