"""Limits of a pool that hold for all processes: places of a group, and how many begin in a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from greenroom.persistence.addresses import ParkReason, UnparkAddress
from greenroom.persistence.executions import EndExecution, ReleaseLost
from greenroom.persistence.task_pools import ReadTaskPool, RegisterTaskPool
from greenroom.persistence.tasks import (
    NewAttempt,
    ParkTask,
    QuarantineTask,
    RunnableTasks,
    TaskOutcome,
    TerminateTask,
)
from greenroom.persistence.transitions import RefusalReason, Refused
from tests.persistence.stores import done, refused, register
from tests.persistence.tasks_help import POOL, claim, claimed, read, submit, wake

if TYPE_CHECKING:
    from greenroom.persistence.store import Store
    from tests.persistence.stores import Database


async def limited(store: Store, *names: str, **limits: object) -> None:
    """A pool with limits, with these tasks; an execution that may claim them. A name's first letter is its group."""
    await store.commit(register("e1"))
    await done(store, RegisterTaskPool(pool=POOL, **limits))  # type: ignore[arg-type]
    for name in names:
        await done(store, submit(name, group=name[0]))


async def full(store: Store, task_id: str) -> float | None:
    """That a claim finds no room, and for how long."""
    answer = await store.commit(claim(task_id))
    assert isinstance(answer, Refused), answer
    assert answer.reason is RefusalReason.FULL
    return answer.seconds


async def free(store: Store, **options: object) -> list[str]:
    """What stands in the queue, without what a group's places hold back."""
    found = await store.read(RunnableTasks(pool=POOL, per_group=1, **options))  # type: ignore[arg-type]
    return [address.removeprefix("task:") for address in found]


async def test_only_so_many_tasks_of_one_group_have_a_place(database: Database) -> None:
    async with database.open() as store:
        await limited(store, "a1", "a2", "b1", per_group=1)
        await claimed(store, "a1")
        assert await full(store, "a2") is None
        await claimed(store, "b1")


async def test_a_queue_is_read_without_what_its_groups_places_hold_back(database: Database) -> None:
    async with database.open() as store:
        await limited(store, "a1", "a2", "b1", per_group=1)
        assert await free(store) == ["a1", "b1"]
        assert await free(store, limit=1) == ["a1"]
        await claimed(store, "a1")
        assert await free(store) == ["b1"]
        assert await store.read(RunnableTasks(pool=POOL)) == ("task:b1", "task:a2")


async def test_a_queue_is_read_as_far_as_it_takes_to_find_groups_that_have_places(database: Database) -> None:
    async with database.open() as store:
        await limited(store, *(f"a{n:02}" for n in range(40)), per_group=1)
        await done(store, submit("b1", group="b", priority=-1))
        assert await free(store, limit=2) == ["a00", "b1"]


@pytest.mark.parametrize("how", ["waits", "ends", "is parked", "is terminated", "is lost", "was its execution's"])
async def test_a_place_is_free_again_when_its_task(how: str, database: Database) -> None:
    async with database.open() as store:
        await limited(store, "a1", "a2", per_group=1)
        task = await claimed(store, "a1")
        await full(store, "a2")
        with store.wakeups() as wakeups:
            if how == "waits":
                await task.let_go()
            elif how == "ends":
                await task.finish(TaskOutcome.SUCCEEDED)
            elif how == "is parked":
                await done(store, ParkTask(**task.fence, reason=ParkReason.DIVERGED, detail="d"))
            elif how == "is terminated":
                await done(store, TerminateTask(address=task.address, pool=POOL, reason="no", error=b""))
            elif how == "was its execution's":
                await done(store, EndExecution(execution_id="e1"))
            else:
                database.time.pass_time(31)
                await done(store, ReleaseLost(execution_id="e1"))
            woken: set[str] = set()
            while POOL not in woken:
                wakeup = await wakeups.wait()
                assert wakeup is not None
                woken |= wakeup.addresses
        await store.commit(register("e2"))
        await claimed(store, "a2", execution_id="e2")


async def test_a_task_that_is_taken_over_keeps_its_place(database: Database) -> None:
    async with database.open() as store:
        await limited(store, "a1", "a2", per_group=1)
        await claimed(store, "a1")
        database.time.pass_time(31)
        await done(store, register("e2"))
        await claimed(store, "a1", execution_id="e2")
        assert isinstance(await store.commit(claim("a2", "e2")), Refused)


async def test_a_woken_task_waits_for_a_place_among_its_group(database: Database) -> None:
    async with database.open() as store:
        await limited(store, "a1", "a2", per_group=1)
        first = await claimed(store, "a1")
        await first.let_go(due_at=database.time.at(0))
        second = await claimed(store, "a2")
        await done(store, wake("a1"))
        await full(store, "a1")
        await second.finish()
        await claimed(store, "a1")


@pytest.mark.parametrize("limits", [{"per_group": 3}, {"rate": (3, 60.0)}], ids=["per_group", "rate"])
async def test_r07_many_that_claim_at_once_through_two_stores_do_not_pass_the_limit(
    database: Database, limits: dict[str, Any]
) -> None:
    async with database.open() as one, database.open() as other:
        names = [f"a{n}" for n in range(12)]
        await limited(one, *names, **limits)
        taken: list[str] = []

        async def take(store: Store, name: str) -> None:
            if not isinstance(await store.commit(claim(name)), Refused):
                taken.append(name)

        async with anyio.create_task_group() as group:
            for number, name in enumerate(names):
                group.start_soon(take, (one, other)[number % 2], name)
        assert len(taken) == 3


async def test_only_so_many_attempts_begin_within_any_so_many_seconds(database: Database) -> None:
    async with database.open() as store:
        await limited(store, "a1", "a2", "a3", "a4", rate=(2, 10.0))
        await claimed(store, "a1")
        database.time.pass_time(4)
        await claimed(store, "a2")
        assert await full(store, "a3") == 6.0
        database.time.pass_time(6)
        await claimed(store, "a3")
        assert await full(store, "a4") == 4.0
        database.time.pass_time(4)
        await claimed(store, "a4")


async def test_going_on_with_a_task_is_no_beginning_and_another_attempt_is_one(database: Database) -> None:
    async with database.open() as store:
        await limited(store, "a1", "a2", rate=(1, 10.0))
        task = await claimed(store, "a1")
        await task.let_go(due_at=database.time.at(0))
        await done(store, wake("a1"))
        assert await free(store, begun=True) == ["a1"]
        await (await claimed(store, "a1")).finish()
        await done(store, NewAttempt(address=task.address, seed=b"s", reason="again"))
        assert await full(store, "a1") == 10.0


async def test_registering_again_replaces_a_pools_limits(database: Database) -> None:
    async with database.open() as store:
        await limited(store, "a1", "a2", per_group=1, rate=(1, 60.0))
        record = await store.read(ReadTaskPool(pool=POOL))
        assert record is not None
        assert (record.per_group, record.rate) == (1, (1, 60.0))
        await claimed(store, "a1")
        await full(store, "a2")
        await limited(store)
        await claimed(store, "a2")


async def test_a_task_that_cannot_be_read_is_taken_out_of_its_queue_and_runs_again_when_an_operator_says_so(
    database: Database,
) -> None:
    async with database.open() as store:
        await limited(store, "a1", "a2")
        quarantine = QuarantineTask(address="task:a1", pool=POOL, detail="it is broken")
        await done(store, quarantine)
        task = await read(store, "a1")
        assert (task.parked, task.parked_detail) == (ParkReason.UNDECODABLE, "it is broken")
        assert await store.read(RunnableTasks(pool=POOL)) == ("task:a2",)
        assert await refused(store, claim("a1")) is RefusalReason.PARKED
        assert await refused(store, quarantine) is RefusalReason.NOT_PENDING
        await done(store, UnparkAddress(address="task:a1"))
        await claimed(store, "a1")
