"""Tasks that submit tasks, and tasks that go on as another segment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

import greenroom as gr
from greenroom.persistence.tasks import ListTasks, TaskOutcome
from tests.durable.helpers import raised, settled
from tests.tasks.scripts import POOL, Calls, Job, Steer, agents, patient, task_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.durable.helpers import Shared


async def family(task: gr.Task, job: Job) -> Any:
    """The one that is asked for `parent` has children; any other waits or fails as it is told."""
    if job.text == "parent":
        child = await task.submit(POOL, Job("child"))
        return f"my child says: {await child.result()}"
    if job.text == "worried":
        child = await task.submit(POOL, Job("bad"))
        try:
            return await child.result()
        except gr.OperationFailed as failed:
            return f"{failed.type}: {failed.message}"
    if job.text == "leaves":
        child = await task.submit(POOL, Job("waits"))
        return child.id
    if job.text == "bad":
        raise gr.Failed("no good")
    if job.text == "waits":
        return (await task.receive(Steer, timeout=None)).text
    return "hello"


async def test_a_task_gets_the_result_of_a_task_that_it_has_submitted(database: Shared) -> None:
    async with database.runtime(agents(family)) as runtime:
        assert await (await runtime.submit(POOL, Job("parent"))).result() == "my child says: hello"


async def test_a_task_gets_the_failure_of_a_task_that_it_has_submitted(database: Shared) -> None:
    async with database.runtime(agents(family)) as runtime:
        assert await (await runtime.submit(POOL, Job("worried"))).result() == "Failed: no good"


async def test_a_child_that_is_open_at_its_parents_end_is_cancelled(database: Shared) -> None:
    async with database.runtime(agents(family)) as runtime:
        child = runtime.task(await (await runtime.submit(POOL, Job("leaves"))).result())
        assert isinstance(await raised(child.result()), gr.TaskCancelled)


async def test_terminating_a_parent_terminates_its_children_too(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> Any:
        if job.text == "parent":
            child = await task.submit(POOL, Job("child"))
            return await child.result()
        return (await task.receive(Steer, timeout=None)).text

    async with database.runtime(agents(script)) as runtime:
        parent = await runtime.submit(POOL, Job("parent"), task_id="T1")
        await anyio.sleep(1)
        await parent.terminate("enough")
        await settled()
        (child,) = [waiting async for waiting in children_of(database, "T1")]
        assert (await runtime.task(child).status()).outcome is TaskOutcome.CANCELLED


async def children_of(database: Shared, task_id: str) -> AsyncIterator[str]:
    """The ids of all tasks but this one."""
    async with database.open() as store:
        for record in await store.read(ListTasks()):
            if record.task_id != task_id:
                yield record.task_id


async def test_a_child_is_submitted_once_whatever_becomes_of_its_parents_process(database: Shared) -> None:
    async with (
        database.death_at("after CommitTurn task:T1") as source,
        database.runtime(agents(family), source=source) as runtime,
    ):
        await (await runtime.submit(POOL, Job("parent"), task_id="T1")).result()
    async with database.runtime(agents(family)) as runtime:
        assert await runtime.task("T1").result() == "my child says: hello"
        assert len([child async for child in children_of(database, "T1")]) == 1


async def test_r18_a_task_goes_on_as_another_segment_with_an_empty_journal(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        number = int(job.text)
        await task.run(note, job.text)
        if number < 3:
            await task.continue_as(Job(str(number + 1)))
        return f"done at {number}"

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job("1"), task_id="T1")
        assert await handle.result() == "done at 3"
        assert calls.made == ["1", "2", "3"]
        async with database.open() as store:
            task = await task_of(store, "T1")
            assert (task.segment, task.attempt, task.journal_seq) == (3, 1, 1)


async def test_r18_signals_that_nobody_has_received_go_on_with_the_task(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        if job.text == "first":
            await task.sleep(100)
            await task.continue_as(Job("second"))
        return (await task.receive(Steer, timeout=10)).text

    async with database.runtime(agents(script), source=patient(database)) as runtime:
        handle = await runtime.submit(POOL, Job("first"))
        await anyio.sleep(50)
        await handle.signal(Steer("kept"))
        assert await handle.result() == "kept"


async def test_a_detached_child_outlives_its_parent(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> Any:
        if job.text == "parent":
            kept = await task.submit(POOL, Job("waits"), when_parent_ends="detach")
            stopped = await task.submit(POOL, Job("waits"))
            return [kept.id, stopped.id]
        return (await task.receive(Steer, timeout=None)).text

    async with database.runtime(agents(script)) as runtime:
        kept, stopped = map(runtime.task, await (await runtime.submit(POOL, Job("parent"))).result())
        assert isinstance(await raised(stopped.result()), gr.TaskCancelled)
        await kept.signal(Steer("on my own"))
        assert await kept.result() == "on my own"


async def test_a_detached_child_survives_the_termination_of_its_parent(database: Shared) -> None:
    children: list[str] = []

    async def script(task: gr.Task, job: Job) -> Any:
        if job.text == "parent":
            children[:] = [(await task.submit(POOL, Job("waits"), when_parent_ends="detach")).id]
        return (await task.receive(Steer, timeout=None)).text

    async with database.runtime(agents(script)) as runtime:
        parent = await runtime.submit(POOL, Job("parent"))
        await settled()
        await parent.terminate("enough")
        child = runtime.task(children[0])
        await child.signal(Steer("still here"))
        assert await child.result() == "still here"


async def test_r24_children_end_though_whoever_terminated_their_parent_died_midway(database: Shared) -> None:
    """Also those of a pool that nobody serves."""

    async def script(task: gr.Task, job: Job) -> Any:
        if job.text in ("parent", "child"):
            child = await task.submit(POOL, Job("child" if job.text == "parent" else "grandchild"))
            await child.result()
        return (await task.receive(Steer, timeout=None)).text

    async with database.runtime(agents(script)) as runtime:
        await runtime.submit(POOL, Job("parent"), task_id="T1")
        await anyio.sleep(1)
    async with (
        database.death_at("after TerminateTask service/agents task:T1") as source,
        database.runtime(gr.Supervisor("nothing"), source=source) as runtime,
    ):
        await runtime.task("T1").terminate("enough")
    others = [child async for child in children_of(database, "T1")]
    assert len(others) == 2
    async with database.runtime(gr.Agents("elsewhere", Idle)) as runtime:
        for child in others:
            error = await raised(runtime.task(child).result())
            assert isinstance(error, gr.TaskCancelled)
            assert error.reason is not None
            assert "was terminated" in error.reason


class Idle(gr.Agent[Job, None]):
    """Has nothing to do."""

    async def perform(self, task: gr.Task, request: Job) -> None: ...


async def test_what_becomes_of_a_child_is_one_of_two_words(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        try:
            await task.submit(POOL, Job(), when_parent_ends="wait")  # type: ignore[arg-type]
        except ValueError as error:
            return str(error)
        return "?"

    async with database.runtime(agents(script)) as runtime:
        assert "'stop' or 'detach'" in await (await runtime.submit(POOL, Job())).result()


async def shepherd(task: gr.Task, job: Job) -> Any:
    """Submits a child, and waits for it in another segment, after a while."""
    kind, _, child_id = job.text.partition(" ")
    if kind in ("hello", "bad", "waits"):
        return await family(task, job)
    if not child_id:
        child = await task.submit(POOL, Job(kind.removeprefix("the-")))
        await task.sleep(100)
        await task.continue_as(Job(f"{kind} {child.id}"))
    try:
        return await task.child(child_id).result(timeout=1000)
    except gr.OperationFailed as failed:
        return f"{failed.type}: {failed.message}"


@pytest.mark.parametrize(("child", "result"), [("the-hello", "hello"), ("the-bad", "Failed: no good")])
async def test_r18_the_end_of_a_child_that_came_in_an_earlier_segment_is_found_in_a_later_one(
    database: Shared, child: str, result: str
) -> None:
    async with database.runtime(agents(shepherd), source=patient(database)) as runtime:
        assert await (await runtime.submit(POOL, Job(child))).result() == result


async def test_r18_a_child_of_an_earlier_segment_is_waited_for_until_it_ends(database: Shared) -> None:
    async with database.runtime(agents(shepherd), source=patient(database)) as runtime:
        handle = await runtime.submit(POOL, Job("the-waits"), task_id="T1")
        await anyio.sleep(500)
        assert (await handle.status()).segment == 2
        (child,) = [child async for child in children_of(database, "T1")]
        await runtime.task(child).signal(Steer("at last"))
        assert await handle.result() == "at last"


async def test_r18_a_child_of_an_earlier_segment_ends_with_its_parent(database: Shared) -> None:
    async with database.runtime(agents(shepherd), source=patient(database)) as runtime:
        handle = await runtime.submit(POOL, Job("the-waits"), task_id="T1")
        assert isinstance(await raised(handle.result()), gr.TaskFailed)  # it has waited long enough
        (child,) = [child async for child in children_of(database, "T1")]
        assert isinstance(await raised(runtime.task(child).result()), gr.TaskCancelled)


@pytest.mark.parametrize("stranger", ["T0", "T1", "nobody"])
async def test_what_is_no_child_of_the_task_is_not_waited_for(database: Shared, stranger: str) -> None:
    async with database.runtime(agents(shepherd)) as runtime:
        await runtime.submit(POOL, Job("waits"), task_id="T0")
        handle = await runtime.submit(POOL, Job(f"the {stranger}"), task_id="T1")
        assert await handle.result() == f"NoSuchTask: {stranger!r} is on record as no child of this task"
