"""The work list in portions: pieces of what was found that are read, and kept, as one.

A portion costs a handful of commits, whatever is in it. So it holds many files, but no more than one transaction should
carry, and no more than somebody would gladly have read again after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from greenroom.demo.messages import Portion
from greenroom.demo.review import needs_isolation
from greenroom.demo.values import Found, Skipped

PORTION: Final = 50
"""Entries of a portion, at most."""

PORTION_WEIGHT: Final = 262_144
"""Weight of a portion, at most, unless a single file weighs more. What the reviews of so much come to fits in one message."""

USUAL_PATH: Final = 64
"""Characters of a path that are free. Each finding names its path, so that a file weighs more the longer its own is."""


def in_portions(items: Iterable[Found | Skipped]) -> Iterator[Portion]:
    """Cut what was found, the large files apart from the rest. The same items give the same portions."""
    rest: list[Found | Skipped] = []
    large: list[Found | Skipped] = []
    for item in items:
        piece = large if isinstance(item, Found) and needs_isolation(item) else rest
        if piece and (len(piece) == PORTION or sum(map(weight, piece)) + weight(item) > PORTION_WEIGHT):
            yield Portion(tuple(piece))
            piece.clear()
        piece.append(item)
    for piece in (rest, large):
        if piece:
            yield Portion(tuple(piece))


def weight(item: Found | Skipped) -> int:
    """What an entry adds to its portion: bytes to be reviewed, times what its path makes of each finding."""
    return item.size * (1 + len(item.path) // USUAL_PATH) if isinstance(item, Found) else 0
