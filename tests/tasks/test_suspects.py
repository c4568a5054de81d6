"""Tasks that are lost with their processes: suspected, run once alone, parked; and who is not to be suspected (R22)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

import greenroom as gr
from greenroom.persistence import ParkReason, start_execution
from greenroom.persistence.task_pools import RegisterTaskPool
from greenroom.persistence.tasks import Condition
from tests.durable.helpers import eventually
from tests.persistence.stores import done
from tests.persistence.tasks_help import claimed
from tests.tasks.scripts import POOL, Calls, Job, Steer, agents, task_of

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


async def die_with(database: Shared, *task_ids: str) -> None:
    """A process that has claimed these tasks dies, and its lease passes."""
    async with database.open() as store:
        execution = await start_execution(
            store, on_lost=lambda: None, lease=database.lease.total_seconds(), clock=database.time.store_clock
        )
        for task_id in task_ids:
            await claimed(store, task_id, execution_id=execution.id, pool=POOL)
        execution.abandon()
    database.pass_lease()


async def suspicions(database: Shared, task_id: str) -> int:
    async with database.open() as store:
        return (await task_of(store, task_id)).suspicions


async def submitted(database: Shared, *task_ids: str) -> None:
    """Tasks that stand in the queue of a pool that nobody runs."""
    async with database.open() as store:
        await done(store, RegisterTaskPool(pool=POOL))
    async with database.runtime(gr.Supervisor("nothing")) as runtime:
        for task_id in task_ids:
            await runtime.submit(POOL, Job(task_id), task_id=task_id)


class Gauge:
    """A script whose tasks take five seconds each, and notes who ran beside whom."""

    def __init__(self, seconds: float = 5.0) -> None:
        self.running: set[str] = set()
        self.beside: dict[str, set[str]] = {}

        @gr.operation(effect=gr.Effect.SAFE)
        async def work(text: str) -> None:
            self.running.add(text)
            for each in self.running:
                self.beside[each] = self.beside.get(each, set()) | self.running - {each}
            await anyio.sleep(seconds)
            self.running.discard(text)

        self.work = work

    async def script(self, task: gr.Task, job: Job) -> str:
        await task.run(self.work, task.id)
        return task.id


async def test_r22_a_task_is_parked_that_three_processes_in_a_row_have_died_with_and_the_pool_goes_on(
    database: Shared,
) -> None:
    gauge = Gauge()
    await submitted(database, "bad")
    for _ in range(3):
        async with database.runtime(gr.Supervisor("nothing")) as runtime:
            await die_with(database, "bad")
            await anyio.sleep(7200)
    async with database.runtime(agents(gauge.script)) as runtime:
        assert await (await runtime.submit(POOL, Job())).result()
        await anyio.sleep(60)
        status = await runtime.task("bad").status()
        assert status.parked is ParkReason.CRASH_LOOP
        assert "3 processes" in str(status.parked_detail)
    assert "bad" not in gauge.beside


async def test_r22_a_suspect_runs_once_alone_before_it_is_parked(database: Shared) -> None:
    gauge = Gauge()
    names = ("bad", "t1", "t2", "t3")
    await submitted(database, *names)
    for _ in range(2):
        async with database.runtime(gr.Supervisor("nothing")):
            await die_with(database, "bad")
            await anyio.sleep(7200)
    assert await suspicions(database, "bad") == 2
    async with database.runtime(agents(gauge.script)) as runtime:
        for name in names:
            await runtime.task(name).result()
    assert gauge.beside["bad"] == set()
    assert gauge.beside["t1"] == {"t2", "t3"}


async def test_r22_suspects_have_their_solitude_one_after_the_other(database: Shared) -> None:
    gauge = Gauge()
    names = ("a", "b", "c")
    await submitted(database, *names)
    for _ in range(2):
        async with database.runtime(gr.Supervisor("nothing")):
            await die_with(database, *names)
            await anyio.sleep(7200)
    async with database.runtime(agents(gauge.script)) as runtime:
        for name in names:
            await runtime.task(name).result()
    assert gauge.beside == {"a": set(), "b": set(), "c": set()}


async def test_r22_a_suspect_with_a_long_operation_does_not_hold_up_the_others(database: Shared) -> None:
    gauge = Gauge(seconds=1000.0)
    await submitted(database, "bad")
    for _ in range(2):
        async with database.runtime(gr.Supervisor("nothing")):
            await die_with(database, "bad")
            await anyio.sleep(7200)
    async with database.runtime(agents(gauge.script)) as runtime:
        await eventually(lambda: "bad" in gauge.running)
        began = anyio.current_time()
        other = await runtime.submit(POOL, Job(), task_id="other")
        await eventually(lambda: "other" in gauge.running)
        assert anyio.current_time() - began < 40
        assert await other.result() == "other"


async def test_r22_a_suspect_that_cannot_be_alone_is_let_go_and_stays_one(database: Shared) -> None:
    gauge = Gauge(seconds=300.0)
    await submitted(database, "bad")
    for _ in range(2):
        async with database.runtime(gr.Supervisor("nothing")):
            await die_with(database, "bad")
            await anyio.sleep(7200)
    slow = Gauge(seconds=300.0)
    others = gr.Agents("others", _agent(slow), max_running=1)
    async with database.runtime(others, agents(gauge.script)) as runtime:
        first = await runtime.submit("service/others", Job(), task_id="slow")
        await anyio.sleep(100)
        assert await suspicions(database, "bad") == 2
        assert "bad" not in gauge.beside
        await first.result()
        await eventually(lambda: "bad" in gauge.running, within=60.0)


def _agent(gauge: Gauge) -> type[gr.Agent[Job, str]]:
    class Slow(gr.Agent[Job, str]):
        async def perform(self, task: gr.Task, request: Job) -> str:
            return await gauge.script(task, request)

    return Slow


async def test_r22_a_newly_accepted_operation_and_a_wait_take_the_suspicion_away(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        if job.text == "works":
            await task.run(note, "a")
        return (await task.receive(Steer, timeout=None)).text

    await submitted(database, "works", "waits")
    for _ in range(2):
        async with database.runtime(gr.Supervisor("nothing")):
            await die_with(database, "works", "waits")
            await anyio.sleep(7200)
    async with database.runtime(agents(script)):
        await anyio.sleep(60)
        assert await suspicions(database, "works") == 0
        assert await suspicions(database, "waits") == 0


async def test_r22_a_process_that_has_lost_its_lease_and_lives_takes_the_count_back(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        return await task.run(slow)

    @gr.operation(effect=gr.Effect.SAFE)
    async def slow() -> str:
        await anyio.sleep(20)
        return "slept"

    async with database.runtime(agents(script), source=database.source(sweep=5.0)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(1)
        database.pass_lease()
        await anyio.sleep(15)
        status = await handle.status()
        assert status.condition is Condition.RUNNING
        assert await suspicions(database, "T1") == 0
        assert await handle.result() == "slept"
