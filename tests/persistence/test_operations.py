"""Operations with an intent: sent under versions, settled once, lost, and decided about by people (R1, I8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.persistence.addresses import ParkAddress, ParkReason, UnparkAddress
from greenroom.persistence.journal import OutcomeKind, ReadHistory
from greenroom.persistence.operations import (
    Decided,
    DecideOperation,
    Decision,
    DecisionRecord,
    EffectKind,
    InvocationEnd,
    InvocationRecord,
    OperationRecord,
    OperationStatus,
    ReadInvocations,
    ReadOperations,
)
from greenroom.persistence.tasks import Condition, DueTasks, NewAttempt, ParkTask
from greenroom.persistence.transitions import RefusalReason
from tests.persistence.stores import done, refused
from tests.persistence.tasks_help import TaskOwner, claimed, intent, outcome, owned, sent, wake

if TYPE_CHECKING:
    from greenroom.persistence.store import Store
    from tests.persistence.stores import Database


async def operations(task: TaskOwner, **query: Any) -> dict[str, OperationRecord]:
    records = await task.store.read(ReadOperations(address=task.address, attempt=1, **query))
    return {record.call: record for record in records}


async def statuses(task: TaskOwner, **query: Any) -> dict[str, OperationStatus]:
    return {call: record.status for call, record in (await operations(task, **query)).items()}


def decide(call: str = "root#1", decision: Decision = Decision.REPEAT, **what: Any) -> DecideOperation:
    return DecideOperation(address="task:t1", call=call, decision=decision, by="me", **what)


async def test_an_intent_is_on_record_before_anything_is_sent(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        await task.commit(0, intents=(intent("root#1", EffectKind.ONCE),))
        assert await operations(task) == {
            "root#1": OperationRecord(
                attempt=1,
                segment=1,
                call="root#1",
                name="send",
                effect=EffectKind.ONCE,
                key="key of root#1",
                params=b"p",
                params_digest="d",
                status=OperationStatus.PENDING,
                version=0,
                decision=None,
                result=None,
                decided_by=None,
                decided_at=None,
            )
        }


async def test_r01_its_version_grows_each_time_it_is_sent_and_only_the_last_result_is_accepted(
    database: Database,
) -> None:
    async with database.open() as store:
        task = await owned(store)
        at = database.time.at(0)
        first = await task.commit(0, intents=(intent("root#1"),), dispatches=(sent("root#1"),))
        assert first.versions == (1,)
        assert (await task.commit(0, dispatches=(sent("root#1", 2),))).versions == (2,)
        for version in (None, 1, 3):
            assert await refused(store, task.turn(0, outcome(1, at, version=version))) is RefusalReason.CONFLICT
        await task.commit(0, outcome(1, at, version=2))
        assert await statuses(task) == {"root#1": OperationStatus.SETTLED}
        assert await statuses(task, unsettled=True) == {}


async def test_r01_an_identity_is_safe_or_has_an_intent_and_stays_so(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        at = database.time.at(0)
        await task.commit(0, outcome(1, at, call="root#1"), intents=(intent("root#2"),))
        wrong = [
            task.turn(1, intents=(intent("root#1"),)),
            task.turn(1, intents=(intent("root#2"),)),
            task.turn(1, intents=(intent("root#3"), intent("root#3"))),
            task.turn(1, outcome(2, at, call="root#3"), intents=(intent("root#3"),)),
            task.turn(1, outcome(2, at, call="root#3", version=1)),
            task.turn(1, outcome(2, at, call="root#3", unresolved=True)),
        ]
        for turn in wrong:
            assert await refused(store, turn) is RefusalReason.CONFLICT
        assert await statuses(task) == {"root#2": OperationStatus.PENDING}


async def test_only_what_is_pending_is_sent_and_each_time_as_another_invocation(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        at = database.time.at(0)
        await task.commit(0, intents=(intent("root#1"), intent("root#2")), dispatches=(sent("root#1"),))
        assert await refused(store, task.turn(0, dispatches=(sent("root#1", 1),))) is RefusalReason.CONFLICT
        twice = (sent("root#2", 1), sent("root#2", 1))
        assert await refused(store, task.turn(0, dispatches=twice)) is RefusalReason.CONFLICT
        await task.commit(0, outcome(1, at, version=1), outcome(2, at, call="root#3"))
        for call, intended in (("root#1", True), ("root#3", False), ("root#4", True), ("root#2", False)):
            turn = task.turn(2, dispatches=(sent(call, 9, intended=intended),))
            assert await refused(store, turn) is RefusalReason.NOT_PENDING
        assert (await operations(task))["root#2"].version == 0


async def test_what_was_never_sent_is_settled_under_version_0(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        await task.commit(0, intents=(intent("root#1"),))
        await task.commit(0, outcome(1, database.time.at(0), status=OutcomeKind.CANCELLED, version=0))
        assert await statuses(task) == {"root#1": OperationStatus.SETTLED}


async def test_c01_every_try_is_on_record_with_who_made_it_and_what_it_is_known_by_elsewhere(
    database: Database,
) -> None:
    async with database.open() as store:
        task = await owned(store)
        await task.commit(0, dispatches=(sent("root#1", intended=False),))
        database.time.pass_time(2)
        end = InvocationEnd(call="root#1", invocation=1, status="failed", error="503", links=(("request", "req-7"),))
        unannounced = InvocationEnd(call="root#2", invocation=1, status="succeeded")
        await task.commit(0, invocations=(end, unannounced))
        assert await store.read(ReadInvocations(address=task.address, attempt=1)) == (
            InvocationRecord(
                attempt=1,
                segment=1,
                call="root#1",
                invocation=1,
                execution_id="e1",
                generation=1,
                started_at=database.time.at(-2),
                ended_at=database.time.at(0),
                status="failed",
                error="503",
                links=(("request", "req-7"),),
            ),
            InvocationRecord(
                attempt=1,
                segment=1,
                call="root#2",
                invocation=1,
                execution_id="e1",
                generation=1,
                started_at=database.time.at(0),
                ended_at=database.time.at(0),
                status="succeeded",
                error=None,
                links=(),
            ),
        )


async def test_a_try_that_was_dispatched_says_no_version_of_an_operation_without_intent(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        answer = await task.commit(
            0, intents=(intent("root#2"),), dispatches=(sent("root#1", intended=False), sent("root#2"))
        )
        assert answer.versions == (0, 1)


# ------------------------------------------------------------------------------------------------------- unresolved ones


async def parked(store: Store, *calls: str) -> TaskOwner:
    """A task that is parked, for nobody knows whether these operations happened."""
    task = await owned(store)
    await task.commit(0, intents=tuple(map(intent, calls)), dispatches=tuple(map(sent, calls)))
    await done(store, ParkTask(**task.fence, reason=ParkReason.UNRESOLVED, detail="did it happen?", unresolved=calls))
    return task


async def test_i08_an_operation_nobody_knows_of_parks_the_task_until_somebody_decides(database: Database) -> None:
    async with database.open() as store:
        task = await parked(store, "root#1", "root#2")
        record = await task.read()
        assert (record.condition, record.parked) == (Condition.WAITING, ParkReason.UNRESOLVED)
        assert set((await statuses(task)).values()) == {OperationStatus.UNRESOLVED}
        assert await done(store, decide("root#1")) == Decided(OperationStatus.PENDING, released=False)
        assert (await task.read()).parked is ParkReason.UNRESOLVED
        database.time.pass_time(1)
        answer = await done(store, decide("root#2", Decision.SUCCEEDED, result=b"yes"))
        assert answer == Decided(OperationStatus.PENDING, released=True)
        decided = (await operations(task))["root#2"]
        assert (decided.decision, decided.result, decided.decided_by) == (Decision.SUCCEEDED, b"yes", "me")
        assert decided.decided_at == database.time.at(0)
        assert len(await store.read(DueTasks())) == 1


async def test_what_was_decided_is_acted_on_by_the_next_owner_under_the_versions_that_were(database: Database) -> None:
    async with database.open() as store:
        await parked(store, "root#1", "root#2")
        await done(store, decide("root#1"))
        await done(store, decide("root#2", Decision.FAILED))
        await done(store, wake("t1"))
        task = await claimed(store, "t1")
        assert (await task.commit(0, dispatches=(sent("root#1", 2),))).versions == (2,)
        at = database.time.at(0)
        failed = outcome(2, at, call="root#2", version=1, status=OutcomeKind.FAILED)
        await task.commit(0, outcome(1, at, version=2), failed)
        assert set((await statuses(task)).values()) == {OperationStatus.SETTLED}


async def test_all_that_operators_have_decided_stays_on_record_and_goes_on_with_another_attempt(
    database: Database,
) -> None:
    async with database.open() as store:
        await parked(store, "root#1")
        first = DecisionRecord(Decision.REPEAT, "me", database.time.at(0))
        await done(store, decide())
        await done(store, wake("t1"))
        task = await claimed(store, "t1")
        await task.commit(0, dispatches=(sent("root#1", 2),))
        repeated = (await operations(task))["root#1"]
        assert (repeated.decision, repeated.decided_by, repeated.decisions) == (None, None, (first,))
        await done(store, ParkTask(**task.fence, reason=ParkReason.UNRESOLVED, detail="?", unresolved=("root#1",)))
        database.time.pass_time(5)
        second = DecisionRecord(Decision.FAILED, "me", database.time.at(0))
        await done(store, decide(decision=Decision.FAILED))
        await done(store, wake("t1"))
        task = await claimed(store, "t1")
        at = database.time.at(0)
        failed = outcome(2, at, call="root#1", version=2, status=OutcomeKind.FAILED)
        await task.commit(0, outcome(1, at, call="root#2"), failed)
        assert (await operations(task))["root#1"].decisions == (first, second)
        of_others, written = await store.read(ReadHistory(address=task.address))
        assert (of_others.decisions, written.decisions) == ((), (first, second))
        await task.finish()
        await done(store, NewAttempt(address=task.address, seed=b"s", reason="again", rows=2, in_segment=True))
        (kept,) = await store.read(ReadOperations(address=task.address, attempt=2))
        assert kept.decisions == (first, second)


@pytest.mark.parametrize(("decision", "result"), [(Decision.SUCCEEDED, b"yes"), (Decision.FAILED, None)])
async def test_i08_what_an_operator_says_has_ended_is_not_sent_again(
    database: Database, decision: Decision, result: bytes | None
) -> None:
    async with database.open() as store:
        await parked(store, "root#1")
        await done(store, decide("root#1", decision, result=result))
        await done(store, wake("t1"))
        task = await claimed(store, "t1")
        assert await refused(store, task.turn(0, dispatches=(sent("root#1", 2),))) is RefusalReason.NOT_PENDING
        kept = (await operations(task))["root#1"]
        assert (kept.version, kept.decision, kept.result) == (1, decision, result)


async def test_only_an_unresolved_operation_is_decided_about(database: Database) -> None:
    async with database.open() as store:
        assert await refused(store, decide()) is RefusalReason.UNKNOWN_ADDRESS
        task = await owned(store)
        assert await refused(store, decide()) is RefusalReason.UNKNOWN_OPERATION
        await task.commit(0, outcome(1, database.time.at(0), call="root#2"), intents=(intent("root#1"),))
        assert await refused(store, decide("root#2")) is RefusalReason.UNKNOWN_OPERATION
        assert await refused(store, decide()) is RefusalReason.NOT_PENDING
        assert await refused(store, decide(segment=2)) is RefusalReason.UNKNOWN_OPERATION


async def test_a_task_is_not_parked_for_an_operation_that_is_not_pending(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        await task.commit(0, intents=(intent("root#1"), intent("root#2")))
        await task.commit(0, outcome(1, database.time.at(0), version=0))
        for calls in (("root#2", "root#1"), ("root#2", "root#7")):
            park = ParkTask(**task.fence, reason=ParkReason.UNRESOLVED, detail="?", unresolved=calls)
            assert await refused(store, park) is RefusalReason.NOT_PENDING
        assert (await statuses(task))["root#2"] is OperationStatus.PENDING
        assert (await task.read()).condition is Condition.RUNNING


async def test_a_decision_does_not_release_a_task_that_is_parked_for_another_reason(database: Database) -> None:
    async with database.open() as store:
        await parked(store, "root#1", "root#2")
        await done(store, decide("root#1"))
        await done(store, decide("root#2"))
        await done(store, wake("t1"))
        task = await claimed(store, "t1")
        await task.commit(0, outcome(1, database.time.at(0), version=1, unresolved=True))
        await done(store, ParkAddress(**task.fence, reason=ParkReason.DIVERGED, detail="here"))
        assert await done(store, decide("root#1")) == Decided(OperationStatus.SETTLED, released=False)
        assert (await task.read()).parked is ParkReason.DIVERGED


async def test_an_outcome_may_leave_it_open_whether_the_operation_happened(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        await task.commit(0, intents=(intent("root#1"),), dispatches=(sent("root#1"),))
        at = database.time.at(0)
        await task.commit(0, outcome(1, at, status=OutcomeKind.CANCELLED, version=1, unresolved=True))
        assert await statuses(task) == {"root#1": OperationStatus.UNRESOLVED}
        assert await done(store, decide()) == Decided(OperationStatus.SETTLED, released=False)


async def test_a_lookup_may_find_out_what_happened_to_an_unresolved_operation(database: Database) -> None:
    async with database.open() as store:
        await parked(store, "root#1", "root#2")
        await done(store, decide("root#2"))
        await done(store, UnparkAddress(address="task:t1"))
        task = await claimed(store, "t1")
        await task.commit(0, outcome(1, database.time.at(0), version=1))
        assert (await statuses(task))["root#1"] is OperationStatus.SETTLED


def test_only_a_decision_for_success_has_a_result() -> None:
    with pytest.raises(ValueError, match="'repeat' has no result"):
        decide(decision=Decision.REPEAT, result=b"r")
