"""Ends and new attempts: by the owner, by the store alone, and deliberately once more (R19, R24)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from greenroom.persistence.addresses import ParkAddress, ParkReason
from greenroom.persistence.callbacks import (
    AnswerCallback,
    AnswerDisposition,
    AnsweredCallbacks,
    CallbackStatus,
    CreateCallback,
    DeliverAnswer,
    OpenCallbacks,
    ReadCallback,
)
from greenroom.persistence.journal import ContinueAs
from greenroom.persistence.messages import DeadLetters, Disposition, NextMessages, Receipt
from greenroom.persistence.observations import ListObservations, ObservationKind
from greenroom.persistence.operations import DecideOperation, Decision, OperationStatus, ReadOperations
from greenroom.persistence.tasks import (
    AttemptBegun,
    AttemptRecord,
    ChildrenOf,
    Condition,
    NewAttempt,
    ParentPolicy,
    ReadAttempts,
    TaskOutcome,
    Terminated,
    TerminateTask,
)
from greenroom.persistence.transitions import RefusalReason, Refused
from tests.persistence.stores import done, message, outgoing, refused
from tests.persistence.tasks_help import (
    POOL,
    TaskOwner,
    claimed,
    intent,
    outcome,
    owned,
    read,
    sent,
    signal,
    submitted,
    wake,
)

if TYPE_CHECKING:
    from greenroom.persistence.store import Store
    from greenroom.persistence.transitions import Transition
    from tests.persistence.stores import Database


def terminate(task_id: str, **what: Any) -> TerminateTask:
    return TerminateTask(address=f"task:{task_id}", pool=POOL, reason="enough", error=b"stopped", **what)


STOPPED = {RefusalReason.STALE_GENERATION, RefusalReason.NOT_OWNER}
"""What the owner of a task hears that was terminated."""


def again(rows: int = 0, seed: bytes = b"other") -> NewAttempt:
    return NewAttempt(address="task:t1", seed=seed, reason="once more", rows=rows)


# ---------------------------------------------------------------------------------------------------------- terminating


async def test_r04_of_an_operation_and_a_stop_that_meet_nothing_is_admitted_after_the_end(database: Database) -> None:
    admitted = 0
    async with database.open() as store, database.open() as operator:
        for number in range(12):
            task = await owned(store, f"t{number}")
            turn = task.turn(0, intents=(intent("root#1"),), dispatches=(sent("root#1"),))
            answers: dict[str, Any] = {}

            async def commit(by: Store, what: Transition[Any], answers: dict[str, Any] = answers) -> None:
                answers[type(what).__name__] = await by.commit(what)

            both = [(operator, terminate(task.task_id)), (store, turn)][:: 1 if number % 2 else -1]
            if number < 2:  # one after the other: each order is met for certain
                for by, what in both:
                    await commit(by, what)
            else:
                async with anyio.create_task_group() as group:
                    for by, what in both:
                        group.start_soon(commit, by, what)
            assert isinstance(answers["TerminateTask"], Terminated)
            operations = await store.read(ReadOperations(address=task.address, attempt=1))
            if isinstance(answers["CommitTurn"], Refused):
                assert operations == ()
            else:
                admitted += 1
                assert [operation.status for operation in operations] == [OperationStatus.UNRESOLVED]
            assert await refused(store, task.turn(0, outcome(1, database.time.at(0)))) in STOPPED
    assert admitted > 0


async def test_r24_a_task_is_terminated_by_the_store_alone_whoever_owns_it(database: Database) -> None:
    async with database.open() as store:
        boss = await owned(store, "boss")
        task = await owned(store, "t1", parent=boss.address)
        answer = await done(store, terminate("t1", to_parent=outgoing("task:boss", "end of t1")))
        assert answer == Terminated(children=())
        record = await task.read()
        assert (record.condition, record.outcome) == (Condition.TERMINAL, TaskOutcome.CANCELLED)
        assert (record.error, record.reason, record.generation) == (b"stopped", "enough", 2)
        assert await refused(store, task.turn(0, outcome(1, database.time.at(0)))) is RefusalReason.STALE_GENERATION
        (told,) = await store.read(NextMessages(address=boss.address))
        assert told.message_id == "end of t1"
        assert await refused(store, terminate("t1")) is RefusalReason.NOT_PENDING


async def test_r24_runnable_waiting_and_parked_tasks_are_terminated_too(database: Database) -> None:
    async with database.open() as store:
        assert await refused(store, terminate("t1")) is RefusalReason.UNKNOWN_ADDRESS
        await submitted(store, "runnable")
        await (await owned(store, "waiting")).let_go(due_at=database.time.at(9))
        parked = await owned(store, "parked")
        await done(store, ParkAddress(**parked.fence, reason=ParkReason.DIVERGED, detail="here"))
        for name in ("runnable", "waiting", "parked"):
            await done(store, terminate(name))
            record = await read(store, name)
            assert (record.condition, record.parked, record.due_at) == (Condition.TERMINAL, None, None)


async def test_r24_terminating_tells_which_children_are_still_to_be_ended(database: Database) -> None:
    async with database.open() as store:
        boss = await owned(store, "boss")
        for name in ("c1", "c2", "c3"):
            policy = ParentPolicy.DETACH if name == "c3" else ParentPolicy.STOP
            await submitted(store, name, parent=boss.address, parent_policy=policy)
        await done(store, terminate("c2"))
        open_children = await store.read(ChildrenOf(address=boss.address))
        assert [child.address for child in open_children] == ["task:c1", "task:c3"]
        assert (await done(store, terminate("boss"))).children == ("task:c1",)


async def test_i08_operations_that_were_sent_when_the_task_was_terminated_are_unresolved(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        await task.commit(0, intents=(intent("root#1"), intent("root#2")), dispatches=(sent("root#1"),))
        await done(store, terminate("t1"))
        records = await store.read(ReadOperations(address=task.address, attempt=1))
        assert [record.status for record in records] == [OperationStatus.UNRESOLVED, OperationStatus.PENDING]


# ------------------------------------------------------------------------------------------------------------ callbacks


def callback(task: TaskOwner, name: str = "c1") -> CreateCallback:
    return CreateCallback(**task.fence, callback_id=name, secret_digest="s", name="approve")


def answer(name: str = "c1") -> AnswerCallback:
    return AnswerCallback(callback_id=name, secret_digest="s", answer=b"yes", digest="d")


async def test_k05_the_answer_of_a_callback_gets_into_the_tasks_mailbox_once(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store, capacity=1)
        await done(store, callback(task))
        assert await refused(store, DeliverAnswer(address=task.address, callback_id="c1")) is RefusalReason.NOT_PENDING
        await task.let_go()
        await done(store, message(task.address, "m1"))  # which fills the mailbox
        assert (await done(store, answer())).disposition is AnswerDisposition.ACCEPTED
        (waiting,) = await store.read(AnsweredCallbacks())
        assert (waiting.address, waiting.callback_id) == (task.address, "c1")
        deliver = DeliverAnswer(address=task.address, callback_id="c1")
        assert await done(store, deliver) == Receipt("c1", Disposition.ACCEPTED, 2)
        assert await refused(store, DeliverAnswer(address=task.address, callback_id="c1")) is RefusalReason.NOT_PENDING
        assert await store.read(AnsweredCallbacks()) == ()
        _, arrived = await store.read(NextMessages(address=task.address))
        assert (arrived.message_id, arrived.type, arrived.body) == ("c1", "greenroom:Answer", b"yes")


async def test_only_the_task_that_has_opened_a_callback_gets_its_answer(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        await submitted(store, "t2")
        await done(store, callback(task))
        await done(store, answer())
        for address, name in (("task:t2", "c1"), ("task:t1", "c2"), ("task:t3", "c1")):
            deliver = DeliverAnswer(address=address, callback_id=name)
            assert await refused(store, deliver) is RefusalReason.UNKNOWN_CALLBACK


async def test_callbacks_end_with_their_task_and_answers_that_come_then_are_late(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        for name in ("c1", "c2"):
            await done(store, callback(task, name))
        await done(store, answer("c2"))
        assert await store.read(OpenCallbacks(address=task.address)) == ("c1",)
        await task.finish(callbacks=("c1", "c2"))
        record = await store.read(ReadCallback(callback_id="c1"))
        assert record is not None
        assert record.status is CallbackStatus.CANCELLED
        assert (await done(store, answer("c1"))).disposition is AnswerDisposition.LATE
        late = await done(store, DeliverAnswer(address=task.address, callback_id="c2"))
        assert late.disposition is Disposition.LATE
        seen = await store.read(ListObservations(kind=ObservationKind.LATE))
        assert [(item.what, item.body) for item in seen] == [("greenroom:Answer", b"yes"), ("AnswerCallback", b"yes")]
        assert await store.read(AnsweredCallbacks()) == ()


async def test_a_task_ends_no_callbacks_of_others(database: Database) -> None:
    async with database.open() as store:
        first, second = await owned(store, "t1"), await owned(store, "t2")
        await done(store, callback(first))
        await done(store, callback(second, "c2"))
        await done(store, terminate("t1", callbacks=("c1", "c2")))
        records = [await store.read(ReadCallback(callback_id=name)) for name in ("c1", "c2")]
        assert [record and record.status for record in records] == [CallbackStatus.CANCELLED, CallbackStatus.OPEN]


# --------------------------------------------------------------------------------------------------------- new attempts


async def test_r19_a_task_that_has_ended_is_pursued_once_more_from_the_beginning(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store, deadline=database.time.at(1000))
        at = database.time.at
        following = ContinueAs(request=b"2", request_type="Next")
        await task.commit(0, outcome(1, at(0)), continue_as=following)
        await task.let_go(restarts=(at(0),), due_at=at(0))
        task = await claimed(store, "t1")
        await task.finish(TaskOutcome.FAILED, error=b"why")
        database.time.pass_time(5)
        assert await done(store, again()) == AttemptBegun(2)
        record = await task.read()
        assert (record.condition, record.outcome, record.error, record.ended_at) == (
            Condition.RUNNABLE,
            None,
            None,
            None,
        )
        assert (record.attempt, record.segment, record.journal_seq, record.seed) == (2, 1, 0, b"other")
        assert (record.request, record.request_type) == (b"{}", "Review")
        assert (record.segment_started_at, record.version, record.restarts) == (at(0), None, ())
        assert record.deadline == at(995)
        assert await store.read(ReadAttempts(address=task.address)) == (
            AttemptRecord(
                attempt=1,
                started_at=at(-5),
                ended_at=at(-5),
                outcome=TaskOutcome.FAILED,
                reason=None,
                result=None,
                error=b"why",
            ),
            AttemptRecord(
                attempt=2, started_at=at(0), ended_at=None, outcome=None, reason="once more", result=None, error=None
            ),
        )
        await done(store, wake("t1"))
        task = await claimed(store, "t1")
        await task.commit(0, outcome(1, at(0)))
        assert len(await task.journal(attempt=1)) == 1
        assert len(await task.journal(attempt=2)) == 1


async def test_r19_a_new_attempt_may_keep_what_was_accepted_up_to_a_row_of_the_last_segment(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        at = database.time.at
        await task.commit(0, continue_as=ContinueAs(request=b"2", request_type="Next"))
        rows = (outcome(1, at(1)), signal(2, at(2), "m1"), outcome(3, at(3)))
        await task.commit(0, *rows)
        await task.finish()
        assert await refused(store, again(rows=4)) is RefusalReason.CONFLICT
        await done(store, again(rows=2))
        record = await task.read()
        assert (record.attempt, record.segment, record.journal_seq, record.request) == (2, 2, 2, b"2")
        assert (record.segment_started_at, record.last_at) == (at(0), at(2))
        assert await task.journal(attempt=2, segment=2) == rows[:2]
        assert await task.journal(attempt=1, segment=2) == rows


async def test_r19_there_is_no_new_attempt_before_the_end_nor_while_an_operation_is_unresolved(
    database: Database,
) -> None:
    async with database.open() as store:
        assert await refused(store, again()) is RefusalReason.UNKNOWN_ADDRESS
        task = await owned(store)
        await task.commit(0, intents=(intent("root#1"),), dispatches=(sent("root#1"),))
        assert await refused(store, again()) is RefusalReason.NOT_PENDING
        await done(store, terminate("t1"))
        assert await refused(store, again()) is RefusalReason.CONFLICT
        await done(store, DecideOperation(address=task.address, call="root#1", decision=Decision.REPEAT, by="me"))
        await done(store, again())


async def test_r19_operations_that_were_decided_about_keep_their_keys_in_the_new_attempt(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        calls = ("root#1", "root#2", "root#3", "root#4")
        await task.commit(0, intents=tuple(map(intent, calls)), dispatches=tuple(map(sent, calls[:3])))
        await task.commit(0, outcome(1, database.time.at(0), version=1), outcome(2, database.time.at(0), version=1))
        await done(store, terminate("t1"))
        await done(store, DecideOperation(address=task.address, call="root#3", decision=Decision.FAILED, by="me"))
        await done(store, again(rows=1))
        carried = await store.read(ReadOperations(address=task.address, attempt=2))
        assert [(record.call, record.status, record.key, record.decision) for record in carried] == [
            ("root#1", OperationStatus.SETTLED, "key of root#1", None),
            ("root#3", OperationStatus.PENDING, "key of root#3", Decision.FAILED),
        ]


async def test_messages_that_came_too_late_for_an_attempt_do_not_hit_the_next(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        for name in ("m1", "m2", "m3"):
            await done(store, message(task.address, name))
        await task.commit(0, signal(1, database.time.at(0), "m1"), consumed_seq=1)
        await task.finish()
        await done(store, again())
        assert [dead.message_id for dead in await store.read(DeadLetters(address=task.address))] == ["m2", "m3"]
        await done(store, message(task.address, "m4"))
        assert [waiting.message_id for waiting in await store.read(NextMessages(address=task.address))] == ["m4"]
        await done(store, wake("t1"))
        task = await claimed(store, "t1")
        await task.commit(0, signal(1, database.time.at(0), "m4"), consumed_seq=4)
        assert await _unread(store) == []


async def _unread(store: Store) -> list[str]:
    return [waiting.message_id for waiting in await store.read(NextMessages(address="task:t1"))]
