"""Retention of tasks (R32): with all that belongs to them, and never before everything is settled."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from attrs import evolve

from greenroom.persistence.addresses import ReadAddress
from greenroom.persistence.applying.retention import NAMING
from greenroom.persistence.callbacks import AnswerCallback, CreateCallback, ReadCallback
from greenroom.persistence.content import PutContent, ReadContent
from greenroom.persistence.journal import ContinueAs
from greenroom.persistence.messages import Disposition
from greenroom.persistence.operations import DecideOperation, Decision
from greenroom.persistence.outbox import FlushHeld
from greenroom.persistence.retention import Prunable, Prune, Pruned, prune
from greenroom.persistence.schema.migrations import MIGRATIONS, sql_of
from greenroom.persistence.tasks import NewAttempt, ReadTask, Submission, TaskOutcome, TerminateTask
from greenroom.persistence.transitions import RefusalReason, Refused
from tests.persistence.stores import done, message, outgoing, owner
from tests.persistence.tasks_help import POOL, claimed, intent, outcome, owned, sent, signal, submit, wake

if TYPE_CHECKING:
    from greenroom.persistence.store import Store
    from tests.persistence.stores import Database

MONTH = timedelta(days=30)
LONG = 31 * 86400.0
LEASE = 1e9


async def pruned(store: Store) -> int:
    return (await prune(store))[Prunable.TASKS]


async def test_r32_terminal_tasks_are_forgotten_after_their_time_with_all_that_belongs_to_them(
    database: Database,
) -> None:
    async with database.open() as store:
        task = await owned(store, lease=LEASE)
        before = database.tables()
        del before["tasks"], before["addresses"]
        at = database.time.at(0)
        await done(store, message(task.address, "m1"))
        callback = CreateCallback(**task.fence, callback_id="c1", secret_digest="s", name="n")
        await done(store, callback)
        await done(store, AnswerCallback(callback_id="c1", secret_digest="s", answer=b"yes", digest="d"))
        await task.commit(
            0, signal(1, at, "m1"), consumed_seq=1, intents=(intent("root#1"),), dispatches=(sent("root#1"),)
        )
        await task.commit(
            1, outcome(2, at, call="root#1", version=1), continue_as=ContinueAs(request=b"2", request_type="N")
        )
        await task.finish(TaskOutcome.FAILED)
        await done(store, NewAttempt(address=task.address, seed=b"s", reason="again"))
        await done(store, wake("t1"))
        await (await claimed(store, "t1")).finish()
        assert await pruned(store) == 0
        database.time.pass_time(LONG)
        assert await pruned(store) == 1
        after = database.tables()
        assert after.pop("tasks") == after.pop("addresses") == []
        assert after == before
        assert await store.read(ReadTask(address=task.address)) is None
        assert await store.read(ReadAddress(address=task.address)) is None
        assert (await done(store, message(task.address, "m2"))).disposition is Disposition.UNMATCHED
        assert (await done(store, submit("t1"))).disposition is Submission.ACCEPTED
        assert await store.read(ReadCallback(callback_id="c1")) is None


async def test_r32_tasks_that_have_not_ended_are_never_forgotten(database: Database) -> None:
    async with database.open() as store:
        await owned(store, lease=LEASE)
        await (await owned(store, "t2", lease=LEASE)).let_go()
        database.time.pass_time(LONG)
        assert await pruned(store) == 0
        assert await store.read(ReadTask(address="task:t1")) is not None


async def test_r32_a_task_with_an_unresolved_operation_is_kept_until_somebody_has_decided(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store, lease=LEASE)
        await task.commit(0, intents=(intent("root#1"),), dispatches=(sent("root#1"),))
        await done(store, TerminateTask(address=task.address, pool=POOL, reason="no", error=b""))
        database.time.pass_time(LONG)
        assert await pruned(store) == 0
        await done(store, DecideOperation(address=task.address, call="root#1", decision=Decision.FAILED, by="me"))
        assert await pruned(store) == 1


async def test_r32_a_task_whose_messages_wait_for_room_is_kept_until_they_are_brought(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, capacity=1, lease=LEASE)
        await desk.send("first")
        task = await owned(store, lease=LEASE)
        await task.commit(0, outgoing=(outgoing("desk", "o1"),))
        await task.finish()
        database.time.pass_time(LONG)
        assert await pruned(store) == 0
        await desk.handle(1)
        await done(store, FlushHeld(address=task.address, recipients=("desk",)))
        assert await pruned(store) == 1


async def test_a_long_journal_is_forgotten_in_small_transactions(database: Database) -> None:
    async with database.open() as store:
        for name in ("t1", "t2"):
            task = await owned(store, name, lease=LEASE)
            await task.commit(0, *(outcome(seq, database.time.at(0)) for seq in range(1, 26)))
            await task.finish()
            database.time.pass_time(1)
        database.time.pass_time(LONG)
        answers = [await done(store, Prune(kind=Prunable.TASKS, age=MONTH, limit=10)) for _ in range(4)]
        assert answers == [Pruned(0, ""), Pruned(0, ""), Pruned(1, ""), Pruned(0, "")]
        assert (await prune(store, limit=10))[Prunable.TASKS] == 1
        assert database.tables()["journal"] == []


async def test_r19_no_attempt_keeps_the_rows_of_a_journal_that_retention_has_begun_to_forget(
    database: Database,
) -> None:
    async with database.open() as store:
        task = await owned(store, lease=LEASE)
        at = database.time.at(0)
        await task.commit(0, *(outcome(seq, at) for seq in range(1, 6)))
        await task.finish()
        database.time.pass_time(LONG)
        assert await done(store, Prune(kind=Prunable.TASKS, age=MONTH, limit=2)) == Pruned(0, "")
        again = NewAttempt(address=task.address, seed=b"s", reason="again", rows=4)
        refused = await store.commit(again)
        assert isinstance(refused, Refused)
        assert refused.reason is RefusalReason.CONFLICT
        await done(store, evolve(again, rows=0, transition_id="another"))
        assert await pruned(store) == 0


async def test_a_dry_run_counts_the_tasks_and_forgets_none(database: Database) -> None:
    async with database.open() as store:
        await (await owned(store, lease=LEASE)).finish()
        database.time.pass_time(LONG)
        before = database.tables()
        assert (await prune(store, dry_run=True))[Prunable.TASKS] == 1
        assert database.tables() == before


async def test_r31_content_that_a_task_names_is_kept_as_long_as_the_task(database: Database) -> None:
    async with database.open() as store:
        large = await done(store, PutContent(data=b"x" * 100_000))
        task = await owned(store, lease=LEASE)
        await task.finish(result=large)
        database.time.pass_time(86400.0 * 29)
        assert (await prune(store))[Prunable.CONTENT] == 0
        assert await store.read(ReadContent(digest=large.digest)) is not None
        database.time.pass_time(86400.0 * 2)
        assert (await prune(store))[Prunable.CONTENT] == 1


def test_r31_every_column_that_may_name_a_content_is_looked_at_before_it_is_collected() -> None:

    text = "\n".join(sql_of(migration, "sqlite") for migration in MIGRATIONS)
    named = {
        (table, column.removesuffix("_size"))
        for table, body in re.findall(r"CREATE TABLE (\w+) \((.*?)\n\)", text, re.DOTALL)
        for column in re.findall(r"^    (\w+_size) INTEGER", body, re.MULTILINE)
    }
    assert named == set(NAMING)
    indexed = set(re.findall(r"CREATE INDEX \w+_content ON (\w+) \((\w+)_size\)", text))
    assert indexed == named
