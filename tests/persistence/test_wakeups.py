"""Wake-ups: hints of new mail, of what came due, of other processes' work; none is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from greenroom.persistence.callbacks import CreateCallback
from greenroom.persistence.tasks import TerminateTask
from greenroom.persistence.wakeups import Wakeup
from tests.persistence.stores import done, message, owner
from tests.persistence.tasks_help import POOL, owned

if TYPE_CHECKING:
    from tests.persistence.stores import Database

pytestmark = pytest.mark.real_time


async def test_new_mail_wakes_whoever_subscribed(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        with store.wakeups() as wakeups:
            await desk.send("m1")
            wakeup = await wakeups.wait()
            assert wakeup is not None
            assert wakeup.addresses == {"desk"}


async def test_wakeups_that_nobody_waits_for_are_kept_as_one(database: Database) -> None:
    async with database.open() as store:
        desk, counter = await owner(store), await owner(store, "counter")
        with store.wakeups() as wakeups:
            await desk.send("m1")
            await desk.send("m2")
            await counter.send("m1")
            wakeup = await wakeups.wait()
            assert wakeup is not None
            assert wakeup.addresses == {"desk", "counter"}


async def test_every_subscriber_is_woken(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        with store.wakeups() as one, store.wakeups() as other:
            await desk.send("m1")
            for subscription in (one, other):
                wakeup = await subscription.wait()
                assert wakeup is not None
                assert "desk" in wakeup.addresses


async def test_a_waiting_subscriber_can_be_cancelled_and_wait_again(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        with store.wakeups() as wakeups:
            with anyio.move_on_after(0.01):
                await wakeups.wait()
            await desk.send("m1")
            assert await wakeups.wait() is not None


async def test_a_closed_subscription_ends_its_wait(database: Database) -> None:
    async with database.open() as store:
        wakeups = store.wakeups()
        async with anyio.create_task_group() as group:
            group.start_soon(wakeups.wait)
            await anyio.lowlevel.checkpoint()
            wakeups.close()
            wakeups.close()
        assert await wakeups.wait() is None


async def test_the_end_of_the_store_ends_every_wait(database: Database) -> None:
    async with anyio.create_task_group() as group:
        async with database.open() as store:
            wakeups = store.wakeups()
            group.start_soon(wakeups.wait)
            await anyio.lowlevel.checkpoint()
        assert await wakeups.wait() is None


async def test_what_another_store_commits_is_noticed(database: Database) -> None:
    async with database.open() as here, database.open() as there:
        await owner(here)
        with here.wakeups() as wakeups:
            await done(there, message("desk", "m1"))
            wakeup = await wakeups.wait()
            assert wakeup is not None
            assert wakeup.elsewhere or "desk" in wakeup.addresses


async def test_delayed_mail_wakes_when_its_time_has_come(database: Database) -> None:
    async with database.open() as store:
        await owner(store)
        await done(store, message("desk", "later", deliver_at=database.time.at(60)))
        with store.wakeups() as wakeups:
            database.time.pass_time(61)
            wakeup = await wakeups.wait()
            assert wakeup == Wakeup(frozenset(), frozenset({"desk"}), elsewhere=False)


async def test_a_released_address_with_mail_wakes_whoever_may_claim_it(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await desk.send("m1")
        with store.wakeups() as wakeups:
            await done(store, desk.release())
            wakeup = await wakeups.wait()
            assert wakeup is not None
            assert wakeup.addresses == {"desk"}


async def test_a_released_address_whose_mail_is_delayed_wakes_nobody_before_its_time(database: Database) -> None:
    """Whoever claimed it at once would find nothing to do, and release it again."""
    async with database.open() as store:
        desk, counter = await owner(store), await owner(store, "counter")
        await done(store, message("desk", "later", deliver_at=database.time.at(60)))
        with store.wakeups() as wakeups:
            await done(store, desk.release())
            await counter.send("m1")
            wakeup = await wakeups.wait()
            assert wakeup is not None
            assert wakeup.addresses == {"counter"}


async def test_a_task_that_its_owner_has_ended_is_told_of_elsewhere_and_wakes_nobody_here(database: Database) -> None:
    async with database.open() as here, database.open() as there:
        counter, ended = await owner(here, "counter"), [await owned(here, name) for name in ("t1", "t2", "t3")]
        await ended[0].commit(0, waits=("a",))  # so that its end is one among those that are decided one by one
        with there.wakeups() as elsewhere:
            with here.wakeups() as wakeups:
                async with anyio.create_task_group() as group:
                    for task in ended:
                        group.start_soon(task.finish)
                await counter.send("m1")
                wakeup = await wakeups.wait()
                assert wakeup is not None
                assert wakeup.addresses == {"counter"}
            told = await elsewhere.wait()
            assert told is not None
            assert told.elsewhere


async def test_a_task_that_is_ended_by_somebody_else_wakes_its_owner(database: Database) -> None:
    async with database.open() as store:
        await owned(store, "t1")
        with store.wakeups() as wakeups:
            await done(store, TerminateTask(address="task:t1", pool=POOL, reason="enough", error=b"{}"))
            wakeup = await wakeups.wait()
            assert wakeup is not None
            assert "task:t1" in wakeup.addresses


async def test_the_end_of_a_task_with_callbacks_wakes_whoever_waits_for_their_answers(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store, "t1")
        await done(store, CreateCallback(**task.fence, callback_id="c1", secret_digest="d", name="paid"))
        with store.wakeups() as wakeups:
            await task.finish(callbacks=("c1",))
            wakeup = await wakeups.wait()
            assert wakeup is not None
            assert wakeup.addresses == {"task:t1"}
