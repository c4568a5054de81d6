"""The virtual clock, on both event loops. These tests run it themselves, so that what it raises can be seen."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from greenroom.errors import Misuse
from greenroom.testing import VirtualClock
from greenroom.testing.timeline import FREE_TURNS, TURN, has_spun_through

if TYPE_CHECKING:
    from greenroom.testing.virtual_clock import Backend

YEAR = 365 * 24 * 3600.0


async def swallow_cancellation_until(end: anyio.Event) -> None:
    while not end.is_set():
        with contextlib.suppress(anyio.get_cancelled_exc_class()):
            await end.wait()


# ---------------------------------------------------------------------------------------------------------- time jumps


def test_time_starts_at_zero_for_the_clock_and_the_loop_alike(backend: Backend) -> None:
    clock = VirtualClock()

    async def main() -> float:
        return anyio.current_time()

    assert clock.now() == 0.0
    assert clock.run(main, backend=backend) == 0.0


def test_a_year_of_sleep_takes_no_real_second_and_ends_at_its_exact_second(backend: Backend) -> None:
    clock = VirtualClock()
    began = time.monotonic()
    clock.run(anyio.sleep, YEAR + 0.1, backend=backend)
    assert clock.now() == YEAR + 0.1
    assert time.monotonic() - began < 5


def test_a_short_sleep_after_a_thousand_years_still_ends(backend: Backend) -> None:
    clock = VirtualClock()

    async def main() -> float:
        await anyio.sleep(1000 * YEAR)
        await anyio.sleep(0.001)
        return clock.now()

    assert clock.run(main, backend=backend) == 1000 * YEAR + 0.001


def test_sleepers_wake_in_the_order_of_their_deadlines_each_at_its_own_second(backend: Backend) -> None:
    clock = VirtualClock()
    woken: list[tuple[float, float]] = []

    async def sleeper(delay: float) -> None:
        await anyio.sleep(delay)
        woken.append((delay, anyio.current_time()))

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for delay in (3.0, 0.1, 7.7, 0.3):
                group.start_soon(sleeper, delay)

    clock.run(main, backend=backend)
    assert woken == [(0.1, 0.1), (0.3, 0.3), (3.0, 3.0), (7.7, 7.7)]


def test_time_stands_still_while_tasks_have_something_to_do(backend: Backend) -> None:
    clock = VirtualClock()

    async def main() -> float:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 1)
            for _ in range(100):
                await anyio.lowlevel.checkpoint()
            seen = clock.now()
        return seen

    assert clock.run(main, backend=backend) == 0.0


def test_the_deadline_of_a_cancel_scope_comes_at_its_exact_second(backend: Backend) -> None:
    clock = VirtualClock()

    async def main() -> tuple[bool, float]:
        await anyio.sleep(0.5)
        with anyio.move_on_after(2.25) as scope:
            await anyio.sleep_forever()
        return scope.cancelled_caught, clock.now()

    assert clock.run(main, backend=backend) == (True, 2.75)


def test_a_timer_that_was_cancelled_is_not_jumped_to(backend: Backend) -> None:
    clock = VirtualClock()

    async def main() -> float:
        with anyio.move_on_after(10):
            await anyio.sleep(1)
        await anyio.sleep(1)
        return clock.now()

    assert clock.run(main, backend=backend) == 2.0


def test_asyncio_timers_and_timeouts_use_virtual_time() -> None:
    clock = VirtualClock()

    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        seen: list[float] = []
        loop.call_later(5, lambda: seen.append(loop.time()))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await loop.create_future()
        return [*seen, loop.time()]

    assert clock.run(main) == [5.0, 30.0]


def test_trios_wait_for_all_tasks_to_be_blocked_goes_before_a_jump() -> None:
    clock = VirtualClock()

    async def main() -> list[float]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 60)
            await trio.testing.wait_all_tasks_blocked()
            at_once = clock.now()
            await trio.testing.wait_all_tasks_blocked(0.01)
            seen = [at_once, clock.now()]
            nursery.cancel_scope.cancel()
        return seen

    assert clock.run(main, backend="trio") == [0.0, 0.0]


def test_arguments_results_and_errors_pass_through_run_as_they_are(backend: Backend) -> None:
    async def add(left: int, right: int) -> int:
        return left + right

    async def fail() -> None:
        raise LookupError("the test's own")

    assert VirtualClock().run(add, 2, 3, backend=backend) == 5
    with pytest.raises(LookupError, match="the test's own"):
        VirtualClock().run(fail, backend=backend)


def test_backend_options_give_anyio_run_the_same_clock(backend: Backend) -> None:
    clock = VirtualClock()
    anyio.run(anyio.sleep, 40, backend=backend, backend_options=clock.backend_options(backend))
    assert clock.now() == 40.0


# ---------------------------------------------------------------------------------------------------------------- idle


def test_waiting_for_idleness_lets_the_others_run_until_they_wait_and_moves_no_time(backend: Backend) -> None:
    clock = VirtualClock()
    steps: list[int] = []

    async def walk() -> None:
        for step in range(5):
            await anyio.lowlevel.checkpoint()
            steps.append(step)
        await anyio.sleep(60)

    async def main() -> float:
        async with anyio.create_task_group() as group:
            group.start_soon(walk)
            await clock.wait_idle()
            seen = clock.now()
            group.cancel_scope.cancel()
        return seen

    assert clock.run(main, backend=backend) == 0.0
    assert steps == [0, 1, 2, 3, 4]


def test_idleness_is_seen_under_a_hold(backend: Backend) -> None:
    clock = VirtualClock()

    async def main() -> float:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 60)
            with clock.hold():
                await clock.wait_idle()
                await clock.wait_idle()
                seen = clock.now()
        return seen

    assert clock.run(main, backend=backend) == 0.0


def test_waiting_for_idleness_can_be_cancelled(backend: Backend) -> None:
    clock = VirtualClock()

    async def main() -> None:
        with anyio.move_on_after(0) as scope:
            await clock.wait_idle()
        assert scope.cancelled_caught
        await clock.wait_idle()

    clock.run(main, backend=backend)


def test_waiting_for_idleness_outside_a_run_is_refused() -> None:
    with pytest.raises(Misuse, match="run"):
        anyio.run(VirtualClock().wait_idle)


# ------------------------------------------------------------------------------------------------------------ spinning


def test_a_task_that_swallows_cancellation_spins_and_a_deadline_still_comes_at_its_exact_second(
    backend: Backend,
) -> None:
    clock = VirtualClock()

    async def main() -> float:
        end = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(swallow_cancellation_until, end)
            await anyio.sleep(1)
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.sleep(2)
            end.set()
        return clock.now()

    assert clock.run(main, backend=backend) == 3.0


def test_spinning_does_not_move_time_under_a_hold(backend: Backend) -> None:
    clock = VirtualClock()

    async def main() -> float:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0.001)
            with clock.hold():
                for _ in range(2 * FREE_TURNS):
                    await anyio.lowlevel.checkpoint()
                seen = clock.now()
        return seen

    assert clock.run(main, backend=backend) == 0.0


@given(turns=st.integers(0, 10 * FREE_TURNS), distance=st.floats(min_value=0, allow_nan=False))
def test_a_loop_reaches_its_next_timer_by_turns_only_after_the_free_ones(turns: int, distance: float) -> None:
    reached = has_spun_through(turns, distance)
    assert not (reached and turns <= FREE_TURNS)
    assert reached == (turns > FREE_TURNS and distance <= (turns - FREE_TURNS) * TURN)


@given(turns=st.integers(0, 10 * FREE_TURNS))
def test_a_loop_without_timers_never_spins_its_time_away(turns: int) -> None:
    assert not has_spun_through(turns, math.inf)


# -------------------------------------------------------------------------------------------------------------- misuse


def test_a_clock_that_has_served_a_run_refuses_another(backend: Backend) -> None:
    clock = VirtualClock()
    clock.run(anyio.sleep, 1, backend=backend)
    with pytest.raises(Misuse, match="new VirtualClock"):
        clock.run(anyio.sleep, 1, backend=backend)
    with pytest.raises(Misuse, match="new VirtualClock"):
        clock.backend_options(backend)


def test_an_unknown_backend_is_refused_by_name() -> None:
    with pytest.raises(Misuse, match="curio"):
        VirtualClock().backend_options("curio")


@pytest.mark.parametrize("patience", [0.0, -1.0, math.nan])
def test_patience_must_be_above_zero(patience: float) -> None:
    with pytest.raises(Misuse, match="patience"):
        VirtualClock(patience=patience)
