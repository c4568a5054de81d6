"""A segment that goes on as another (R18)."""

from __future__ import annotations

import pytest

from greenroom.runtime.replay import Cancelled, EndKind, Finish, SegmentBusy, Task
from tests.replay.stage import staged
from tests.replay.values import CODEC, Hint, Plan, Steer, echo


async def goes_on(task: Task) -> None:
    await task.run(echo, "first")
    try:
        await task.continue_as(Plan("next"))
    finally:
        await task.run(echo, "never")


async def test_r18_a_segment_ends_with_the_request_of_the_next_and_hands_its_unread_signals_over() -> None:
    async with staged(goes_on) as stage:
        await stage.signal(Hint("unread"))
        await stage.succeed("root#1", "")
        step = stage.step()
        assert isinstance(step, Finish)
        assert step.end.kind is EndKind.CONTINUED
        assert CODEC.decode(step.end.body) == Plan("next")
        assert [row.seq for row in step.end.unread] == [1]
        assert stage.open == []
        await stage.signal(Steer("for the next segment"))
        assert [row.seq for row in stage.engine.machine.late] == [3]
    async with staged(goes_on, stage.journal) as again:
        assert again.end == stage.end


async def test_r18_a_signal_in_whose_row_a_timer_ends_the_segment_is_for_the_next() -> None:
    async def perform(task: Task) -> None:
        await task.sleep(5)
        await task.continue_as(Plan("next"))

    async with staged(perform) as stage:
        stage.later(6)
        await stage.signal(Hint("it is the time of its row that wakes the sleeper"))
        assert stage.end is not None
        assert (stage.end.kind, stage.end.seq) == (EndKind.CONTINUED, 1)
        assert [row.seq for row in stage.end.unread] == [1]
    async with staged(perform, stage.journal) as again:
        assert again.end == stage.end


async def test_r18_what_comes_too_late_for_a_segment_is_for_the_next_one_commands_too() -> None:
    async with staged(goes_on) as stage:
        await stage.succeed("root#1", "")
        await stage.signal(Hint("late"))
        await stage.cancel()
        assert stage.end is not None
        assert stage.end.kind is EndKind.CONTINUED
        assert [row.seq for row in stage.end.unread] == [2, 3]


async def test_r18_a_new_segment_begins_in_the_root_branch_with_nothing_open() -> None:
    async def branch(task: Task) -> None:
        with pytest.raises(SegmentBusy) as caught:
            await task.continue_as(Plan(""))
        assert caught.value.open == ("branch root/1.1",)

    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            branches.start_soon(branch, task)
            with pytest.raises(SegmentBusy, match="nursery root#1") as caught:
                await task.continue_as(Plan(""))
            assert caught.value.open == ("nursery root#1",)

    async with staged(perform) as stage:
        assert stage.result is None


async def test_r18_a_cancelled_task_goes_on_as_no_other() -> None:
    async def perform(task: Task) -> None:
        try:
            await task.sleep(1)
        except Cancelled:
            await task.continue_as(Plan(""))

    async with staged(perform) as stage:
        await stage.cancel()
        assert stage.end is not None
        assert stage.end.kind is EndKind.CANCELLED
