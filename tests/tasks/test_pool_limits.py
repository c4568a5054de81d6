"""What holds a pool back: its places, its queue, groups, rates, and how much one task does at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

import greenroom as gr
from greenroom.persistence.tasks import Condition
from tests.tasks.scripts import POOL, Calls, Job, Steer, agents

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


class Gauge:
    """An operation that takes its time, and how many of it run at once."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.now = self.most = 0
        self.order: list[str] = []

        @gr.operation(effect=gr.Effect.SAFE)
        async def work(text: str) -> str:
            self.order.append(text)
            self.now += 1
            self.most = max(self.most, self.now)
            await anyio.sleep(seconds)
            self.now -= 1
            return text

        self.work = work

    async def script(self, task: gr.Task, job: Job) -> str:
        return await task.run(self.work, job.text)


async def results(handles: list[gr.TaskHandle[Any]]) -> list[Any]:
    return [await handle.result() for handle in handles]


@pytest.mark.parametrize(
    "wrong",
    [
        {"per_group": 0},
        {"parallel": 1.5},
        {"rate": 3},
        {"rate": (0, 1.0)},
        {"rate": (1, 0.0)},
        {"rate": (1, 2, 3)},
        {"journal_limit": 0},
        {"queue_limit": 0},
        {"max_resident": True},
    ],
    ids=repr,
)
def test_limits_that_are_none_are_refused_when_the_pool_is_specified(wrong: dict[str, Any]) -> None:
    with pytest.raises(gr.BadSpec, match=next(iter(wrong))):
        agents(Gauge().script, **wrong)


async def test_tasks_of_one_group_run_one_after_the_other_and_others_beside_them(database: Shared) -> None:
    gauge = Gauge()
    async with database.runtime(agents(gauge.script, per_group=1)) as runtime:
        handles = [
            await runtime.submit(POOL, Job(f"{group}{number}"), group=group) for number in range(3) for group in "ab"
        ]
        assert sorted(await results(handles)) == ["a0", "a1", "a2", "b0", "b1", "b2"]
        assert gauge.most == 2
        assert [text for text in gauge.order if text[0] == "a"] == ["a0", "a1", "a2"]
        assert anyio.current_time() == pytest.approx(3.0, abs=0.2)


async def test_a_groups_places_hold_for_all_processes_together(database: Shared) -> None:
    gauge = Gauge()
    async with (
        database.runtime(agents(gauge.script, per_group=2)) as one,
        database.runtime(agents(gauge.script, per_group=2)) as other,
    ):
        handles = [await (one, other)[n % 2].submit(POOL, Job(str(n)), group="g") for n in range(8)]
        await results(handles)
        assert gauge.most == 2


async def test_a_task_that_waits_lets_others_of_its_group_run(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        if job.text == "first":
            steer = await task.receive(Steer, timeout=None)
            return steer.text
        return await task.run(note, job.text)

    async with database.runtime(agents(script, per_group=1)) as runtime:
        first = await runtime.submit(POOL, Job("first"), group="g")
        await anyio.sleep(1)
        assert (await first.status()).condition is Condition.WAITING
        assert await (await runtime.submit(POOL, Job("second"), group="g")).result() == "SECOND"
        await first.signal(Steer("on"))
        assert await first.result() == "on"


async def test_no_more_tasks_begin_in_a_period_than_the_rate_says_in_all_processes(database: Shared) -> None:
    began: list[float] = []

    async def script(task: gr.Task, job: Job) -> None:
        began.append(anyio.current_time())

    options: dict[str, Any] = {"rate": (3, 10.0), "max_running": 20}
    async with (
        database.runtime(agents(script, **options)) as one,
        database.runtime(agents(script, **options)) as other,
    ):
        await results([await (one, other)[n % 2].submit(POOL, Job(str(n))) for n in range(10)])
    assert len(began) == 10
    assert all(later - earlier >= 10.0 for earlier, later in zip(began, began[3:], strict=False))
    assert began[-1] < 35


async def test_a_rate_does_not_hold_back_what_has_begun(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> float:
        await task.sleep(5)
        return anyio.current_time()

    async with database.runtime(agents(script, rate=(1, 1000.0), max_resident=1)) as runtime:
        first = await runtime.submit(POOL, Job("1"))
        second = await runtime.submit(POOL, Job("2"))
        # Which of them begins is not said: they are claimed at once, and a loop may run either first.
        ends = sorted([await first.result(), await second.result()])
        assert ends == [pytest.approx(5.0, abs=0.5), pytest.approx(1005.0, abs=1.0)]


async def test_only_so_many_operations_of_one_task_are_in_flight_at_once(database: Shared) -> None:
    gauge = Gauge()

    async def script(task: gr.Task, job: Job) -> list[str]:
        async with task.nursery() as branches:
            parts = [branches.start_soon(task.run, gauge.work, str(n)) for n in range(7)]
        return [part.result for part in parts]

    async with database.runtime(agents(script, parallel=3)) as runtime:
        assert await (await runtime.submit(POOL, Job())).result() == [str(n) for n in range(7)]
        assert gauge.most == 3
        assert anyio.current_time() == pytest.approx(3.0, abs=0.2)


async def test_operations_that_wait_for_their_turn_are_cancelled_without_being_sent(database: Shared) -> None:
    gauge = Gauge(seconds=10.0)

    async def script(task: gr.Task, job: Job) -> str:
        with task.move_on_after(5):
            async with task.nursery() as branches:
                for number in range(4):
                    branches.start_soon(task.run, gauge.work, str(number))
        return "left"

    async with database.runtime(agents(script, parallel=1)) as runtime:
        assert await (await runtime.submit(POOL, Job())).result() == "left"
        assert gauge.order == ["0"]


async def test_c26_under_twice_the_load_the_queue_keeps_its_limit_and_the_rest_is_refused(database: Shared) -> None:
    gauge = Gauge()
    depths: list[int] = []
    refused: list[gr.PoolFull] = []
    accepted = []
    async with database.runtime(agents(gauge.script, max_running=2, queue_limit=4)) as runtime:
        for number in range(120):  # four a second; two a second are performed
            try:
                accepted.append(await runtime.submit(POOL, Job(str(number))))
            except gr.PoolFull as full:
                refused.append(full)
            await anyio.sleep(0.25)
            depths.append(len(accepted) - len(gauge.order))
        await results(accepted)
    assert max(depths) <= 4
    assert len(accepted) + len(refused) == 120
    assert len(refused) > 40
    assert all(full.retry_after > 0 for full in refused)


async def test_groups_take_turns_in_being_performed_however_much_one_submits(database: Shared) -> None:
    gauge = Gauge()
    async with database.runtime(agents(gauge.script, max_running=1)) as runtime:
        handles = [await runtime.submit(POOL, Job(f"many{n}"), group="many") for n in range(6)]
        handles += [await runtime.submit(POOL, Job(f"few{n}"), group="few") for n in range(2)]
        await results(handles)
    place = {text: number for number, text in enumerate(gauge.order)}
    assert place["few0"] < place["many3"]
    assert place["few1"] < place["many4"]


async def test_higher_priorities_are_performed_first(database: Shared) -> None:
    gauge = Gauge()
    async with database.runtime(agents(gauge.script, max_running=1)) as runtime:
        handles = [await runtime.submit(POOL, Job("first"))]
        await anyio.sleep(0.1)
        handles += [await runtime.submit(POOL, Job(str(n)), priority=n) for n in (0, 2, 1)]
        await results(handles)
    assert gauge.order == ["first", "2", "1", "0"]
