"""Schedules in a running tree: a task for each moment, once, however many processes look at the clock."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import anyio
import pytest

import greenroom as gr
from greenroom.persistence.tasks import ListTasks
from greenroom.runtime.tasks import moments
from tests.durable.helpers import events_of, until
from tests.tasks.scripts import POOL, Job, agents, patient

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


class Desk:
    """A pool that notes what it is asked for, and when; each task takes its seconds."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seen: list[tuple[str, float]] = []

        @gr.operation(effect=gr.Effect.SAFE)
        async def work() -> None:
            await anyio.sleep(seconds)

        self.work = work

    async def script(self, task: gr.Task, job: Job) -> None:
        self.seen.append((task.id, anyio.current_time()))
        await task.run(self.work)

    @property
    def times(self) -> list[int]:
        return [round(when) for _, when in self.seen]

    def tree(self, **options: Any) -> tuple[gr.Agents[Any, Any], gr.Schedule]:
        return agents(self.script), gr.Schedule("tick", POOL, Job("a"), **{"every": 60.0, **options})


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"cron": "0 3 * * *", "every": 5.0},
        {"every": 0.0},
        {"every": 60.0, "time_zone": "Europe/Berlin"},
        {"cron": "0 3 * *"},
        {"cron": "0 0 30 2 *"},
        {"cron": "0 3 * * *", "time_zone": "Europe/Nowhere"},
        {"cron": "0 3 * * *", "time_zone": "../../etc/passwd"},
        {"every": 1.0, "overlap": "wait"},
        {"every": 1.0, "catch_up": 0.0},
        {"every": 1.0, "catch_up": float("inf")},
        {"every": 1e300},
        {"every": 1.0, "deadline": -1.0},
    ],
    ids=repr,
)
def test_a_schedule_that_cannot_be_is_refused_when_it_is_specified(wrong: dict[str, Any]) -> None:
    with pytest.raises(gr.BadSpec, match="schedule 'tick'"):
        gr.Schedule("tick", POOL, Job(), **wrong)


def test_a_schedule_needs_a_store() -> None:
    with pytest.raises(gr.BadSpec, match="service/tick"):
        gr.Runtime(gr.Supervisor("service", gr.Schedule("tick", POOL, Job(), every=1.0)))


async def test_a_task_is_submitted_at_each_moment_under_an_identity_that_says_which(database: Shared) -> None:
    desk = Desk()
    async with database.runtime(*desk.tree()) as runtime:
        await anyio.sleep(200)
        assert len(desk.seen) == 3
        for task_id, _ in desk.seen:
            path, _, moment = task_id.partition("@")
            assert path == "service/tick"
            assert datetime.fromisoformat(moment).timestamp() % 60 == 0
            assert (await runtime.task(task_id).status()).pool == POOL


async def test_a_moment_has_one_task_for_any_number_of_processes(database: Shared) -> None:
    desk = Desk()
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(database.runtime(*desk.tree()))
        await anyio.sleep(305)
    ids = [task_id for task_id, _ in desk.seen]
    assert len(ids) == len(set(ids)) == 5


async def test_a_request_may_be_made_of_its_moment_and_a_deadline_counts_from_there(database: Shared) -> None:
    made: list[datetime] = []

    def job(moment: datetime) -> Job:
        made.append(moment)
        return Job(moment.isoformat())

    async def script(task: gr.Task, request: Job) -> str:
        assert task.deadline is not None
        return f"{request.text} {(task.deadline - datetime.fromisoformat(request.text)).total_seconds():g}"

    pool = agents(script)
    async with database.runtime(pool, gr.Schedule("tick", pool, job, every=60.0, deadline=90.0)) as runtime:
        await anyio.sleep(61)
        moment = made[0]
        assert moment.tzinfo is UTC
        handle = runtime.task(f"service/tick@{moment.isoformat().replace('+00:00', 'Z')}")
        assert await handle.result() == f"{moment.isoformat()} 90"


async def test_moments_pass_while_the_last_task_has_not_ended_and_that_is_told(database: Shared) -> None:
    desk = Desk(seconds=150.0)
    async with database.runtime(*desk.tree()) as runtime:
        events = runtime.events()
        await anyio.sleep(250)
        skipped = events_of(gr.MomentSkipped, events)
        assert [event.why for event in skipped] == ["overlap", "overlap"]
        assert {event.path for event in skipped} == {"service/tick"}
    assert len(desk.seen) == 2


async def test_tasks_overlap_when_that_is_allowed(database: Shared) -> None:
    desk = Desk(seconds=150.0)
    async with database.runtime(*desk.tree(overlap="allow")):
        await anyio.sleep(250)
    assert len(desk.seen) == 4


async def test_a_new_schedule_makes_up_for_nothing_that_was_before_it(database: Shared) -> None:
    desk = Desk()
    database.time.pass_time(100_000)
    async with database.runtime(*desk.tree(catch_up=1e6)):
        await anyio.sleep(61)
    assert len(desk.seen) == 1


async def test_moments_that_nobody_saw_to_are_made_up_for_within_catch_up_and_older_ones_are_left_out(
    database: Shared,
) -> None:
    desk = Desk()
    tree = desk.tree(overlap="allow", catch_up=200.0)
    async with database.runtime(*tree):
        await anyio.sleep(61)
        assert len(desk.seen) == 1
    await anyio.sleep(600)  # nothing runs
    desk.seen.clear()
    runtime = database.runtime(*tree)
    events = runtime.events()
    async with runtime:
        await anyio.sleep(1)
        assert 3 <= len(desk.seen) <= 4
        assert [event.why for event in events_of(gr.MomentSkipped, events)] == ["missed"]


async def test_a_moment_waits_while_the_pools_queue_is_full(database: Shared) -> None:
    desk = Desk(seconds=10.0)
    pool = agents(desk.script, max_running=1, queue_limit=1)
    async with database.runtime(pool, gr.Schedule("tick", POOL, Job("s"), every=60.0)) as runtime:
        await anyio.sleep(59 - anyio.current_time() % 60)
        for number in range(2):
            await runtime.submit(POOL, Job(str(number)))
            await anyio.sleep(0.1)
        await anyio.sleep(40)
    assert sum(task_id.startswith("service/tick@") for task_id, _ in desk.seen) == 1


async def test_a_schedule_waits_for_a_pool_that_nobody_has_run_yet(database: Shared) -> None:
    desk = Desk()
    async with database.runtime(gr.Schedule("tick", POOL, Job(), every=60.0)):
        await anyio.sleep(61)
        async with database.runtime(agents(desk.script)):
            await anyio.sleep(20)
            await until(lambda: len(desk.seen) == 1)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_moment_has_its_task_once_though_a_process_dies_over_it(when: str, database: Shared) -> None:
    desk = Desk()
    async with (
        database.death_at(f"{when} PassMoment service/tick") as source,
        database.runtime(*desk.tree(catch_up=1e6), source=source),
    ):
        await anyio.sleep(70)
    desk.seen.clear()
    async with database.runtime(*desk.tree(catch_up=1e6, overlap="allow")):
        await anyio.sleep(1)
        async with database.open() as store:
            ids = [task.task_id for task in await store.read(ListTasks(limit=1000))]
    assert len(ids) == len(set(ids))
    assert len([task_id for task_id, _ in desk.seen]) == len({task_id for task_id, _ in desk.seen})
    assert ids


async def test_c07_a_year_of_nights_is_a_task_each_night_at_three_by_the_clocks_of_a_place(database: Shared) -> None:
    seen: list[datetime] = []

    async def script(task: gr.Task, job: Job) -> None:
        seen.append(datetime.fromisoformat(task.id.partition("@")[2]))

    schedule = gr.Schedule("nightly", POOL, Job(), cron="0 3 * * *", time_zone="Europe/Berlin")
    async with database.runtime(agents(script), schedule, source=patient(database)):
        await anyio.sleep(40 * 86400)
    assert len(seen) == 40
    assert {moment.minute for moment in seen} == {0}
    assert {moment.hour for moment in seen} <= {1, 2}


async def test_a_client_lists_schedules_with_their_rules_their_last_tasks_and_their_next_moments(
    database: Shared,
) -> None:
    pool, tick = Desk().tree(catch_up=200.0)
    nightly = gr.Schedule(
        "nightly", pool, lambda _: Job(), cron="0 3 * * *", time_zone="Europe/Berlin", overlap="allow"
    )
    async with database.runtime(pool, tick, nightly), database.client() as client:
        await anyio.sleep(61)
        first, second = [schedule async for schedule in client.schedules()]
        assert (first.path, first.pool, first.request_type) == ("service/nightly", POOL, None)
        assert (first.cron, first.time_zone, first.every) == ("0 3 * * *", "Europe/Berlin", None)
        assert (first.overlap, first.catch_up, first.last_task) == (True, 3600.0, None)
        assert first.next_moment is not None
        assert first.next_moment.astimezone(ZoneInfo("Europe/Berlin")).hour == 3
        assert (second.path, second.pool, second.request_type) == ("service/tick", POOL, "tests.tasks.scripts:Job")
        assert (second.cron, second.time_zone, second.every) == (None, None, 60.0)
        assert (second.overlap, second.catch_up, second.overdue) == (False, 200.0, 0.0)
        assert second.last_task == f"service/tick@{second.settled_to.isoformat().replace('+00:00', 'Z')}"
        assert second.next_moment == second.settled_to + timedelta(seconds=60)
        assert [each async for each in client.schedules(after="service/nightly")] == [second]


async def test_a_schedule_that_nobody_runs_is_overdue(database: Shared) -> None:
    async with database.runtime(*Desk().tree()):
        await anyio.sleep(1)
    await anyio.sleep(600)
    async with database.client() as client:
        (schedule,) = [schedule async for schedule in client.schedules()]
    assert 540 <= schedule.overdue <= 601


async def test_the_next_moment_of_a_rule_that_cannot_be_told_here_is_none(
    database: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = agents(Desk().script)
    async with (
        database.runtime(pool, gr.Schedule("nightly", pool, Job(), cron="0 3 * * *")),
        database.client() as client,
    ):
        await anyio.sleep(1)
        monkeypatch.setattr(moments, "find_spec", lambda _: None)
        (schedule,) = [schedule async for schedule in client.schedules()]
        assert (schedule.cron, schedule.next_moment, schedule.overdue) == ("0 3 * * *", None, 0.0)


async def test_a_schedule_whose_request_cannot_be_stored_does_not_start(database: Shared) -> None:
    with pytest.raises(gr.StartFailed, match="object"):
        async with database.runtime(agents(Desk().script), gr.Schedule("tick", POOL, object(), every=60.0)):
            pass


async def test_a_schedule_that_only_an_older_release_has_started_is_listed_without_its_rule(database: Shared) -> None:
    async with database.runtime(*Desk().tree()):
        await anyio.sleep(61)
    await database.change("UPDATE schedules SET pool = NULL, period = NULL, overlap = NULL, catch_up = NULL")
    async with database.client() as client:
        (schedule,) = [schedule async for schedule in client.schedules()]
    assert (schedule.path, schedule.pool, schedule.every, schedule.next_moment) == ("service/tick", None, None, None)
    assert schedule.last_task is not None
