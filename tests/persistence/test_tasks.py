"""Tasks: submitted once, claimed, released, woken; what their condition is, and what people can read of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.persistence.addresses import (
    AddressKind,
    ClaimAddress,
    CloseAddress,
    DueAddresses,
    OpenAddress,
    ParkAddress,
    ParkReason,
    ReadAddress,
    ReleaseAddress,
    UnparkAddress,
)
from greenroom.persistence.callbacks import CreateCallback
from greenroom.persistence.executions import DrainExecution, EndExecution, ReleaseLost
from greenroom.persistence.messages import AdmitDue, Disposition
from greenroom.persistence.observations import ListObservations, ObservationKind
from greenroom.persistence.tasks import (
    Condition,
    DueTask,
    DueTasks,
    Ending,
    ListTasks,
    NextTaskDue,
    ParentPolicy,
    ParkTask,
    ReadTask,
    RunnableTasks,
    Submission,
    Submitted,
    TaskOutcome,
    TaskReleased,
    Woken,
    task_address,
    task_id_of,
)
from greenroom.persistence.transitions import OwnerWrite, RefusalReason, Refused
from tests.persistence.stores import claiming, done, message, refused, register
from tests.persistence.tasks_help import (
    POOL,
    claim,
    claimed,
    open_pool,
    outcome,
    owned,
    read,
    submit,
    submitted,
    wake,
)

if TYPE_CHECKING:
    from tests.persistence.stores import Database


def test_the_address_of_a_task_tells_its_identity() -> None:
    assert task_id_of(task_address("T1")) == "T1"


# ---------------------------------------------------------------------------------------------------------- submitting


async def test_a_submitted_task_is_runnable_and_on_record_with_all_that_was_said_of_it(database: Database) -> None:
    deadline = database.time.at(60)
    async with database.open() as store:
        await submitted(store, "boss")
        options = {"group": "g", "priority": 3, "deadline": deadline, "parent": task_address("boss")}
        answer = await submitted(store, "t1", parent_policy=ParentPolicy.DETACH, **options)
        assert answer == Submitted(Submission.ACCEPTED, 1)
    async with database.open() as store:
        record = await read(store, "t1")
        assert (record.condition, record.outcome, record.attempt, record.segment) == (Condition.RUNNABLE, None, 1, 1)
        assert (record.request, record.request_type, record.seed) == (b"{}", "Review", b"seed")
        assert (record.pool, record.group, record.priority) == (POOL, "g", 3)
        assert (record.deadline, record.submitted_at) == (deadline, database.time.at(0))
        assert (record.parent, record.parent_policy) == (task_address("boss"), ParentPolicy.DETACH)
        assert (record.journal_seq, record.last_at, record.read_at) == (0, database.time.at(0), database.time.at(0))
        assert (record.owner, record.generation, record.version, record.last_contact_at) == (None, 0, None, None)


async def test_submitting_the_same_again_is_the_same_task_and_another_request_is_a_conflict(database: Database) -> None:
    async with database.open() as store:
        await submitted(store)
        before = await read(store, "t1")
        assert await done(store, submit("t1")) == Submitted(Submission.DUPLICATE, 1)
        assert await done(store, submit("t1", b"other")) == Submitted(Submission.CONFLICT, 1)
        await open_pool(store, "others")
        assert await done(store, submit("t1", pool="others")) == Submitted(Submission.CONFLICT, 1)
        assert await read(store, "t1") == before
        seen = await store.read(ListObservations(kind=ObservationKind.CONFLICT))
        assert [(item.address, item.body) for item in seen] == [("task:t1", b"{}"), ("task:t1", b"other")]


async def test_a_task_that_has_ended_is_still_the_same_when_it_is_submitted_again(database: Database) -> None:
    async with database.open() as store:
        owner = await owned(store)
        await owner.finish()
        assert await done(store, submit("t1")) == Submitted(Submission.DUPLICATE, 1)
        assert (await owner.read()).condition is Condition.TERMINAL


async def test_a_task_needs_a_pool_that_was_registered_and_an_identity_that_is_no_actors(database: Database) -> None:
    async with database.open() as store:
        assert await refused(store, submit("t1")) is RefusalReason.UNKNOWN_POOL
        assert await store.read(ReadTask(address="task:t1")) is None
        await open_pool(store)
        await done(store, OpenAddress(address="task:t1", kind=AddressKind.MAILBOX))
        assert await refused(store, submit("t1")) is RefusalReason.CONFLICT


async def test_a_task_for_later_waits_until_it_is_due(database: Database) -> None:
    async with database.open() as store:
        await submitted(store, not_before=database.time.at(10))
        assert (await read(store, "t1")).condition is Condition.WAITING
        assert await store.read(RunnableTasks(pool=POOL)) == ()
        assert await store.read(NextTaskDue()) == database.time.at(10)
        answer = await store.commit(wake("t1"))
        assert isinstance(answer, Refused)
        assert (answer.reason, answer.seconds) == (RefusalReason.NOT_PENDING, 10.0)
        assert await store.read(DueTasks()) == ()
        database.time.pass_time(10)
        assert await store.read(DueTasks()) == (DueTask("task:t1", POOL),)
        assert (await read(store, "t1")).condition is Condition.RUNNABLE
        assert await done(store, wake("t1")) == Woken()
        assert (await store.read(DueTasks()), await store.read(NextTaskDue())) == ((), None)
        assert await store.read(RunnableTasks(pool=POOL)) == ("task:t1",)


# ------------------------------------------------------------------------------------------------------------ claiming


async def test_a_claim_makes_an_owner_under_a_new_generation_and_tells_all_that_it_needs(database: Database) -> None:
    async with database.open() as store:
        await submitted(store)
        await done(store, register("e1"))
        database.time.pass_time(5)
        record = (await done(store, claim("t1", version="7"))).task
        assert record == await read(store, "t1")
        assert (record.condition, record.owner, record.generation, record.version) == (Condition.RUNNING, "e1", 1, "7")
        assert record.last_contact_at == database.time.at(0)
        assert await store.read(RunnableTasks(pool=POOL)) == ()


async def test_the_first_claim_of_an_attempt_says_which_code_it_began_with(database: Database) -> None:
    async with database.open() as store:
        owner = await owned(store)
        await owner.let_go(due_at=database.time.at(0))
        assert (await done(store, claim("t1", version="2"))).task.version == "1"


async def test_only_a_runnable_task_is_claimed_by_an_execution_that_may(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1"))
        await done(store, register("e2"))
        assert await refused(store, claim("t1")) is RefusalReason.UNKNOWN_ADDRESS
        await submitted(store)
        assert await refused(store, claim("t1", "nobody")) is RefusalReason.UNKNOWN_EXECUTION
        assert await refused(store, claim("t1", pool="others")) is RefusalReason.CONFLICT
        owner = await claimed(store, "t1")
        answer = await store.commit(claim("t1", "e2"))
        assert isinstance(answer, Refused)
        assert (answer.reason, answer.seconds) == (RefusalReason.NOT_OWNER, 30.0)
        assert (await claimed(store, "t1")).claimed.generation == 2
        assert await refused(store, owner.release()) is RefusalReason.STALE_GENERATION
        owner = await claimed(store, "t1")
        await owner.let_go(due_at=database.time.at(9))
        assert await refused(store, claim("t1")) is RefusalReason.NOT_PENDING
        await done(store, DrainExecution(execution_id="e1"))
        database.time.pass_time(9)
        assert await refused(store, claim("t1")) is RefusalReason.DRAINING
        database.time.pass_time(30)
        assert await refused(store, claim("t1", "e2")) is RefusalReason.LEASE_EXPIRED


async def test_actors_claim_no_tasks_and_close_none(database: Database) -> None:
    async with database.open() as store:
        owner = await owned(store)
        assert await refused(store, claiming("task:t1", "e1")) is RefusalReason.CONFLICT
        assert await refused(store, CloseAddress(**owner.fence)) is RefusalReason.CONFLICT
        with pytest.raises(ValueError, match="kind"):
            ClaimAddress(address="a", kind=AddressKind.TASK, execution_id="e1")
        with pytest.raises(ValueError, match="kind"):
            OpenAddress(address="a", kind=AddressKind.TASK)
        await done(store, ReleaseAddress(**owner.fence))
        assert await store.read(DueAddresses()) == ()
        assert await store.read(DueTasks()) == (DueTask("task:t1", POOL),)


# ----------------------------------------------------------------------------------------------------------- releasing


async def test_a_task_that_is_let_go_waits_until_its_time_and_says_what_for(database: Database) -> None:
    async with database.open() as store:
        owner = await owned(store)
        database.time.pass_time(1)
        timer = database.time.at(5)
        assert await owner.let_go(due_at=timer, next_due=timer, waits=("sleep",)) == TaskReleased(due_at=timer)
        record = await owner.read()
        assert (record.condition, record.owner, record.due_at) == (Condition.WAITING, None, timer)
        assert (record.next_due, record.waits, record.last_contact_at) == (timer, ("sleep",), database.time.at(0))
        assert await store.read(NextTaskDue()) == timer
        database.time.pass_time(5)
        await done(store, wake("t1"))
        again = await claimed(store, "t1")
        assert (again.claimed.waits, again.claimed.next_due) == ((), timer)


async def test_r20_a_task_is_due_at_once_when_a_message_waits_that_has_no_row(database: Database) -> None:
    async with database.open() as store:
        owner = await owned(store)
        await done(store, message("task:t1", "m1"))
        assert await owner.let_go(due_at=database.time.at(99)) == TaskReleased(due_at=database.time.at(0))
        assert await store.read(DueTasks()) == (DueTask("task:t1", POOL),)


async def test_a_task_that_waits_for_messages_only_becomes_due_by_one(database: Database) -> None:
    async with database.open() as store:
        owner = await owned(store)
        assert await owner.let_go() == TaskReleased(due_at=None)
        assert await refused(store, wake("t1")) is RefusalReason.NOT_PENDING
        await done(store, message("task:t1", "m1"))
        assert (await owner.read()).condition is Condition.RUNNABLE
        await done(store, wake("t1"))
        assert (await claimed(store, "t1")).claimed.last_seq == 1


async def test_a_task_is_due_when_delayed_mail_of_it_is(database: Database) -> None:
    async with database.open() as store:
        owner = await owned(store)
        await done(store, message("task:t1", "m1", deliver_at=database.time.at(5)))
        assert await owner.let_go(due_at=database.time.at(9)) == TaskReleased(due_at=database.time.at(5))
        database.time.pass_time(5)
        await done(store, wake("t1"))
        assert (await done(store, AdmitDue(address="task:t1"))).count == 1


async def test_waking_a_task_twice_is_waking_it_once(database: Database) -> None:
    async with database.open() as store:
        await submitted(store)
        await done(store, message("task:t1", "m1"))  # which makes its address due
        assert await store.read(DueTasks()) == (DueTask("task:t1", POOL),)
        assert await done(store, wake("t1")) == Woken()
        assert await store.read(DueTasks()) == ()
        assert await store.read(RunnableTasks(pool=POOL)) == ("task:t1",)


async def test_what_is_owned_parked_or_over_is_not_woken(database: Database) -> None:
    async with database.open() as store:
        assert await refused(store, wake("t1")) is RefusalReason.UNKNOWN_ADDRESS
        owner = await owned(store)
        assert await refused(store, wake("t1")) is RefusalReason.NOT_PENDING
        await done(store, ParkAddress(**owner.fence, reason=ParkReason.DIVERGED, detail="here"))
        assert await refused(store, wake("t1")) is RefusalReason.PARKED
        assert await refused(store, claim("t1")) is RefusalReason.PARKED
        await done(store, UnparkAddress(address="task:t1"))
        await (await claimed(store, "t1")).finish()
        assert await refused(store, wake("t1")) is RefusalReason.NOT_PENDING
        assert await refused(store, claim("t1")) is RefusalReason.NOT_PENDING
        assert await refused(store, wake("t1", pool="others")) is RefusalReason.CONFLICT


async def test_a_parked_task_waits_for_an_operator_with_its_mail_and_is_due_when_it_is_let_run(
    database: Database,
) -> None:
    async with database.open() as store:
        owner = await owned(store)
        await done(store, ParkAddress(**owner.fence, reason=ParkReason.UNDECODABLE, detail="row 3"))
        record = await owner.read()
        assert (record.condition, record.parked, record.parked_detail) == (
            Condition.WAITING,
            ParkReason.UNDECODABLE,
            "row 3",
        )
        assert await store.read(ListTasks(parked=True)) == (record,)
        assert (await done(store, message("task:t1", "m1"))).disposition is Disposition.ACCEPTED
        assert await store.read(DueTasks()) == ()
        await done(store, UnparkAddress(address="task:t1"))
        assert await store.read(DueTasks()) == (DueTask("task:t1", POOL),)


# ----------------------------------------------------------------------------------------------------- losing an owner


async def test_r22_an_owner_that_is_lost_makes_its_task_suspect_however_that_is_found_out(database: Database) -> None:
    async with database.open() as store:
        await owned(store)
        database.time.pass_time(31)
        await done(store, ReleaseLost(execution_id="e1"))
        assert (await read(store, "t1")).suspicions == 1
        assert (await owned(store, execution_id="e2")).claimed.suspicions == 1
        database.time.pass_time(31)
        third = await owned(store, execution_id="e3")  # over the head of the second, which nobody has released
        assert third.claimed.suspicions == 2


async def test_k11_whatever_a_replaced_owner_writes_is_refused_and_kept(database: Database) -> None:
    async with database.open() as store:
        old = await owned(store)
        database.time.pass_time(31)
        new = await owned(store, execution_id="e2")
        writes: list[OwnerWrite[Any]] = [
            old.turn(0, outcome(1, database.time.at(0))),
            old.turn(0, ending=Ending(outcome=TaskOutcome.SUCCEEDED)),
            old.release(),
            ParkTask(**old.fence, reason=ParkReason.DIVERGED, detail="here"),
            ParkAddress(**old.fence, reason=ParkReason.DIVERGED, detail="here"),
            ReleaseAddress(**old.fence),
            CreateCallback(**old.fence, callback_id="c", secret_digest="s", name="n"),
        ]
        before = await new.read()
        for write in writes:
            assert await refused(store, write) is RefusalReason.STALE_GENERATION
        assert await new.read() == before
        assert len(await store.read(ListObservations(kind=ObservationKind.REFUSED))) == len(writes)


async def test_r22_an_orderly_end_of_the_owner_is_no_suspicion(database: Database) -> None:
    async with database.open() as store:
        await owned(store)
        await done(store, EndExecution(execution_id="e1"))
        record = await read(store, "t1")
        assert (record.suspicions, record.condition) == (0, Condition.RUNNABLE)
        assert (await owned(store, execution_id="e2")).claimed.suspicions == 0


async def test_r22_a_new_outcome_and_an_activation_that_lives_clear_the_suspicion(database: Database) -> None:
    async with database.open() as store:
        await owned(store)
        database.time.pass_time(31)
        owner = await owned(store, execution_id="e2")
        assert owner.claimed.suspicions == 1
        await owner.commit(0, phase="reading")
        assert (await owner.read()).suspicions == 1
        await owner.commit(0, outcome(1, database.time.at(0)))
        assert (await owner.read()).suspicions == 0
        database.time.pass_time(31)
        owner = await owned(store, execution_id="e3")
        assert owner.claimed.suspicions == 1
        await owner.let_go(unsuspect=False, due_at=database.time.at(0))
        assert (await owner.read()).suspicions == 1
        owner = await claimed(store, "t1", execution_id="e3")
        await owner.let_go(due_at=database.time.at(0))
        assert (await owner.read()).suspicions == 0


async def test_c11_the_history_of_restarts_is_on_record_until_an_operator_lets_the_task_run_again(
    database: Database,
) -> None:
    async with database.open() as store:
        owner = await owned(store)
        history = (database.time.at(-5), database.time.at(0))
        await owner.let_go(restarts=history, due_at=database.time.at(0))
        owner = await claimed(store, "t1")
        assert owner.claimed.restarts == history
        await owner.let_go(due_at=database.time.at(0))
        owner = await claimed(store, "t1")
        assert owner.claimed.restarts == history
        await done(store, ParkAddress(**owner.fence, reason=ParkReason.CRASH_LOOP, detail="thrice"))
        await done(store, UnparkAddress(address="task:t1"))
        assert (await owner.read()).restarts == ()


# ------------------------------------------------------------------------------------------------------------- reading


async def test_tasks_are_listed_by_their_ids_pool_and_condition_page_by_page(database: Database) -> None:
    async with database.open() as store:
        await done(store, register("e1"))
        for name in ("d", "b", "a", "c"):
            await submitted(store, name)
        await submitted(store, "x", pool="others")
        await (await claimed(store, "a")).finish()
        await claimed(store, "b")
        owner = await claimed(store, "c")
        await owner.let_go(due_at=database.time.at(9))

        async def ids(**query: object) -> list[str]:
            return [record.task_id for record in await store.read(ListTasks(**query))]  # type: ignore[arg-type]

        assert await ids() == ["a", "b", "c", "d", "x"]
        assert await ids(pool=POOL, limit=2) == ["a", "b"]
        assert await ids(pool=POOL, limit=2, after="b") == ["c", "d"]
        assert [await ids(condition=condition) for condition in Condition] == [["d", "x"], ["b"], ["c"], ["a"]]
        assert await ids(condition=Condition.RUNNABLE, pool="others") == ["x"]
        database.time.pass_time(9)
        assert await ids(condition=Condition.RUNNABLE, pool=POOL) == ["c", "d"]


async def test_a_task_can_be_looked_at_as_an_address(database: Database) -> None:
    async with database.open() as store:
        await submitted(store, capacity=7)
        record = await store.read(ReadAddress(address="task:t1"))
        assert record is not None
        assert (record.kind, record.capacity) == (AddressKind.TASK, 7)


async def test_what_is_said_to_a_task_that_has_ended_is_late(database: Database) -> None:
    async with database.open() as store:
        owner = await owned(store)
        await owner.finish(TaskOutcome.FAILED, error=b"why")
        assert (await done(store, message("task:t1", "m1"))).disposition is Disposition.LATE
        record = await owner.read()
        assert (record.condition, record.outcome, record.error) == (Condition.TERMINAL, TaskOutcome.FAILED, b"why")
        assert (record.ended_at, record.owner) == (database.time.at(0), None)
