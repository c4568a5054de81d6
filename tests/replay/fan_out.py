"""A hundred branches of three steps in a seeded world; prints what must not depend on PYTHONHASHSEED. Run as a module."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import blake2b
from random import Random
from typing import Any

from greenroom.mailbox import Backend
from greenroom.runtime.replay import JournalRow, Task
from greenroom.testing import VirtualClock
from tests.replay.values import CODEC, echo
from tests.replay.world import Habits, World, replay

BRANCHES = 100


class FanOut:
    """Each branch carries its input through three operations, while all the others do."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    @property
    def handlers(self) -> dict[str, Callable[[Task, Any], Awaitable[object]]]:
        return {}

    async def __call__(self, task: Task) -> list[str]:
        self.notes = []
        async with task.nursery() as branches:
            started = [branches.start_soon(self.carry, task, f"input {number}") for number in range(BRANCHES)]
        return [branch.result for branch in started]

    async def carry(self, task: Task, value: str) -> str:
        for step in range(3):
            value = await task.run(echo, value)
            self.notes.append(f"{value} {step}")
        return value


def journal_of(seed: int, backend: Backend) -> list[JournalRow]:
    world = World(FanOut(), Random(seed), Habits(cancels=0, evicts=0.1, kills=0.005))
    end = VirtualClock(seed=seed).run(world.run, backend=backend)
    assert CODEC.decode(end.body) == [f"input {number}" for number in range(BRANCHES)]
    states = VirtualClock(seed=seed + 1).run(partial(replay, FanOut(), world.journal), backend=backend)
    assert states == world.known
    return world.journal


if __name__ == "__main__":
    for backend in ("asyncio", "trio"):
        print(blake2b(repr(journal_of(7, backend)).encode()).hexdigest())  # noqa: T201 - for the test that runs this
