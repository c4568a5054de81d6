"""What the engine needs of a codec: values cross it as bytes, and it never looks inside."""

from __future__ import annotations

from typing import Any, Protocol


class ValueCodec(Protocol):
    """Values to canonical bytes and back. Equal values of equal types have equal bytes."""

    def encode(self, value: object) -> bytes:
        """Raises `NotEncodable` for what could not come back."""
        ...

    def decode(self, data: bytes, *, source: str | None = None) -> Any:
        """Raises `Undecodable` for what is no value of a known type. The activation stops there."""
        ...

    def tags(self, kind: type[Any]) -> tuple[str, ...]:
        """What rows call messages of a class: today's tag, then older ones. Raises `NotEncodable` for a class that has none."""
        ...
