"""What a process child and its worker say to each other, and how it is cut into frames.

Both ways run over one socket pair. A frame is a header (length of the payload, kind, number) and a payload that the codec made.
Numbers tie answers to requests; those of the two directions are independent.

| to the worker | answered by |
|---|---|
| `ASSIGN`, `TOLD`, `ASKED`, `FINISH` | `REPLIED`, `RAISED`, `UNHANDLED`, `UNDELIVERABLE` or `SIGNALLED`, with the same number |

| from the worker | answered by |
|---|---|
| `SEND`, `ASK` | `ANSWER` or `REFUSAL`, with the same number, unless the worker says `FORGET` |
| `TELL`, `WATCH`, `UNWATCH`, `AFTER`, `EVERY`, `CANCEL`, `STOP` | nothing |
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from enum import IntEnum

from attrs import frozen

_HEADER = struct.Struct("!IBQ")
LONGEST = 2**32 - 1
"""Bytes that a payload may have."""


class Kind(IntEnum):
    """What a frame means."""

    ASSIGN = 1
    """Be this actor: an `Assignment`. Replied with (start info, names of the handled types)."""
    TOLD = 2
    """Handle this message; nobody waits for the result."""
    ASKED = 3
    """Handle this message; the result is the reply."""
    FINISH = 4
    """Run `on_stop`, then end: (exit, whether a SIGTERM follows that is meant for the message in hand)."""
    ANSWER = 5
    REFUSAL = 6

    REPLIED = 11
    RAISED = 12
    UNHANDLED = 13
    """The actor has no handler for it."""
    UNDELIVERABLE = 14
    """The message could not be decoded, or its reply not encoded: (the error,)."""
    SIGNALLED = 15
    """The worker was told to end by an OS signal, and does nothing more: its name. Number 0 when nothing was in hand."""
    TELL = 21
    SEND = 22
    ASK = 23
    FORGET = 24
    WATCH = 25
    UNWATCH = 26
    AFTER = 27
    EVERY = 28
    CANCEL = 29
    STOP = 30


@frozen
class Frame:
    kind: Kind
    number: int
    payload: bytes

    def pack(self) -> bytes:
        """The bytes that go over the wire. Raises `OverflowError` for a payload above `LONGEST`."""
        if len(self.payload) > LONGEST:
            raise OverflowError(f"a message of {len(self.payload)} bytes is too long for a process child")
        return _HEADER.pack(len(self.payload), self.kind, self.number) + self.payload


class Splitter:
    """Turns a stream of bytes into frames, however it was cut on its way."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Generator[Frame, None, None]:
        """The frames that are complete with `data`. Raises `ValueError` for an unknown kind: the stream is no good then."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _HEADER.size:
                length, kind, number = _HEADER.unpack_from(buffer, start)
                end = start + _HEADER.size + length
                if len(buffer) < end:
                    break
                payload = bytes(buffer[start + _HEADER.size : end])
                start = end
                yield Frame(Kind(kind), number, payload)
        finally:
            del buffer[:start]
