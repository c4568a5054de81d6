"""Chance that comes back: from the attempt's seed, the branch and a counter. Nothing is recorded for it (T22)."""

from __future__ import annotations

from hashlib import blake2b
from uuid import UUID

from greenroom.runtime.replay.rows import Start


def _drawn(start: Start, branch: str, counter: int) -> bytes:
    return blake2b(f"{start.segment}\n{branch}\n{counter}".encode(), key=start.seed, digest_size=16).digest()


def drawn_secret(start: Start, what: str) -> str:
    """A secret that nobody can guess who does not know the seed, safe in a URL: the same whenever it is drawn for the same."""
    return blake2b(what.encode(), key=start.seed, digest_size=32, person=b"secret").hexdigest()


def drawn_float(start: Start, branch: str, counter: int) -> float:
    """A number from 0 up to but not including 1."""
    return (int.from_bytes(_drawn(start, branch, counter)[:8]) >> 11) * 2.0**-53


def drawn_uuid(start: Start, branch: str, counter: int) -> UUID:
    """An identity of the random kind (version 4)."""
    return UUID(bytes=_drawn(start, branch, counter), version=4)
