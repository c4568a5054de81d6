"""What the store has of whole segments, asked for one by one and many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from greenroom.errors import GreenroomError, StoreUnavailable
from greenroom.persistence.callbacks import CancelCallback, CreateCallback
from greenroom.persistence.driver import NotReached, StatementFailed
from greenroom.persistence.operations import InvocationEnd, OperationStatus
from greenroom.persistence.segments import MOST_ROWS, ReadSegment, ReadSegments, SegmentRecord, Tries, together
from greenroom.persistence.tasks import ReadTask, TaskOutcome
from tests.persistence.fake_driver import FakeDriver, Say, entered, opened, raising
from tests.persistence.stores import done
from tests.persistence.tasks_help import TaskOwner, claimed, intent, outcome, owned, sent, submitted

if TYPE_CHECKING:
    from greenroom.persistence.committer import Committer
    from greenroom.persistence.store import Store
    from tests.persistence.stores import Database

NOTHING = SegmentRecord(entries=(), operations=(), tries={}, has_children=False, has_open_callbacks=False)


def segment(task_id: str, limit: int = 1000) -> ReadSegment:
    return ReadSegment(address=f"task:{task_id}", attempt=1, segment=1, limit=limit)


async def open_callback(task: TaskOwner, callback_id: str) -> None:
    await done(task.store, CreateCallback(**task.fence, callback_id=callback_id, secret_digest="d", name="answer"))


async def busy(store: Store, task_id: str, rows: int) -> TaskOwner:
    """A task with so many outcomes of operations that were tried twice, one more that was sent, a child and a callback."""
    task = await owned(store, task_id)
    at = task.claimed.last_at
    calls = [f"root#{number}" for number in range(1, rows + 1)]
    for invocation in (1, 2):
        await task.commit(0, dispatches=tuple(sent(call, invocation, intended=False) for call in calls))
    await task.commit(0, *(outcome(number, at) for number in range(1, rows + 1)))
    await task.commit(rows, intents=(intent(f"{task_id}#x"),), dispatches=(sent(f"{task_id}#x"),))
    await submitted(store, f"child-of-{task_id}", parent=task.address)
    await open_callback(task, f"callback-of-{task_id}")
    return task


# ------------------------------------------------------------------------------------------------------- one segment


async def test_a_segment_says_all_that_an_activation_begins_with(database: Database) -> None:
    async with database.open() as store:
        task = await busy(store, "t1", 2)
        record = await store.read(segment("t1"))
        assert record.entries == await task.journal()
        assert [(each.call, each.status) for each in record.operations] == [("t1#x", OperationStatus.PENDING)]
        began = database.time.at(0)
        assert record.tries == {
            "root#1": Tries(latest=2, began=began),
            "root#2": Tries(latest=2, began=began),
            "t1#x": Tries(latest=1, began=began),
        }
        assert (record.has_children, record.has_open_callbacks) == (True, True)


async def test_tries_began_with_the_first_of_them(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        first = database.time.at(0)
        await task.commit(0, dispatches=(sent("root#1", 1, intended=False),))
        database.time.pass_time(5)
        ended = InvocationEnd(call="root#1", invocation=1, status="failed")
        await task.commit(0, invocations=(ended,), dispatches=(sent("root#1", 2, intended=False),))
        assert (await store.read(segment("t1"))).tries == {"root#1": Tries(latest=2, began=first)}


async def test_of_a_task_that_has_only_been_claimed_there_is_nothing(database: Database) -> None:
    async with database.open() as store:
        await owned(store)
        assert await store.read(segment("t1")) == NOTHING


async def test_what_has_ended_is_nothing_to_go_on_with(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        await submitted(store, "child", parent=task.address)
        await (await claimed(store, "child")).finish(TaskOutcome.SUCCEEDED)
        await open_callback(task, "c1")
        await done(store, CancelCallback(callback_id="c1"))
        await task.commit(0, intents=(intent("root#1"),), dispatches=(sent("root#1"),))
        await task.commit(0, outcome(1, task.claimed.last_at, version=1))
        record = await store.read(segment("t1"))
        assert (record.operations, record.has_children, record.has_open_callbacks) == ((), False, False)


async def test_no_more_rows_are_read_than_were_asked_for(database: Database) -> None:
    async with database.open() as store:
        await busy(store, "t1", 3)
        assert [entry.seq for entry in (await store.read(segment("t1", 2))).entries] == [1, 2]
        assert (await store.read(segment("t1", 0))).entries == ()


async def test_another_segment_and_another_attempt_are_not_this_one(database: Database) -> None:
    async with database.open() as store:
        await busy(store, "t1", 1)
        for attempt, number in ((1, 2), (2, 1)):
            record = await store.read(ReadSegment(address="task:t1", attempt=attempt, segment=number))
            assert (record.entries, record.operations, record.tries) == ((), (), {})


# -------------------------------------------------------------------------------------------------------- many at once


async def test_many_segments_at_once_say_what_each_says_by_itself(database: Database) -> None:
    async with database.open() as store:
        for name, rows in (("t1", 2), ("t2", 0), ("t3", 1)):
            await busy(store, name, rows)
        await owned(store, "t4")
        queries = tuple(segment(name, limit) for name, limit in (("t3", 9), ("t4", 0), ("t1", 1), ("t2", 9), ("t5", 9)))
        assert await store.read(ReadSegments(queries=queries)) == tuple([await store.read(query) for query in queries])
        assert await store.read(ReadSegments()) == ()


async def test_each_of_those_who_ask_at_once_gets_an_answer_of_its_own(database: Database) -> None:
    async with database.open() as store:
        for number in range(20):
            await busy(store, f"t{number}", number % 3)
        found: dict[int, SegmentRecord] = {}

        async def ask(number: int) -> None:
            found[number] = await store.read(segment(f"t{number}"))

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(ask, number)
        for number, record in found.items():
            assert (len(record.entries), record.operations[0].call) == (number % 3, f"t{number}#x")


# ------------------------------------------------------------------------------------------- questions become one


def test_questions_about_segments_that_wait_together_are_one_and_others_are_asked_by_themselves() -> None:
    one, other, task = segment("t1"), segment("t2"), ReadTask(address="task:t3")
    assert list(together([one, task, other])) == [([1], task), ([0, 2], ReadSegments(queries=(one, other)))]
    assert list(together([task, one])) == [([0], task), ([1], one)]


def test_no_question_is_made_of_more_rows_than_nobody_minds_to_wait_for() -> None:
    queries = [segment(f"t{number}", MOST_ROWS // 2) for number in range(5)]
    assert [places for places, _ in together(queries)] == [[0, 1], [2, 3], [4]]
    assert [places for places, _ in together([segment("t1", 10 * MOST_ROWS), segment("t2", 1)])] == [[0], [1]]


async def asked_together(driver: FakeDriver, store: Committer, names: tuple[str, ...]) -> dict[str, object]:
    """What came of questions that have all waited while a commit was under way: answers, or errors."""
    found: dict[str, object] = {}

    async def ask(name: str) -> None:
        try:
            found[name] = await store.read(segment(name))
        except GreenroomError as error:
            found[name] = error

    driver.gate.clear()
    async with anyio.create_task_group() as group:
        group.start_soon(store.commit, Say(word="wait"))
        await entered(driver)
        for name in names:
            group.start_soon(ask, name)
        await anyio.wait_all_tasks_blocked()
        driver.gate.set()
    return found


async def test_questions_that_have_waited_for_a_commit_are_answered_by_one() -> None:
    driver = FakeDriver()
    async with opened(driver) as store:
        found = await asked_together(driver, store, ("a", "b"))
    assert found == {"a": "task:a", "b": "task:b"}
    assert [type(question) for question in driver.questions] == [ReadSegments]


async def test_a_question_that_cannot_be_answered_spoils_none_of_those_that_it_was_asked_with() -> None:
    driver = FakeDriver()
    driver.read_steps.extend([raising(StatementFailed("a row that nobody can read"))] * 2)
    async with opened(driver) as store:
        found = await asked_together(driver, store, ("a", "b", "c"))
    assert sorted(type(answer).__name__ for answer in found.values()) == ["TransitionFailed", "str", "str"]


async def test_questions_that_were_asked_together_wait_together_for_a_store_that_is_away() -> None:
    driver = FakeDriver()
    driver.read_steps.extend([raising(NotReached("away"))] * 3)
    async with opened(driver) as store:
        assert await asked_together(driver, store, ("a", "b")) == {"a": "task:a", "b": "task:b"}
    assert driver.pauses == 3


async def test_questions_that_were_asked_together_are_given_up_when_the_store_stays_away() -> None:
    driver = FakeDriver()
    driver.read_steps.extend([raising(NotReached("away"))] * 100_000)
    async with opened(driver, bound=0.05) as store:
        found = await asked_together(driver, store, ("a", "b"))
        assert [type(answer) for answer in found.values()] == [StoreUnavailable] * 2
