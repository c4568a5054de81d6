"""Many workers: who claims a task, who takes it over and when, and what becomes of what an owner writes that is the owner no more."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import anyio
import pytest
from attrs import define, field

import greenroom as gr
from greenroom.persistence import (
    ExecutionState,
    ListExecutions,
    ListMessages,
    ListObservations,
    Observation,
    ObservationKind,
    ParkReason,
    ReadInvocations,
    Retention,
    prune,
)
from greenroom.persistence.retention import Prunable
from greenroom.persistence.tasks import (
    ClaimedTask,
    ClaimTask,
    Condition,
    ListTasks,
    NewTask,
    SubmitTask,
    TaskRecord,
    task_address,
)
from greenroom.testing import Away, CrashPoints, StoreFaults
from tests.durable.helpers import LEASE, raised, settled
from tests.persistence.stores import register
from tests.tasks.scripts import POOL, Calls, Job, Script, Steer, agents, journal_of, task_of

if TYPE_CHECKING:
    from pathlib import Path

    from greenroom.persistence import Committer
    from tests.durable.helpers import Shared

T1 = task_address("T1")

ORPHANS = 250


@define(eq=False)
class Slow:
    """An operation that takes as long as it is told, invocation by invocation. What was begun and what came to its end is noted."""

    seconds: list[float]
    effect: gr.Effect = gr.Effect.SAFE
    begun: list[str] = field(factory=list)
    ended: list[str] = field(factory=list)
    keys: list[str] = field(factory=list)

    @property
    def script(self) -> Script:
        @gr.operation(effect=self.effect, name="work")
        async def work(op: gr.Operation, who: str) -> str:
            self.keys.append(op.key)
            self.begun.append(who)
            await anyio.sleep(self.seconds[len(self.begun) - 1])
            self.ended.append(who)
            return who

        async def perform(task: gr.Task, job: Job) -> str:
            return await task.run(work, task.id)

        return perform


async def events_of(handle: gr.TaskHandle[object]) -> list[gr.JournalEvent]:
    """What is on record of its operations."""
    return [event async for event in handle.events() if event.kind == "operation"]


async def refused(store: Committer, address: str = T1) -> tuple[Observation, ...]:
    return await store.read(ListObservations(address=address, kind=ObservationKind.REFUSED))


async def die_in_hand(database: Shared, script: Script) -> str | None:
    """Have T1 begun, and its worker killed a second later. Returns the execution that it was of."""
    async with (
        database.death_at("before AcceptMessage task:T1 death") as source,
        database.runtime(agents(script), source=source) as runtime,
    ):
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(1)
        execution = (await handle.status()).execution
        await handle.signal(Steer(""), message_id="death")
    return execution


# ------------------------------------------------------------------------------------------------- identities and records


async def test_c01_task_attempt_and_operation_stay_what_they_are_and_only_the_execution_is_another(
    database: Shared,
) -> None:
    calls, slow = Calls(), Slow([1000.0, 1.0], gr.Effect.KEYED)
    note, inner = calls.safe(), slow.script

    async def script(task: gr.Task, job: Job) -> str:
        await task.run(note, "a")
        result: str = await inner(task, job)
        return result

    first = await die_in_hand(database, script)
    async with database.runtime(agents(script)) as runtime:
        handle = runtime.task("T1")
        assert await handle.result() == "T1"
        rows = await events_of(handle)
        assert [(row.attempt, row.call, row.execution == first) for row in rows] == [
            (1, "root#1", True),
            (1, "root#2", False),
        ]
        async with database.open() as store:
            tries = [each for each in await store.read(ReadInvocations(address=T1, attempt=1)) if each.call == "root#2"]
        assert [(each.invocation, each.execution_id) for each in tries] == [(1, first), (2, rows[1].execution)]
        assert len(set(slow.keys)) == 1


async def test_c02_after_a_recovery_the_recorded_answer_is_used_and_only_the_unconfirmed_effect_is_asked_about(
    database: Shared,
) -> None:
    model, effect = Calls(), Slow([1000.0], gr.Effect.ONCE)
    ask, inner = model.safe(), effect.script

    async def script(task: gr.Task, job: Job) -> str:
        await task.run(ask, "what next?")
        result: str = await inner(task, job)
        return result

    await die_in_hand(database, script)
    async with database.runtime(agents(script)) as runtime:
        await settled()
        assert (await runtime.task("T1").status()).parked is ParkReason.UNRESOLVED
    assert (model.made, effect.begun) == (["what next?"], ["T1"])


async def test_c03_i08_a_decision_to_repeat_permits_one_sending_and_a_death_amid_that_is_a_new_question(
    database: Shared,
) -> None:
    slow = Slow([1000.0, 1000.0, 1.0], gr.Effect.ONCE)
    for life in range(2):
        async with (
            database.death_at(f"before AcceptMessage task:T1 death {life}") as source,
            database.runtime(agents(slow.script), source=source) as runtime,
        ):
            handle = await runtime.submit(POOL, Job(), task_id="T1")
            await anyio.sleep(1)
            if life:
                assert await handle.decide("root#1", "repeat", by="ann")
                await anyio.sleep(1)
            await handle.signal(Steer(""), message_id=f"death {life}")
        assert len(slow.begun) == life + 1
    async with database.runtime(agents(slow.script)) as runtime:
        await anyio.sleep(100)
        handle = runtime.task("T1")
        assert (await handle.status()).parked is ParkReason.UNRESOLVED
        assert [each.call for each in await handle.unresolved()] == ["root#1"]
        assert len(slow.begun) == 2
        await handle.decide("root#1", "repeat", by="ann")
        assert await handle.result() == "T1"
        assert len(set(slow.keys)) == 1


async def test_t13_a_task_with_a_cancelled_operation_in_doubt_goes_on_under_another_worker(database: Shared) -> None:
    slow = Slow([1000.0], gr.Effect.ONCE)
    inner = slow.script

    async def script(task: gr.Task, job: Job) -> str:
        with task.move_on_after(5):
            await inner(task, job)
        return (await task.receive(Steer, timeout=None)).text

    async with database.runtime(agents(script)) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(10)
    async with database.runtime(agents(script)) as runtime:
        handle = runtime.task("T1")
        assert [each.call for each in await handle.unresolved()] == ["root#2"]
        await handle.signal(Steer("on"))
        assert await handle.result() == "on"
        assert slow.begun == ["T1"]


async def test_c09_who_reads_along_goes_on_from_his_place_in_the_log_over_the_death_of_the_worker(
    database: Shared,
) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        for number in range(6):
            await task.run(note, str(number))
        return "done"

    async with (
        database.death_at("after CommitTurn task:T1 (3)") as source,
        database.runtime(agents(script), source=source) as runtime,
    ):
        await (await runtime.submit(POOL, Job(), task_id="T1")).result()
    async with database.client() as client:
        seen = [event async for event in client.task("T1").events(follow=False)]
        assert 0 < len([event for event in seen if event.kind == "operation"]) < 6
        async with database.runtime(agents(script)) as runtime:
            seen += [event async for event in runtime.task("T1").events(after=seen[-1].cursor)]
    assert [event.call for event in seen if event.kind == "operation"] == [f"root#{n}" for n in range(1, 7)]
    assert [event.cursor for event in seen] == sorted({event.cursor for event in seen})
    assert [event.kind for event in seen] == ["begun", *["operation"] * 6, "ended"]


async def test_c12_recovery_reads_nothing_that_is_kept_for_people_only(database: Shared) -> None:
    calls, slow = Calls(), Slow([1000.0, 1.0])
    note, inner = calls.safe(), slow.script

    async def script(task: gr.Task, job: Job) -> str:
        heard = await task.receive(Steer, timeout=None)
        await task.run(note, heard.text)
        result: str = await inner(task, job)
        return result + heard.text

    async with (
        database.death_at("before AcceptMessage task:T1 death") as source,
        database.runtime(agents(script), source=source) as runtime,
    ):
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        for text in ("on", "on", "off"):  # accepted, duplicate, conflict
            await handle.signal(Steer(text), message_id="m1")
        await anyio.sleep(1)
        await handle.signal(Steer(""), message_id="death")
    async with database.open() as store:
        assert await store.read(ListObservations(address=T1))
        none = timedelta(0)
        forgotten = await prune(
            store, Retention(messages=none, observations=none, executions=none, batches=none, outbox=none)
        )
        assert forgotten[Prunable.MESSAGES] > 0
        assert forgotten[Prunable.OBSERVATIONS] > 0
        assert await store.read(ListMessages(address=T1)) == ()
    async with database.runtime(agents(script)) as runtime:
        assert await runtime.task("T1").result() == "T1on"
        assert calls.made == ["on"]
        told = [(event.kind, event.value) async for event in runtime.task("T1").events() if event.kind == "signal"]
        assert told == [("signal", Steer("on"))]  # and the history still says what has happened


async def test_c17_what_a_recovered_task_misses_on_a_clean_machine_is_named(database: Shared, tmp_path: Path) -> None:
    draft = tmp_path / "draft.txt"

    @gr.operation(effect=gr.Effect.SAFE)
    async def write() -> None:
        draft.write_text("a draft")

    @gr.operation(effect=gr.Effect.SAFE)
    async def read() -> str:
        return draft.read_text()

    async def script(task: gr.Task, job: Job) -> str:
        await task.run(write)
        await task.receive(Steer, timeout=None)
        return await task.run(read)

    async with (
        database.death_at("after ReleaseTask task:T1") as source,
        database.runtime(agents(script, max_resident=1), source=source) as runtime,
    ):
        await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
        await runtime.submit(POOL, Job(), task_id="T2")  # which needs the room
        await anyio.sleep(10)
    draft.unlink()
    async with database.runtime(agents(script)) as runtime:
        await runtime.task("T1").signal(Steer("on"))
        error = await raised(runtime.task("T1").result())
        assert isinstance(error, gr.TaskFailed)
        assert (error.kind, error.type) == ("operation", "FileNotFoundError")
        assert str(draft) in error.message


async def test_c22_an_effect_whose_worker_was_killed_before_its_commit_is_unconfirmed_and_never_done(
    database: Shared,
) -> None:
    slow = Slow([0.5, 0.5], gr.Effect.KEYED)
    async with (
        database.death_at("before CommitTurn task:T1 (2)") as source,
        database.runtime(agents(slow.script), source=source) as runtime,
    ):
        await (await runtime.submit(POOL, Job(), task_id="T1")).result()
    assert slow.ended == ["T1"]  # it has happened
    async with database.open() as store:
        assert await journal_of(store, "T1") == ()
        (try_,) = await store.read(ReadInvocations(address=T1, attempt=1))
        assert (try_.status, try_.ended_at) == (None, None)
        assert (await task_of(store, "T1")).outcome is None


async def test_c27_the_same_signal_twice_within_the_lease_is_one_row_of_the_journal_and_both_are_on_record(
    database: Shared,
) -> None:
    async def script(task: gr.Task, job: Job) -> list[str]:
        first = await task.receive(Steer, timeout=None)
        try:
            await task.receive(Steer, timeout=100)
        except gr.WaitTimeout:
            return [first.text]
        return ["twice"]

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        dispositions = [(await handle.signal(Steer("on"), message_id="m1")).disposition for _ in range(2)]
        assert dispositions == ["accepted", "duplicate"]
        assert await handle.result() == ["on"]
        async with database.open() as store:
            assert [row.message_id for row in await journal_of(store, "T1") if row.message_id] == ["m1"]
            (kept,) = await store.read(ListObservations(address=T1))
            assert (kept.kind, kept.message_id) == (ObservationKind.DUPLICATE, "m1")


# ------------------------------------------------------------------------------------------------------ stale owners


async def test_c16_c19_what_a_worker_comes_to_that_was_followed_is_refused_and_kept_with_its_generation(
    database: Shared,
) -> None:
    stale, heir = Slow([100.0]), Slow([1.0])
    async with database.runtime(agents(stale.script), source=database.lagging()) as first:
        await first.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(1)
        database.pass_lease()  # as for a machine that was stopped, or an old image of it
        async with database.runtime(agents(heir.script)) as second:
            assert await second.task("T1").result() == "T1"
            await anyio.sleep(100)
            assert stale.ended == ["T1"]
            async with database.open() as store:
                kept = (await refused(store))[-1]
                assert (kept.what, kept.generation) == ("CommitTurn", 1)
                assert kept.body is not None
                (row,) = await journal_of(store, "T1")
                task = await task_of(store, "T1")
                assert (task.generation, task.condition) == (2, Condition.TERMINAL)
            assert (row.call, heir.ended) == ("root#1", ["T1"])


async def test_i04_an_owner_whose_lease_has_passed_begins_nothing_more_though_nobody_took_over(
    database: Shared,
) -> None:
    calls, slow = Calls(), Slow([10.0, 1.0])
    note, inner = calls.safe(), slow.script

    async def script(task: gr.Task, job: Job) -> str:
        result: str = await inner(task, job)
        return result + await task.run(note, "after")

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(1)
        before = (await handle.status()).execution
        database.pass_lease()
        await anyio.sleep(9.5)
        # What came of it was not accepted under the lease that had passed.
        status = await handle.status()
        assert status.execution != before
        assert await handle.result() == "T1AFTER"
        assert (slow.begun, calls.made) == (["T1", "T1"], ["after"])
        async with database.open() as store:
            assert (await task_of(store, "T1")).generation == 2
            assert [row.call for row in await journal_of(store, "T1")] == ["root#1", "root#2"]


async def test_i04_a_task_that_is_owned_is_not_claimed_by_another_while_the_lease_holds(database: Shared) -> None:
    mine, theirs = Slow([50.0]), Slow([1.0])
    async with database.runtime(agents(mine.script)) as first:
        handle = await first.submit(POOL, Job(), task_id="T1")
        await settled()
        async with database.runtime(agents(theirs.script)) as second:
            await anyio.sleep(20)
            assert await second.task("T1").result() == "T1"
            assert (await handle.status()).outcome is not None
    assert (mine.ended, theirs.begun) == (["T1"], [])


# ---------------------------------------------------------------------------------------------------- taking over


async def orphan(store: Committer, like: TaskRecord, name: str) -> None:
    """A task that belongs to an execution which gives no sign any more."""
    task = NewTask(
        task_id=name,
        pool=like.pool,
        request=like.request,
        request_type=like.request_type,
        request_digest=like.request_digest,
        seed=b"seed",
    )
    await store.commit(SubmitTask(task=task))
    claim = ClaimTask(address=task.address, pool=like.pool, execution_id="lost", version="1")
    assert isinstance(await store.commit(claim), ClaimedTask)


async def test_k01_all_that_a_lost_worker_had_is_performed_though_the_store_fails_amid_the_takeover(
    database: Shared,
) -> None:
    names = [f"T{number:03}" for number in range(ORPHANS)]
    slow = Slow([0.1] * (ORPHANS + 1))
    async with database.runtime(agents(slow.script)) as runtime, database.open() as store:
        await runtime.submit(POOL, Job(), task_id="first")  # whose request and pool are what the others are made of
        assert await runtime.task("first").result() == "first"
        first = await task_of(store, "first")
    slow.begun.clear()
    slow.ended.clear()
    async with database.open() as store, anyio.create_task_group() as group:
        lease = database.lease.total_seconds()
        await store.commit(register("lost", lease=lease, boot_id=database.time.boot_id))
        for name in names:
            group.start_soon(orphan, store, first, name)
    database.pass_lease()
    async with StoreFaults({"ClaimTask service/agents task:T1?7": Away(2.0)}) as faults:
        source = database.source(driver=faults.wrap, sweep=1.0)
        async with database.runtime(agents(slow.script, max_running=ORPHANS), source=source):
            await anyio.sleep(7.0)
            assert faults.struck
            async with database.open() as store:
                tasks = await store.read(ListTasks(limit=2 * ORPHANS))
            assert {task.condition for task in tasks} == {Condition.TERMINAL}
    assert sorted(slow.begun) == sorted(slow.ended) == names


async def test_k02_of_two_workers_that_find_an_orphan_at_once_one_performs_it_and_the_other_does_nothing(
    database: Shared,
) -> None:
    slow = Slow([1000.0, 1.0, 1.0])
    await die_in_hand(database, slow.script)
    async with (
        database.runtime(agents(slow.script)) as one,
        database.runtime(agents(slow.script)) as other,
    ):
        assert [await each.task("T1").result() for each in (one, other)] == ["T1", "T1"]
        await anyio.sleep(100)
        async with database.open() as store:
            assert (await task_of(store, "T1")).generation == 2
            assert await refused(store) == ()
    assert slow.begun == ["T1", "T1"]


async def test_k04_what_is_terminated_in_numbers_is_gone_for_every_loop(database: Shared) -> None:
    tries: list[str] = []

    @gr.operation(effect=gr.Effect.SAFE, retry=gr.RetryPolicy(invocations=10_000))
    async def fail(name: str) -> None:
        tries.append(name)
        raise ConnectionError("for ever")

    async def script(task: gr.Task, job: Job) -> None:
        if job.text == "waits":
            await task.sleep(50)
        await task.run(fail, task.id)

    async with database.runtime(agents(script, max_running=100, max_resident=10)) as runtime:
        handles = [
            await runtime.submit(POOL, Job("waits" if number % 2 else "tries"), task_id=f"T{number}")
            for number in range(40)
        ]
        await anyio.sleep(20)
        assert len(tries) > 40
        async with database.client() as client:
            for handle in handles:
                await client.task(handle.id).terminate("enough")
        await anyio.sleep(40)  # the longest pause between two tries is shorter
        tries.clear()
        await anyio.sleep(600)
        assert tries == []
        assert {(await handle.status()).condition for handle in handles} == {Condition.TERMINAL}


# ------------------------------------------------------------------------------------------------------- draining


async def test_a_worker_that_is_draining_claims_nothing_more_and_others_perform_what_is_left(database: Shared) -> None:
    mine, theirs = Slow([4.0] * 10), Slow([1.0] * 10)
    async with database.runtime(agents(mine.script, max_running=2)) as first:
        for number in range(6):
            await first.submit(POOL, Job(), task_id=f"T{number}")
        await anyio.sleep(1)
        stopping = anyio.current_time()
    assert anyio.current_time() - stopping == pytest.approx(3.0, abs=0.1)
    assert (len(mine.begun), len(mine.ended)) == (2, 2)  # what was in flight has landed, and nothing more was begun
    async with database.open() as store:
        assert [task.condition for task in await store.read(ListTasks())] == [Condition.RUNNABLE] * 6
        executions = await store.read(ListExecutions(ended=True))
        assert {execution.state for execution in executions} == {ExecutionState.ENDED}
    async with database.runtime(agents(theirs.script, max_running=2)) as other:
        for number in range(6):
            assert await other.task(f"T{number}").result() == f"T{number}"
    assert len(theirs.begun) == 4  # two were done


async def test_two_starts_of_one_service_are_two_executions_and_each_task_is_performed_by_one_of_them(
    database: Shared,
) -> None:
    slow = Slow([2.0] * 8)
    async with (
        database.runtime(agents(slow.script, max_running=4)) as one,
        database.runtime(agents(slow.script, max_running=4)),
    ):
        handles = [await one.submit(POOL, Job(), task_id=f"T{number}") for number in range(8)]
        await anyio.sleep(20)
        async with database.open() as store:
            alive = {execution.execution_id for execution in await store.read(ListExecutions()) if execution.alive}
            assert len(alive) == 2
            generations = [(await task_of(store, handle.id)).generation for handle in handles]
        performed_by = [event.execution for handle in handles for event in await events_of(handle)]
    assert generations == [1] * 8
    assert len(performed_by) == 8
    assert set(performed_by) <= alive
    assert sorted(slow.begun) == sorted(slow.ended) == [f"T{number}" for number in range(8)]


async def test_r10_a_task_is_taken_over_right_after_the_end_of_its_owners_lease(database: Shared) -> None:
    begun: list[str] = []

    @gr.operation(effect=gr.Effect.SAFE)
    async def note() -> None:
        pass

    async def script(task: gr.Task, job: Job) -> None:
        begun.append(task.execution)
        await task.run(note)
        await task.run(note)

    async with (
        CrashPoints(("after CommitTurn task:T1",)) as crash,
        database.runtime(agents(script), source=database.source(driver=crash.wrap)) as runtime,
    ):
        await (await runtime.submit(POOL, Job(), task_id="T1")).result()
    await anyio.sleep(1000)
    async with database.runtime(
        agents(script), source=database.source(sweep=900.0)
    ):  # its last regular look: at 2,800 s
        await anyio.sleep(LEASE - 1000 - 10)
        assert len(begun) == (2 if database.url.startswith("sqlite:") else 1)  # there its file proves that it is dead
        await anyio.sleep(20)
        assert len(begun) == 2
