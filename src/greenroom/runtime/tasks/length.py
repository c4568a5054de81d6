"""How long a journal may get: replay reads all of a segment, so that a task must not write on for ever."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from greenroom.actors import Event

WARNING: Final = 5
"""From this part of the limit on there is a warning: a fifth."""

RELEASED: Final = 50
"""An operator who lets a task run again that is over the limit gives it this part of the limit once more: a fiftieth."""


@frozen(kw_only=True)
class JournalLong(Event):
    """The journal of a task's segment gets long: at `limit` rows the task is parked (`oversize`), unless it calls `task.continue_as`.

    `path` is that of its pool.
    """

    task_id: str
    rows: int
    limit: int


def is_warned(before: int, rows: int, limit: int) -> bool:
    """Whether the journal has just grown, from so many rows to so many, beyond what goes without a warning."""
    return before < max(1, limit // WARNING) <= rows


def is_too_long(before: int, rows: int, limit: int) -> bool:
    """Whether the journal has just grown to its limit, or beyond it to the end of what it was given once more."""
    step = max(1, limit // RELEASED)
    return rows >= limit and (before < limit or (rows - limit) // step > (before - limit) // step)
