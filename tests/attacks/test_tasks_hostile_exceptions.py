"""What comes out of control code and operations that nobody expects: no such thing harms more than its own task, and none is lost."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import greenroom as gr
from greenroom.persistence import ParkReason
from greenroom.persistence.operations import ReadInvocations
from greenroom.persistence.tasks import task_address
from tests.durable.conftest import database
from tests.durable.helpers import raised
from tests.tasks.scripts import POOL, Job, agents, journal_of, task_of

if TYPE_CHECKING:
    from tests.durable.helpers import Shared
    from tests.tasks.scripts import Script

__all__ = ["database"]

UNSTORABLE = ("zero \0", "surrogate \ud800")
"""PostgreSQL takes no zero character, UTF-8 no lone surrogate."""
TOLD = {"zero \0": "zero \\x00", "surrogate \ud800": "surrogate \\ud800"}


class Abort(BaseException):
    """No `Exception`, as those that some test runners and servers stop their code with."""


class Declined(gr.Failed):
    """A failure of a user's own, which leaves out what `Failed` keeps."""

    def __init__(self, code: int) -> None:
        self.code = code


def failing(error: BaseException, effect: gr.Effect = gr.Effect.SAFE, **options: Any) -> Script:
    """Control code whose operation fails by this, and which returns how."""

    @gr.operation(effect=effect, **options)
    async def fail() -> None:
        raise error

    async def script(task: gr.Task, job: Job) -> str:
        if job.text == "other":
            return "done"
        try:
            await task.run(fail)
        except gr.OperationFailed as failed:
            return f"{failed.type}: {failed.message}"
        return "it has not failed"

    return script


def raising(error: BaseException) -> Script:
    """Control code that raises this."""

    async def script(task: gr.Task, job: Job) -> str:
        if job.text == "other":
            return "done"
        raise error

    return script


async def test_an_operation_that_has_awaited_something_cancelled_has_failed_once(database: Shared) -> None:
    calls: list[str] = []

    @gr.operation(effect=gr.Effect.SAFE)
    async def fetch() -> None:
        calls.append("fetch")
        raise asyncio.CancelledError  # as out of a future that somebody else has cancelled

    async def script(task: gr.Task, job: Job) -> None:
        await task.run(fetch)

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        failed = await raised(handle.result(timeout=100))
        assert isinstance(failed, gr.TaskFailed)
        assert failed.type == "CancelledError"
    assert calls == ["fetch"]


async def test_an_operation_fails_by_whatever_it_raises_and_its_pool_goes_on(database: Shared) -> None:
    async with database.runtime(agents(failing(Abort("enough"))), intensity=0) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert await handle.result(timeout=100) == "Abort: enough"


async def test_control_code_crashes_by_whatever_it_raises_and_its_pool_goes_on(database: Shared) -> None:
    async with database.runtime(agents(raising(Abort("enough"))), intensity=0) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        other = await runtime.submit(POOL, Job("other"), task_id="T2")
        assert await other.result(timeout=100) == "done"
        await anyio.sleep(60)
        status = await handle.status()
        assert status.parked is ParkReason.CRASH_LOOP
        assert "Abort: enough" in (status.parked_detail or "")


async def test_a_branch_that_raises_no_exception_crashes_the_task_and_nothing_else(database: Shared) -> None:
    async def abort() -> None:
        raise Abort("in a branch")

    async def script(task: gr.Task, job: Job) -> None:
        async with task.nursery() as branches:
            branches.start_soon(task.sleep, 1000)
            branches.start_soon(abort)

    async with database.runtime(agents(script), intensity=0) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(60)
        status = await handle.status()
        assert status.parked is ParkReason.CRASH_LOOP
        assert "Abort: in a branch" in (status.parked_detail or "")


@pytest.mark.parametrize("text", UNSTORABLE, ids=["zero", "surrogate"])
async def test_a_crash_is_told_of_though_its_text_cannot_be_stored(
    database: Shared, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "greenroom")  # xdist cannot carry such a traceback either
    async with database.runtime(agents(raising(RuntimeError(text)))) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(60)
        status = await handle.status()
        assert status.parked is ParkReason.CRASH_LOOP
        assert f"RuntimeError: {TOLD[text]}" in (status.parked_detail or "")


@pytest.mark.parametrize("text", UNSTORABLE, ids=["zero", "surrogate"])
async def test_a_task_fails_though_its_reason_cannot_be_stored(database: Shared, text: str) -> None:
    async with database.runtime(agents(raising(gr.Failed(text)))) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        failed = await raised(handle.result(timeout=100))
        assert isinstance(failed, gr.TaskFailed)
        assert failed.message == TOLD[text]


@pytest.mark.parametrize("text", UNSTORABLE, ids=["zero", "surrogate"])
async def test_an_operation_has_failed_though_what_it_said_cannot_be_stored(database: Shared, text: str) -> None:
    script = failing(RuntimeError(text), gr.Effect.KEYED, retry=gr.RetryPolicy(invocations=2))
    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert await handle.result(timeout=100) == f"RuntimeError: {TOLD[text]}"
    async with database.open() as store:
        invocations = await store.read(ReadInvocations(address=task_address("T1"), attempt=1))
    assert [each.error for each in invocations] == [f"RuntimeError: {TOLD[text]}"] * 2


@pytest.mark.parametrize("text", UNSTORABLE, ids=["zero", "surrogate"])
async def test_an_operation_has_succeeded_though_what_it_is_known_by_cannot_be_stored(
    database: Shared, text: str
) -> None:
    @gr.operation(effect=gr.Effect.ONCE)
    async def send(op: gr.Operation) -> str:
        op.link("request", text)
        return "sent"

    async def script(task: gr.Task, job: Job) -> str:
        return await task.run(send)

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert await handle.result(timeout=100) == "sent"
    async with database.open() as store:
        (invocation,) = await store.read(ReadInvocations(address=task_address("T1"), attempt=1))
    assert invocation.links == (("request", TOLD[text]),)


@pytest.mark.parametrize(
    ("error", "said"),
    [(gr.Failed(5), "5"), (gr.Failed(ValueError("no")), "no"), (Declined(5), "5")],  # type: ignore[arg-type]
    ids=["number", "exception", "subclass"],
)
async def test_a_declared_failure_counts_whatever_its_reason_is(database: Shared, error: gr.Failed, said: str) -> None:
    async with database.runtime(agents(raising(error))) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        failed = await raised(handle.result(timeout=100))
        assert isinstance(failed, gr.TaskFailed)
        assert (failed.kind, failed.message) == ("failed", said)


async def test_an_operation_that_fails_while_it_is_cancelled_counts_as_cancelled(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def work() -> None:
        async def part() -> None:
            try:
                await anyio.sleep(1000)
            finally:
                raise ValueError("in the cleanup")

        async with anyio.create_task_group() as group:  # on trio the group holds the cancellation of the other, too
            group.start_soon(part)
            group.start_soon(anyio.sleep, 1000)

    async def script(task: gr.Task, job: Job) -> bool:
        with task.move_on_after(10) as limit:
            await task.run(work)
        return limit.expired

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert await handle.result(timeout=100) is True
    async with database.open() as store:
        assert (await task_of(store, "T1")).restarts == ()
        rows = await journal_of(store, "T1")
    assert [row.status and row.status.value for row in rows] == [None, "cancelled"]
