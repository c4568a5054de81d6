"""Submitting: once by its id, refused where it cannot be accepted."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import greenroom as gr
from tests.durable.helpers import raised
from tests.tasks.scripts import POOL, Job, agents

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


async def finish(task: gr.Task, job: Job) -> str:
    return job.text


async def test_the_same_request_under_the_same_id_is_the_same_task(database: Shared) -> None:
    runs: list[str] = []

    async def script(task: gr.Task, job: Job) -> str:
        runs.append(job.text)
        return job.text

    async with database.runtime(agents(script)) as runtime:
        assert await (await runtime.submit(POOL, Job("a"), task_id="T1")).result() == "a"
        assert await (await runtime.submit(POOL, Job("a"), task_id="T1")).result() == "a"
        assert runs == ["a"]


async def test_another_request_under_the_same_id_is_refused(database: Shared) -> None:
    async with database.runtime(agents(finish)) as runtime:
        await runtime.submit(POOL, Job("a"), task_id="T1")
        error = await raised(runtime.submit(POOL, Job("b"), task_id="T1"))
        assert isinstance(error, gr.TaskConflict)
        assert await runtime.task("T1").result() == "a"


@pytest.mark.parametrize("task_id", ["", "  ", "a\nb", "\x00", "x" * 201, 7])
async def test_an_impossible_id_is_refused_at_every_entry(database: Shared, task_id: str) -> None:
    async with database.runtime(agents(finish)) as runtime:
        assert isinstance(await raised(runtime.submit(POOL, Job(), task_id=task_id)), gr.InvalidTaskId)
        with pytest.raises(gr.InvalidTaskId):
            runtime.task(task_id)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"priority": "high"}, "priority='high' is no int"),
        ({"priority": True}, "priority=True is no int"),
        ({"priority": 2**31}, "priority=2147483648 does not lie between -2147483648 and 2147483647"),
        ({"group": 5}, "group=5 is no str"),
        ({"group": " "}, "group=' ': give 1 to 200 printable characters"),
        ({"group": "a\x00b"}, "group='a.x00b': give 1 to 200"),
        ({"group": "\ud800"}, "group=.*: give 1 to 200"),
        ({"deadline": 3.5}, "deadline=3.5 is no datetime"),
        ({"deadline": datetime(2030, 1, 1)}, "deadline=.* has no time zone"),  # noqa: DTZ001 - that is the point
        ({"not_before": datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))}, "not_before=.*too far away"),
        ({"urgent": True}, "no 'urgent': there are task_id, group, priority, deadline, not_before"),
    ],
    ids=str,
)
async def test_an_option_that_cannot_be_is_named_and_nothing_is_submitted(
    database: Shared, options: dict[str, Any], said: str
) -> None:
    async with database.runtime(agents(finish)) as runtime, database.client() as client:
        with pytest.raises((TypeError, ValueError), match=said):
            await runtime.submit(POOL, Job(), **options)
        assert [task async for task in client.tasks()] == []


async def test_a_pool_that_never_ran_is_named(database: Shared) -> None:
    async with database.runtime(agents(finish)) as runtime:
        error = await raised(runtime.submit("service/agent", Job()))
        assert isinstance(error, gr.NoSuchPool)
        assert error.pool == "service/agent"


async def test_a_pool_may_be_given_by_its_agents(database: Shared) -> None:
    pool = agents(finish)
    async with database.runtime(pool) as runtime:
        assert await (await runtime.submit(pool, Job("a"))).result() == "a"
        assert isinstance(await raised(runtime.submit(agents(finish), Job("a"))), gr.BadSpec)


async def test_a_task_that_nobody_knows_is_named(database: Shared) -> None:
    async with database.runtime(agents(finish)) as runtime:
        for ask in (runtime.task("T9").result(), runtime.task("T9").status(), runtime.task("T9").cancel("why")):
            assert isinstance(await raised(ask), gr.NoSuchTask)


async def test_beyond_the_queue_limit_a_task_is_refused_with_the_time_to_try_again(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def work() -> None:
        await anyio.sleep(1)

    async def script(task: gr.Task, job: Job) -> None:
        await task.run(work)

    async with database.runtime(agents(script, max_running=1, queue_limit=2)) as runtime:
        await runtime.submit(POOL, Job("running"))
        await anyio.sleep(0.1)
        for name in ("first", "second"):
            await runtime.submit(POOL, Job(name))
        error = await raised(runtime.submit(POOL, Job("third"), task_id="T3"))
        assert isinstance(error, gr.PoolFull)
        assert error.retry_after > 0
        assert isinstance(await raised(runtime.task("T3").status()), gr.NoSuchTask)
        await anyio.sleep(1.5)
        await runtime.submit(POOL, Job("third"), task_id="T3")


async def test_tasks_that_were_submitted_while_nobody_ran_the_pool_are_performed_when_somebody_does(
    database: Shared,
) -> None:
    async with database.runtime(agents(finish)):
        pass
    async with database.runtime(gr.Supervisor("nothing")) as runtime:
        await runtime.submit(POOL, Job("a"), task_id="T1")
    async with database.runtime(agents(finish)) as runtime:
        assert await runtime.task("T1").result() == "a"


async def test_priority_goes_first_and_groups_have_their_turns(database: Shared) -> None:
    order: list[str] = []

    async def script(task: gr.Task, job: Job) -> None:
        order.append(job.text)

    async with database.runtime(agents(script)):
        pass
    async with database.runtime(gr.Supervisor("nothing")) as runtime:
        for n in range(3):
            await runtime.submit(POOL, Job(f"a{n}"), group="a")
        await runtime.submit(POOL, Job("b0"), group="b")
        await runtime.submit(POOL, Job("urgent"), priority=1, group="a")
    async with database.runtime(agents(script, max_running=1)):
        await anyio.sleep(1)
    assert order[0] == "urgent"
    assert order.index("b0") < order.index("a1")


async def test_a_task_begins_no_earlier_than_it_was_told(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> float:
        return anyio.current_time()

    async with database.runtime(agents(script)) as runtime:
        moment = (await (await runtime.submit(POOL, Job())).status()).at
        handle = await runtime.submit(POOL, Job(), not_before=moment.replace(hour=moment.hour + 5))
        assert await handle.result() == pytest.approx(5 * 3600, abs=1)
