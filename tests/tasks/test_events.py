"""`handle.events()`: everything on record of a task, once each, in order, from any cursor; gaps are said."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import greenroom as gr
from greenroom.persistence.retention import Prunable, Prune
from tests.durable.helpers import raised, settled
from tests.tasks.scripts import POOL, Calls, Job, Steer, agents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.durable.helpers import Shared


async def read(events: AsyncIterator[gr.JournalEvent]) -> list[gr.JournalEvent]:
    return [event async for event in events]


def told(events: list[gr.JournalEvent]) -> list[tuple[Any, ...]]:
    return [(event.kind, event.call or event.type, event.status, event.value) for event in events]


async def chain(task: gr.Task, job: Job) -> str:
    """Two operations with a signal between them, and a pause."""
    calls = Calls()
    note = calls.safe()
    await task.run(note, "a")
    steer = await task.receive(Steer, timeout=None)
    await task.run(note, steer.text)
    await task.sleep(10)
    return "done"


async def performed(runtime: gr.Runtime, said: str = "b") -> gr.TaskHandle[Any]:
    """The task T1 of this script, which has ended."""
    handle = await runtime.submit(POOL, Job(), task_id="T1")
    await settled()
    await handle.signal(Steer(said), message_id="m1")
    await handle.result()
    return handle


CHAIN = [
    ("begun", None, None, None),
    ("operation", "root#1", "succeeded", "A"),
    ("signal", "tests.tasks.scripts:Steer", None, Steer("b")),
    ("operation", "root#3", "succeeded", "B"),
    ("time", "root#4", None, None),
    ("ended", None, "succeeded", "done"),
]


async def test_events_are_everything_on_record_in_order(database: Shared) -> None:
    async with database.runtime(agents(chain)) as runtime:
        handle = await performed(runtime)
        events = await read(handle.events())
        assert told(events) == CHAIN
        cursors = [event.cursor for event in events]
        assert cursors == sorted(set(cursors))
        assert events[2].message_id == "m1"
        assert {event.execution for event in events[1:5]} == {events[1].execution}
        assert events[1].execution is not None
        assert {event.attempt for event in events} == {1}
        times = [event.at for event in events if event.at is not None]
        assert times == sorted(times)


async def test_a_reader_goes_on_behind_any_cursor_with_nothing_left_out_and_nothing_twice(database: Shared) -> None:
    async with database.runtime(agents(chain)) as runtime:
        await performed(runtime)
    async with database.client() as client:
        events = await read(client.task("T1").events())
        for n, event in enumerate(events):
            assert told(await read(client.task("T1").events(after=event.cursor))) == CHAIN[n + 1 :]


async def test_a_reader_follows_a_task_as_it_goes(database: Shared) -> None:
    seen: list[tuple[str, float]] = []

    async def follow(handle: gr.TaskHandle[Any]) -> None:
        seen.extend([(event.kind, anyio.current_time() - began) async for event in handle.events()])

    began = anyio.current_time()
    async with database.runtime(agents(chain)) as runtime, anyio.create_task_group() as group:
        handle = await runtime.submit(POOL, Job())
        group.start_soon(follow, handle)
        await anyio.sleep(5)
        await handle.signal(Steer("b"))
        await handle.result()
    moments = dict(reversed(seen))
    assert [kind for kind, _ in seen] == [kind for kind, *_ in CHAIN]
    assert moments["begun"] == pytest.approx(0, abs=0.5)
    assert moments["operation"] == pytest.approx(0, abs=0.5)
    assert moments["signal"] == pytest.approx(5, abs=0.5)
    assert moments["ended"] == pytest.approx(15, abs=0.5)


async def test_c46_a_reader_goes_on_after_its_worker_was_replaced(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> None:
        note = Calls().safe()
        for n in range(40):
            await task.run(note, str(n))
        await task.receive(Steer, timeout=None)
        for n in range(60):
            await task.run(note, str(n))

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
        before = await read(handle.events(follow=False))
        assert len(before) == 41
    async with database.runtime(agents(script)) as runtime:
        handle = runtime.task("T1")
        await handle.signal(Steer(""))
        after = await read(handle.events(after=before[-1].cursor))
        assert len(after) == 62
        assert len({event.cursor for event in (*before, *after)}) == 103
        assert len({event.execution for event in (*before, *after) if event.execution}) == 2


async def test_events_without_following_end_with_what_is_there(database: Shared) -> None:
    async with database.runtime(agents(chain)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await settled()
        assert told(await read(handle.events(follow=False))) == CHAIN[:2]


async def test_a_signal_that_is_handed_over_to_other_segments_is_one_event(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        await task.sleep(10)
        if job.text != "third":
            await task.continue_as(Job("third" if job.text == "second" else "second"))
        return (await task.receive(Steer, timeout=None)).text

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job("first"), task_id="T1")
        await settled()
        await handle.signal(Steer("kept"), message_id="m1")
        await anyio.sleep(15)
        await handle.signal(Steer("later"), message_id="m2")
        assert await handle.result() == "kept"
        events = await read(handle.events())
        assert [(event.segment, event.kind, event.message_id) for event in events] == [
            (None, "begun", None),
            (1, "signal", "m1"),
            (1, "time", None),
            (2, "signal", "m2"),
            (2, "time", None),
            (3, "time", None),
            (None, "ended", None),
        ]
        for place, event in enumerate(events):
            assert await read(handle.events(after=event.cursor)) == events[place + 1 :]


async def test_a_reader_passes_pages_of_what_was_handed_over(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> None:
        await task.sleep(100)
        if job.text == "first":
            await task.continue_as(Job("second"))

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job("first"), task_id="T1")
        await settled()
        for number in range(450):
            await handle.signal(Steer(str(number)), message_id=f"m{number}")
        await handle.wait()
        events = await read(handle.events())
        assert [event.message_id for event in events if event.kind == "signal"] == [f"m{n}" for n in range(450)]
        assert [event.kind for event in events[451:]] == ["time", "time", "ended"]
        assert await read(handle.events(after=events[451].cursor, follow=False)) == events[452:]


async def test_many_events_are_read_in_pages(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> None:
        note = Calls().safe()
        for n in range(450):
            await task.run(note, str(n))

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await handle.wait()
        events = await read(handle.events())
        assert [event.value for event in events[1:-1]] == [str(n) for n in range(450)]


async def test_each_attempt_and_each_segment_has_its_events(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        await task.run(Calls().safe(), job.text)
        if job.text == "first":
            await task.continue_as(Job("second"))
        if task.attempt == 1:
            raise gr.Failed("not yet")
        return "done"

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job("first"))
        await handle.wait()
        assert await handle.new_attempt("now") == 2
        assert await handle.result() == "done"
        events = await read(handle.events())
        assert [(event.attempt, event.segment, event.kind) for event in events] == [
            (1, None, "begun"),
            (1, 1, "operation"),
            (1, 2, "operation"),
            (1, None, "ended"),
            (2, None, "begun"),
            (2, 1, "operation"),
            (2, 2, "operation"),
            (2, None, "ended"),
        ]
        assert (events[3].status, events[3].detail) == ("failed", "Failed: not yet")
        assert events[4].detail == "now"
        cursors = [event.cursor for event in events]
        assert cursors == sorted(set(cursors))


async def test_how_an_operation_failed_is_told(database: Shared) -> None:
    @gr.operation(effect=gr.Effect.SAFE)
    async def fail() -> None:
        raise ValueError("no such page")

    async def script(task: gr.Task, job: Job) -> None:
        with pytest.raises(gr.OperationFailed):
            await task.run(fail)

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await handle.wait()
        _, event, _ = await read(handle.events())
        assert (event.name, event.status, event.detail) == ("fail", "failed", "ValueError: no such page")


async def test_contents_are_not_in_what_is_logged_of_an_event(database: Shared) -> None:
    async with database.runtime(agents(chain)) as runtime:
        handle = await performed(runtime, "a secret")
        assert "secret" not in repr(await read(handle.events()))


async def cut(database: Shared, rows: int) -> None:
    """Forget the first rows of the only task, as retention does while it is at it."""
    database.time.pass_time(1)
    async with database.open() as store:
        await store.commit(Prune(kind=Prunable.TASKS, age=timedelta(0), limit=rows))


async def test_c46_what_retention_has_forgotten_is_a_gap_and_no_silence(database: Shared) -> None:
    async with database.runtime(agents(chain)) as runtime:
        handle = await performed(runtime)
        whole = await read(handle.events())
    async with database.client() as client:
        await cut(database, 2)
        handle = client.task("T1")
        left = [("gap", None, None, None), *CHAIN[3:]]
        assert told(await read(handle.events())) == [CHAIN[0], *left]
        assert told(await read(handle.events(after=whole[1].cursor))) == left
        assert told(await read(handle.events(after=whole[3].cursor))) == CHAIN[4:]
        (gap, *_) = await read(handle.events(after=whole[1].cursor))
        assert str(whole[1].cursor) in (gap.detail or "")
        assert whole[1].cursor < gap.cursor < whole[3].cursor


async def test_a_task_that_is_forgotten_is_named(database: Shared) -> None:
    async with database.runtime(agents(chain)) as runtime:
        await performed(runtime)
    async with database.client() as client:
        await cut(database, 1000)
        assert isinstance(await raised(read(client.task("T1").events())), gr.NoSuchTask)


@pytest.mark.parametrize("cursor", [-1, True, "7", 1 << 60])
async def test_what_is_no_cursor_of_the_task_is_refused(database: Shared, cursor: Any) -> None:
    async with database.runtime(agents(chain)) as runtime:
        handle = await performed(runtime)
        with pytest.raises(gr.BadCursor):
            await read(handle.events(after=cursor))


async def test_a_cursor_of_a_row_that_never_was_is_refused(database: Shared) -> None:
    async with database.runtime(agents(chain)) as runtime:
        handle = await performed(runtime)
        events = await read(handle.events())
        with pytest.raises(gr.BadCursor):
            await read(handle.events(after=events[-2].cursor + 1))
