"""Chance that comes back: from the attempt's seed, the branch and a counter. Nothing is recorded for it (T22)."""

from __future__ import annotations

from hashlib import blake2b
from uuid import UUID

from greenroom.runtime.replay.rows import Start


def _drawn(start: Start, branch: str, counter: int) -> bytes:
    return blake2b(f"{start.segment}\n{branch}\n{counter}".encode(), key=start.seed, digest_size=16).digest()


def drawn_float(start: Start, branch: str, counter: int) -> float:
    """A number from 0 up to but not including 1."""
    return (int.from_bytes(_drawn(start, branch, counter)[:8]) >> 11) * 2.0**-53


def drawn_uuid(start: Start, branch: str, counter: int) -> UUID:
    """An identity of the random kind (version 4)."""
    return UUID(bytes=_drawn(start, branch, counter), version=4)
