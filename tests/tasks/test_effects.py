"""Operations whose effects must not be guessed at: what is on record before they are sent, and what becomes of those in doubt (I8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

import greenroom as gr
from greenroom.persistence import ParkReason, Payload, stow
from greenroom.persistence.operations import (
    DecideOperation,
    Decision,
    OperationStatus,
    ReadInvocations,
    ReadOperations,
)
from greenroom.persistence.tasks import task_address
from greenroom.runtime.durable.payloads import Payloads
from tests.durable.helpers import raised, settled
from tests.tasks.scripts import POOL, Job, Steer, agents, journal_of

if TYPE_CHECKING:
    from tests.durable.helpers import Shared

T1 = task_address("T1")


class Receiver:
    """What a receiver of effects has seen."""

    def __init__(self, effect: gr.Effect, **options: Any) -> None:
        self.keys: list[str] = []
        self.hangs = True

        @gr.operation(effect=effect, **options)
        async def send(op: gr.Operation, text: str) -> str:
            self.keys.append(op.key)
            op.link("request", f"r{len(self.keys)}")
            await anyio.sleep(1000 if self.hangs else 1)
            return f"sent {text}"

        async def script(task: gr.Task, job: Job) -> str:
            return await task.run(send, job.text)

        self.script = script

    async def die_with_it_in_flight(self, database: Shared) -> None:
        """Its task is performed by an execution that dies when the effect was begun."""
        async with (
            database.death_at("before AcceptMessage task:T1 death") as source,
            database.runtime(agents(self.script), source=source) as runtime,
        ):
            handle = await runtime.submit(POOL, Job("a"), task_id="T1")
            await anyio.sleep(1)
            await handle.signal(Steer(""), message_id="death")
        assert len(self.keys) == 1
        self.hangs = False


async def test_an_intent_and_the_invocation_are_on_record_before_the_effect(database: Shared) -> None:
    receiver = Receiver(gr.Effect.KEYED)
    async with database.runtime(agents(receiver.script)) as runtime:
        await runtime.submit(POOL, Job("a"), task_id="T1")
        await anyio.sleep(1)
        async with database.open() as store:
            (operation,) = await store.read(ReadOperations(address=T1, attempt=1))
            assert (operation.status, operation.version, operation.key) == (
                OperationStatus.PENDING,
                1,
                receiver.keys[0],
            )
            (invocation,) = await store.read(ReadInvocations(address=T1, attempt=1))
            assert invocation.ended_at is None
        await runtime.task("T1").terminate("enough")


async def test_c01_an_invocation_is_recorded_with_what_it_is_known_by_elsewhere(database: Shared) -> None:
    receiver = Receiver(gr.Effect.KEYED)
    receiver.hangs = False
    async with database.runtime(agents(receiver.script)) as runtime:
        assert await (await runtime.submit(POOL, Job("a"), task_id="T1")).result() == "sent a"
        async with database.open() as store:
            (operation,) = await store.read(ReadOperations(address=T1, attempt=1))
            assert operation.status is OperationStatus.SETTLED
            (invocation,) = await store.read(ReadInvocations(address=T1, attempt=1))
            assert (invocation.status, invocation.links) == ("succeeded", (("request", "r1"),))
            (row,) = await journal_of(store, "T1")
            assert (row.version, row.unresolved) == (1, False)


async def test_c03_a_keyed_operation_that_was_in_flight_is_repeated_with_its_key(database: Shared) -> None:
    receiver = Receiver(gr.Effect.KEYED)
    await receiver.die_with_it_in_flight(database)
    async with database.runtime(agents(receiver.script)) as runtime:
        assert await runtime.task("T1").result() == "sent a"
        assert len(receiver.keys) == 2
        assert len(set(receiver.keys)) == 1
        async with database.open() as store:
            invocations = await store.read(ReadInvocations(address=T1, attempt=1))
            assert [(each.invocation, each.status) for each in invocations] == [(1, None), (2, "succeeded")]


@pytest.mark.parametrize("effect", [gr.Effect.ONCE, gr.Effect.RECONCILED])
async def test_c03_what_must_not_be_repeated_is_parked_when_it_was_in_flight(
    database: Shared, effect: gr.Effect
) -> None:
    receiver = Receiver(effect)
    await receiver.die_with_it_in_flight(database)
    async with database.runtime(agents(receiver.script)) as runtime:
        await anyio.sleep(1)
        status = await runtime.task("T1").status()
        assert status.parked is ParkReason.UNRESOLVED
        assert status.parked_detail is not None
        assert "'send'" in status.parked_detail
        assert len(receiver.keys) == 1
        async with database.open() as store:
            (operation,) = await store.read(ReadOperations(address=T1, attempt=1))
            assert operation.status is OperationStatus.UNRESOLVED


async def test_a_large_result_that_an_operator_knows_comes_to_the_task_whole(database: Shared) -> None:
    receiver = Receiver(gr.Effect.ONCE)
    await receiver.die_with_it_in_flight(database)
    text = "x" * 200_000
    async with database.runtime(agents(receiver.script)) as runtime:
        await anyio.sleep(1)
        async with database.open() as store:
            result = await stow(store, Payloads().encode_value(text), name="the result")
            assert not isinstance(result, bytes)
            await store.commit(
                DecideOperation(address=T1, call="root#1", decision=Decision.SUCCEEDED, by="ann", result=result)
            )
        assert await runtime.task("T1").result() == text


@pytest.mark.parametrize(
    ("decision", "outcome"),
    [(Decision.REPEAT, "sent a"), (Decision.SUCCEEDED, "it was sent"), (Decision.FAILED, gr.TaskFailed)],
)
async def test_an_operator_decides_and_the_task_goes_on(database: Shared, decision: Decision, outcome: Any) -> None:
    receiver = Receiver(gr.Effect.ONCE)
    await receiver.die_with_it_in_flight(database)
    async with database.runtime(agents(receiver.script)) as runtime:
        await anyio.sleep(1)
        result: Payload | None = b'"it was sent"' if decision is Decision.SUCCEEDED else None
        async with database.open() as store:
            await store.commit(DecideOperation(address=T1, call="root#1", decision=decision, by="ann", result=result))
        handle = runtime.task("T1")
        if isinstance(outcome, str):
            assert await handle.result() == outcome
        else:
            assert isinstance(await raised(handle.result()), outcome)
        assert len(receiver.keys) == (2 if decision is Decision.REPEAT else 1)


async def test_an_operation_that_must_not_be_repeated_and_timed_out_is_in_doubt(database: Shared) -> None:
    receiver = Receiver(gr.Effect.ONCE, timeout=5.0, retry=gr.RetryPolicy(invocations=3))
    async with database.runtime(agents(receiver.script)) as runtime:
        handle = await runtime.submit(POOL, Job("a"), task_id="T1")
        await anyio.sleep(10)
        assert (await handle.status()).parked is ParkReason.UNRESOLVED
        assert len(receiver.keys) == 1


async def test_what_others_had_in_flight_lands_before_a_task_is_parked_for_one_in_doubt(database: Shared) -> None:
    doubtful = Receiver(gr.Effect.ONCE, timeout=5.0)
    landed: list[str] = []

    @gr.operation(effect=gr.Effect.SAFE)
    async def slow() -> str:
        await anyio.sleep(8)
        landed.append("slow")
        return "slow"

    async def script(task: gr.Task, job: Job) -> str:
        async with task.nursery() as branches:
            branches.start_soon(doubtful.script, task, job)
            branches.start_soon(task.run, slow)
        return (await task.receive(Steer, timeout=None)).text

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job("a"), task_id="T1")
        await anyio.sleep(20)
        assert (await handle.status()).parked is ParkReason.UNRESOLVED
        assert landed == ["slow"]
        async with database.open() as store:
            assert [row.name for row in await journal_of(store, "T1")] == ["slow"]
        await settled()
