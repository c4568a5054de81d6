"""Seeded scheduling: of the event-loop tasks that could run, a seed decides which one runs next.

Trio makes no promise about that order, and has a hook for tests by which it can be decided; it is in a private module, for want of
a public one. asyncio's tasks take turns, which hides mistakes that trio shows: there the tasks that are ready are put in another
order among their places in the loop's queue. Every other callback keeps its place, for asyncio promises the order of those, and its
own transports rely on it.

A task's rank in its next step follows from the seed, from which task it is, and from how many steps it has taken, and not from a
row of random numbers that all tasks share: so a task that something outside the loop wakes at its own time (a thread is done) does
not change the order of the others.
"""

from __future__ import annotations

import asyncio
import random
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import trio

if TYPE_CHECKING:
    from collections.abc import MutableSequence

WORD: Final = 2**64 - 1


def scrambled(*numbers: int) -> int:
    """A number of 64 bits that follows from these, and looks like chance."""
    mixed = 0
    for number in numbers:
        mixed = (mixed + number + 0x9E3779B97F4A7C15) & WORD
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & WORD
        mixed ^= mixed >> 31
    return mixed


class SeededOrder:
    """The order of the event-loop tasks of one run."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._numbers = count(1)
        self._tasks: WeakKeyDictionary[Any, tuple[int, int]] = WeakKeyDictionary()
        """Which task each is, in the order of their first steps, and how many steps it has taken."""

    def rank(self, task: object) -> int:
        """Of a task that is about to take a step: lower ones go first."""
        number, steps = self._tasks.get(task) or (next(self._numbers), 0)
        self._tasks[task] = number, steps + 1
        return scrambled(self._seed, number, steps)

    def shuffle(self, ready: MutableSequence[asyncio.Handle]) -> None:
        """Put the steps of asyncio tasks in order, among their places in a loop's queue. Other threads may append to it meanwhile."""
        steps = [(place, handle, task_of(handle)) for place, handle in enumerate(tuple(ready))]
        steps = [step for step in steps if step[2] is not None]
        ordered = sorted((self.rank(task), place, handle) for place, handle, task in steps)
        for (place, _, _), (_, _, handle) in zip(steps, ordered, strict=True):
            ready[place] = handle


def task_of(handle: asyncio.Handle) -> asyncio.Task[Any] | None:
    """The task whose step a handle is: what runs one, first or later, is bound to it. None for other callbacks."""
    callback: Any = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    return owner if isinstance(owner, asyncio.Task) else None


class TrioShuffle(random.Random):
    """In the place of trio's generator. It is asked for nothing but to shuffle tasks, which come in the order of their making."""

    def __init__(self, order: SeededOrder) -> None:
        super().__init__(0)
        self._order = order

    def shuffle(self, x: MutableSequence[Any]) -> None:
        x[:] = sorted(x, key=self._order.rank)


class TrioOrder:
    """Trio's scheduler in a seed's hands, from `take` until `give_back`. It has one for the whole process."""

    _SWITCH: Final = "_ALLOW_DETERMINISTIC_SCHEDULING"

    def __init__(self, order: SeededOrder) -> None:
        self._order = order
        self._scheduler: Any = trio._core._run
        self._before: tuple[bool, random.Random] | None = None

    def take(self) -> None:
        self._before = getattr(self._scheduler, self._SWITCH), self._scheduler._r
        setattr(self._scheduler, self._SWITCH, True)
        self._scheduler._r = TrioShuffle(self._order)

    def give_back(self) -> None:
        """As it was before. Safe to call without `take`."""
        if self._before is not None:
            switch, self._scheduler._r = self._before
            setattr(self._scheduler, self._SWITCH, switch)
            self._before = None
