"""Journals: what one turn of a task's owner commits, all or nothing (I3, T5, T26)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

from greenroom.persistence.addresses import ReadAddress
from greenroom.persistence.content import Content, PutContent
from greenroom.persistence.journal import (
    CommitTurn,
    ContinueAs,
    EntryKind,
    JournalEntry,
    OutcomeKind,
    ReadJournal,
    TurnCommitted,
)
from greenroom.persistence.messages import Disposition, NextMessages
from greenroom.persistence.observations import ListObservations, ObservationKind
from greenroom.persistence.outbox import FlushHeld
from greenroom.persistence.tasks import Condition, Ending, ReadTask, Submission, TaskOutcome
from greenroom.persistence.transitions import RefusalReason
from tests.persistence.stores import done, message, outgoing, owner, refused
from tests.persistence.tasks_help import (
    claimed,
    control,
    intent,
    new,
    open_pool,
    outcome,
    owned,
    read,
    sent,
    signal,
    submitted,
)

if TYPE_CHECKING:
    from tests.persistence.stores import Database


async def test_rows_are_read_as_they_were_written(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        at = database.time.at
        large = await done(store, PutContent(data=b"x" * 100_000))
        rows = (
            outcome(1, at(0)),
            JournalEntry(
                seq=2,
                at=at(0),
                kind=EntryKind.OUTCOME,
                call="root/1.2#3",
                name="write",
                status=OutcomeKind.CANCELLED,
                effect_possible=True,
                params=large,
                body=large,
                basis=1,
                digest=b"dd",
                marks=("one", "two"),
            ),
            JournalEntry(seq=3, at=at(1), kind=EntryKind.TIME, call="root#9", basis=2, digest=b"ddd"),
            JournalEntry(
                seq=4, at=at(2), kind=EntryKind.SIGNAL, message_id="m1", type="T", body=b"b", answers="c", failed=True
            ),
            control(5, at(2), "c1"),
        )
        assert await task.commit(0, *rows[:2]) == TurnCommitted(seq=2)
        assert await task.commit(2, *rows[2:]) == TurnCommitted(seq=5)
        assert await task.journal() == rows
        record = await task.read()
        assert (record.journal_seq, record.last_at, record.last_contact_at) == (5, at(2), at(2))
        assert isinstance(large, Content)


async def test_a_journal_is_read_page_by_page(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        rows = tuple(outcome(seq, database.time.at(0)) for seq in range(1, 8))
        await task.commit(0, *rows)
        first = await store.read(_page(task.address, after=0))
        assert first == rows[:3]
        assert await store.read(_page(task.address, after=3)) == rows[3:6]
        assert await store.read(_page(task.address, after=6)) == rows[6:]


def _page(address: str, *, after: int) -> ReadJournal:
    return ReadJournal(address=address, attempt=1, segment=1, after=after, limit=3)


async def test_t05_rows_go_on_after_the_last_one_without_a_gap_and_never_back_in_time(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        at = database.time.at
        await task.commit(0, outcome(1, at(0)), outcome(2, at(5)))
        wrong = [
            task.turn(1, outcome(2, at(5), call="root#3")),
            task.turn(3, outcome(4, at(5))),
            task.turn(2, outcome(4, at(5))),
            task.turn(2, outcome(3, at(5)), outcome(3, at(5), call="root#4")),
            task.turn(2, outcome(3, at(4))),
            task.turn(2, outcome(3, at(6)), outcome(4, at(5))),
        ]
        for turn in wrong:
            assert await refused(store, turn) is RefusalReason.CONFLICT
        assert len(await task.journal()) == 2
        seen = await store.read(ListObservations(kind=ObservationKind.REFUSED))
        assert len(seen) == len(wrong)
        assert seen[0].body is not None


async def test_the_first_row_is_not_before_the_task(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        assert await refused(store, task.turn(0, outcome(1, database.time.at(-1)))) is RefusalReason.CONFLICT


async def test_t05_an_operation_has_one_outcome(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        at = database.time.at(0)
        await task.commit(0, outcome(1, at, call="root#1"))
        twice = outcome(3, at, call="root#2")
        assert await refused(store, task.turn(1, outcome(2, at, call="root#1"))) is RefusalReason.CONFLICT
        assert await refused(store, task.turn(1, outcome(2, at, call="root#2"), twice)) is RefusalReason.CONFLICT
        assert [entry.call for entry in await task.journal()] == ["root#1"]


async def test_c19_a_turn_of_an_owner_that_was_replaced_changes_nothing_and_is_kept(database: Database) -> None:
    async with database.open() as store:
        old = await owned(store)
        database.time.pass_time(31)
        await owned(store, execution_id="e2")
        turn = old.turn(
            0,
            outcome(1, database.time.at(0), body=b"late"),
            intents=(intent("root#2"),),
            outgoing=(outgoing("task:t1", "m"),),
            submits=(new("child"),),
            ending=Ending(outcome=TaskOutcome.SUCCEEDED),
        )
        before = database.tables()
        assert await refused(store, turn) is RefusalReason.STALE_GENERATION
        after = database.tables()
        assert len(after.pop("observations")) == len(before.pop("observations")) + 1
        assert after == before


async def test_r03_a_turn_under_a_lease_that_has_passed_is_refused_though_nobody_took_over(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        database.time.pass_time(31)
        assert await refused(store, task.turn(0, outcome(1, database.time.at(0)))) is RefusalReason.LEASE_EXPIRED


async def test_an_actor_has_no_journal(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await submitted(store)
        task = await claimed(store, "t1")
        actors: dict[str, Any] = {"address": "desk", "execution_id": "e1", "generation": desk.generation}
        assert await refused(store, evolve(task.turn(0), **actors)) is RefusalReason.CONFLICT


# ------------------------------------------------------------------------------------------------------------- the mail


async def test_messages_are_handled_when_their_rows_are_written(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        for name in ("m1", "m2", "m3"):
            await done(store, message(task.address, name))
        rows = (signal(1, database.time.at(0), "m1"), signal(2, database.time.at(0), "m2"))
        await task.commit(0, *rows, consumed_seq=2)
        assert [item.message_id for item in await store.read(NextMessages(address=task.address))] == ["m3"]
        record = await store.read(ReadAddress(address=task.address))
        assert record is not None
        assert (record.handled_seq, record.ready, record.queued) == (2, 1, 1)
        assert (await done(store, message(task.address, "m1"))).disposition is Disposition.DUPLICATE


async def test_messages_can_be_handled_up_to_the_last_and_not_back(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        await done(store, message(task.address, "m1"))
        assert await refused(store, task.turn(0, consumed_seq=2)) is RefusalReason.CONFLICT
        await task.commit(0, consumed_seq=1)
        await task.commit(0, consumed_seq=1)
        assert await refused(store, task.turn(0, consumed_seq=0)) is RefusalReason.CONFLICT


async def test_a_turn_that_writes_no_row_leaves_the_messages_where_they_are(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        await done(store, message(task.address, "m1"))
        await task.commit(0, phase="reading")
        assert len(await store.read(NextMessages(address=task.address))) == 1


async def test_what_a_turn_sends_arrives_with_it(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        task = await owned(store)
        answer = await task.commit(
            0, outcome(1, database.time.at(0)), outgoing=(outgoing("desk", "o1"), outgoing("nowhere", "o2"))
        )
        assert answer.outgoing == (Disposition.ACCEPTED, Disposition.UNMATCHED)
        (arrived,) = await desk.records()
        assert (arrived.message_id, arrived.sender) == ("o1", task.address)


async def test_r25_where_there_is_no_room_messages_are_held_in_order_over_several_turns(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store, capacity=1)
        task = await owned(store)
        await desk.send("first")
        held = await task.commit(0, outgoing=(outgoing("desk", "o1"),))
        assert held.outgoing == (Disposition.HELD,)
        await desk.handle(1)
        held = await task.commit(0, outgoing=(outgoing("desk", "o2"), outgoing("task:t1", "o3")))
        assert held.outgoing == (Disposition.HELD, Disposition.ACCEPTED)  # o2 would overtake o1
        await done(store, FlushHeld(address=task.address, recipients=("desk",)))
        assert await desk.waiting() == ["o1"]


# ----------------------------------------------------------------------------------------------------------- children


async def test_children_are_submitted_with_the_turn(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        children = (
            new("c1", parent=task.address),
            new("c1", b"2", parent=task.address),
            new("t1", parent=task.address),
        )
        answer = await task.commit(0, submits=children)
        assert answer.submits == (Submission.ACCEPTED, Submission.CONFLICT, Submission.DUPLICATE)
        child = await read(store, "c1")
        assert (child.parent, child.condition) == (task.address, Condition.RUNNABLE)


async def test_children_of_accepted_work_are_not_refused_for_a_full_queue(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        await open_pool(store, queue_limit=1)
        await task.commit(0, submits=(new("c1"), new("c2")))
        assert (await read(store, "c2")).condition is Condition.RUNNABLE


async def test_a_child_for_an_unknown_pool_refuses_the_whole_turn(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        turn = task.turn(0, outcome(1, database.time.at(0)), submits=(new("c1"), new("c2", pool="nobody's")))
        assert await refused(store, turn) is RefusalReason.UNKNOWN_POOL
        assert await task.journal() == ()
        assert await store.read(ReadTask(address="task:c1")) is None


# ----------------------------------------------------------------------------------------------------------- going on


async def test_a_turn_says_how_far_the_task_is(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        database.time.pass_time(3)
        await task.commit(0, phase="reading", next_due=database.time.at(9))
        record = await task.read()
        assert (record.phase, record.next_due) == ("reading", database.time.at(9))
        assert record.last_contact_at == database.time.at(0)
        await task.commit(0)
        assert ((await task.read()).phase, (await task.read()).next_due) == (None, None)


async def test_r01_the_state_version_grows_with_commands_and_not_with_results(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        at = database.time.at(0)
        await task.commit(0, outcome(1, at), signal(2, at, "m1"))
        assert (await task.read()).state_version == 0
        await task.commit(2, control(3, at, "c1"), outcome(4, at), control(5, at, "c2"))
        assert (await task.read()).state_version == 2
        await task.finish()
        assert (await task.read()).state_version == 3


async def test_r18_a_segment_is_followed_by_another_with_its_own_request_and_the_signals_nobody_has_read(
    database: Database,
) -> None:
    async with database.open() as store:
        task = await owned(store)
        at = database.time.at
        database.time.pass_time(10)
        following = ContinueAs(
            request=b"2",
            request_type="Next",
            handed_over=(evolve(signal(1, at(1), "m1"), handed_over=True), signal(2, at(2), "m2")),
        )
        answer = await task.commit(0, outcome(1, at(1)), continue_as=following)
        assert answer == TurnCommitted(seq=2)
        record = await task.read()
        assert (record.attempt, record.segment, record.journal_seq) == (1, 2, 2)
        assert (record.request, record.request_type, record.segment_started_at) == (b"2", "Next", at(1))
        assert record.condition is Condition.RUNNING
        assert await task.journal(segment=2) == following.handed_over
        await task.commit(2, outcome(3, at(2), call="root#1"))  # its name is free in another segment
        assert len(await task.journal(segment=1)) == 1
        assert len(await task.journal(segment=2)) == 3


async def test_r18_what_is_handed_over_is_in_order_and_not_before_the_segment(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        at = database.time.at
        for entries in ((signal(2, at(1), "m"),), (signal(1, at(0), "m"),)):
            turn = task.turn(
                0, outcome(1, at(1)), continue_as=ContinueAs(request=b"2", request_type="N", handed_over=entries)
            )
            assert await refused(store, turn) is RefusalReason.CONFLICT
        assert (await task.read()).segment == 1


async def test_the_submitted_request_is_the_one_by_which_a_task_is_known_again(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        await task.commit(0, continue_as=ContinueAs(request=b"2", request_type="N"))
        assert (await submitted(store)).disposition is Submission.DUPLICATE


async def test_i3_a_turn_that_ends_the_task_commits_its_last_row_and_its_result_together(database: Database) -> None:
    async with database.open() as store:
        boss = await owned(store, "boss")
        task = await owned(store, parent="task:boss")
        await task.commit(
            0,
            outcome(1, database.time.at(0)),
            dispatches=(sent("root#2", intended=False),),
            ending=Ending(outcome=TaskOutcome.SUCCEEDED, result=b"42", to_parent=outgoing("task:boss", "end of t1")),
        )
        record = await task.read()
        assert (record.condition, record.outcome, record.result) == (Condition.TERMINAL, TaskOutcome.SUCCEEDED, b"42")
        assert (record.journal_seq, record.owner) == (1, None)
        (told,) = await store.read(NextMessages(address=boss.address))
        assert told.message_id == "end of t1"
        assert await refused(store, task.turn(1)) is RefusalReason.NOT_OWNER


# ------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": EntryKind.OUTCOME, "call": "root#1", "basis": 0, "digest": b""},
        {"kind": EntryKind.TIME, "call": "root#1"},
        {"kind": EntryKind.TIME, "basis": 0, "digest": b""},
        {"kind": EntryKind.SIGNAL, "message_id": "m"},
        {"kind": EntryKind.SIGNAL, "message_id": "m", "type": "T", "call": "root#1"},
        {"kind": EntryKind.CONTROL, "type": "cancel"},
        {"kind": EntryKind.CONTROL, "type": "cancel", "message_id": "m", "name": "op"},
    ],
)
def test_a_row_has_the_fields_of_its_kind(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="nothing else has"):
        JournalEntry(seq=1, at=datetime(2030, 1, 1, tzinfo=UTC), **wrong)


def test_a_task_that_ends_does_not_go_on() -> None:
    with pytest.raises(ValueError, match="does not go on"):
        CommitTurn(
            address="task:t",
            execution_id="e",
            generation=1,
            after=0,
            ending=Ending(outcome=TaskOutcome.FAILED),
            continue_as=ContinueAs(request=b"", request_type=""),
        )


def test_only_a_success_has_a_result() -> None:
    with pytest.raises(ValueError, match="has failed has no result"):
        Ending(outcome=TaskOutcome.FAILED, result=b"r")
