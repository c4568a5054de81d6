"""Turns, admission, dispatch, the end (T1 to T7, T26)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from greenroom.runtime.replay import (
    Cancelled,
    Diverged,
    EndKind,
    Finish,
    Idle,
    JournalBroken,
    Send,
    Task,
    TimeRow,
    Withdraw,
    WriteTime,
)
from tests.replay.stage import staged
from tests.replay.values import BEGIN, Hint, Steer, echo, pay


async def two_steps(task: Task) -> list[str]:
    return [await task.run(echo, "one"), await task.run(echo, "two")]


async def test_t01_control_code_runs_over_the_outcomes_of_its_operations() -> None:
    async with staged(two_steps) as stage:
        assert stage.open == ["root#1"]
        await stage.succeed("root#1", "first")
        assert stage.open == ["root#2"]
        await stage.succeed("root#2", "second")
        assert stage.result == ["first", "second"]


async def test_t01_a_journal_brings_control_code_back_to_where_it_was() -> None:
    async with staged(two_steps) as stage:
        await stage.succeed("root#1", "first")
    async with staged(two_steps, stage.journal) as again:
        assert again.open == ["root#2"]
        await again.succeed("root#2", "second")
        assert again.result == ["first", "second"]


async def test_t02_ready_turns_are_taken_in_the_order_in_which_branches_became_ready() -> None:
    order: list[str] = []

    async def branch(task: Task, name: str) -> None:
        order.append(f"{name} starts")
        await task.run(echo, name)
        order.append(f"{name} goes on")

    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            for name in "abc":
                branches.start_soon(branch, task, name)
            order.append("body ends")

    async with staged(perform) as stage:
        assert order == ["body ends", "a starts", "b starts", "c starts"]
        for call in ("root/1.3#1", "root/1.1#1", "root/1.2#1"):
            await stage.succeed(call, "")
        assert order[4:] == ["c goes on", "a goes on", "b goes on"]


async def test_t02_timers_that_are_due_fire_before_the_row_is_delivered_each_with_all_its_turns() -> None:
    order: list[str] = []

    async def sleeper(task: Task, seconds: float) -> None:
        await task.sleep(seconds)
        order.append(f"slept {seconds:g}")
        async with task.nursery() as inner:
            inner.start_soon(note, f"after {seconds:g}")

    async def note(text: str) -> None:
        order.append(text)

    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            branches.start_soon(sleeper, task, 2)
            branches.start_soon(sleeper, task, 1)
            order.append(await task.run(echo, ""))

    async with staged(perform) as stage:
        stage.later(5)
        await stage.succeed("root#4", "outcome")
        assert order == ["slept 1", "after 1", "slept 2", "after 2", "outcome"]


async def test_t03_a_call_that_is_open_when_its_row_is_done_is_admitted() -> None:
    async def perform(task: Task) -> None:
        await task.run(echo, "")

    async with staged(perform) as stage:
        assert stage.call("root#1").admitted


async def test_t03_a_call_that_is_cancelled_within_its_own_row_is_never_admitted_nor_sent() -> None:
    seen: list[str] = []

    async def branch(task: Task) -> None:
        try:
            await task.run(echo, "")
        except Cancelled:
            seen.append("cancelled")
            raise

    async def canceller(cancel: object) -> None:
        assert callable(cancel)
        cancel()

    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            branches.start_soon(branch, task)
            branches.start_soon(canceller, branches.cancel)

    async with staged(perform) as stage:
        assert seen == ["cancelled"]
        assert stage.open == []
        assert stage.end is not None
        assert stage.end.kind is EndKind.RETURNED


async def test_t04_a_timer_that_is_due_comes_before_anything_is_sent() -> None:
    async def perform(task: Task) -> None:
        with task.move_on_after(1):
            await task.run(echo, "")

    async with staged(perform) as stage:
        assert isinstance(stage.step(BEGIN), Send)
        step = stage.step(BEGIN + timedelta(seconds=1))
        assert isinstance(step, WriteTime)
        assert str(step.timer.call) == "root#1"


async def test_t04_what_was_sent_is_not_sent_again_and_nothing_else_is_left_to_do() -> None:
    async def perform(task: Task) -> None:
        await task.run(echo, "")

    async with staged(perform) as stage:
        assert stage.send() == ["root#1"]
        assert stage.step() == Idle(until=None, in_flight=1)


async def test_t05_rows_come_without_gaps_and_their_time_never_falls() -> None:
    async with staged(two_steps) as stage:
        await stage.succeed("root#1", "first")
    gap = [stage.journal[0], TimeRow(seq=3, at=BEGIN, stamp=stage.journal[0].stamp, timer=stage.journal[0].call)]  # type: ignore[attr-defined]
    with pytest.raises(JournalBroken, match="row 3"):
        async with staged(two_steps, gap):
            pass

    async with staged(two_steps) as stage:
        await stage.succeed("root#1", "first")
        stage.later(-1)
        with pytest.raises(JournalBroken, match="never falls"):
            await stage.succeed("root#2", "second")


async def test_t06_rows_of_others_that_are_seen_late_do_not_change_what_is_admitted() -> None:
    async def perform(task: Task) -> list[str]:
        first = await task.run(echo, "")
        steer = await task.receive(Steer, timeout=None)
        return [first, steer.text]

    async with staged(perform) as stage:
        stamp = stage.engine.machine.stamp()
        await stage.signal(Steer("left"))
        await stage.signal(Hint("nobody reads it"))
        await stage.succeed("root#1", "done", stamp=stamp)
        assert stage.result == ["done", "left"]
    async with staged(perform, stage.journal) as again:
        assert again.result == ["done", "left"]
        assert again.end == stage.end


async def test_t07_the_end_belongs_to_the_row_in_which_it_came() -> None:
    async with staged(two_steps) as stage:
        await stage.succeed("root#1", "first")
        await stage.succeed("root#2", "second")
        step = stage.step()
        assert isinstance(step, Finish)
        assert step.end.seq == 2


async def test_t07_signals_and_commands_after_the_end_were_too_late() -> None:
    async def perform(task: Task) -> None:
        await task.run(echo, "")

    async with staged(perform) as stage:
        await stage.signal(Steer("in time"))
        await stage.succeed("root#1", "")
        await stage.signal(Steer("too late"))
        await stage.cancel()
        assert stage.end is not None
        assert [row.seq for row in stage.end.unread] == [1]
        assert [row.seq for row in stage.engine.machine.late] == [3, 4]


async def test_t07_a_signal_whose_row_ends_the_task_by_a_timer_was_too_late_itself() -> None:
    async def perform(task: Task) -> None:
        await task.sleep(1)

    async with staged(perform) as stage:
        stage.later(1)
        await stage.signal(Steer("too late"))
        assert stage.end is not None
        assert stage.end.unread == ()
        assert [row.seq for row in stage.engine.machine.late] == [1]


async def test_t07_an_outcome_after_the_end_diverges() -> None:
    async def shorter(task: Task) -> None:
        await task.run(echo, "one")

    async with staged(two_steps) as stage:
        await stage.succeed("root#1", "first")
        await stage.succeed("root#2", "second")
    with pytest.raises(Diverged) as caught:
        async with staged(shorter, stage.journal):
            pass
    assert (caught.value.seq, caught.value.step) == (2, "root#2")


async def test_t26_a_result_may_be_shown_before_it_is_durable_and_what_came_of_it_sent_after() -> None:
    async with staged(two_steps) as stage:
        assert stage.send() == ["root#1"]
        stamp = stage.engine.machine.stamp()
        await stage.succeed("root#1", "first")
        # The driver commits the outcome and the new intent here, in one transition, and sends only then.
        assert stage.journal[0].stamp == stamp  # type: ignore[attr-defined]
        assert stage.send() == ["root#2"]


async def test_many_rows_at_once_are_processed_as_one_after_the_other() -> None:
    async def worker(task: Task) -> str:
        return "".join([await task.run(echo, str(number)) for number in range(50)])

    async def perform(task: Task) -> str:
        async with task.nursery() as branches:
            workers = [branches.start_soon(worker, task) for _ in range(4)]
        return "".join(worker.result for worker in workers)

    async with staged(perform) as stage:
        while stage.end is None:
            for call in stage.open:
                await stage.succeed(call, call[-1])
            for _ in range(3):
                await stage.signal(Steer("unread"))
    async with staged(perform, stage.journal) as again:
        assert again.end == stage.end


async def test_withdrawn_operations_are_named_with_the_stamp_of_their_rows() -> None:
    async def perform(task: Task) -> None:
        await task.run(pay, "")

    async with staged(perform) as stage:
        await stage.cancel()
        step = stage.step()
        assert isinstance(step, Withdraw)
        assert [str(call.id) for call in step.calls] == ["root#1"]
        assert step.stamp.basis == 1
