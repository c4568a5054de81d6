"""Tasks that are submitted, performed and ended: results, failures, and what is on record of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

import greenroom as gr
from greenroom.persistence import Content
from greenroom.persistence.operations import ReadInvocations
from greenroom.persistence.tasks import Condition, TaskOutcome, task_address
from tests.durable.helpers import Boom, raised
from tests.tasks.scripts import POOL, Calls, Job, agents, journal_of

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


async def test_a_task_is_performed_and_its_result_is_what_perform_returned(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        return f"done: {job.text}"

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job("a"), task_id="T1")
        assert handle.id == "T1"
        assert await handle.result() == "done: a"
        status = await handle.status()
        assert (status.condition, status.outcome, status.attempt) == (Condition.TERMINAL, TaskOutcome.SUCCEEDED, 1)


async def test_operations_are_invoked_in_order_and_their_results_are_on_record(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        return await task.run(note, job.text) + await task.run(note, "b")

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job("a"), task_id="T1")
        assert await handle.result() == "AB"
        assert calls.made == ["a", "b"]
        async with database.open() as store:
            rows = await journal_of(store, "T1")
            assert [(row.seq, row.call, row.name) for row in rows] == [(1, "root#1", "note"), (2, "root#2", "note")]


async def test_a_task_fails_by_failed_with_its_reason_and_is_not_run_again(database: Shared) -> None:
    runs: list[str] = []

    async def script(task: gr.Task, job: Job) -> str:
        runs.append(job.text)
        raise gr.Failed("no such book", {"isbn": 7})

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job("a"))
        error = await raised(handle.result())
        assert isinstance(error, gr.TaskFailed)
        assert (error.kind, error.type, error.message, error.details) == (
            "failed",
            "Failed",
            "no such book",
            {"isbn": 7},
        )
        assert (await handle.status()).outcome is TaskOutcome.FAILED
        assert runs == ["a"]


async def test_a_failed_operation_that_control_code_lets_out_fails_the_task(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def burn(text: str) -> str:
        raise ValueError(f"{text} burns")

    async def script(task: gr.Task, job: Job) -> str:
        return await task.run(burn, job.text)

    async with database.runtime(agents(script)) as runtime:
        error = await raised((await runtime.submit(POOL, Job("wood"))).result())
        assert isinstance(error, gr.TaskFailed)
        assert (error.kind, error.type) == ("operation", "ValueError")
        assert "wood burns" in error.message


async def test_a_failed_operation_is_what_was_recorded_of_it_and_can_be_dealt_with(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def burn() -> str:
        raise ValueError("it burns")

    async def script(task: gr.Task, job: Job) -> str:
        try:
            return await task.run(burn)
        except gr.OperationFailed as failed:
            return f"{failed.kind} {failed.type} {failed.message}"

    async with database.runtime(agents(script)) as runtime:
        assert await (await runtime.submit(POOL, Job())).result() == "error ValueError it burns"


async def test_an_operation_is_invoked_again_as_often_as_its_policy_says(database: Shared) -> None:
    tries: list[int] = []

    @gr.operation(effect=gr.Effect.SAFE, retry=gr.RetryPolicy(invocations=3))
    async def flaky(op: gr.Operation, fails: int) -> int:
        tries.append(op.invocation)
        if op.invocation <= fails:
            raise ConnectionError("try again")
        return op.invocation

    async def script(task: gr.Task, job: Job) -> int:
        return await task.run(flaky, int(job.text))

    async with database.runtime(agents(script)) as runtime:
        assert await (await runtime.submit(POOL, Job("2"))).result() == 3
        assert tries == [1, 2, 3]
        tries.clear()
        handle = await runtime.submit(POOL, Job("3"), task_id="T2")
        assert isinstance(await raised(handle.result()), gr.TaskFailed)
        assert tries == [1, 2, 3]
        async with database.open() as store:
            ends = await store.read(ReadInvocations(address=task_address("T2"), attempt=1))
            assert [(end.invocation, end.status) for end in ends] == [(1, "failed"), (2, "failed"), (3, "failed")]


async def test_failed_out_of_an_operation_is_not_tried_again(database: Shared) -> None:
    tries: list[int] = []

    @gr.operation(effect=gr.Effect.SAFE, retry=gr.RetryPolicy(invocations=3))
    async def refuse(op: gr.Operation) -> None:
        tries.append(op.invocation)
        raise gr.Failed("for good", "because")

    async def script(task: gr.Task, job: Job) -> str:
        try:
            await task.run(refuse)
        except gr.OperationFailed as failed:
            return f"{failed.kind}: {failed.message}: {failed.details}"
        return "?"

    async with database.runtime(agents(script)) as runtime:
        assert await (await runtime.submit(POOL, Job())).result() == "failed: for good: because"
        assert tries == [1]


async def test_an_invocation_that_takes_too_long_is_cut_short(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.SAFE, timeout=5.0)
    async def slow(seconds: float) -> str:
        await anyio.sleep(seconds)
        return "slept"

    async def script(task: gr.Task, job: Job) -> str:
        try:
            return await task.run(slow, float(job.text))
        except gr.OperationFailed as failed:
            return f"{failed.kind} after {anyio.current_time():g}"

    async with database.runtime(agents(script)) as runtime:
        began = anyio.current_time()
        assert await (await runtime.submit(POOL, Job("4"))).result() == "slept"
        assert anyio.current_time() - began == pytest.approx(4.0, abs=0.01)
        assert (await (await runtime.submit(POOL, Job("6"))).result()).startswith("timeout")
        assert anyio.current_time() - began == pytest.approx(9.0, abs=0.01)


async def test_no_further_invocation_begins_beyond_the_seconds_of_the_policy(database: Shared) -> None:
    tries: list[int] = []

    @gr.operation(effect=gr.Effect.SAFE, retry=gr.RetryPolicy(invocations=100, within=10.0))
    async def fail(op: gr.Operation) -> None:
        tries.append(op.invocation)
        await anyio.sleep(4)
        raise ConnectionError

    async def script(task: gr.Task, job: Job) -> None:
        await task.run(fail)

    async with database.runtime(agents(script)) as runtime:
        assert isinstance(await raised((await runtime.submit(POOL, Job())).result()), gr.TaskFailed)
        assert len(tries) in (2, 3)


async def test_a_result_that_cannot_be_stored_is_an_operations_failure(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def make() -> object:
        return object()

    async def script(task: gr.Task, job: Job) -> str:
        try:
            await task.run(make)
        except gr.OperationFailed as failed:
            return failed.kind
        return "?"

    async with database.runtime(agents(script)) as runtime:
        assert await (await runtime.submit(POOL, Job())).result() == "not_encodable"


async def test_large_arguments_results_and_requests_come_back(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()
    text = "x" * 200_000

    async def script(task: gr.Task, job: Job) -> str:
        return await task.run(note, job.text)

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(text), task_id="T1")
        assert await handle.result() == text.upper()
        async with database.open() as store:
            (row,) = await journal_of(store, "T1")
            assert isinstance(row.params, Content)
            assert isinstance(row.body, Content)


async def test_methods_may_be_operations_and_get_the_agents_clients(database: Shared) -> None:
    async with database.runtime(gr.Agents("agents", Shopper, "prices.example")) as runtime:
        assert await (await runtime.submit(POOL, Job("tea"))).result() == "tea at prices.example"


class Shopper(gr.Agent[Job, str]):
    def __init__(self, host: str) -> None:
        self.host = host

    @gr.operation(effect=gr.Effect.SAFE)
    async def price(self, op: gr.Operation, what: str) -> str:
        return f"{what} at {self.host}"

    async def perform(self, task: gr.Task, request: Job) -> str:
        return await task.run(self.price, request.text)


async def test_no_more_tasks_have_something_in_hand_than_there_is_room_for(database: Shared) -> None:
    now, most = 0, 0

    @gr.operation(effect=gr.Effect.SAFE)
    async def work() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await anyio.sleep(1)
        now -= 1

    async def script(task: gr.Task, job: Job) -> None:
        await task.run(work)

    async with database.runtime(agents(script, max_running=3)) as runtime:
        handles = [await runtime.submit(POOL, Job(str(n))) for n in range(10)]
        for handle in handles:
            await handle.result()
        assert most == 3
        assert anyio.current_time() == pytest.approx(4.0, abs=0.1)


async def test_a_wait_for_a_result_ends_with_its_timeout_and_the_task_goes_on(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def slow() -> str:
        await anyio.sleep(10)
        return "slept"

    async def script(task: gr.Task, job: Job) -> str:
        return await task.run(slow)

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        assert isinstance(await raised(handle.result(timeout=5.0)), gr.WaitTimeout)
        assert (await handle.status()).condition is Condition.RUNNING
        assert await handle.result() == "slept"


async def test_c01_an_invocation_that_failed_stays_so_on_record_though_its_repetition_is_cancelled(
    database: Shared,
) -> None:
    @gr.operation(effect=gr.Effect.KEYED, retry=gr.RetryPolicy(invocations=100))
    async def fail() -> None:
        raise Boom("no")

    async def script(task: gr.Task, job: Job) -> bool:
        with task.move_on_after(20) as limit:
            await task.run(fail)
        return limit.expired

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert await handle.result() is True
    async with database.open() as store:
        *failed, last = await store.read(ReadInvocations(address=task_address("T1"), attempt=1))
    assert {each.status for each in failed} == {"failed"}
    assert {each.error for each in failed} == {"Boom: no"}
    assert (last.status, last.invocation) == ("cancelled", len(failed) + 1)
