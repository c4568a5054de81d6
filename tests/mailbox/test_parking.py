"""Slots: one value or one exception, for one waiter, on both loops alike (P21)."""

from __future__ import annotations

import threading

import anyio
import pytest

from greenroom.errors import WrongThread
from greenroom.mailbox import current_loop
from greenroom.testing import VirtualClock


async def test_p21_a_slot_gives_its_waiter_the_value() -> None:
    loop = current_loop()
    slot = loop.slot()
    loop.post(lambda: slot.set_result("value"))
    assert await slot == "value"
    assert slot.done()


async def test_p21_a_slot_that_was_filled_before_is_not_waited_for() -> None:
    slot = current_loop().slot()
    slot.set_result("value")
    assert await slot == "value"


async def test_p21_a_slot_raises_in_its_waiter_what_was_put_in() -> None:
    loop = current_loop()
    slots = [loop.slot(), loop.slot()]
    slots[0].set_exception(KeyError("before"))
    loop.post(lambda: slots[1].set_exception(KeyError("meanwhile")))
    for slot, text in zip(slots, ["before", "meanwhile"], strict=True):
        with pytest.raises(KeyError, match=text):
            await slot


async def test_p21_a_cancelled_waiter_leaves_its_slot_done() -> None:
    slot = current_loop().slot()
    with anyio.move_on_after(1) as scope:
        await slot
    assert scope.cancelled_caught
    assert slot.done()


async def test_p21_a_shield_keeps_a_waiter_at_its_slot() -> None:
    loop = current_loop()
    slot = loop.slot()
    with anyio.move_on_after(1) as scope:
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as group:

                async def fill() -> None:
                    await anyio.sleep(5)
                    slot.set_result("value")

                group.start_soon(fill)
                assert await slot == "value"
    assert anyio.current_time() == 5.0
    assert scope.cancel_called


async def test_p21_a_value_that_comes_in_the_moment_of_a_cancellation_is_not_lost() -> None:
    slot = current_loop().slot()
    outcome = ""

    async def wait() -> None:
        nonlocal outcome
        outcome = await slot

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.sleep(1)
            slot.set_result("value")
            scope.cancel()
    assert outcome == "value"


async def test_the_loop_knows_its_clock(clock: VirtualClock) -> None:
    loop = current_loop()
    await anyio.sleep(2.5)
    assert (loop.now(), loop.stopwatch(), loop.virtual_clock) == (2.5, 2.5, clock)


@pytest.mark.real_time
async def test_the_loop_knows_that_its_clock_is_real() -> None:
    loop = current_loop()
    assert loop.virtual_clock is None
    assert loop.stopwatch() > 0


async def test_the_loop_knows_its_backend_and_thread(backend: str) -> None:
    loop = current_loop()
    assert (loop.backend, loop.thread) == (backend, threading.get_ident())
    loop.check_thread()

    def check() -> None:
        with pytest.raises(WrongThread):
            loop.check_thread()

    await anyio.to_thread.run_sync(check)


async def test_a_function_can_be_posted_from_any_thread() -> None:
    loop = current_loop()
    slot = loop.slot()
    await anyio.to_thread.run_sync(lambda: loop.post(lambda: slot.set_result(threading.get_ident())))
    assert await slot == loop.thread


async def test_a_checkpoint_lets_a_cancellation_arrive() -> None:
    loop = current_loop()
    with anyio.CancelScope() as scope:
        scope.cancel()
        for _ in range(3):
            await loop.checkpoint()
    assert scope.cancelled_caught


def test_without_a_running_loop_there_is_none() -> None:
    with pytest.raises(RuntimeError):
        current_loop()
