"""What an activation asks the store for: all that it needs, and nothing that nobody wants to know."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import greenroom as gr
from greenroom.persistence.tasks import TaskOutcome
from greenroom.testing.wrapped_driver import WrappedDriver
from tests.durable.helpers import settled
from tests.tasks.scripts import POOL, Calls, Job, agents

if TYPE_CHECKING:
    from greenroom.persistence import Driver, Query
    from tests.durable.helpers import Shared
    from tests.tasks.scripts import Script


class Listener(WrappedDriver):
    """Counts what is read, by kind."""

    def __init__(self, inner: Driver, heard: Counter[str]) -> None:
        super().__init__(inner)
        self.heard = heard

    async def read(self, query: Query[Any]) -> Any:
        self.heard[type(query).__name__] += 1
        return await self.inner.read(query)


async def left_waiting(database: Shared, script: Script) -> None:
    """Have T1 go on until it waits, and let it go."""
    async with database.runtime(agents(script)) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await settled()


def waits_for_its_time(calls: Calls) -> Script:
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        first: str = await task.run(note, "a")
        await task.sleep(100)
        second: str = await task.run(note, "b")
        return first + second

    return script


async def test_a_task_that_is_taken_up_again_is_read_at_once_and_nothing_is_read_for_its_end(database: Shared) -> None:
    heard: Counter[str] = Counter()
    script = waits_for_its_time(Calls())
    await left_waiting(database, script)
    source = database.source(driver=lambda inner: Listener(inner, heard))
    async with database.runtime(agents(script), source=source) as runtime:
        assert await runtime.task("T1").result() == "AB"
    kinds = ("ReadSegment", "ReadJournal", "ReadOperations", "ReadInvocations", "ChildrenOf", "OpenCallbacks")
    assert {kind: heard[kind] for kind in kinds if heard[kind]} == {"ReadSegment": 1}


async def test_a_fresh_task_is_not_read_at_all(database: Shared) -> None:
    heard: Counter[str] = Counter()
    note = Calls().safe()

    async def script(task: gr.Task, job: Job) -> str:
        result: str = await task.run(note, "a")
        return result

    source = database.source(driver=lambda inner: Listener(inner, heard))
    async with database.runtime(agents(script), source=source) as runtime:
        assert await (await runtime.submit(POOL, Job())).result() == "A"
    assert not heard.keys() & {"ReadSegment", "ReadJournal", "ChildrenOf", "OpenCallbacks"}


async def test_nobody_looks_for_what_is_due_because_a_task_has_ended(database: Shared) -> None:
    heard: Counter[str] = Counter()
    note = Calls().safe()

    async def script(task: gr.Task, job: Job) -> str:
        result: str = await task.run(note, "a")
        return result

    source = database.source(driver=lambda inner: Listener(inner, heard), sweep=6 * 3600.0)
    async with database.runtime(agents(script), source=source) as runtime:
        await settled()
        before = heard["DueTasks"]
        for number in range(5):
            assert await (await runtime.submit(POOL, Job(), task_id=f"T{number}")).result() == "A"
            await settled()
        assert heard["DueTasks"] == before


async def test_a_child_that_an_earlier_activation_has_submitted_is_cancelled_with_the_end_of_its_parent(
    database: Shared,
) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        if job.text == "child":
            return (await task.receive(Job, timeout=None)).text
        child = await task.submit(POOL, Job("child"))
        await task.sleep(100)
        return child.id

    await left_waiting(database, script)
    async with database.runtime(agents(script)) as runtime:
        child: gr.TaskHandle[str] = runtime.task(await runtime.task("T1").result())
        await settled()
        assert (await child.status()).outcome is TaskOutcome.CANCELLED


async def test_a_callback_that_an_earlier_activation_has_opened_is_over_with_the_end_of_its_task(
    database: Shared,
) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        callback = await task.callback("paid", timeout=None)
        await task.sleep(100)
        return callback.token

    await left_waiting(database, script)
    async with database.runtime(agents(script)) as runtime, database.client() as client:
        token = await runtime.task("T1").result()
        assert await client.answer(token, "yes") == "late"
