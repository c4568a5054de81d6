"""The virtual clock, on both event loops. These tests run it themselves, so that what it raises can be seen."""

from __future__ import annotations

import asyncio
import contextlib
import math
import pickle
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from greenroom.errors import Misuse
from greenroom.testing import Deadlock, VirtualClock
from greenroom.testing.timeline import FREE_TURNS, TURN, has_spun_through

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.testing.virtual_clock import Backend

YEAR = 365 * 24 * 3600.0
IMPATIENT = 0.05


def in_loop_soon() -> Callable[[Callable[[], object]], None]:
    """How another thread posts a call to the loop that this is called in."""
    try:
        token = trio.lowlevel.current_trio_token()
    except RuntimeError:
        loop = asyncio.get_running_loop()
        return lambda call: void(loop.call_soon_threadsafe(call))
    return token.run_sync_soon


def void(_: object) -> None:
    """For a callable whose result is of no interest."""


async def swallow_cancellation_until(end: anyio.Event) -> None:
    while not end.is_set():
        with contextlib.suppress(anyio.get_cancelled_exc_class()):
            await end.wait()


# ---------------------------------------------------------------------------------------------------- time jumps


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


# --------------------------------------------------------------------------------------------------- real work


def test_a_worker_thread_that_a_task_waits_for_keeps_time_from_jumping(backend: Backend) -> None:
    clock = VirtualClock()
    go = threading.Event()

    async def main() -> float:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 3600)
            release = threading.Timer(0.05, go.set)
            release.start()
            await anyio.to_thread.run_sync(go.wait)
            seen = clock.now()
            group.cancel_scope.cancel()
        release.join()
        return seen

    assert clock.run(main, backend=backend) == 0.0


def test_time_jumps_again_when_the_thread_has_been_abandoned(backend: Backend) -> None:
    clock = VirtualClock()
    go = threading.Event()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: anyio.to_thread.run_sync(go.wait, abandon_on_cancel=True))
            await clock.wait_idle()
            group.cancel_scope.cancel()
        await anyio.sleep(10)
        go.set()

    clock.run(main, backend=backend)
    assert clock.now() == 10.0


def test_a_call_in_an_asyncio_executor_keeps_time_from_jumping() -> None:
    clock = VirtualClock()
    go = threading.Event()

    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(3600, void, None)
        release = threading.Timer(0.05, go.set)
        release.start()
        await loop.run_in_executor(None, go.wait)
        release.join()
        return clock.now()

    assert clock.run(main) == 0.0


def test_time_stands_still_under_a_hold_and_a_thread_of_ones_own_can_wake_the_loop(backend: Backend) -> None:
    clock = VirtualClock()

    async def main() -> float:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 3600)
            done, post = anyio.Event(), in_loop_soon()
            worker = threading.Timer(0.05, lambda: post(done.set))
            with clock.hold():
                worker.start()
                await done.wait()
                seen = clock.now()
            worker.join()
            group.cancel_scope.cancel()
        return seen

    assert clock.run(main, backend=backend) == 0.0


def test_a_child_process_can_be_awaited_under_a_hold(backend: Backend) -> None:
    clock = VirtualClock()

    async def main() -> tuple[int, float]:
        with clock.hold(), anyio.fail_after(0.001):
            child = await anyio.run_process([sys.executable, "-c", "print('hello')"])
        return child.returncode, clock.now()

    assert clock.run(main, backend=backend) == (0, 0.0)


def test_holds_are_counted_and_time_moves_only_after_the_last(backend: Backend) -> None:
    clock = VirtualClock()
    seen: list[float] = []

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 3600)
            done, post = anyio.Event(), in_loop_soon()
            worker = threading.Timer(0.05, lambda: post(done.set))
            hold = clock.hold()
            with hold:
                with hold, clock.hold():
                    worker.start()
                await done.wait()
                seen.append(clock.now())
            worker.join()
        seen.append(clock.now())

    clock.run(main, backend=backend)
    assert seen == [0.0, 3600.0]


def test_a_hold_taken_in_another_thread_is_refused(backend: Backend) -> None:
    clock = VirtualClock()

    def elsewhere() -> None:
        with clock.hold():
            pass

    async def main() -> None:
        await anyio.to_thread.run_sync(elsewhere)

    with pytest.raises(Misuse, match="event loop's thread"):
        clock.run(main, backend=backend)


def test_the_runtime_finds_the_clock_from_inside_the_loop(backend: Backend) -> None:
    clock = VirtualClock()

    async def main() -> object:
        if backend == "trio":
            return getattr(trio.lowlevel.current_clock(), "virtual_clock", None)
        return getattr(asyncio.get_running_loop(), "virtual_clock", None)

    assert clock.run(main, backend=backend) is clock


def test_bytes_that_are_ready_are_served_before_time_jumps(backend: Backend) -> None:
    clock = VirtualClock()
    near, far = socket.socketpair()

    async def main() -> float:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 3600)
            near.send(b"x")
            await anyio.wait_readable(far)
            seen = clock.now()
            group.cancel_scope.cancel()
        return seen

    with near, far:
        assert clock.run(main, backend=backend) == 0.0


def test_a_descriptor_that_is_waited_for_does_not_stop_time(backend: Backend) -> None:
    clock = VirtualClock()
    near, far = socket.socketpair()

    async def main() -> float:
        with anyio.move_on_after(60):
            await anyio.wait_readable(far)
        return clock.now()

    with near, far:
        assert clock.run(main, backend=backend) == 60.0


# ---------------------------------------------------------------------------------------------------------- idle


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


# ------------------------------------------------------------------------------------------------------ spinning


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


# ------------------------------------------------------------------------------------------------------ deadlock


async def wait_for_nothing() -> None:
    await anyio.Event().wait()


def test_a_run_that_nothing_can_wake_raises_deadlock_and_names_who_waits_where(backend: Backend) -> None:
    clock = VirtualClock(patience=IMPATIENT)

    async def main() -> None:
        await anyio.sleep(7)
        async with anyio.create_task_group() as group:
            group.start_soon(wait_for_nothing, name="the one who waits")
            await anyio.sleep_forever()

    with pytest.raises(Deadlock) as caught:
        clock.run(main, backend=backend)
    assert caught.value.at == 7.0
    assert len(caught.value.blocked) == 2
    assert any("the one who waits" in line and "wait_for_nothing" in line for line in caught.value.blocked)


def test_a_deadlocked_run_is_cancelled_so_that_it_cleans_up(backend: Backend) -> None:
    cleaned: list[float] = []
    clock = VirtualClock(patience=IMPATIENT)

    async def main() -> None:
        try:
            await wait_for_nothing()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(3)
            cleaned.append(clock.now())

    with pytest.raises(Deadlock):
        clock.run(main, backend=backend)
    assert cleaned == [3.0]


def test_a_deadlock_inside_a_shield_is_broken_off_too(backend: Backend) -> None:
    left: list[str] = []

    async def main() -> None:
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as group:
                group.start_soon(wait_for_nothing)
                try:
                    await wait_for_nothing()
                finally:
                    left.append("the shielded block")

    with pytest.raises(Deadlock):
        VirtualClock(patience=IMPATIENT).run(main, backend=backend)
    assert left == ["the shielded block"]


def test_what_the_cancelled_run_raises_is_chained_to_the_deadlock(backend: Backend) -> None:
    async def main() -> None:
        try:
            await wait_for_nothing()
        finally:
            raise LookupError("while it cleaned up")

    with pytest.raises(Deadlock) as caught:
        VirtualClock(patience=IMPATIENT).run(main, backend=backend)
    assert isinstance(caught.value.__cause__, LookupError)


def test_a_deadlock_ends_a_run_by_backend_options_as_well(backend: Backend) -> None:
    options = VirtualClock(patience=IMPATIENT).backend_options(backend)
    with pytest.raises(Deadlock):
        anyio.run(wait_for_nothing, backend=backend, backend_options=options)


def test_a_thread_within_the_patience_is_no_deadlock_though_no_hold_is_out(backend: Backend) -> None:
    async def main() -> str:
        done, post = anyio.Event(), in_loop_soon()
        worker = threading.Timer(0.05, lambda: post(done.set))
        worker.start()
        await done.wait()
        worker.join()
        return "woken"

    assert VirtualClock(patience=30).run(main, backend=backend) == "woken"


def test_waiting_for_a_descriptor_is_no_deadlock(backend: Backend) -> None:
    near, far = socket.socketpair()

    async def main() -> str:
        worker = threading.Timer(4 * IMPATIENT, near.send, args=(b"x",))
        worker.start()
        await anyio.wait_readable(far)
        worker.join()
        return "read"

    with near, far:
        assert VirtualClock(patience=IMPATIENT).run(main, backend=backend) == "read"


def test_waiting_under_a_hold_is_no_deadlock(backend: Backend) -> None:
    clock = VirtualClock(patience=IMPATIENT)

    async def main() -> str:
        done, post = anyio.Event(), in_loop_soon()
        worker = threading.Timer(4 * IMPATIENT, lambda: post(done.set))
        with clock.hold():
            worker.start()
            await done.wait()
        worker.join()
        return "woken"

    assert clock.run(main, backend=backend) == "woken"


def test_a_deadlock_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(Deadlock(1.5, ["a waits"])))
    assert (copy.at, copy.blocked) == (1.5, ("a waits",))


def test_a_deadlock_shows_ten_tasks_and_counts_the_rest() -> None:
    text = str(Deadlock(0.0, [f"task {number} waits" for number in range(12)]))
    assert "task 9 waits" in text
    assert "task 10 waits" not in text
    assert text.endswith("… and 2 more")


# -------------------------------------------------------------------------------------------------------- misuse


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
