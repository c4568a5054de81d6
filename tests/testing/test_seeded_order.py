"""A seeded clock decides the order of the event-loop tasks that could run, the same on each run."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from greenroom.testing import VirtualClock
from greenroom.testing.seeded_order import SeededOrder

if TYPE_CHECKING:
    from greenroom.testing.virtual_clock import Backend

TASKS = 6
STEPS = 3


def order(seed: int | None, backend: Backend) -> list[int]:
    """In which order a few tasks take their steps, some after a pause of the same length."""
    taken: list[int] = []

    async def steps(number: int) -> None:
        for _ in range(STEPS):
            taken.append(number)
            await anyio.lowlevel.checkpoint()
        await anyio.sleep(1)
        taken.append(number)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for number in range(TASKS):
                group.start_soon(steps, number)

    VirtualClock(seed=seed).run(main, backend=backend)
    return taken


def test_the_same_seed_gives_the_same_order(backend: Backend) -> None:
    for seed in range(20):
        assert order(seed, backend) == order(seed, backend)


def test_other_seeds_give_other_orders(backend: Backend) -> None:
    assert len({tuple(order(seed, backend)) for seed in range(20)}) == 20


def test_each_task_takes_all_of_its_steps_under_any_seed(backend: Backend) -> None:
    for seed in range(20):
        assert sorted(order(seed, backend)) == sorted([*range(TASKS)] * (STEPS + 1))


def test_without_a_seed_asyncio_tasks_take_turns() -> None:
    assert order(None, "asyncio")[: TASKS * STEPS] == [*range(TASKS)] * STEPS


def test_asyncios_callbacks_keep_their_order() -> None:
    called: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                loop.call_soon(called.append, number)
                group.create_task(asyncio.sleep(0))

    for seed in range(20):
        VirtualClock(seed=seed).run(main, backend="asyncio")
    assert called == [*range(20)] * 20


def trios_own() -> tuple[bool, random.Random, object]:
    scheduler = trio._core._run
    return scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r, scheduler._r.getstate()


def test_trios_own_scheduler_is_left_as_it_was_found() -> None:
    before = trios_own()
    order(1, "trio")
    assert trios_own() == before


def test_trios_own_scheduler_is_left_as_it_was_found_by_a_run_that_fails() -> None:
    before = trios_own()

    async def main() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        VirtualClock(seed=1).run(main, backend="trio")
    assert trios_own() == before


def test_what_comes_from_outside_in_its_own_time_does_not_change_the_order_of_the_others(backend: Backend) -> None:
    def with_a_thread(pause: float) -> list[int]:
        taken: list[int] = []

        async def steps(number: int) -> None:
            for _ in range(5):
                taken.append(number)
                await anyio.lowlevel.checkpoint()

        async def wait_for_a_thread() -> None:
            for _ in range(5):
                await anyio.to_thread.run_sync(time.sleep, pause)

        async def main() -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(wait_for_a_thread)
                for number in range(TASKS):
                    group.start_soon(steps, number)
                for _ in range(3):
                    await anyio.sleep(1)
                    for number in range(TASKS):
                        group.start_soon(steps, number)

        VirtualClock(seed=3).run(main, backend=backend)
        return taken

    assert with_a_thread(0.0) == with_a_thread(0.0) == with_a_thread(0.003)


async def _nothing() -> None:
    pass


@given(kinds=st.lists(st.booleans(), max_size=12), seed=st.integers())
def test_a_shuffle_moves_steps_of_tasks_among_their_places_only(kinds: list[bool], seed: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ready = loop._ready  # type: ignore[attr-defined]
        held: deque[asyncio.Handle] = deque()
        async with asyncio.TaskGroup() as group:
            for is_task in kinds:
                if is_task:
                    group.create_task(_nothing())
                else:
                    loop.call_soon(int)
                held.append(ready[-1])
            shuffled = held.copy()
            SeededOrder(seed).shuffle(shuffled)
            assert sorted(map(id, shuffled)) == sorted(map(id, held))
            assert [was is now for was, now, task in zip(held, shuffled, kinds, strict=True) if not task] == [True] * (
                len(kinds) - sum(kinds)
            )

    asyncio.run(main())
