"""What is no event of the task: eviction, shutdown, strangers (T23, T24, R15, R16, R20)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import anyio
import anyio.lowlevel
import pytest

from greenroom.errors import Defect, Misuse, Undecodable
from greenroom.runtime.replay import (
    Cancelled,
    ConcurrentBranchUse,
    EndDiscarded,
    Engine,
    ForeignCancellation,
    ForeignDeadline,
    ForeignWait,
    ForeignWaits,
    Idle,
    JournalRow,
    OutsideBranch,
    ScopeLeftOpen,
    ScopeOutOfOrder,
    SignalRow,
    Stopped,
    Task,
    Turn,
)
from greenroom.testing import VirtualClock
from tests.replay.stage import Stage, staged
from tests.replay.values import CODEC, Hint, Steer, echo, start


async def test_t23_eviction_is_no_event_of_the_task() -> None:
    seen: list[str] = []

    async def perform(task: Task) -> None:
        try:
            await task.receive(Steer, timeout=None)
        except Cancelled:
            seen.append("a cancellation of the task")
            raise
        finally:
            seen.append("finally")
            async with task.cleanup(5):
                seen.append("not reached")
                await task.run(echo, "")

    async with staged(perform) as stage:
        before = stage.engine.machine.stamp()
        assert stage.step() == Idle(until=None, in_flight=0)
    assert seen == ["finally"]
    assert stage.engine.machine.stamp() == before
    assert stage.open == []
    assert stage.end is None


async def test_t23_behind_the_gate_a_call_never_returns_and_ends_mean_nothing() -> None:
    seen: list[str] = []

    async def perform(task: Task) -> str:
        async with task.nursery() as branches:
            branches.start_soon(stubborn, task)
            try:
                await task.receive(Steer, timeout=None)
            finally:
                return "returned behind the gate"  # noqa: B012 - control code may do so

    async def stubborn(task: Task) -> None:
        try:
            await task.sleep(60)
        except BaseException:  # noqa: BLE001 - that is what stubborn means
            try:
                await task.run(echo, "")
            finally:
                seen.append("only cancelled again")
                raise ValueError("behind the gate") from None

    async with staged(perform) as stage:
        pass
    assert seen == ["only cancelled again"]
    assert stage.end is None
    assert stage.open == []
    assert [type(notice) for notice in stage.notices] == [EndDiscarded]


async def test_t23_a_cancellation_of_the_task_in_hand_when_the_gate_closes_goes_nowhere() -> None:
    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            branches.start_soon(task.sleep, 60)
            branches.start_soon(slow, task)

    async def slow(task: Task) -> None:
        try:
            await task.sleep(60)
        finally:
            await anyio.sleep(1)  # not the task's: the turn goes on

    async with anyio.create_task_group() as group, staged(perform) as stage:
        group.start_soon(stage.cancel)
        await anyio.wait_all_tasks_blocked()
        assert stage.engine.turn is not None
        stage.engine.close()
        group.cancel_scope.cancel()
    assert stage.end is None


async def test_t23_an_activation_is_not_driven_on_behind_its_gate() -> None:
    async def perform(task: Task) -> None:
        await task.run(echo, "")

    async with staged(perform) as stage:
        stage.engine.close()
        with pytest.raises(Defect):
            await stage.engine.process()


async def test_an_activation_has_one_driver_at_a_time(clock: VirtualClock) -> None:
    async def perform(task: Task) -> None:
        await anyio.sleep(5)

    async with anyio.create_task_group() as group, Engine(perform, start(), CODEC) as engine:
        group.start_soon(engine.process)
        await clock.wait_idle()
        with pytest.raises(Defect):
            await engine.process()
        await anyio.sleep(6)
        assert engine.machine.end is not None


async def test_t23_an_error_of_the_driver_comes_out_as_it_is_and_is_no_event_of_the_task() -> None:
    async def perform(task: Task) -> str:
        try:
            await task.run(echo, "")
        finally:
            return "looks like an end"  # noqa: B012 - control code may do so

    with pytest.raises(ValueError, match="of the driver"):
        async with staged(perform) as stage:
            raise ValueError("of the driver")
    assert stage.end is None


async def test_t23_an_undecodable_value_stops_the_activation_and_reaches_no_branch() -> None:
    seen: list[BaseException] = []

    async def perform(task: Task) -> None:
        try:
            await task.receive(Steer, timeout=None)
        except Exception as error:  # noqa: BLE001 - the test is that there is none
            seen.append(error)

    async with staged(perform) as stage:
        with pytest.raises(Undecodable, match="journal row 1 of task T1"):
            await stage.process(_damaged(stage))
    assert seen == []
    assert stage.end is None


async def test_t23_an_undecodable_signal_that_waited_stops_the_activation_when_it_is_read() -> None:
    seen: list[BaseException] = []

    async def perform(task: Task) -> None:
        await task.run(echo, "")
        try:
            await task.receive(Steer, timeout=None)
        except Exception as error:  # noqa: BLE001 - the test is that there is none
            seen.append(error)

    async with staged(perform) as stage:
        await stage.process(_damaged(stage))
        with pytest.raises(Undecodable, match="journal row 1 of task T1"):
            await stage.succeed("root#1", "")
    assert seen == []
    assert stage.end is None


def _damaged(stage: Stage) -> SignalRow:
    return SignalRow(seq=stage.next, at=stage.now, message_id="m", type=CODEC.tags(Steer)[0], body=b"{")


# ---------------------------------------------------------------------------------------------- who may call


async def test_r15_a_call_from_another_event_loop_task_is_refused() -> None:
    async def perform(task: Task) -> str:
        caught: list[OutsideBranch] = []

        async def outside() -> None:
            with pytest.raises(OutsideBranch, match=r"task\.nursery"):
                await task.run(echo, "")
            with pytest.raises(OutsideBranch, match=r"task\.nursery"), task.move_on_after(1):
                pass
            with pytest.raises(OutsideBranch) as error:
                task.uuid()
            caught.append(error.value)

        async with anyio.create_task_group() as group:
            group.start_soon(outside)
        return caught[0].task_id

    async with staged(perform) as stage:
        assert stage.result == "T1"
        assert stage.engine.machine.root.calls == 0


@pytest.mark.backends("asyncio")
async def test_r15_gather_is_refused() -> None:
    async def perform(task: Task) -> None:
        with pytest.raises(OutsideBranch):
            await asyncio.gather(task.run(echo, "a"), task.run(echo, "b"))

    async with staged(perform) as stage:
        assert stage.result is None


async def test_r15_a_second_call_of_a_branch_while_one_is_open_is_refused() -> None:
    async def perform(task: Task) -> None:
        first = task.run(echo, "first")
        iterator = first.__await__()
        iterator.send(None)
        with pytest.raises(ConcurrentBranchUse, match="already waits on run 'echo'"):
            await task.sleep(1)
        first.close()

    async with Engine(perform, start(), CODEC) as engine:
        with pytest.raises(ForeignCancellation, match="run 'echo'"):
            await engine.process()


async def test_r16_a_deadline_of_the_event_loop_around_a_call_is_refused_with_the_way_out() -> None:
    async def perform(task: Task) -> None:
        with anyio.move_on_after(60), pytest.raises(ForeignDeadline, match=r"task\.move_on_after"):
            await task.run(echo, "")
        with anyio.move_on_after(60):
            await anyio.lowlevel.checkpoint()  # around other things it is none of our business

    async with staged(perform) as stage:
        assert stage.result is None
        assert stage.engine.machine.root.calls == 0


async def test_r16_a_deadline_around_the_driver_is_its_own_affair() -> None:
    async def perform(task: Task) -> str:
        return await task.run(echo, "")

    with anyio.fail_after(60):
        async with staged(perform) as stage:
            await stage.succeed("root#1", "fine")
            assert stage.result == "fine"


async def test_t24_a_foreign_scope_that_is_cancelled_stops_the_activation_before_anything_is_written() -> None:
    scope = anyio.CancelScope()
    seen: list[str] = []

    async def perform(task: Task) -> str:
        with scope:
            await task.run(echo, "")
        seen.append("went on")
        await task.sleep(1)
        return "ended, with an operation open"

    async with staged(perform) as stage:
        stage.send()
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        (notice,) = stage.notices
        assert isinstance(notice, Stopped)
        with pytest.raises(ForeignCancellation, match=r"branch root .* run 'echo'.*task\.move_on_after"):
            await stage.engine.check()
        with pytest.raises(ForeignCancellation):
            await stage.succeed("root#1", "")
    assert seen == ["went on"]
    assert stage.end is None
    assert stage.open == ["root#1"]


@pytest.mark.backends("asyncio")
async def test_t24_asyncio_timeout_around_a_call_stops_the_activation(clock: VirtualClock) -> None:
    async def perform(task: Task) -> str:
        try:
            async with asyncio.timeout(5):
                await task.run(echo, "")
        except TimeoutError:
            await task.run(echo, "instead")
        return "ended"

    async with staged(perform) as stage:
        await anyio.sleep(6)
        with pytest.raises(ForeignCancellation):
            await stage.engine.check()
    assert stage.end is None
    assert stage.open == ["root#1"]


@pytest.mark.parametrize("block", ["nursery", "limit", "cleanup"])
async def test_t24_a_foreign_cancellation_that_leaves_a_block_closes_the_gate_first(block: str) -> None:
    scope = anyio.CancelScope()

    async def perform(task: Task) -> str:
        with scope:
            if block == "nursery":
                async with task.nursery() as branches:
                    branches.start_soon(task.sleep, 60)
                    scope.cancel()
                    await anyio.sleep(1)
            elif block == "limit":
                with task.move_on_after(60):
                    scope.cancel()
                    await anyio.sleep(1)
            else:
                async with task.cleanup(60):
                    scope.cancel()
                    await anyio.sleep(1)
        return "ended"

    async with Engine(perform, start(), CODEC) as engine:
        with pytest.raises(ForeignCancellation, match="branch root"):
            await engine.process()
        assert engine.closed
    assert engine.machine.end is None


@pytest.mark.parametrize("signal", [Hint(""), Steer("on")], ids=["nobody waits for it", "somebody does"])
async def test_t24_a_driver_that_is_cancelled_with_its_branches_is_not_taken_for_a_stranger(
    signal: Hint | Steer,
) -> None:
    async def perform(task: Task) -> None:
        await task.receive(Steer, timeout=None)
        await task.receive(Steer, timeout=None)

    with anyio.CancelScope() as scope:
        async with staged(perform) as stage:
            scope.cancel()
            await stage.signal(signal)
            await anyio.lowlevel.checkpoint()
            pytest.fail("a driver in a cancelled scope went on")
    assert scope.cancelled_caught
    assert stage.end is None


async def test_a_driver_that_is_cancelled_with_several_branches_ends_by_its_own_cancellation_and_no_group() -> None:
    async def branch(task: Task) -> None:
        await task.receive(Steer, timeout=None)

    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            for _ in range(3):
                branches.start_soon(branch, task)

    ended: list[BaseException] = []
    with anyio.CancelScope() as scope:
        try:
            async with staged(perform):
                scope.cancel()
                await anyio.lowlevel.checkpoint()
        except BaseException as error:
            ended.append(error)
            raise
    assert scope.cancelled_caught
    assert [type(error) for error in ended] == [anyio.get_cancelled_exc_class()]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_what_ends_the_process_ends_the_activation_and_is_no_failure_of_a_branch(
    error: type[BaseException],
) -> None:
    async def branch() -> None:
        raise error

    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            branches.start_soon(branch)
            await task.sleep(1)

    async with Engine(perform, start(), CODEC) as engine:
        with pytest.raises(error):
            await engine.process()
    assert engine.machine.end is None


# ------------------------------------------------------------------------------------------------ scopes


async def test_a_scope_that_is_not_the_innermost_cannot_be_left() -> None:
    async def perform(task: Task) -> None:
        outer, inner = task.move_on_after(1), task.move_on_after(2)
        outer.__enter__()
        inner.__enter__()
        with pytest.raises(ScopeOutOfOrder, match="limit root#1"):
            outer.__exit__(None, None, None)
        inner.__exit__(None, None, None)
        outer.__exit__(None, None, None)

    async with staged(perform) as stage:
        assert stage.result is None


async def test_a_scope_is_left_by_the_branch_that_entered_it() -> None:
    async def other(limit: object) -> None:
        with pytest.raises(ScopeOutOfOrder, match=r"branch root/2\.1"):
            limit.__exit__(None, None, None)  # type: ignore[attr-defined]

    async def perform(task: Task) -> None:
        with task.move_on_after(1) as limit:
            async with task.nursery() as branches:
                branches.start_soon(other, limit)

    async with staged(perform) as stage:
        assert stage.result is None


async def items(task: Task) -> AsyncGenerator[int, None]:
    with task.move_on_after(60):
        for number in range(10):
            await task.sleep(0)
            yield number


async def test_a_generator_that_holds_a_limit_is_closed_in_its_branch() -> None:
    async def perform(task: Task) -> str:
        async with aclosing(items(task)) as numbers:
            async for _ in numbers:
                break
        return "closed"

    async with staged(perform) as stage:
        await stage.time()
        assert stage.result == "closed"


async def test_a_branch_that_ends_inside_its_limit_stops_the_activation() -> None:
    kept = []

    async def perform(task: Task) -> str:
        numbers = items(task)
        kept.append(numbers)
        async for _ in numbers:
            raise ValueError("on the way out")
        return "left open"

    async with staged(perform) as stage:
        with pytest.raises(ScopeLeftOpen, match="limit root#1") as caught:
            await stage.time()
    assert str(caught.value.__cause__) == "on the way out"
    assert stage.end is None
    assert issubclass(ScopeLeftOpen, Misuse)
    with pytest.raises(OutsideBranch):
        await kept[0].aclose()


# ------------------------------------------------------------------------------------------- foreign waits


async def test_r15_a_turn_that_waits_for_something_else_is_noticed_by_name(clock: VirtualClock) -> None:
    async def perform(task: Task) -> None:
        await anyio.sleep(100)

    watch = ForeignWaits(limit=60)
    async with anyio.create_task_group() as group, Engine(perform, start(), CODEC) as engine:
        group.start_soon(engine.process)
        await anyio.sleep(1)
        assert engine.waits()[0].what == "its turn, or something that is not the task's"
        assert watch.look(engine.turn, clock.now()) is None
        await anyio.sleep(60)
        assert watch.look(engine.turn, clock.now()) == ForeignWait("root", 60.0)
        assert watch.look(engine.turn, clock.now()) is None
        await anyio.sleep(60)
        assert engine.turn is None
        assert engine.machine.end is not None


def test_r15_a_new_turn_starts_the_count_again() -> None:
    watch = ForeignWaits(limit=10)
    assert watch.look(Turn(1, "root"), 0) is None
    assert watch.look(Turn(2, "root"), 9) is None
    assert watch.look(Turn(2, "root"), 18) is None
    assert watch.look(Turn(2, "root"), 19) == ForeignWait("root", 10)
    assert watch.look(None, 100) is None
    assert watch.look(Turn(3, "root"), 101) is None


async def empty_nurseries(task: Task) -> None:
    for _ in range(1000):
        async with task.nursery():
            pass


async def unread_signals(task: Task) -> None:
    await task.receive(Steer, timeout=None)


async def one_branch(task: Task) -> None:
    for _ in range(1000):
        await task.run(echo, "")


@pytest.mark.parametrize("perform", [empty_nurseries, unread_signals, one_branch])
async def test_long_runs_in_which_nobody_has_to_wait_let_others_run(
    perform: Callable[[Task], Awaitable[None]],
) -> None:
    journal: list[JournalRow] = []
    async with staged(perform) as stage:
        if perform is one_branch:
            while stage.end is None:
                await stage.succeed(stage.open[0], "")
            journal = stage.journal
        elif perform is unread_signals:
            for _ in range(1000):
                await stage.signal(Hint(""))
            journal = stage.journal
    turns = 0

    async def neighbour() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as group:
        group.start_soon(neighbour)
        await anyio.lowlevel.checkpoint()
        before = turns
        async with staged(perform, journal):
            assert turns - before >= 10, "at least every 64 steps, give or take the event loop's own order"
        group.cancel_scope.cancel()
