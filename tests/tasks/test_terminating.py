"""A task that is terminated is its worker's no more, and the worker learns of it: what it has in hand is broken off (R24)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

import greenroom as gr
from tests.tasks.scripts import POOL, Job, Steer, agents

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


async def test_r24_an_operation_of_a_terminated_task_is_broken_off_and_its_place_is_free(database: Shared) -> None:
    ended: list[str] = []

    @gr.operation(effect=gr.Effect.SAFE)
    async def hang() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("broken off")

    async def script(task: gr.Task, job: Job) -> str:
        if job.text == "hang":
            await task.run(hang)
        return "done"

    async with database.runtime(agents(script, max_running=1), source=database.source(sweep=1.0)) as runtime:
        handle = await runtime.submit(POOL, Job("hang"), task_id="T1")
        other = await runtime.submit(POOL, Job(), task_id="T2")
        await anyio.sleep(10)
        assert not ended
        async with database.client() as client:  # as from another process
            await client.task("T1").terminate("it hangs")
        assert await other.result(timeout=100) == "done"
        assert ended == ["broken off"]
        assert (await handle.status()).reason == "it hangs"


async def test_r24_a_terminated_task_that_waited_can_be_pursued_again_at_once(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        return f"{(await task.receive(Steer, timeout=None)).text} {task.attempt}"

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(10)
        await handle.terminate("enough")
        assert await handle.new_attempt("again") == 2
        await handle.signal(Steer("left"))
        assert await handle.result(timeout=100) == "left 2"


async def test_r24_a_task_that_was_terminated_and_begun_again_at_once_is_performed_once(database: Shared) -> None:
    running: list[int] = []

    @gr.operation(effect=gr.Effect.SAFE)
    async def hang(attempt: int) -> str:
        running.append(attempt)
        try:
            await anyio.sleep(1000 if attempt == 1 else 1)
        finally:
            running.remove(attempt)
        return f"attempt {attempt}"

    async def script(task: gr.Task, job: Job) -> str:
        return await task.run(hang, task.attempt)

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(10)
        await handle.terminate("enough")
        await handle.new_attempt("again")
        assert await handle.result(timeout=100) == "attempt 2"
        assert running == []
