"""Tasks that wait take no room: they are dropped from memory, woken by what is due, and never loaded without need (R20, C07)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from attrs import evolve

import greenroom as gr
from greenroom.persistence import start_execution
from greenroom.persistence.task_pools import RegisterTaskPool
from greenroom.persistence.tasks import Condition, SubmitTask
from tests.durable.helpers import settled
from tests.persistence.stores import done
from tests.persistence.tasks_help import claimed, new
from tests.tasks.scripts import POOL, Job, Steer, agents, patient, task_of

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


class Counted:
    """A script that waits for a signal, and counts how often its control code is begun."""

    def __init__(self) -> None:
        self.begun = 0

    async def script(self, task: gr.Task, job: Job) -> str:
        self.begun += 1
        return (await task.receive(Steer, timeout=None)).text

    async def sleeper(self, task: gr.Task, job: Job) -> str:
        self.begun += 1
        await task.sleep(float(job.text))
        return job.text


async def test_r20_those_that_wait_longest_are_dropped_to_make_room_and_come_back_when_they_are_woken(
    database: Shared,
) -> None:
    counted = Counted()
    async with database.runtime(agents(counted.script, max_running=2, max_resident=3)) as runtime:
        ids = [f"T{n}" for n in range(8)]
        for task_id in ids:
            await runtime.submit(POOL, Job(), task_id=task_id)
            await settled()
        await anyio.sleep(1)
        assert counted.begun == 8
        standing = [(await runtime.task(task_id).status()).condition for task_id in ids]
        assert standing[:5] == [Condition.WAITING] * 5
        assert standing[5:] == [Condition.RUNNING] * 3
        for task_id in reversed(ids):
            await runtime.task(task_id).signal(Steer(task_id))
            assert await runtime.task(task_id).result() == task_id
        assert counted.begun == 13


async def test_r20_a_task_with_something_in_flight_is_not_dropped(database: Shared) -> None:
    begun = 0

    @gr.operation(effect=gr.Effect.SAFE)
    async def work() -> None:
        await anyio.sleep(100)

    async def script(task: gr.Task, job: Job) -> None:
        nonlocal begun
        begun += 1
        if job.text == "waits":
            await task.receive(Steer, timeout=None)
        else:
            await task.run(work)

    async with database.runtime(agents(script, max_running=4, max_resident=1)) as runtime:
        works = [await runtime.submit(POOL, Job("works")) for _ in range(3)]
        waits = await runtime.submit(POOL, Job("waits"))
        await anyio.sleep(1)
        assert (await waits.status()).condition is Condition.WAITING
        for handle in works:
            await handle.result()
        assert begun == 4


async def waiting(database: Shared, ids: list[str], **release: Any) -> None:
    """Tasks that some process has begun, and let go when they came to wait for something."""
    async with database.runtime(gr.Supervisor("nothing")) as runtime, database.open() as store:
        await done(store, RegisterTaskPool(pool=POOL))
        await runtime.submit(POOL, Job("5000"), task_id=f"like {ids[0]}")
        model = await task_of(store, f"like {ids[0]}")
        assert isinstance(model.request, bytes)
        execution = await start_execution(
            store, on_lost=lambda: None, lease=database.lease.total_seconds(), clock=database.time.store_clock
        )

        async def wait(task_id: str, request: bytes) -> None:
            task = evolve(new(task_id, request, pool=POOL), request_type=model.request_type)
            await done(store, SubmitTask(task=task))
            owner = await claimed(store, task_id, execution_id=execution.id, pool=POOL)
            await owner.let_go(waits=("root: receive Steer",), **release)

        async with anyio.create_task_group() as group:
            for task_id in ids:
                group.start_soon(wait, task_id, model.request)
        await (await claimed(store, model.task_id, execution_id=execution.id, pool=POOL)).finish()
        await execution.end()


async def test_a_restart_with_thousands_of_waiting_tasks_begins_none_of_them(database: Shared) -> None:
    counted = Counted()
    await waiting(database, [f"T{n}" for n in range(3000)])
    async with database.runtime(agents(counted.script, max_running=100)) as runtime:
        await anyio.sleep(3600)
        assert counted.begun == 0
        await runtime.task("T1234").signal(Steer("on"))
        assert await runtime.task("T1234").result() == "on"
        assert counted.begun == 1
        assert (await runtime.task("T7").status()).condition is Condition.WAITING


async def test_of_many_sleeping_tasks_only_those_that_are_due_are_begun_again(database: Shared) -> None:
    counted = Counted()
    now = datetime(2030, 1, 1, tzinfo=UTC)
    await waiting(database, [f"T{n}" for n in range(20)], due_at=now + timedelta(seconds=5000))
    await waiting(database, [f"T{n}" for n in range(20, 1000)], due_at=now + timedelta(days=100))
    async with database.runtime(agents(counted.sleeper, max_running=5), source=patient(database)) as runtime:
        await anyio.sleep(4000)
        assert counted.begun == 0
        await anyio.sleep(2000)
        assert counted.begun == 20
        assert await runtime.task("T19").result() == "5000"
        assert (await runtime.task("T20").status()).condition is Condition.WAITING


async def test_a_task_whose_place_is_taken_while_the_queue_is_read_is_begun_when_that_is_free_again(
    database: Shared,
) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def work() -> None:
        await anyio.sleep(100)

    async def script(task: gr.Task, job: Job) -> None:
        if job.text == "waits":
            await task.receive(Steer, timeout=None)
            await task.run(work)

    async with database.runtime(agents(script, max_running=1), source=patient(database)) as runtime:
        waits = await runtime.submit(POOL, Job("waits"))
        await anyio.sleep(1)
        async with anyio.create_task_group() as group:  # one batch: the queue is read while the other one rises
            group.start_soon(partial(runtime.submit, POOL, Job("comes"), task_id="next"))
            group.start_soon(waits.signal, Steer("on"))
        with anyio.fail_after(1000):
            await runtime.task("next").result()
        assert (await waits.status()).outcome is not None


@pytest.mark.parametrize("resident", [1, 10_000])
async def test_c07_thirty_days_of_waits_cost_what_they_wait_for_and_nothing_for_their_time(
    resident: int, database: Shared
) -> None:
    counted = Counted()

    async def script(task: gr.Task, job: Job) -> int:
        counted.begun += 1
        for _ in range(30):
            await task.sleep(86_400)
        return 30

    options: dict[str, Any] = {"max_resident": resident}
    async with database.runtime(agents(script, **options), source=patient(database)) as runtime:
        began = anyio.current_time()
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert await handle.result() == 30
        assert anyio.current_time() - began == pytest.approx(30 * 86_400, abs=60)
        assert counted.begun == 1
        async with database.open() as store:
            assert (await task_of(store, "T1")).journal_seq == 30
