"""A run under a virtual clock that nothing can wake."""

from __future__ import annotations

import pickle
import socket
import threading
from typing import TYPE_CHECKING

import anyio
import pytest

from greenroom.testing import Deadlock, VirtualClock
from tests.testing.posting import in_loop_soon

if TYPE_CHECKING:
    from greenroom.testing.virtual_clock import Backend

IMPATIENT = 0.05


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
