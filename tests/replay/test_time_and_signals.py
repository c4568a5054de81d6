"""Logical time, signals, answers, chance (T19 to T22)."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.errors import NotEncodable, WaitTimeout
from greenroom.runtime.replay import (
    Branches,
    BranchWait,
    ChildTask,
    Fault,
    Idle,
    OperationFailed,
    OperationKind,
    Start,
    Task,
    child_key,
)
from greenroom.runtime.replay.draws import drawn_float, drawn_uuid
from tests.replay.stage import staged
from tests.replay.values import BEGIN, Hint, Plan, Steer, echo, pay


async def test_t19_now_is_the_time_of_the_row_in_hand() -> None:
    async def perform(task: Task) -> list[str]:
        first = task.now()
        await task.run(echo, "")
        return [str((task.now() - first).total_seconds()), str(first == BEGIN)]

    async with staged(perform) as stage:
        stage.later(90)
        await stage.succeed("root#1", "")
        assert stage.result == ["90.0", "True"]


async def test_t19_a_timer_is_due_so_many_seconds_after_the_logical_time_of_its_call() -> None:
    async def perform(task: Task) -> None:
        await task.run(echo, "")
        await task.sleep(10)

    async with staged(perform) as stage:
        stage.later(5)
        await stage.succeed("root#1", "")
        assert stage.step() == Idle(until=BEGIN + timedelta(seconds=15), in_flight=0)


async def test_t19_a_sleep_may_name_an_instant_also_one_that_has_passed() -> None:
    async def perform(task: Task) -> None:
        await task.sleep(BEGIN + timedelta(days=1))
        await task.sleep(BEGIN)

    async with staged(perform) as stage:
        await stage.time()
        assert stage.now == BEGIN + timedelta(days=1)
        assert stage.end is not None, "what has passed already comes due within the row"


@pytest.mark.parametrize("seconds", [math.inf, math.nan, -math.inf])
async def test_t19_seconds_without_an_end_are_refused(seconds: float) -> None:
    async def perform(task: Task) -> None:
        for call in (task.sleep, task.move_on_after, task.cleanup):
            with pytest.raises(ValueError, match="no number of seconds"):
                made = call(seconds)
                if call == task.sleep:
                    await made  # type: ignore[misc]
        with pytest.raises(ValueError, match="no number of seconds"):
            await task.receive(Steer, timeout=seconds)

    async with staged(perform) as stage:
        assert stage.result is None


async def test_t19_a_time_that_no_calendar_has_is_refused_and_leaves_nothing_open() -> None:
    async def perform(task: Task) -> None:
        with pytest.raises(ValueError, match="no date"):
            await task.sleep(1e15)
        with pytest.raises(ValueError, match="no date"), task.move_on_after(1e15):
            pass
        with pytest.raises(ValueError, match="time zone"):
            await task.sleep(datetime(2031, 1, 1))  # noqa: DTZ001 - that is what is refused

    async with staged(perform) as stage:
        assert stage.result is None


async def test_t19_limits_that_never_strike_do_not_pile_up() -> None:
    async def perform(task: Task) -> None:
        for _ in range(1000):
            with task.move_on_after(3600):
                await task.receive(Steer, timeout=3600)

    async with staged(perform) as stage:
        for _ in range(999):
            await stage.signal(Steer(""))
        timers = stage.engine.machine.timers
        assert len(timers) == 2
        assert len(timers._heap) < 100
        assert len(stage.engine.machine.open) == 0


async def test_t20_a_limit_beats_a_result_that_came_after_its_time() -> None:
    seen: list[str] = []

    async def perform(task: Task) -> None:
        with task.move_on_after(5) as limit:
            seen.append(await task.run(pay, ""))
            await task.run(pay, "")
        seen.append(f"expired {limit.expired}")

    async with staged(perform) as stage:
        stage.later(6)
        await stage.succeed("root#2", "paid")
        assert seen == ["paid", "expired True"]


async def test_t20_a_result_that_came_before_its_time_beats_the_limit() -> None:
    async def perform(task: Task) -> bool:
        with task.move_on_after(5) as limit:
            await task.run(pay, "")
            await task.run(pay, "")
        return limit.expired

    async with staged(perform) as stage:
        stage.later(4)
        await stage.succeed("root#2", "")
        await stage.succeed("root#3", "")
        assert stage.result is False


async def test_t21_a_signal_that_came_early_is_read_later() -> None:
    async def perform(task: Task) -> list[str]:
        await task.run(echo, "")
        first = await task.receive(Steer, timeout=None)
        second = await task.receive(Steer, timeout=None)
        return [first.text, second.text]

    async with staged(perform) as stage:
        await stage.signal(Steer("one"))
        await stage.succeed("root#1", "")
        await stage.signal(Steer("two"))
        assert stage.result == ["one", "two"]


async def test_t21_of_several_kinds_the_first_that_arrived_is_read() -> None:
    async def perform(task: Task) -> list[str]:
        await task.run(echo, "")
        return [(await task.receive(Steer, Hint, timeout=None)).text for _ in range(3)]

    async with staged(perform) as stage:
        for message in (Hint("a"), Plan("never read"), Steer("b"), Hint("c")):
            await stage.signal(message)
        await stage.succeed("root#1", "")
        assert stage.result == ["a", "b", "c"]
        assert stage.end is not None
        assert [row.seq for row in stage.end.unread] == [2]


async def test_t21_a_signal_goes_to_the_receiver_that_called_first() -> None:
    async def receiver(task: Task, name: str, got: list[str]) -> None:
        got.append(f"{name} {(await task.receive(Steer, timeout=None)).text}")

    async def perform(task: Task) -> list[str]:
        got: list[str] = []
        async with task.nursery() as branches:
            branches.start_soon(receiver, task, "a", got)
            branches.start_soon(receiver, task, "b", got)
        return got

    async with staged(perform) as stage:
        await stage.signal(Steer("1"))
        await stage.signal(Steer("2"))
        assert stage.result == ["a 1", "b 2"]


async def test_t21_a_wait_that_is_too_long_ends_in_wait_timeout() -> None:
    async def perform(task: Task) -> str:
        try:
            await task.receive(Steer, timeout=30)
        except WaitTimeout as error:
            return str(error)
        return "came"

    async with staged(perform) as stage:
        await stage.time()
        assert stage.now == BEGIN + timedelta(seconds=30)
        assert "did not come within 30 s" in stage.result
        assert "Steer" in stage.result


async def test_t21_what_is_in_hand_when_a_branch_is_cancelled_is_still_returned() -> None:
    got: list[str] = []

    async def asks(task: Task, branches: Branches, child: ChildTask[str]) -> None:
        got.append(await child.result())
        branches.cancel()
        await task.sleep(1)
        got.append("not here")

    async def perform(task: Task) -> None:
        child = await task.submit("writers", Plan("birds"))
        async with task.nursery() as branches:
            branches.start_soon(asks, task, branches, child)
            branches.start_soon(asks, task, branches, child)

    async with staged(perform) as stage:
        await stage.succeed("root#1", "C1")
        # Both become ready by one row; the turn of the first cancels the nursery before the second has its own.
        await stage.answer(child_key("C1"), "text")
        assert got == ["text", "text"]
        assert stage.result is None


async def test_t21_a_class_that_no_signal_can_have_is_refused() -> None:
    class Unknown(Steer):
        pass

    async def perform(task: Task) -> None:
        with pytest.raises(NotEncodable):
            await task.receive(Unknown, timeout=None)
        with pytest.raises(TypeError, match="at least one class"):
            await task.receive(timeout=None)

    async with staged(perform) as stage:
        assert stage.result is None


async def test_a_child_is_submitted_by_an_operation_and_its_end_answers_whoever_asks_again_and_again() -> None:
    async def perform(task: Task) -> list[str]:
        child = await task.submit("writers", Plan("birds"))
        first = await child.result(timeout=60)
        return [child.id, first, await child.result()]

    async with staged(perform) as stage:
        call = stage.call("root#1")
        assert (call.kind, call.name) == (OperationKind.SUBMIT, "writers")
        await stage.succeed("root#1", "C7")
        await stage.answer(child_key("C7"), "a text")
        assert stage.result == ["C7", "a text", "a text"]


@pytest.mark.parametrize("early", [True, False])
async def test_a_child_that_failed_raises_what_was_recorded(early: bool) -> None:
    async def perform(task: Task) -> None:
        child = await task.submit("writers", Plan("birds"))
        if early:
            await task.sleep(1)
        await child.result()

    async with staged(perform) as stage:
        await stage.succeed("root#1", "C7")
        await stage.answer(child_key("C7"), Fault("error", "ValueError", "no ink"))
        if early:
            await stage.time()
        assert isinstance(stage.error, OperationFailed)
        assert stage.error.message == "no ink"


async def test_a_child_that_takes_too_long_raises_wait_timeout() -> None:
    async def perform(task: Task) -> None:
        child = await task.submit("writers", Plan("birds"))
        await child.result(timeout=5)

    async with staged(perform) as stage:
        await stage.succeed("root#1", "C7")
        await stage.time()
        assert isinstance(stage.error, WaitTimeout)


async def test_t22_chance_is_the_same_at_replay_and_apart_for_each_branch() -> None:
    async def branch(task: Task) -> str:
        return f"{task.uuid()} {task.random()}"

    async def perform(task: Task) -> list[str]:
        async with task.nursery() as branches:
            drawn = [branches.start_soon(branch, task) for _ in range(3)]
        await task.run(echo, "")
        return [*(branch.result for branch in drawn), await branch(task)]

    async with staged(perform) as stage:
        await stage.succeed("root#5", "")
        assert len(set(stage.result)) == 4
    async with staged(perform, stage.journal) as again:
        assert again.result == stage.result


@given(st.binary(max_size=64), st.integers(1, 5), st.integers(0, 100))
def test_t22_a_drawn_number_lies_in_its_range_and_a_uuid_is_a_random_one(
    seed: bytes, segment: int, counter: int
) -> None:
    start = Start(at=BEGIN, seed=seed, task_id="T1", segment=segment)
    assert 0 <= drawn_float(start, "root", counter) < 1
    assert drawn_uuid(start, "root", counter).version == 4


def test_t22_segments_and_seeds_draw_differently() -> None:
    starts = [Start(at=BEGIN, seed=seed, task_id="T1", segment=segment) for seed in (b"a", b"b") for segment in (1, 2)]
    assert len({drawn_uuid(start, "root", 1) for start in starts}) == 4


async def test_r21_waits_are_listed_by_branch_with_their_end() -> None:
    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            branches.start_soon(task.sleep, 5)
            branches.start_soon(task.run, pay, "")
            branches.start_soon(receive, task, None)
            branches.start_soon(receive, task, 7.0)

    async def receive(task: Task, timeout: float | None) -> None:
        await task.receive(Steer, timeout=timeout)

    async with staged(perform) as stage:
        waits = stage.engine.waits()
        assert [wait.branch for wait in waits] == ["root", "root/1.1", "root/1.2", "root/1.3", "root/1.4"]
        assert waits[0] == BranchWait("root", "the branches of nursery root#1")
        assert waits[1].until == BEGIN + timedelta(seconds=5)
        assert waits[2] == BranchWait("root/1.2", "run 'pay'")
        assert waits[3].endless
        assert (waits[4].endless, waits[4].until) == (False, BEGIN + timedelta(seconds=7))
