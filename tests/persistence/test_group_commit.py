"""Group commit and its failures (R5, R34), over a driver that fails as it is told."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from greenroom.errors import IncompatibleStore, StoreClosed, StoreUnavailable, TransitionFailed, WrongThread
from greenroom.persistence.driver import Contended, NotReached, OutcomeUnknown, StatementFailed
from greenroom.persistence.store_thread import LARGEST_BATCH
from tests.persistence.fake_driver import Ask, Callers, FakeDriver, Say, entered, nothing, opened, raising
from tests.persistence.stores import until

if TYPE_CHECKING:
    from greenroom.testing import VirtualClock


# ---------------------------------------------------------------------------------------------------------- batches


async def test_transitions_submitted_while_a_commit_is_under_way_share_the_next_one() -> None:
    driver = FakeDriver()
    driver.gate.clear()
    async with opened(driver) as store, anyio.create_task_group() as group:
        callers = Callers(store, group)
        await callers.start("first")
        await entered(driver)
        for word in ("a", "b", "c"):
            await callers.start(word)
        driver.gate.set()
    assert [words for _, words in driver.batches] == [["first"], ["a", "b", "c"]]
    assert callers.answers == {"first": "FIRST", "a": "A", "b": "B", "c": "C"}


async def test_a_kind_that_must_be_alone_shares_its_commit_with_none() -> None:
    driver = FakeDriver()
    driver.gate.clear()
    async with opened(driver) as store, anyio.create_task_group() as group:
        callers = Callers(store, group)
        await callers.start("first")
        await entered(driver)
        for word in ("a", "b"):
            await callers.start(word)
        await callers.start("c", alone=True)
        await callers.start("d")
        driver.gate.set()
    assert [words for _, words in driver.batches] == [["first"], ["a", "b"], ["c"], ["d"]]
    assert callers.answers["c"] == "C"


async def test_a_batch_is_bounded() -> None:
    driver = FakeDriver()
    driver.gate.clear()
    async with opened(driver) as store, anyio.create_task_group() as group:
        callers = Callers(store, group)
        await callers.start("first")
        await entered(driver)
        for number in range(LARGEST_BATCH + 10):
            group.start_soon(store.commit, Say(word=str(number)))
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        driver.gate.set()
    assert [len(words) for _, words in driver.batches] == [1, LARGEST_BATCH, 10]
    assert sorted(map(int, driver.committed[1:])) == list(range(LARGEST_BATCH + 10))


async def test_queries_are_answered() -> None:
    async with opened(FakeDriver()) as store:
        assert await store.read(Ask(word="hello")) == "HELLO"


async def test_time_does_not_jump_while_the_store_works(clock: VirtualClock) -> None:
    driver = FakeDriver()
    driver.gate.clear()
    async with opened(driver) as store, anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 3600)
        threading.Timer(0.05, driver.gate.set).start()
        await store.commit(Say(word="a"))
        assert clock.now() == 0.0
        group.cancel_scope.cancel()


async def test_time_goes_on_between_commits(clock: VirtualClock) -> None:
    async with opened(FakeDriver()) as store:
        await store.commit(Say(word="a"))
        await anyio.sleep(3600)
        await store.read(Ask(word="a"))
        await anyio.sleep(3600)
        assert clock.now() == 7200.0


# -------------------------------------------------------------------------------------------------------- three failures


async def test_r05_one_bad_item_spoils_nobody_else() -> None:
    driver = FakeDriver()
    driver.gate.clear()
    bad = ValueError("the bad one")
    failed = StatementFailed("bad")
    failed.__cause__ = bad
    driver.apply_steps.extend([nothing, raising(failed), nothing, raising(failed), nothing])
    async with opened(driver) as store, anyio.create_task_group() as group:
        callers = Callers(store, group)
        await callers.start("first")
        await entered(driver)
        for word in ("a", "bad", "c"):
            await callers.start(word)
        driver.gate.set()
    assert driver.committed == ["first", "a", "c"]
    assert callers.answers == {"first": "FIRST", "a": "A", "c": "C"}
    error = callers.errors["bad"]
    assert isinstance(error, TransitionFailed)
    assert error.__cause__ is bad
    assert "Say" in str(error)
    assert "the bad one" in str(error)
    assert len({batch_id for batch_id, _ in driver.calls}) == len(driver.calls)


async def test_r05_a_batch_that_lost_against_another_transaction_is_run_again_as_it_is() -> None:
    driver = FakeDriver()
    driver.apply_steps.extend([raising(Contended("deadlock"))] * 3)
    async with opened(driver) as store:
        assert await store.commit(Say(word="a")) == "A"
    assert len(driver.calls) == 4
    assert len(set(map(str, driver.calls))) == 1


async def test_a_store_that_cannot_be_reached_for_a_while_is_waited_for() -> None:
    driver = FakeDriver()
    driver.apply_steps.extend([raising(NotReached("away"))] * 5)
    driver.read_steps.extend([raising(NotReached("away"))] * 5)
    async with opened(driver) as store:
        assert await store.commit(Say(word="a")) == "A"
        assert await store.read(Ask(word="a")) == "A"
    assert driver.pauses == 10


async def test_a_store_that_stays_away_is_unavailable_after_the_bound_and_nothing_is_applied_later() -> None:
    driver = FakeDriver()
    away = raising(NotReached("another process holds the write lock"))
    driver.apply_steps.extend([away] * 100_000)
    driver.read_steps.extend([away] * 100_000)
    async with opened(driver, bound=0.05) as store:
        with pytest.raises(
            StoreUnavailable, match="another process holds the write lock; nothing was applied"
        ) as caught:
            await store.commit(Say(word="a"))
        assert not caught.value.unknown
        with pytest.raises(StoreUnavailable, match="nothing was applied"):
            await store.read(Ask(word="a"))
        driver.apply_steps.clear()
        assert await store.commit(Say(word="b")) == "B"
    assert driver.committed == ["b"]


async def test_r05_an_unknown_commit_that_was_made_is_found_and_not_made_again() -> None:
    driver = FakeDriver()
    driver.commit_steps.append(raising(OutcomeUnknown("connection lost at COMMIT")))
    async with opened(driver) as store:
        assert await store.commit(Say(word="a")) == "A"
    assert driver.committed == ["a"]
    assert len(driver.calls) == 1


async def test_r05_an_unknown_commit_that_was_not_made_is_made_under_the_same_batch_id() -> None:
    driver = FakeDriver()
    driver.apply_steps.append(raising(OutcomeUnknown("connection lost before COMMIT")))
    async with opened(driver) as store:
        assert await store.commit(Say(word="a")) == "A"
    assert driver.committed == ["a"]
    assert [batch_id for batch_id, _ in driver.calls] == [driver.calls[0][0]] * 2


async def test_r05_nothing_is_run_again_while_it_is_unknown() -> None:
    driver = FakeDriver()
    driver.commit_steps.append(raising(OutcomeUnknown("connection lost at COMMIT")))
    driver.recover_steps.extend([raising(NotReached("still away"))] * 5)
    async with opened(driver) as store:
        assert await store.commit(Say(word="a")) == "A"
    assert len(driver.calls) == 1


async def test_r05_a_commit_that_stays_unknown_is_said_to_be_so_and_is_not_made_behind_the_callers_back() -> None:
    driver = FakeDriver()
    driver.apply_steps.append(raising(OutcomeUnknown("connection lost at COMMIT")))
    driver.recover_steps.extend([raising(NotReached("still away"))] * 100_000)
    async with opened(driver, bound=0.05) as store:
        transition = Say(word="a")
        with pytest.raises(StoreUnavailable, match=r"connection lost at COMMIT.*is not known") as caught:
            await store.commit(transition)
        assert caught.value.unknown
        assert caught.value.transition_id == transition.transition_id
        driver.recover_steps.clear()
        assert await store.commit(Say(word="b")) == "B"
    assert driver.committed == ["b"]


# -------------------------------------------------------------------------------------------------------------- ends


async def test_r34_when_the_store_thread_dies_all_waiters_fail_at_once_and_so_does_whoever_comes_later() -> None:
    driver = FakeDriver()
    driver.gate.clear()
    driver.apply_steps.append(raising(RuntimeWarning("the database is malformed")))
    async with opened(driver) as store:
        with store.wakeups() as subscription:
            async with anyio.create_task_group() as group:
                callers = Callers(store, group)
                await callers.start("in hand")
                await entered(driver)
                await callers.start("queued")
                driver.gate.set()
            assert await subscription.wait() is None
        errors = callers.errors
        assert all(isinstance(error, StoreUnavailable) for error in errors.values())
        assert [getattr(errors[word], "unknown") for word in ("in hand", "queued")] == [True, False]  # noqa: B009
        assert "the database is malformed" in str(errors["queued"])
        with pytest.raises(StoreUnavailable, match="has died"):
            await store.commit(Say(word="late"))
    assert driver.closed
    assert driver.committed == []


@pytest.mark.real_time
async def test_a_store_thread_that_is_stuck_keeps_nobody_longer_than_the_bound() -> None:
    driver = FakeDriver()
    driver.gate.clear()
    async with opened(driver, bound=0.2) as store, anyio.create_task_group() as group:
        callers = Callers(store, group)
        await callers.start("in hand")
        await entered(driver)
        await callers.start("queued")
        await until(lambda: len(callers.errors) == 2)
        driver.gate.set()
    unknown = {word: getattr(error, "unknown", None) for word, error in callers.errors.items()}
    assert unknown == {"in hand": True, "queued": False}
    assert driver.committed == ["in hand"]


async def test_leaving_the_block_commits_what_was_submitted() -> None:
    driver = FakeDriver()
    driver.gate.clear()
    async with anyio.create_task_group() as group, opened(driver) as store:
        callers = Callers(store, group)
        await callers.start("first")
        await entered(driver)
        await callers.start("last")
    assert driver.committed == ["first", "last"]
    assert driver.closed
    assert callers.answers == {"first": "FIRST", "last": "LAST"}


async def test_leaving_the_block_inside_a_cancelled_scope_still_ends_the_thread() -> None:
    driver = FakeDriver()
    with anyio.CancelScope() as scope:
        async with opened(driver) as store:
            await store.commit(Say(word="a"))
            scope.cancel()
    assert driver.closed


async def test_a_closed_store_says_so() -> None:
    async with opened(FakeDriver()) as store:
        pass
    with pytest.raises(StoreClosed, match="async with open_store"):
        await store.commit(Say(word="a"))
    with pytest.raises(StoreClosed):
        store.wakeups()


async def test_k14_a_store_is_used_on_its_own_loops_thread_only() -> None:
    async with opened(FakeDriver()) as store:
        with pytest.raises(WrongThread):
            await anyio.to_thread.run_sync(store.wakeups)


async def test_a_store_that_must_not_be_used_is_not_opened() -> None:
    driver = FakeDriver()
    driver.open_steps.append(raising(IncompatibleStore("fake://", "its schema is newer")))
    with pytest.raises(IncompatibleStore, match="its schema is newer"):
        async with opened(driver):
            raise AssertionError("not reached")
    await until(lambda: driver.closed)


async def test_opening_waits_for_a_store_that_is_away_up_to_the_bound() -> None:
    driver = FakeDriver()
    driver.open_steps.extend([raising(NotReached("away"))] * 3)
    async with opened(driver) as store:
        assert await store.commit(Say(word="a")) == "A"
    gone = FakeDriver()
    gone.open_steps.extend([raising(NotReached("gone for good"))] * 100_000)
    with pytest.raises(StoreUnavailable, match="gone for good"):
        async with opened(gone, bound=0.05):
            raise AssertionError("not reached")


async def test_opening_can_be_cancelled_and_leaves_no_thread_behind() -> None:
    driver = FakeDriver()
    go = threading.Event()
    driver.open_steps.append(lambda: (go.wait(), None)[1])
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with opened(driver):
            raise AssertionError("not reached")
    assert scope.cancelled_caught
    go.set()
    await until(lambda: driver.closed)


async def test_a_thread_that_dies_while_it_opens_is_unavailable() -> None:
    driver = FakeDriver()
    driver.open_steps.append(raising(ZeroDivisionError("a bug")))
    with pytest.raises(StoreUnavailable, match="ZeroDivisionError: a bug"):
        async with opened(driver):
            raise AssertionError("not reached")


async def test_no_deadline_is_set_for_a_commit() -> None:
    async with opened(FakeDriver()) as store:
        await store.commit(Say(word="a"))
        assert anyio.current_effective_deadline() == math.inf
