"""What nurseries of control code raise, what results branches have, and how both are named (T16 to T18, R15)."""

from __future__ import annotations

from contextvars import ContextVar

import pytest

from greenroom.errors import Cancelled
from greenroom.runtime.replay import (
    Branch,
    BranchCancelled,
    Branches,
    BranchNotEnded,
    EndKind,
    NurseryEnded,
    OperationFailed,
    StrayCancelled,
    Task,
)
from tests.replay.stage import staged
from tests.replay.values import Steer, echo


async def ask(task: Task, text: str) -> str:
    return await task.run(echo, text)


async def test_t17_a_single_failure_comes_in_a_group_too() -> None:
    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            branches.start_soon(ask, task, "")

    async with staged(perform) as stage:
        await stage.fail("root/1.1#1", "no")
        assert isinstance(stage.error, ExceptionGroup)
        (error,) = stage.error.exceptions
        assert isinstance(error, OperationFailed)
        assert (error.kind, error.type, error.message) == ("error", "ValueError", "no")


async def test_t17_failures_come_body_first_and_then_in_the_order_in_which_branches_ended() -> None:
    async def fails(task: Task, name: str) -> None:
        try:
            await task.sleep(60)
        finally:
            async with task.cleanup(60):
                await task.run(echo, name)
            raise ValueError(name)

    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            branches.start_soon(fails, task, "a")
            branches.start_soon(fails, task, "b")
            await task.run(echo, "")
            raise ValueError("body")

    async with staged(perform) as stage:
        await stage.succeed("root#4", "")
        await stage.succeed("root/1.2#3", "")
        await stage.succeed("root/1.1#3", "")
        assert isinstance(stage.error, ExceptionGroup)
        assert [str(error) for error in stage.error.exceptions] == ["body", "b", "a"]


async def test_t17_cancelled_is_never_in_a_group() -> None:
    async def fails(task: Task) -> None:
        await task.run(echo, "")
        raise ValueError("real")

    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            branches.start_soon(ask, task, "sibling")
            branches.start_soon(fails, task)
            await task.sleep(60)

    async with staged(perform) as stage:
        await stage.succeed("root/1.2#1", "")
        await stage.cancelled("root/1.1#1")
        assert isinstance(stage.error, ExceptionGroup)
        assert [str(error) for error in stage.error.exceptions] == ["real"]


async def test_t17_a_nursery_that_was_cancelled_from_around_raises_cancelled_bare() -> None:
    seen: list[str] = []

    async def perform(task: Task) -> None:
        try:
            async with task.nursery() as branches:
                branches.start_soon(task.sleep, 60)
        except BaseException as error:
            seen.append(type(error).__name__)
            raise

    async with staged(perform) as stage:
        await stage.cancel()
        assert seen == ["Cancelled"]
        assert stage.end is not None
        assert stage.end.kind is EndKind.CANCELLED


async def test_t16_a_nursery_absorbs_the_cancellation_of_its_own() -> None:
    async def perform(task: Task) -> str:
        async with task.nursery() as branches:
            branches.start_soon(task.sleep, 60)
            await task.run(echo, "")
            branches.cancel()
            await task.sleep(60)
        return "went on"

    async with staged(perform) as stage:
        await stage.succeed("root#3", "")
        assert stage.result == "went on"


async def test_t16_a_stray_cancelled_of_a_branch_is_its_failure() -> None:
    async def stray() -> None:
        raise Cancelled

    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            branches.start_soon(stray)

    async with staged(perform) as stage:
        assert isinstance(stage.error, ExceptionGroup)
        (error,) = stage.error.exceptions
        assert isinstance(error, StrayCancelled)


async def test_t17_results_are_the_value_the_error_or_branch_cancelled() -> None:
    async def fails() -> None:
        raise ValueError("mine")

    async def value() -> int:
        return 7

    async def perform(task: Task) -> list[str]:
        said = []
        try:
            async with task.nursery() as branches:
                one = branches.start_soon(value)
                two = branches.start_soon(fails)
                three = branches.start_soon(task.sleep, 60)
                with pytest.raises(BranchNotEnded, match=r"root/1.1"):
                    _ = one.result
        except ExceptionGroup:
            said.append(f"{one.result}")
        with pytest.raises(ValueError, match="mine"):
            _ = two.result
        with pytest.raises(BranchCancelled, match=r"root/1.3"):
            _ = three.result
        return said

    async with staged(perform) as stage:
        assert stage.result == ["7"]


async def test_t18_a_branch_is_named_by_who_opened_its_nursery_not_by_who_started_it() -> None:
    async def starter(task: Task, branches: Branches) -> None:
        branches.start_soon(ask, task, "started by a branch")
        await ask(task, "starter")

    async def perform(task: Task) -> None:
        await task.sleep(0)
        async with task.nursery() as branches:
            branches.start_soon(starter, task, branches)
            async with task.nursery() as inner:
                inner.start_soon(ask, task, "inner")

    async with staged(perform) as stage:
        await stage.time()
        assert stage.open == ["root/2.1#2", "root/4.1#1", "root/2.2#1"]


async def test_t18_nothing_is_started_in_a_nursery_that_has_ended() -> None:
    kept: list[Branches] = []

    async def late(task: Task) -> None:
        await task.sleep(1)
        with pytest.raises(NurseryEnded, match="nursery root#2"):
            kept[0].start_soon(ask, task, "")
        kept[0].cancel()  # and cancelling it changes nothing

    async def perform(task: Task) -> None:
        async with task.nursery() as outer:
            async with task.nursery() as branches:
                kept.append(branches)
            outer.start_soon(late, task)

    async with staged(perform) as stage:
        await stage.time()
        assert stage.result is None


async def test_t18_a_branch_may_be_started_while_the_body_waits_for_others() -> None:
    async def starter(task: Task, branches: Branches, later: list[Branch[str]]) -> None:
        await task.sleep(1)
        later.append(branches.start_soon(ask, task, "more"))

    async def perform(task: Task) -> str:
        later: list[Branch[str]] = []
        async with task.nursery() as branches:
            branches.start_soon(starter, task, branches, later)
        return later[0].result

    async with staged(perform) as stage:
        await stage.time()
        await stage.succeed("root/1.2#1", "more")
        assert stage.result == "more"


async def test_context_variables_come_from_the_branch_that_started_another() -> None:
    name = ContextVar("name", default="nobody")

    async def branch(task: Task, said: list[str]) -> None:
        said.append(name.get())
        name.set("changed")
        await task.sleep(0)

    async def perform(task: Task) -> list[str]:
        said: list[str] = []
        async with task.nursery() as branches:
            name.set("a")
            branches.start_soon(branch, task, said)
            name.set("b")
            branches.start_soon(branch, task, said)
        said.append(name.get())
        return said

    async with staged(perform) as stage:
        await stage.time()
        assert stage.result == ["a", "b", "b"]


async def test_a_failing_body_waits_for_its_branches() -> None:
    seen: list[str] = []

    async def slow(task: Task) -> None:
        try:
            await task.sleep(60)
        finally:
            async with task.cleanup(5):
                seen.append(await task.run(echo, ""))

    async def perform(task: Task) -> None:
        async with task.nursery() as branches:
            branches.start_soon(slow, task)
            await task.receive(Steer, timeout=None)
            raise ValueError("body")

    async with staged(perform) as stage:
        await stage.signal(Steer(""))
        assert stage.end is None
        await stage.succeed("root/1.1#3", "cleaned")
        assert seen == ["cleaned"]
        assert isinstance(stage.error, ExceptionGroup)
