"""The queues of pools: their order, their limits, who serves them; and what nothing moves (R7, R21, C26)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from greenroom.persistence.addresses import ParkReason
from greenroom.persistence.executions import EndExecution
from greenroom.persistence.ids import new_id
from greenroom.persistence.task_pools import ListTaskPools, ReadTaskPool, RegisterTaskPool, TaskPoolRecord
from greenroom.persistence.tasks import (
    ClaimedTask,
    IdleTask,
    Orphan,
    ParentPolicy,
    ParkTask,
    RunnableTasks,
    Submitted,
    TaskOutcome,
    TerminateTask,
    Watched,
    WatchTasks,
    Woken,
)
from greenroom.persistence.transitions import RefusalReason, Refused
from tests.persistence.stores import done, drive, message, refused, register
from tests.persistence.tasks_help import POOL, claim, claimed, open_pool, owned, submit, submitted, wake

if TYPE_CHECKING:
    from greenroom.persistence.store import Store
    from tests.persistence.stores import Database


async def queue(store: Store) -> list[str]:
    return [address.removeprefix("task:") for address in await store.read(RunnableTasks(pool=POOL))]


async def counted(store: Store) -> int:
    record = await store.read(ReadTaskPool(pool=POOL))
    assert record is not None
    return record.runnable


async def test_a_queue_is_in_the_order_of_priority_and_then_of_submission(database: Database) -> None:
    async with database.open() as store:
        for name, priority in (("c", 0), ("b", 1), ("a", 0), ("d", 1)):
            await submitted(store, name, priority=priority)
        assert await queue(store) == ["b", "d", "c", "a"]
        assert await store.read(RunnableTasks(pool=POOL, limit=2)) == ("task:b", "task:d")


async def test_groups_take_turns_however_much_one_of_them_submits(database: Database) -> None:
    async with database.open() as store:
        for number in range(4):
            await submitted(store, f"many{number}", group="many")
        await submitted(store, "few0", group="few")
        await submitted(store, "few1", group="few")
        assert await queue(store) == ["few0", "many0", "few1", "many1", "many2", "many3"]


async def test_a_group_that_comes_later_does_not_get_the_turns_that_it_has_missed(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1"))
        for number in range(4):
            await submitted(store, f"old{number}", group="old")
            await claimed(store, f"old{number}")
        for number in range(2):
            await submitted(store, f"new{number}", group="new")
            await submitted(store, f"old{number + 4}", group="old")
        assert await queue(store) == ["new0", "old4", "new1", "old5"]


async def test_a_group_that_comes_back_does_not_get_the_turns_that_it_has_missed(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1"))
        for name in ("back0", "old0", "old1", "old2"):
            await submitted(store, name, group=name[:-1])
            await claimed(store, name)
        for number in (3, 4):
            await submitted(store, f"old{number}", group="old")
            await submitted(store, f"back{number}", group="back")
        assert await queue(store) == ["back3", "old3", "back4", "old4"]


async def test_of_many_that_are_to_be_woken_at_once_each_that_cannot_be_is_told_why(database: Database) -> None:
    async with database.open() as store:
        tasks = {name: await owned(store, name) for name in ("due", "later", "ended", "owned", "parked", "also-due")}
        for name in ("due", "also-due"):
            await tasks[name].let_go(due_at=database.time.at(0))
        await tasks["later"].let_go(due_at=database.time.at(60))
        await tasks["ended"].finish()
        await done(store, ParkTask(**tasks["parked"].fence, reason=ParkReason.DIVERGED, detail="broken"))
        await submitted(store, "queued")
    driver = database.driver()
    names = ("due", "later", "ended", "owned", "parked", "queued", "nobody", "also-due")
    batches = [[wake(name) for name in names], [wake("due"), wake("also-due")]]

    async def main() -> list[object]:
        await driver.open()
        answers = [await driver.apply(new_id(), batch) for batch in batches]
        await driver.close()
        return [answer for applied in answers for answer in applied.answers]

    told = [
        answer.reason if isinstance(answer, Refused) else answer
        for answer in await anyio.to_thread.run_sync(drive, driver, main)
    ]
    pending, nobody = RefusalReason.NOT_PENDING, RefusalReason.UNKNOWN_ADDRESS
    assert told[:8] == [Woken(), pending, pending, pending, RefusalReason.PARKED, Woken(), nobody, Woken()]
    assert told[8:] == [Woken(), Woken()]  # they stand there already
    async with database.open() as store:
        assert await queue(store) == ["due", "also-due", "queued"]
        assert await counted(store) == 3


async def test_a_task_that_is_woken_goes_before_those_that_came_after_it(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store, "t1")
        await submitted(store, "t2")
        await task.let_go(due_at=database.time.at(0))
        await done(store, wake("t1"))
        assert await queue(store) == ["t1", "t2"]


async def test_c26_a_full_queue_refuses_with_the_seconds_after_which_to_try_again(database: Database) -> None:
    async with database.open() as store:
        await open_pool(store, queue_limit=2)
        await done(store, submit("t1"))
        await done(store, submit("t2"))
        answer = await store.commit(submit("t3"))
        assert isinstance(answer, Refused)
        assert (answer.reason, answer.seconds) == (RefusalReason.FULL, 1.0)
        assert await queue(store) == ["t1", "t2"]
        assert (await done(store, submit("t1"))).attempt == 1  # what was accepted is known again, full or not
        await done(store, submit("t4", not_before=database.time.at(5)))  # it does not stand in the queue
        await done(store, register("e1"))
        await claimed(store, "t1")
        await done(store, submit("t3"))


async def test_r07_the_queue_is_counted_on_the_pools_row_by_whatever_changes_it(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store, "t1")
        await submitted(store, "t2")
        assert await counted(store) == 1
        await task.let_go(due_at=database.time.at(0))
        assert await counted(store) == 1
        await done(store, wake("t1"))
        await done(store, wake("t1"))
        assert await counted(store) == 2
        await done(store, TerminateTask(address="task:t2", pool=POOL, reason="no", error=b""))
        assert await counted(store) == 1
        await (await claimed(store, "t1")).finish(TaskOutcome.SUCCEEDED)
        assert await counted(store) == 0


async def test_r07_many_that_submit_at_once_through_two_stores_do_not_pass_the_limit(database: Database) -> None:
    async with database.open() as first, database.open() as second:
        await open_pool(first, queue_limit=5)
        accepted: list[object] = []

        async def send(store: Store, name: str) -> None:
            answer = await store.commit(submit(name))
            if isinstance(answer, Submitted):
                accepted.append(answer)

        async with anyio.create_task_group() as group:
            for number in range(12):
                group.start_soon(send, first, f"a{number}")
                group.start_soon(send, second, f"b{number}")
        assert len(accepted) == 5
        assert await counted(first) == len(await queue(first)) == 5


async def test_k02_of_two_that_claim_a_task_at_once_one_gets_it(database: Database) -> None:
    async with database.open() as first, database.open() as second:
        for name in ("e1", "e2"):
            await done(first, register(name))
        for number in range(10):
            await submitted(first, f"t{number}")
        answers: dict[str, list[object]] = {}

        async def race(store: Store, execution_id: str) -> None:
            for number in range(10):
                answers.setdefault(f"t{number}", []).append(await store.commit(claim(f"t{number}", execution_id)))

        async with anyio.create_task_group() as group:
            group.start_soon(race, first, "e1")
            group.start_soon(race, second, "e2")
        for both in answers.values():
            (winner,) = (answer for answer in both if isinstance(answer, ClaimedTask))
            (loser,) = (answer for answer in both if isinstance(answer, Refused))
            assert winner.task.generation == 1
            assert loser.reason is RefusalReason.NOT_OWNER
        assert await counted(first) == 0


# --------------------------------------------------------------------------------------------------------------- pools


async def test_a_pool_is_known_with_its_limit_and_by_whom_it_is_served(database: Database) -> None:
    async with database.open() as store:
        assert await store.read(ReadTaskPool(pool=POOL)) is None
        for name in ("e1", "e2", "e3"):
            await done(store, register(name, lease=60.0 if name == "e2" else 30.0))
            await done(store, RegisterTaskPool(pool=POOL, queue_limit=9, execution_id=name))
        await done(store, RegisterTaskPool(pool="others", queue_limit=None))
        await submitted(store, "x", pool="others")
        await done(store, EndExecution(execution_id="e3"))

        def record(*served_by: str) -> TaskPoolRecord:
            return TaskPoolRecord(
                pool=POOL, queue_limit=9, runnable=0, registered_at=database.time.start, served_by=served_by
            )

        assert await store.read(ReadTaskPool(pool=POOL)) == record("e1", "e2")
        database.time.pass_time(31)
        others, reviewers = await store.read(ListTaskPools())
        assert reviewers == record("e2")
        assert (others.pool, others.queue_limit, others.runnable, others.served_by) == ("others", None, 1, ())


async def test_a_pool_that_is_registered_again_keeps_its_queue(database: Database) -> None:
    async with database.open() as store:
        await submitted(store, "t1")
        await open_pool(store, queue_limit=1)
        assert await counted(store) == 1
        assert await refused(store, submit("t2")) is RefusalReason.FULL


@pytest.mark.parametrize("wrong", [{"pool": ""}, {"pool": "a", "queue_limit": 0}])
def test_a_pool_of_tasks_has_a_name_and_room(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"pool|queue_limit"):
        RegisterTaskPool(**wrong)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ the watch


async def test_r21_tasks_that_wait_for_no_time_and_no_mail_are_found_with_what_they_wait_for(
    database: Database,
) -> None:
    async with database.open() as store:
        for name in ("idle", "timed", "told", "owned", "parked", "ended"):
            task = await owned(store, name)
            match name:
                case "idle":
                    await task.let_go(waits=("a signal",))
                case "timed":
                    await task.let_go(due_at=database.time.at(9))
                case "told":
                    await task.let_go()
                    await done(store, message(task.address, "m1"))
                case "parked":
                    await done(store, ParkTask(**task.fence, reason=ParkReason.DIVERGED, detail="here"))
                case "ended":
                    await task.finish()
        await submitted(store, "runnable")
        assert await store.read(WatchTasks()) == Watched(
            idle=(IdleTask("task:idle", ("a signal",)),), orphans=(), after=None
        )


async def test_i12_children_that_should_have_ended_with_their_parents_are_found(database: Database) -> None:
    async with database.open() as store:
        boss, gone = await owned(store, "boss"), await owned(store, "gone")
        for name, parent, policy in (
            ("stops", boss, ParentPolicy.STOP),
            ("stays", boss, ParentPolicy.DETACH),
            ("works", gone, ParentPolicy.STOP),
        ):
            await submitted(store, name, parent=parent.address, parent_policy=policy)
        await boss.finish()
        found = await store.read(WatchTasks())
        assert found.orphans == (Orphan("task:stops", POOL),)


async def test_watching_goes_page_by_page(database: Database) -> None:
    async with database.open() as store:
        for number in range(5):
            await (await owned(store, f"t{number}")).let_go()
        pages = []
        after: str | None = ""
        while after is not None:
            page = await store.read(WatchTasks(after=after, limit=2))
            pages.append([idle.address for idle in page.idle])
            after = page.after
        assert pages == [["task:t0", "task:t1"], ["task:t2", "task:t3"], ["task:t4"]]
