"""What becomes of a commit whose caller is cancelled (R8): it never happens, or it is answered, or it stands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from random import Random

import anyio
import anyio.lowlevel
import pytest

from tests.persistence.fake_driver import Ask, Callers, FakeDriver, Say, entered, opened


async def test_r08_a_caller_that_is_cancelled_before_its_transition_is_sealed_withdraws_it() -> None:
    driver = FakeDriver()
    driver.gate.clear()
    async with opened(driver) as store, anyio.create_task_group() as group:
        callers = Callers(store, group)
        await callers.start("first")
        await entered(driver)
        await callers.start("withdrawn")
        await callers.start("kept")
        callers.scopes["withdrawn"].cancel()
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        driver.gate.set()
    assert driver.committed == ["first", "kept"]
    assert callers.scopes["withdrawn"].cancelled_caught
    assert callers.answers == {"first": "FIRST", "kept": "KEPT"}


async def test_r08_a_caller_that_is_cancelled_later_gets_the_answer_and_is_cancelled_at_its_next_checkpoint() -> None:
    driver = FakeDriver()
    driver.gate.clear()
    seen: list[object] = []

    async def caller() -> None:
        seen.append(await store.commit(Say(word="a")))
        await anyio.lowlevel.checkpoint()
        seen.append("went on")

    async with opened(driver) as store:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as inner:
                inner.start_soon(caller)
                await entered(driver)
                scope.cancel()
                threading.Timer(0.02, driver.gate.set).start()
        assert seen == ["A"]
        assert scope.cancelled_caught
    assert driver.committed == ["a"]


async def test_r08_a_batch_does_not_die_with_its_first_caller() -> None:
    driver = FakeDriver()
    driver.gate.clear()
    async with opened(driver) as store, anyio.create_task_group() as group:
        callers = Callers(store, group)
        await callers.start("first")
        await entered(driver)
        for word in ("a", "b"):
            await callers.start(word)
        driver.gate.set()
        callers.scopes["first"].cancel()
        callers.scopes["a"].cancel()
    assert "b" in driver.committed
    assert callers.answers["b"] == "B"


async def test_k15_a_commit_inside_a_cancelled_scope_either_never_happens_or_is_answered() -> None:
    driver = FakeDriver()
    async with opened(driver) as store:
        for number in range(20):
            answer = None
            with anyio.CancelScope() as scope:
                scope.cancel()
                answer = await store.commit(Say(word=str(number)))
            await store.read(Ask(word="everything before this has been decided"))
            assert (answer is not None) == (str(number) in driver.committed)


@pytest.mark.backends("asyncio")
async def test_r08_a_native_asyncio_cancel_gets_through_and_the_transition_stands() -> None:
    driver = FakeDriver()
    driver.gate.clear()
    async with opened(driver) as store:
        task = asyncio.ensure_future(store.commit(Say(word="a")))
        await entered(driver)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        driver.gate.set()
        await store.read(Ask(word="everything before this has been decided"))
    assert driver.committed == ["a"]


@pytest.mark.backends("asyncio")
async def test_r08_a_native_asyncio_cancel_before_the_sealing_withdraws_too() -> None:
    driver = FakeDriver()
    driver.gate.clear()
    async with opened(driver) as store:
        first = asyncio.ensure_future(store.commit(Say(word="first")))
        await entered(driver)
        task = asyncio.ensure_future(store.commit(Say(word="a")))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        driver.gate.set()
        await first
    assert driver.committed == ["first"]


@pytest.mark.backends("asyncio")
@pytest.mark.real_time
async def test_r08_asyncio_wait_for_still_times_out_around_a_commit() -> None:
    driver = FakeDriver()
    driver.gate.clear()
    async with opened(driver) as store:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.commit(Say(word="a")), 0.02)


async def test_a_cancelled_read_ends_at_once() -> None:
    driver = FakeDriver()
    driver.gate.clear()
    async with opened(driver) as store, anyio.create_task_group() as group:
        group.start_soon(store.commit, Say(word="a"))
        await entered(driver)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await store.read(Ask(word="a"))
        assert scope.cancelled_caught
        driver.gate.set()


async def test_r08_of_many_commits_cancelled_at_random_moments_exactly_the_answered_ones_happened() -> None:
    driver = FakeDriver()
    random = Random(11)
    answered: set[str] = set()

    async def commit(word: str, scope: anyio.CancelScope) -> None:
        with scope:
            await store.commit(Say(word=word))
            answered.add(word)

    async def after(turns: int, call: Callable[[], object]) -> None:
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        call()

    async with opened(driver) as store:
        for round_number in range(10):
            driver.gate.clear()
            async with anyio.create_task_group() as group:
                # Sealed before all others are submitted, which so wait for their turn while the gate is closed: whoever of them
                # is cancelled meanwhile is withdrawn, however the threads are scheduled. What comes after that is a race.
                sealed = anyio.CancelScope()
                group.start_soon(commit, f"{round_number}-sealed", sealed)
                await entered(driver)
                sealed.cancel()
                for number in range(40):
                    scope = anyio.CancelScope()
                    group.start_soon(commit, f"{round_number}-{number}", scope)
                    if random.random() < 0.6:
                        group.start_soon(after, random.randrange(12), scope.cancel)
                group.start_soon(after, 6, driver.gate.set)
            assert f"{round_number}-sealed" in answered
            driver.entered.clear()
        await store.read(Ask(word="everything before this has been decided"))
    assert answered == set(driver.committed)
    assert len(driver.committed) == len(answered)
    assert len(answered) < 400  # some were withdrawn, or the test has seen nothing
