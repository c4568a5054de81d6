"""Waits: time, signals, suspension; cancelling and terminating what waits."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

import anyio
import pytest

import greenroom as gr
from greenroom.persistence.tasks import Condition, TaskOutcome
from tests.durable.helpers import raised, settled
from tests.tasks.scripts import POOL, Calls, Job, Steer, agents, journal_of, patient, task_of

if TYPE_CHECKING:
    from tests.durable.helpers import Shared

DAY = 24 * 3600.0


async def sleeper(task: gr.Task, job: Job) -> str:
    await task.sleep(float(job.text))
    return "awake"


async def listener(task: gr.Task, job: Job) -> str:
    return (await task.receive(Steer, timeout=None)).text


async def test_c07_thirty_days_of_waits_take_well_under_a_second(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        began = task.now()
        for day in range(30):
            await task.sleep(DAY)
            await task.run(note, str(day))
        return str((task.now() - began).days)

    async with database.runtime(agents(script), source=patient(database)) as runtime:
        handle = await runtime.submit(POOL, Job())
        worked = time.process_time()
        assert await handle.result() == "30"
        assert time.process_time() - worked < 3  # some tenths of a second on a machine of one's own


async def test_a_sleeping_task_takes_no_place(database: Shared) -> None:
    async with database.runtime(agents(sleeper, max_running=1), source=patient(database)) as runtime:
        long = await runtime.submit(POOL, Job(str(DAY)))
        await settled()
        assert await (await runtime.submit(POOL, Job("1"))).result() == "awake"
        assert (await long.status()).condition is Condition.RUNNING
        assert await long.result() == "awake"


async def test_a_signal_reaches_the_receiver_that_waits_and_the_one_that_comes_later(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> list[str]:
        first = await task.receive(Steer, timeout=None)
        await task.sleep(100)
        second = await task.receive(Steer, timeout=None)
        return [first.text, second.text]

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await settled()
        assert (await handle.signal(Steer("left"))).disposition == "accepted"
        await handle.signal(Steer("right"))
        assert await handle.result() == ["left", "right"]


async def test_c14_a_signal_has_a_disposition_whatever_becomes_of_it(database: Shared) -> None:
    async with database.runtime(agents(listener)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert (await handle.signal(Steer("a"), message_id="m")).disposition == "accepted"
        assert (await handle.signal(Steer("a"), message_id="m")).disposition == "duplicate"
        assert (await handle.signal(Steer("b"), message_id="m")).disposition == "conflict"
        assert await handle.result() == "a"
        assert (await handle.signal(Steer("c"))).disposition == "late"
        assert (await runtime.task("T2").signal(Steer("d"))).disposition == "unmatched"


async def test_a_wait_for_a_signal_ends_with_its_timeout(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        try:
            await task.receive(Steer, timeout=50)
        except gr.WaitTimeout:
            return "nothing came"
        return "?"

    async with database.runtime(agents(script)) as runtime:
        assert await (await runtime.submit(POOL, Job())).result() == "nothing came"
        assert anyio.current_time() == pytest.approx(50, abs=1)


async def test_move_on_after_cuts_an_operation_short(database: Shared) -> None:
    ends: list[str] = []

    @gr.operation(effect=gr.Effect.SAFE)
    async def slow() -> None:
        try:
            await anyio.sleep(100)
        finally:
            ends.append("ended")

    async def script(task: gr.Task, job: Job) -> bool:
        with task.move_on_after(10) as limit:
            await task.run(slow)
        return limit.expired

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert await handle.result() is True
        assert ends == ["ended"]
        async with database.open() as store:
            rows = await journal_of(store, "T1")
            assert [(row.kind.value, row.status and row.status.value) for row in rows] == [
                ("time", None),
                ("outcome", "cancelled"),
            ]


async def test_beyond_the_residents_those_go_that_have_waited_longest_and_come_back_when_woken(
    database: Shared,
) -> None:
    async with database.runtime(agents(listener, max_resident=3)) as runtime:
        handles = [await runtime.submit(POOL, Job(), task_id=f"T{n}") for n in range(6)]
        await anyio.sleep(1)
        conditions = [(await handle.status()).condition for handle in handles]
        assert conditions.count(Condition.WAITING) == 3
        evicted = next(
            handle
            for handle in handles
            if (handle.id, Condition.WAITING) in zip((h.id for h in handles), conditions, strict=True)
        )
        assert (await evicted.status()).waits == ("root: receive tests.tasks.scripts:Steer",)
        for handle in handles:
            await handle.signal(Steer(handle.id))
        for handle in handles:
            assert await handle.result() == handle.id


async def test_sleepers_that_were_dropped_from_memory_wake_at_their_time(database: Shared) -> None:
    async with database.runtime(agents(sleeper, max_resident=1)) as runtime:
        handles = [await runtime.submit(POOL, Job(str(1000.0 * n))) for n in range(1, 6)]
        for n, handle in enumerate(handles, 1):
            assert await handle.result() == "awake"
            assert anyio.current_time() == pytest.approx(1000.0 * n, abs=2)


async def test_a_restart_loads_no_task_that_waits(database: Shared) -> None:
    runs: list[str] = []

    async def script(task: gr.Task, job: Job) -> str:
        runs.append(task.id)
        return (await task.receive(Steer, timeout=None)).text

    async with database.runtime(agents(script)) as runtime:
        for n in range(5):
            await runtime.submit(POOL, Job(), task_id=f"T{n}")
        await settled()
    assert len(runs) == 5
    runs.clear()
    async with database.runtime(agents(script), source=patient(database)) as runtime:
        await anyio.sleep(DAY)
        assert runs == []
        assert (await runtime.task("T3").status()).condition is Condition.WAITING
        await runtime.task("T3").signal(Steer("now"))
        assert await runtime.task("T3").result() == "now"
        assert runs == ["T3"]


async def test_a_signal_from_another_runtime_wakes_its_task(database: Shared) -> None:
    async with database.runtime(agents(listener)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
        async with database.runtime(gr.Supervisor("nothing")) as other:
            await other.task("T1").signal(Steer("from afar"))
            assert await handle.result() == "from afar"
            assert await other.task("T1").result() == "from afar"


async def test_cancelling_lets_control_code_clean_up(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        try:
            await task.sleep(DAY)
        finally:
            async with task.cleanup(10):
                await task.run(note, "cleaned up")
        return "?"

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await settled()
        await handle.cancel("superseded")
        error = await raised(handle.result())
        assert isinstance(error, gr.TaskCancelled)
        assert calls.made == ["cleaned up"]
        assert (await handle.status()).outcome is TaskOutcome.CANCELLED
        await handle.cancel("again")


async def test_the_reason_of_a_cancellation_reaches_control_code_and_whoever_waits(database: Shared) -> None:
    reasons: list[str] = []

    async def script(task: gr.Task, job: Job) -> str:
        try:
            await task.sleep(DAY)
        except gr.Cancelled as cancelled:
            reasons.append(cancelled.reason)
            async with task.cleanup(DAY):
                await task.sleep(100)
            raise
        return "?"

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
        await handle.cancel("superseded")
        await settled()
    async with database.runtime(agents(script)) as runtime:
        error = await raised(runtime.task("T1").result())
        assert isinstance(error, gr.TaskCancelled)
        assert error.reason == "superseded"
    assert reasons == ["superseded"] * 2  # at replay the same


async def test_a_limit_says_so_to_what_it_cuts_short(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        reason = ""
        with task.move_on_after(10):
            try:
                await task.sleep(DAY)
            except gr.Cancelled as cancelled:
                reason = cancelled.reason
                raise
        return reason

    async with database.runtime(agents(script)) as runtime:
        assert await (await runtime.submit(POOL, Job())).result() == "the time of limit root#1 is up"


async def test_a_task_that_nobody_performs_can_be_terminated(database: Shared) -> None:
    async with database.runtime(agents(listener)) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
    async with database.runtime(gr.Supervisor("nothing")) as runtime:
        handle = runtime.task("T1")
        await handle.terminate("not needed any more")
        error = await raised(handle.result())
        assert isinstance(error, gr.TaskCancelled)
        assert error.reason == "not needed any more"
        assert (await handle.status()).reason == "not needed any more"


async def test_terminating_a_task_that_runs_here_ends_it_without_its_doing(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        try:
            await task.sleep(DAY)
        finally:
            async with task.cleanup(10):
                await task.run(note, "cleaned up")
        return "?"

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await settled()
        await handle.terminate("now")
        assert isinstance(await raised(handle.result()), gr.TaskCancelled)
        await anyio.sleep(2 * DAY)
        assert calls.made == []


async def test_t22_chance_is_the_same_in_each_run(database: Shared) -> None:
    drawn: list[tuple[float, str]] = []

    async def script(task: gr.Task, job: Job) -> str:
        drawn.append((task.random(), str(task.uuid())))
        await task.sleep(10)
        return "done"

    async with database.runtime(agents(script)) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
    async with database.runtime(agents(script)) as runtime:
        assert await runtime.task("T1").result() == "done"
    assert len(drawn) == 2
    assert drawn[0] == drawn[1]


async def test_c02_code_that_does_something_else_parks_its_tasks_as_diverged(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    def script(*texts: str) -> object:
        async def perform(task: gr.Task, job: Job) -> str:
            for text in texts:
                await task.run(note, text)
            return (await task.receive(Steer, timeout=None)).text

        return perform

    async with database.runtime(agents(script("a", "b"))) as runtime:  # type: ignore[arg-type]
        await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
    async with database.runtime(agents(script("a", "c"))) as runtime:  # type: ignore[arg-type]
        handle = runtime.task("T1")
        await handle.signal(Steer("go"))
        await settled()
        status = await handle.status()
        assert status.parked is not None
        assert status.parked.value == "diverged"
        assert status.parked_detail is not None
        assert "root#2" in status.parked_detail
        assert calls.made == ["a", "b"]
    async with database.open() as store:
        assert len(await journal_of(store, "T1")) == 2
        assert (await task_of(store, "T1")).submitted_at < (await task_of(store, "T1")).read_at + timedelta(days=1)
