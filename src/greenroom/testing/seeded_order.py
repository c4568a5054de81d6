"""Seeded scheduling: of the event-loop tasks that could run, a seed decides which one runs next.

Trio makes no promise about that order, and has a hook for tests that decides it by a random number generator which can be
seeded; it is in a private module, for want of a public one. asyncio's tasks take turns, which hides mistakes that trio shows:
there the tasks that are ready are shuffled among their places in the loop's queue. Every other callback keeps its place, for
asyncio promises the order of those, and its own transports rely on it.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, Final

import trio

if TYPE_CHECKING:
    from collections.abc import MutableSequence


def shuffle_tasks(ready: MutableSequence[asyncio.Handle], random: Random) -> None:
    """Shuffle the steps of asyncio tasks among their places in a loop's queue. Other threads may append to it meanwhile."""
    places = [place for place, handle in enumerate(tuple(ready)) if _is_step(handle)]
    steps = [ready[place] for place in places]
    random.shuffle(steps)
    for place, step in zip(places, steps, strict=True):
        ready[place] = step


def _is_step(handle: asyncio.Handle) -> bool:
    callback: Any = handle._callback  # type: ignore[attr-defined]  # a step and a wake-up are bound to their task
    return isinstance(getattr(callback, "__self__", None), asyncio.Task)


class TrioOrder:
    """Trio's scheduler in a seed's hands, from `take` until `give_back`. It has one for the whole process."""

    _FLAG: Final = "_ALLOW_DETERMINISTIC_SCHEDULING"

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._scheduler: Any = trio._core._run
        self._before: tuple[bool, Any] | None = None

    def take(self) -> None:
        self._before = getattr(self._scheduler, self._FLAG), self._scheduler._r.getstate()
        setattr(self._scheduler, self._FLAG, True)
        self._scheduler._r.seed(self._seed)

    def give_back(self) -> None:
        """As it was before. Safe to call without `take`."""
        if self._before is not None:
            flag, state = self._before
            setattr(self._scheduler, self._FLAG, flag)
            self._scheduler._r.setstate(state)
            self._before = None
