"""Schedules in the store: each moment is settled once, whoever comes with it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import anyio

from greenroom.persistence.schedules import (
    ListSchedules,
    MomentEnd,
    MomentPassed,
    PassMoment,
    RegisterSchedule,
    SchedulePlan,
)
from greenroom.persistence.task_pools import RegisterTaskPool
from greenroom.persistence.tasks import ReadTask
from greenroom.persistence.transitions import RefusalReason, Refused
from tests.persistence.stores import done, refused, register
from tests.persistence.tasks_help import POOL, claimed, new, open_pool, submit

if TYPE_CHECKING:
    from greenroom.persistence.store import Store
    from tests.persistence.stores import Database

PLAN = SchedulePlan(pool=POOL, request_type="m:R", every=60.0, catch_up=3600.0)


async def ready(store: Store) -> None:
    await done(store, register("e1"))
    await open_pool(store)
    await done(store, RegisterSchedule(schedule="s", plan=PLAN))


def at(database: Database, seconds: float, task_id: str | None = None, *, overlap: bool = False) -> PassMoment:
    task = None if task_id is None else new(task_id)
    return PassMoment(schedule="s", moment=database.time.at(seconds), task=task, overlap=overlap)


async def test_a_schedule_begins_when_it_becomes_known_and_goes_on_from_where_it_is(database: Database) -> None:
    async with database.open() as store:
        begun = (await done(store, RegisterSchedule(schedule="s", plan=PLAN))).passed_at
        assert begun == database.time.at(0)
        passed = await done(store, at(database, 5))
        database.time.pass_time(60)
        assert (await done(store, RegisterSchedule(schedule="s", plan=PLAN))).passed_at == passed.passed_at


async def test_a_moment_has_its_task_once(database: Database) -> None:
    async with database.open() as store:
        await ready(store)
        first = await done(store, at(database, 5, "t1"))
        assert first == MomentPassed(MomentEnd.SUBMITTED, database.time.at(5))
        assert (await done(store, at(database, 5, "t1"))).end is MomentEnd.SETTLED
        assert (await done(store, at(database, 4, "t0"))).end is MomentEnd.SETTLED
        assert await store.read(ReadTask(address="task:t0")) is None


async def test_many_that_come_with_one_moment_through_two_stores_make_one_task(database: Database) -> None:
    async with database.open() as one, database.open() as other:
        await ready(one)
        ends: list[MomentEnd] = []

        async def come(store: Store) -> None:
            ends.append((await done(store, at(database, 5, "t1"))).end)

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(come, (one, other)[number % 2])
        assert sorted(end.value for end in ends) == ["settled"] * 7 + ["submitted"]


async def test_a_moment_passes_without_a_task_while_the_last_one_has_not_ended_unless_overlap_is_allowed(
    database: Database,
) -> None:
    async with database.open() as store:
        await ready(store)
        await done(store, at(database, 1, "t1"))
        assert (await done(store, at(database, 2, "t2"))).end is MomentEnd.OVERLAP
        assert (await done(store, at(database, 3, "t3", overlap=True))).end is MomentEnd.SUBMITTED
        await (await claimed(store, "t1")).finish()
        assert (await done(store, at(database, 4, "t4"))).end is MomentEnd.OVERLAP  # t3 is the last
        await (await claimed(store, "t3")).finish()
        assert (await done(store, at(database, 5, "t5"))).end is MomentEnd.SUBMITTED


async def test_a_moment_stays_open_while_its_pool_is_unknown_or_full(database: Database) -> None:
    async with database.open() as store:
        await done(store, RegisterSchedule(schedule="s", plan=PLAN))
        assert await refused(store, at(database, 1, "t1")) is RefusalReason.UNKNOWN_POOL
        await done(store, RegisterTaskPool(pool=POOL, queue_limit=1))
        await done(store, submit("other"))
        answer = await store.commit(at(database, 1, "t1"))
        assert isinstance(answer, Refused)
        assert (answer.reason, answer.seconds) == (RefusalReason.FULL, 1.0)
        await done(store, register("e1"))
        await claimed(store, "other")
        assert (await done(store, at(database, 1, "t1"))).end is MomentEnd.SUBMITTED


async def test_a_moment_that_is_let_pass_settles_those_before_it(database: Database) -> None:
    async with database.open() as store:
        await ready(store)
        assert (await done(store, at(database, 60))).end is MomentEnd.MISSED
        answer = await done(store, at(database, 59, "t1"))
        assert answer == MomentPassed(MomentEnd.SETTLED, database.time.at(60))


async def test_another_request_under_the_identity_of_a_moments_task_settles_the_moment(database: Database) -> None:
    async with database.open() as store:
        await ready(store)
        await done(store, submit("t1", b"another"))
        assert (await done(store, at(database, 1, "t1"))).end is MomentEnd.CONFLICT
        assert (await done(store, at(database, 1, "t1"))).end is MomentEnd.SETTLED


async def test_a_task_that_is_there_already_is_that_of_its_moment(database: Database) -> None:
    async with database.open() as store:
        await ready(store)
        await done(store, submit("t1"))
        assert (await done(store, at(database, 1, "t1"))).end is MomentEnd.SUBMITTED
        assert (await done(store, at(database, 2, "t2"))).end is MomentEnd.OVERLAP


async def test_schedules_do_not_know_of_each_other(database: Database) -> None:
    async with database.open() as store:
        await ready(store)
        await done(store, RegisterSchedule(schedule="other", plan=PLAN))
        await done(store, at(database, 5, "t1"))
        item = PassMoment(schedule="other", moment=database.time.at(5) - timedelta(seconds=1), task=new("t2"))
        assert (await done(store, item)).end is MomentEnd.SUBMITTED


async def test_schedules_are_listed_by_name_with_how_far_they_have_come_and_the_plan_they_were_started_with_last(
    database: Database,
) -> None:
    async with database.open() as store:
        await ready(store)
        begun = database.time.at(0)
        nightly = SchedulePlan(pool="elsewhere", cron="0 3 * * *", time_zone="Asia/Tokyo", overlap=True, catch_up=0.25)
        await done(store, RegisterSchedule(schedule="nightly", plan=PLAN))
        await done(store, at(database, 5, "t1"))
        passed = await done(store, at(database, 60))
        database.time.pass_time(7)
        await done(store, RegisterSchedule(schedule="nightly", plan=nightly))
        first, second = await store.read(ListSchedules())
        assert (first.schedule, first.plan, first.last_task) == ("nightly", nightly, None)
        assert (first.passed_at, first.registered_at, first.at) == (begun, begun, database.time.at(0))
        assert (second.schedule, second.plan, second.last_task) == ("s", PLAN, "t1")
        assert second.passed_at == passed.passed_at
        assert await store.read(ListSchedules(limit=1)) == (first,)
        assert await store.read(ListSchedules(after="nightly")) == (second,)
