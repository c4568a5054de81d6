"""`gr.Client` and tasks: submitted, waited for, listed and ended without a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

import greenroom as gr
from greenroom.persistence.tasks import Condition, TaskOutcome
from tests.durable.helpers import raised, settled
from tests.tasks.scripts import POOL, Job, Steer, agents

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


async def listener(task: gr.Task, job: Job) -> str:
    return f"{job.text} {(await task.receive(Steer, timeout=None)).text}"


async def registered(database: Shared) -> None:
    """A service with the pool has run once."""
    async with database.runtime(agents(listener)):
        pass


async def test_a_task_is_submitted_steered_and_waited_for_from_outside(database: Shared) -> None:
    await registered(database)
    async with database.client() as client:
        handle = await client.submit(POOL, Job("a"), task_id="T1")
        assert (await client.submit(POOL, Job("a"), task_id="T1")).id == handle.id
        assert isinstance(await raised(client.submit(POOL, Job("b"), task_id="T1")), gr.TaskConflict)
        assert (await handle.signal(Steer("b"))).disposition == "accepted"
        assert (await handle.status()).condition is Condition.RUNNABLE
        async with database.runtime(agents(listener)):
            assert await handle.result() == "a b"
        assert [event.kind async for event in handle.events()] == ["begun", "signal", "ended"]


async def test_a_client_follows_a_task_that_others_perform(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> None:
        for _ in range(3):
            await task.sleep(600)

    async with database.runtime(agents(script)), database.client() as client:
        handle = await client.submit(POOL, Job())
        assert [event.kind async for event in handle.events()] == ["begun", "time", "time", "time", "ended"]


async def test_a_wait_for_a_task_ends_in_time(database: Shared) -> None:
    await registered(database)
    async with database.client() as client:
        handle = await client.submit(POOL, Job())
        assert isinstance(await raised(handle.result(timeout=2.0)), gr.WaitTimeout)
        assert (await handle.status()).condition is Condition.RUNNABLE


async def submit(client: gr.Client, task_id: str) -> None:
    await client.submit(POOL, Job(), task_id=task_id)


async def test_tasks_are_listed_page_by_page_and_chosen(database: Shared) -> None:
    await registered(database)
    async with database.client() as client:
        async with anyio.create_task_group() as group:
            for n in range(150):
                group.start_soon(submit, client, f"T{n:03}")
        await client.task("T007").terminate("not wanted")
        everything = [status.task_id async for status in client.tasks()]
        assert everything == [f"T{n:03}" for n in range(150)]
        behind = [status.task_id async for status in client.tasks(after="T120")]
        assert behind == everything[121:]
        ended = [status async for status in client.tasks(pool=POOL, condition=Condition.TERMINAL)]
        assert [(status.task_id, status.outcome) for status in ended] == [("T007", TaskOutcome.CANCELLED)]
        assert [status async for status in client.tasks(pool="service/others")] == []
        assert [status async for status in client.tasks(parked=True)] == []


async def test_r24_a_client_ends_a_task_and_its_children_while_nobody_runs_them(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> None:
        if len(job.text) < 3:
            await task.submit(POOL, Job(job.text + "x"))
        await task.receive(Steer, timeout=None)

    async with database.runtime(agents(script)) as runtime:
        await runtime.submit(POOL, Job("x"), task_id="T1")
        await settled()
    async with database.client() as client:
        await client.task("T1").terminate("not wanted")
        outcomes = {status.outcome async for status in client.tasks()}
        assert outcomes == {TaskOutcome.CANCELLED}
        assert len([status async for status in client.tasks()]) == 3


@pytest.mark.parametrize("task_id", ["", "  ", "a\nb", "\x00", "x" * 201, 7])
async def test_an_impossible_id_is_refused(database: Shared, task_id: str) -> None:
    await registered(database)
    async with database.client() as client:
        assert isinstance(await raised(client.submit(POOL, Job(), task_id=task_id)), gr.InvalidTaskId)
        with pytest.raises(gr.InvalidTaskId):
            client.task(task_id)
        handle = await client.submit(POOL, Job())
        assert isinstance(await raised(handle.signal(Steer(""), message_id=task_id)), gr.InvalidMessageId)


async def test_a_pool_and_a_task_that_nobody_knows_are_named(database: Shared) -> None:
    await registered(database)
    async with database.client() as client:
        assert isinstance(await raised(client.submit("service/agent", Job())), gr.NoSuchPool)
        for ask in (client.task("T9").status(), client.task("T9").result(), client.task("T9").export()):
            assert isinstance(await raised(ask), gr.NoSuchTask)
        assert (await client.task("T9").signal(Steer(""))).disposition == "unmatched"
