"""How a task stands: condition, phase, what it waits for and why it does not move, for people and whoever asks."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import anyio
import pytest

import greenroom as gr
from greenroom.persistence.tasks import Condition, TaskOutcome
from tests.durable.helpers import settled
from tests.tasks.scripts import POOL, Job, Steer, agents

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


async def listener(task: gr.Task, job: Job) -> str:
    task.phase("listening")
    return (await task.receive(Steer, timeout=None)).text


async def test_a_task_in_memory_that_waits_tells_what_for_after_a_second(database: Shared) -> None:
    async with database.runtime(agents(listener)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(1.1)
        status = await handle.status()
        assert (status.condition, status.phase) == (Condition.RUNNING, "listening")
        assert status.waits == ("root: receive tests.tasks.scripts:Steer",)
        assert await handle.explain() == "it waits for root: receive tests.tasks.scripts:Steer"
        assert status.execution is not None
        assert status.last_contact_at is not None
        await handle.signal(Steer("go"))
        assert await handle.result() == "go"
        ended = await handle.status()
        assert (ended.condition, ended.outcome, ended.waits) == (Condition.TERMINAL, TaskOutcome.SUCCEEDED, ())
        assert ended.state_version > status.state_version
        assert await handle.explain() == "it has ended: succeeded"


async def test_a_task_that_goes_on_does_not_keep_what_it_waited_for(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def work() -> None:
        await anyio.sleep(0.5)

    async def script(task: gr.Task, job: Job) -> None:
        await task.receive(Steer, timeout=None)
        await task.run(work)
        await task.sleep(3600)

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await anyio.sleep(1.1)
        await handle.signal(Steer("go"))
        await anyio.sleep(0.4)
        assert (await handle.status()).waits == ()
        await anyio.sleep(1.2)
        status = await handle.status()
        (line,) = status.waits
        assert line.startswith("root: sleep until ")
        assert status.next_due is not None
        assert timedelta(0) < status.next_due - status.at < timedelta(hours=1)


async def test_an_operation_shows_how_far_it_is_until_it_has_ended(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def read(op: gr.Operation) -> None:
        for page in range(1, 4):
            await op.heartbeat(f"page {page} of 3")
            await anyio.sleep(10)

    async def script(task: gr.Task, job: Job) -> None:
        await task.run(read)
        await task.receive(Steer, timeout=None)

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await anyio.sleep(5)
        first = await handle.status()
        assert first.waits == ("root: run 'read'", "root#1: says page 1 of 3")
        await anyio.sleep(10)
        second = await handle.status()
        assert second.waits[-1] == "root#1: says page 2 of 3"
        assert first.last_contact_at is not None
        assert second.last_contact_at is not None
        assert second.last_contact_at - first.last_contact_at == timedelta(seconds=10)
        await anyio.sleep(20)
        assert (await handle.status()).waits == ("root: receive tests.tasks.scripts:Steer",)


async def test_an_operation_that_tells_much_is_noted_once_a_second(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def chatter(op: gr.Operation) -> None:
        for n in range(100):
            await op.heartbeat(n)
            await anyio.sleep(0.1)

    async def script(task: gr.Task, job: Job) -> None:
        await task.run(chatter)

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        seen = set()
        for _ in range(50):
            await anyio.sleep(0.1)
            seen.add((await handle.status()).waits[1:])
        assert 4 <= len(seen) <= 6


async def test_what_an_operation_tells_is_a_line_whatever_it_is(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def mumble(op: gr.Operation) -> None:
        await op.heartbeat("a\x00b\ud800\nc")
        await anyio.sleep(10)

    async def script(task: gr.Task, job: Job) -> None:
        await task.run(mumble)

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await anyio.sleep(5)
        assert (await handle.status()).waits[-1] == "root#1: says a·b··c"


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 201])
async def test_a_phase_is_a_line(database: Shared, name: str) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        with pytest.raises(ValueError, match="cannot be a phase"):
            task.phase(name)
        return "refused"

    async with database.runtime(agents(script)) as runtime:
        assert await (await runtime.submit(POOL, Job())).result() == "refused"


async def test_a_queue_that_nobody_serves_is_named(database: Shared) -> None:
    async with database.runtime(agents(listener)):
        pass
    async with database.runtime(gr.Supervisor("nothing")) as runtime:
        handle = await runtime.submit(POOL, Job())
        assert await handle.explain() == (
            f"it stands in the queue of {POOL!r}, which holds 1 tasks, and nobody serves the pool {POOL!r}: run a service that has it"
        )


async def test_a_task_whose_worker_died_says_so(database: Shared) -> None:
    async with (
        database.death_at("before AcceptMessage task:T2 strike") as source,
        database.runtime(agents(listener), source=source) as runtime,
    ):
        await runtime.submit(POOL, Job(), task_id="T1")
        other = await runtime.submit(POOL, Job(), task_id="T2")
        await anyio.sleep(2)
        await other.signal(Steer(""), message_id="strike")
    async with database.client() as client:
        assert (await client.task("T1").explain()).endswith("is dead: another takes over when its lease has passed")


async def test_a_task_that_waits_for_its_time_to_begin_says_when(database: Shared) -> None:
    async with database.runtime(agents(listener)) as runtime:
        now = (await (await runtime.submit(POOL, Job())).status()).at
        handle = await runtime.submit(POOL, Job(), not_before=now + timedelta(hours=5))
        due = (await handle.status()).due_at
        assert due is not None
        assert await handle.explain() == f"it is to begin at {due.isoformat()}"


async def test_a_parked_task_says_what_an_operator_has_to_do(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> None:
        raise RuntimeError("a bug")

    async with database.runtime(agents(script, max_restarts=0)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await settled()
        told = await handle.explain()
        assert told.startswith("it waits for an operator (crash_loop): ")
        assert told.endswith("a bug; mend the cause and release it")
