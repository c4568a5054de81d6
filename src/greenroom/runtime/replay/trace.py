"""What control code has called so far, as a rolling checksum (T25).

Rows name operations only; that a sleep, a limit or a receive has moved would not show in them. The checksum takes in every call:
kind, place, name, kinds of messages, seconds. Parameters are left to their own comparison, which forgives what a class may change.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

SHOWN: Final = 6
"""Calls that are remembered by name, for the error that names a difference."""


class Trace:
    __slots__ = ("_recent", "digest")

    def __init__(self) -> None:
        self.digest = bytes(16)
        """Of all calls so far, each taken together with the digest of those before it."""
        self._recent: list[str] = []

    def add(self, branch: str, number: int, call: str) -> None:
        line = f"{branch}#{number} {call}"
        self.digest = blake2b(self.digest + line.encode(), digest_size=16).digest()
        self._recent.append(line)
        if len(self._recent) > SHOWN:
            del self._recent[0]

    def rest(self) -> None:
        """Nothing is called for a while: six short texts take three times what one does."""
        self._recent = ["\n".join(self._recent)] if self._recent else []

    @property
    def recent(self) -> tuple[str, ...]:
        """The last calls, in their order."""
        return tuple("\n".join(self._recent).split("\n")[-SHOWN:]) if self._recent else ()
