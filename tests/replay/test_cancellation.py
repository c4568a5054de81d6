"""Cancellation is an event of the task, not of the event loop (T8 to T16)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import attrs
import pytest

from greenroom.runtime.replay import (
    CancellationIgnored,
    Cancelled,
    CleanupCut,
    Diverged,
    EndKind,
    Fault,
    Idle,
    OperationFailed,
    OutcomeStatus,
    StrayCancelled,
    Task,
    Withdraw,
)
from greenroom.runtime.replay.branches import Branches
from tests.replay.stage import Stage, staged
from tests.replay.values import CODEC, Hint, Plan, Steer, echo, pay


async def test_t08_cancelled_is_no_exception_of_the_event_loop() -> None:
    assert not issubclass(Cancelled, Exception)
    assert not issubclass(Cancelled, anyio.get_cancelled_exc_class())
    assert not issubclass(anyio.get_cancelled_exc_class(), Cancelled)


async def test_t09_a_command_cancels_the_whole_task() -> None:
    async def sleeper(task: Task) -> None:
        await task.sleep(10)

    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            branches.start_soon(sleeper, task)
            branches.start_soon(sleeper, task)

    async with staged(perform) as stage:
        await stage.cancel()
        assert stage.end is not None
        assert stage.end.kind is EndKind.CANCELLED


async def test_t09_a_failing_branch_cancels_its_siblings_and_the_body() -> None:
    seen: list[str] = []

    async def sibling(task: Task) -> None:
        try:
            await task.sleep(10)
        finally:
            seen.append("sibling stopped")

    async def failing(task: Task) -> None:
        await task.run(echo, "")
        raise ValueError("of the branch")

    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            branches.start_soon(sibling, task)
            branches.start_soon(failing, task)
            try:
                await task.receive(Steer, timeout=None)
            finally:
                seen.append("body stopped")

    async with staged(perform) as stage:
        await stage.succeed("root/1.2#1", "")
        assert seen == ["body stopped", "sibling stopped"]
        assert isinstance(stage.error, ExceptionGroup)
        assert [str(error) for error in stage.error.exceptions] == ["of the branch"]


async def test_t10_blocked_branches_are_woken_by_path_the_opener_before_its_children() -> None:
    order: list[str] = []

    async def waiter(task: Task, name: str) -> None:
        try:
            await task.receive(Steer, timeout=None)
        finally:
            order.append(name)

    async def opener(task: Task, name: str) -> None:
        async with task.nursery() as inner:
            inner.start_soon(waiter, task, f"{name}1")
            inner.start_soon(waiter, task, f"{name}2")
            await waiter(task, name)

    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            branches.start_soon(opener, task, "a")
            branches.start_soon(opener, task, "b")
            await waiter(task, "root")

    async with staged(perform) as stage:
        await stage.cancel()
        assert order == ["root", "a", "a1", "a2", "b", "b1", "b2"]


async def test_t10_an_admitted_operation_is_asked_to_stop_and_stays_until_its_own_row() -> None:
    async def perform(task: Task) -> str:
        return await task.run(pay, "100")

    async with staged(perform) as stage:
        stage.send()
        await stage.cancel()
        assert stage.open == ["root#1"]
        step = stage.step()
        assert [str(call.id) for call in getattr(step, "cancellations", ())] == ["root#1"]
        stage.send()
        assert stage.step() == Idle(until=None, in_flight=1)
        await stage.cancelled("root#1")
        assert stage.end is not None
        assert stage.end.kind is EndKind.CANCELLED


async def test_t10_a_branch_in_a_join_is_left_to_its_branches() -> None:
    async def child(task: Task) -> str:
        return await task.run(pay, "")

    async def perform(task: Task) -> str:
        async with task.nursery() as branches:
            paid = branches.start_soon(child, task)
        return paid.result

    async with staged(perform) as stage:
        await stage.cancel()
        assert stage.end is None
        await stage.succeed("root/1.1#1", "paid")
        assert stage.result == "paid"


async def test_t10_a_branch_that_has_not_started_starts_and_its_first_call_raises() -> None:
    seen: list[str] = []

    async def late(task: Task) -> None:
        seen.append("started")
        try:
            await task.sleep(1)
        except Cancelled:
            seen.append("cancelled")
            raise

    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            branches.start_soon(late, task)
            branches.cancel()

    async with staged(perform) as stage:
        assert seen == ["started", "cancelled"]
        assert stage.result is None


async def test_t11_a_success_after_the_request_is_returned_and_the_next_call_raises() -> None:
    seen: list[str] = []

    async def perform(task: Task) -> None:
        seen.append(await task.run(pay, ""))
        try:
            await task.run(pay, "")
        except Cancelled:
            seen.append("cancelled")
            raise

    async with staged(perform) as stage:
        stage.send()
        await stage.cancel()
        await stage.succeed("root#1", "paid")
        assert seen == ["paid", "cancelled"]
        assert stage.open == []


@pytest.mark.parametrize(
    ("raised", "requested", "status"),
    [
        (False, False, OutcomeStatus.SUCCEEDED),
        (False, True, OutcomeStatus.SUCCEEDED),
        (True, False, OutcomeStatus.FAILED),
        (True, True, OutcomeStatus.CANCELLED),
    ],
)
def test_t11_an_error_after_the_request_is_recorded_as_cancelled(
    raised: bool, requested: bool, status: OutcomeStatus
) -> None:
    assert OutcomeStatus.of(raised=raised, cancel_requested=requested) is status


async def test_t11_a_failure_that_was_accepted_before_the_request_was_seen_is_still_raised() -> None:
    seen: list[str] = []

    async def perform(task: Task) -> None:
        try:
            await task.run(pay, "")
        except OperationFailed as error:
            seen.append(error.message)
        await task.sleep(1)

    async with staged(perform) as stage:
        stage.send()
        row = stage.outcome_row("root#1", OutcomeStatus.FAILED, CODEC.encode(Fault("error", "ValueError", "no funds")))
        await stage.cancel()
        await stage.process(attrs.evolve(row, seq=2))
        assert seen == ["no funds"]
        assert stage.end is not None
        assert stage.end.kind is EndKind.CANCELLED


async def test_t12_an_operation_that_was_not_sent_is_withdrawn_by_a_row_of_its_own() -> None:
    async def perform(task: Task) -> None:
        await task.run(echo, "")

    async with staged(perform) as stage:
        await stage.cancel()
        assert isinstance(stage.step(), Withdraw)
        await stage.cancelled("root#1")
    async with staged(perform, stage.journal) as again:
        assert again.end == stage.end
    async with staged(perform, stage.journal[:1]) as cut:
        assert isinstance(cut.step(), Withdraw)


async def test_t12_a_cancelled_outcome_diverges_where_today_nothing_is_cancelled() -> None:
    async def limited(task: Task) -> None:
        with task.move_on_after(1):
            await task.run(echo, "")

    async def unlimited(task: Task) -> None:
        await task.run(echo, "")

    async with staged(limited) as stage:
        await stage.time()
        await stage.cancelled("root#2")
    with pytest.raises(Diverged):
        async with staged(unlimited, stage.journal):
            pass


async def test_t14_inside_a_cancelled_scope_every_call_raises_and_uses_its_number() -> None:
    raised: list[str] = []

    async def perform(task: Task) -> None:
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "run": lambda: task.run(echo, ""),
            "sleep": lambda: task.sleep(1),
            "receive": lambda: task.receive(Steer, timeout=1),
            "submit": lambda: task.submit("pool", Plan("")),
            "continue": lambda: task.continue_as(Plan("")),
        }
        async with task.nursery() as branches:
            branches.cancel()
            for name, call in calls.items():
                try:
                    await call()
                except Cancelled:
                    raised.append(name)
        await task.run(echo, "")

    async with staged(perform) as stage:
        assert raised == ["run", "sleep", "receive", "submit", "continue"]
        assert stage.open == ["root#8"]


async def test_t14_a_signal_that_waits_is_not_read_by_a_cancelled_branch() -> None:
    async def perform(task: Task) -> str:
        async with task.nursery() as branches:
            await task.sleep(1)
            branches.cancel()
            await task.receive(Steer, timeout=None)
        return (await task.receive(Steer, timeout=None)).text

    async with staged(perform) as stage:
        await stage.signal(Steer("one"))
        await stage.time()
        assert stage.result == "one"


async def test_t14_a_branch_that_catches_cancelled_and_returns_has_a_result() -> None:
    async def stubborn(task: Task) -> str:
        try:
            await task.sleep(1)
        except Cancelled:
            return "all the same"
        return "slept"

    async def perform(task: Task) -> str:
        async with task.nursery() as branches:
            branch = branches.start_soon(stubborn, task)
            await task.run(echo, "")
            branches.cancel()
        return branch.result

    async with staged(perform) as stage:
        await stage.succeed("root#3", "")
        assert stage.result == "all the same"


async def test_t14_a_branch_that_goes_on_calling_lets_others_run_and_is_reported() -> None:
    turns = 0

    async def perform(task: Task) -> None:
        for _ in range(500):
            try:
                await task.sleep(1)
            except Cancelled:
                continue

    async def neighbour() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as group:
        group.start_soon(neighbour)
        async with staged(perform) as stage:
            await stage.cancel()
            assert stage.result is None
            assert stage.notices == [CancellationIgnored("root", 100)]
        group.cancel_scope.cancel()
    assert turns >= 400


async def test_t15_finally_may_wait_only_in_a_cleanup() -> None:
    seen: list[str] = []

    async def perform(task: Task) -> None:
        try:
            await task.sleep(60)
        finally:
            async with task.cleanup(5):
                seen.append(await task.run(pay, "back"))
            try:
                await task.run(pay, "more")
            except Cancelled:
                seen.append("no more")
                raise

    async with staged(perform) as stage:
        await stage.cancel()
        assert stage.open == ["root#3"]
        await stage.succeed("root#3", "paid back")
        assert seen == ["paid back", "no more"]
        assert stage.end is not None
        assert stage.end.kind is EndKind.CANCELLED


async def test_t15_finally_may_open_nurseries() -> None:
    seen: list[str] = []

    async def branch(task: Task) -> None:
        seen.append("started")
        async with task.cleanup(5):
            seen.append(await task.run(pay, "back"))

    async def perform(task: Task) -> None:
        try:
            await task.sleep(60)
        finally:
            async with task.nursery() as branches:
                branches.start_soon(branch, task)

    async with staged(perform) as stage:
        await stage.cancel()
        await stage.succeed("root/2.1#2", "paid back")
        assert seen == ["started", "paid back"]
        assert stage.end is not None
        assert stage.end.kind is EndKind.CANCELLED


async def test_t15_a_cleanup_that_takes_too_long_is_cut_and_reported() -> None:
    async def perform(task: Task) -> None:
        try:
            await task.sleep(60)
        finally:
            async with task.cleanup(5):
                await task.receive(Steer, timeout=None)

    async with staged(perform) as stage:
        await stage.cancel()
        assert stage.end is None
        await stage.time()
        assert stage.end is not None
        assert stage.end.kind is EndKind.CANCELLED
        assert stage.notices == [CleanupCut("root", "cleanup root#2")]


async def nested(task: Task, seen: list[str]) -> None:
    with task.move_on_after(5) as inner:
        try:
            await task.receive(Steer, timeout=None)
        except Cancelled:
            seen.append("cancelled")
            await task.run(echo, "")  # raises again: the scope stays cancelled
    seen.append(f"left {inner.expired}")
    await task.run(echo, "after")


async def test_t16_a_limit_absorbs_exactly_its_own_cancellation() -> None:
    seen: list[str] = []
    async with staged(lambda task: nested(task, seen)) as stage:
        await stage.time()
        assert seen == ["cancelled", "left True"]
        assert stage.open == ["root#4"]


async def test_t16_a_limit_lets_a_cancellation_from_around_it_through() -> None:
    seen: list[str] = []
    async with staged(lambda task: nested(task, seen)) as stage:
        await stage.cancel()
        assert seen == ["cancelled"]
        assert stage.end is not None
        assert stage.end.kind is EndKind.CANCELLED


async def test_t16_a_limit_absorbs_its_own_even_when_an_outer_scope_is_cancelled_too() -> None:
    seen: list[str] = []

    async def perform(task: Task) -> None:
        with task.move_on_after(1) as outer:
            with task.move_on_after(2) as inner:
                await task.run(pay, "")
            seen.append(f"inner {inner.expired}")
            await task.sleep(60)
            seen.append("not here")
        seen.append(f"outer {outer.expired}")

    async with staged(perform) as stage:
        stage.send()
        await stage.time()
        await stage.time()
        assert seen == []
        await stage.cancelled("root#3")
        assert seen == ["inner True", "outer True"]


async def test_t16_a_limit_whose_block_came_to_its_end_has_not_expired() -> None:
    async def perform(task: Task) -> list[object]:
        with task.move_on_after(1) as limit:
            paid = await task.run(pay, "")
        return [paid, limit.expired]

    async with staged(perform) as stage:
        stage.later(2)
        await stage.succeed("root#2", "paid")
        assert stage.result == ["paid", False]


async def test_t16_a_cancelled_that_was_kept_and_raised_again_is_a_failure() -> None:
    kept: list[Cancelled] = []

    async def perform(task: Task) -> None:
        with task.move_on_after(1):
            try:
                await task.sleep(60)
            except Cancelled as error:
                kept.append(error)
        raise kept[0]

    async with staged(perform) as stage:
        await stage.time()
        assert isinstance(stage.error, StrayCancelled)


async def test_a_cancelled_inside_a_foreign_nursery_still_cancels() -> None:
    async def perform(task: Task) -> None:
        async with anyio.create_task_group():
            await task.sleep(60)

    async with staged(perform) as stage:
        await stage.cancel()
        assert stage.end is not None
        assert stage.end.kind is EndKind.CANCELLED


async def first_of(task: Task, branches: Branches, name: str, results: list[str]) -> None:
    results.append(await task.run(pay, name))
    branches.cancel()


async def race(task: Task) -> list[str]:
    results: list[str] = []
    async with task.nursery() as branches:
        branches.start_soon(first_of, task, branches, "a", results)
        branches.start_soon(first_of, task, branches, "b", results)
    return results


async def test_r15_the_winner_of_a_race_is_recorded() -> None:
    async with staged(race) as stage:
        stage.send()
        await stage.succeed("root/1.2#1", "b paid")
        stage.send()
        await stage.cancelled("root/1.1#1")
        assert stage.result == ["b paid"]
    async with staged(race, stage.journal) as again:
        assert again.end == stage.end


async def both(stage: Stage) -> None:
    await stage.succeed("root/1.2#1", "b paid")
    await stage.succeed("root/1.1#1", "a paid")


async def test_t11_the_loser_of_a_race_that_has_paid_all_the_same_is_not_hidden() -> None:
    async with staged(race) as stage:
        stage.send()
        await both(stage)
        assert stage.result == ["b paid", "a paid"]


async def test_a_cancelled_receiver_leaves_its_signal_to_others() -> None:
    async def receiver(task: Task, got: list[str]) -> None:
        got.append((await task.receive(Hint, timeout=None)).text)

    async def perform(task: Task) -> list[str]:
        got: list[str] = []
        with task.move_on_after(1):
            await receiver(task, got)
        await receiver(task, got)
        return got

    async with staged(perform) as stage:
        stage.later(1)
        await stage.signal(Hint("for the second"))
        assert stage.result == ["for the second"]
