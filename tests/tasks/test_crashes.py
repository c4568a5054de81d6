"""Crashes of control code, deaths of executions, and who goes on with the task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

import greenroom as gr
from greenroom.persistence import Committer, ListObservations, ObservationKind, ParkReason
from greenroom.persistence.journal import OutcomeKind
from greenroom.persistence.tasks import Condition, ReleaseTask, TaskOutcome
from tests.durable.helpers import Boom, eventually, raised
from tests.tasks.scripts import POOL, Calls, Job, Steer, agents, journal_of, task_of

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


async def test_a_crash_is_followed_by_another_run_over_the_journal(database: Shared) -> None:
    calls, runs = Calls(), 0
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        nonlocal runs
        runs += 1
        text = await task.run(note, "a")
        if runs < 3:
            raise Boom
        return text

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert await handle.result() == "A"
        assert (runs, calls.made) == (3, ["a"])
        assert (await handle.status()).attempt == 1
        async with database.open() as store:
            assert len((await task_of(store, "T1")).restarts) == 2


class Rash:
    """One branch crashes after its operation, in the first run, while three others are at something."""

    def __init__(self, others: str, effect: gr.Effect = gr.Effect.SAFE) -> None:
        self.runs = 0
        self.made: list[str] = []
        self.others = others

        @gr.operation(effect=gr.Effect.SAFE)
        async def quick(name: str) -> str:
            self.made.append(name)
            await anyio.sleep(1)
            return name

        @gr.operation(effect=effect)
        async def slow(name: str) -> str:
            self.made.append(name)
            await anyio.sleep(50 if self.runs == 1 else 1)
            return name

        self.quick, self.slow = quick, slow

    async def rash(self, task: gr.Task) -> str:
        await task.run(self.quick, "quick")
        if self.runs == 1:
            raise Boom
        return await task.run(self.quick, "more")

    async def patient(self, task: gr.Task, name: str) -> None:
        if self.others == "asleep":
            await task.sleep(50)
        else:
            await task.run(self.slow, name)

    async def script(self, task: gr.Task, job: Job) -> str:
        self.runs += 1
        async with task.nursery() as branches:
            rash = branches.start_soon(self.rash, task)
            for name in "abc":
                branches.start_soon(self.patient, task, name)
        return rash.result


@pytest.mark.parametrize("others", ["asleep", "unsent", "in flight"])
async def test_a_crash_of_a_branch_leaves_no_mark_on_the_others(database: Shared, others: str) -> None:
    rash = Rash(others)
    pool = agents(rash.script, parallel=1 if others == "unsent" else None)
    async with database.runtime(pool) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert await handle.result() == "more"
        assert rash.runs == 2
        assert rash.made.count("quick") == 1
        assert rash.made.count("a") == {"asleep": 0, "unsent": 1, "in flight": 2}[others]
        async with database.open() as store:
            assert OutcomeKind.CANCELLED not in {row.status for row in await journal_of(store, "T1")}


async def test_a_crash_that_has_cancelled_what_must_not_be_guessed_at_is_named_when_it_does_not_come_again(
    database: Shared,
) -> None:
    rash = Rash("in flight", gr.Effect.KEYED)
    async with database.runtime(agents(rash.script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(60)
        status = await handle.status()
        assert status.parked is ParkReason.DIVERGED
        assert "'slow' as cancelled" in str(status.parked_detail)
        assert "if a crash of another branch had, it has not come again" in str(status.parked_detail)
        await handle.terminate("another course is on record")
        await handle.new_attempt("the crash is over", from_operation="root/1.2#1")
        assert await handle.result() == "more"


async def test_c11_a_task_that_crashes_too_often_is_parked_and_the_pool_goes_on(database: Shared) -> None:
    runs = 0

    async def script(task: gr.Task, job: Job) -> str:
        nonlocal runs
        if job.text == "bad":
            runs += 1
            raise Boom("again")
        return job.text

    async with database.runtime(agents(script, max_restarts=3, period=60.0, max_running=1)) as runtime:
        bad = await runtime.submit(POOL, Job("bad"))
        assert await (await runtime.submit(POOL, Job("good"))).result() == "good"
        await anyio.sleep(60)
        status = await bad.status()
        assert (status.condition, status.parked, status.outcome) == (Condition.WAITING, ParkReason.CRASH_LOOP, None)
        assert status.parked_detail is not None
        assert "Boom: again" in status.parked_detail
        assert runs == 4
        assert await (await runtime.submit(POOL, Job("more"))).result() == "more"


async def test_c11_the_history_of_restarts_outlives_the_process(database: Shared) -> None:
    runs = 0

    async def script(task: gr.Task, job: Job) -> str:
        nonlocal runs
        runs += 1
        raise Boom

    for life in range(4):
        async with database.runtime(agents(script, max_restarts=3, period=3600.0)) as runtime:
            handle = await runtime.submit(POOL, Job(), task_id="T1")
            await anyio.sleep(1.0)
            assert runs > life
            if life == 3:
                assert (await handle.status()).parked is ParkReason.CRASH_LOOP
    assert runs == 4


async def test_an_agent_that_cannot_be_made_is_a_failed_start_of_its_pool(database: Shared) -> None:
    class Broken(gr.Agent[Job, str]):
        def __init__(self) -> None:
            raise Boom

    with pytest.raises(gr.StartFailed):
        async with database.runtime(gr.Agents("agents", Broken), intensity=0):
            pass


async def test_what_was_accepted_before_a_death_is_not_done_again_by_who_takes_over(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        return await task.run(note, "a") + await task.run(note, "b")

    async with (
        database.death_at("after CommitTurn task:T1") as source,
        database.runtime(agents(script), source=source) as runtime,
    ):
        await (await runtime.submit(POOL, Job(), task_id="T1")).result()
    calls.made.remove("a")
    async with database.runtime(agents(script)) as runtime:
        assert await runtime.task("T1").result() == "AB"
        assert "a" not in calls.made
        assert (await runtime.task("T1").status()).attempt == 1


async def test_a_lost_lease_breaks_the_activation_off_and_the_task_goes_on_under_a_new_execution(
    database: Shared,
) -> None:
    begun: list[str] = []

    @gr.operation(effect=gr.Effect.SAFE)
    async def slow(op: gr.Operation) -> str:
        begun.append(op.id)
        await anyio.sleep(10)
        return "slept"

    async def script(task: gr.Task, job: Job) -> str:
        return await task.run(slow)

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(1)
        first = (await handle.status()).execution
        database.pass_lease()
        assert await handle.result() == "slept"
        assert begun == ["root#1", "root#1"]
        async with database.open() as store:
            task = await task_of(store, "T1")
            assert task.generation > 1
            assert first != (await task_of(store, "T1")).owner
            assert len(await journal_of(store, "T1")) == 1


async def test_two_runtimes_share_a_pool_and_each_task_is_performed_by_one_of_them(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        return await task.run(note, job.text)

    async with (
        database.runtime(agents(script, max_running=2)) as one,
        database.runtime(agents(script, max_running=2)) as other,
    ):
        handles = [await (one, other)[n % 2].submit(POOL, Job(str(n))) for n in range(20)]
        results: list[str] = []

        async def collect(handle: gr.TaskHandle[str]) -> None:
            results.append(await handle.result())

        async with anyio.create_task_group() as group:
            for handle in handles:
                group.start_soon(collect, handle)
        assert sorted(results) == sorted(str(n) for n in range(20))
        assert sorted(calls.made) == sorted(str(n) for n in range(20))


async def test_what_is_in_flight_when_the_pool_stops_lands_and_is_not_done_again(database: Shared) -> None:
    calls: list[str] = []

    @gr.operation(effect=gr.Effect.SAFE)
    async def work(text: str) -> str:
        calls.append(text)
        await anyio.sleep(2)
        return text

    async def script(task: gr.Task, job: Job) -> str:
        return await task.run(work, "a") + await task.run(work, "b")

    async with database.runtime(agents(script)) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(1)
    assert calls == ["a"]
    async with database.open() as store:
        assert len(await journal_of(store, "T1")) == 1
        assert (await task_of(store, "T1")).condition is Condition.RUNNABLE
    async with database.runtime(agents(script)) as runtime:
        assert await runtime.task("T1").result() == "ab"
    assert calls == ["a", "b"]


async def test_what_does_not_land_in_time_when_the_pool_stops_is_cut_short_and_done_again(database: Shared) -> None:
    calls: list[str] = []

    @gr.operation(effect=gr.Effect.SAFE)
    async def work(op: gr.Operation) -> str:
        calls.append(op.id)
        await anyio.sleep(100 if len(calls) == 1 else 1)
        return "done"

    async def script(task: gr.Task, job: Job) -> str:
        return await task.run(work)

    async with database.runtime(agents(script, shutdown=5.0)) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(1)
        began = anyio.current_time()
    assert anyio.current_time() - began == pytest.approx(5.0, abs=0.5)
    async with database.runtime(agents(script)) as runtime:
        assert await runtime.task("T1").result() == "done"
        assert (await runtime.task("T1").status()).outcome is TaskOutcome.SUCCEEDED
    assert calls == ["root#1", "root#1"]


async def test_a_turn_that_takes_long_does_not_lose_what_it_was_shown(database: Shared) -> None:
    calls, reached, gate = Calls(), anyio.Event(), anyio.Event()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        text = await task.run(note, "a")
        reached.set()
        await gate.wait()  # no call of the task's: what it was told is committed without it
        return text

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await reached.wait()
        await anyio.sleep(0.1)
        async with database.open() as store:
            assert len(await journal_of(store, "T1")) == 1
        gate.set()
        assert await handle.result() == "A"


async def test_control_code_that_is_cancelled_from_outside_is_a_crash_that_writes_nothing(database: Shared) -> None:
    calls, runs = Calls(), 0
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        nonlocal runs
        runs += 1
        if runs > 1:
            return await task.run(note, "b")
        with anyio.CancelScope() as scope:
            async with task.nursery() as branches:
                branches.start_soon(cancel, scope)
                await task.sleep(100)
        return "?"

    async def cancel(scope: anyio.CancelScope) -> None:
        scope.cancel()

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        assert await handle.result() == "B"
        assert runs == 2


async def test_a_write_of_an_owner_that_has_lost_the_task_is_refused_and_kept(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        return await task.run(slow)

    @gr.operation(effect=gr.Effect.SAFE)
    async def slow() -> str:
        await anyio.sleep(10)
        return "slept"

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(1)
        async with database.runtime(gr.Supervisor("nothing")) as other:
            await other.task("T1").terminate("enough")
        assert isinstance(await raised(handle.result()), gr.TaskCancelled)
        await anyio.sleep(15)
        async with database.open() as store:
            refused = await store.read(ListObservations(address="task:T1", kind=ObservationKind.REFUSED))
            assert len(refused) >= 1
        assert (await handle.status()).outcome is TaskOutcome.CANCELLED


async def test_an_operation_that_waits_to_be_invoked_again_does_not_hold_up_the_stop_of_its_pool(
    database: Shared,
) -> None:
    tries: list[int] = []

    @gr.operation(effect=gr.Effect.SAFE, retry=gr.RetryPolicy(invocations=50))
    async def flaky(op: gr.Operation) -> str:
        tries.append(op.invocation)
        if len(tries) < 12:
            raise ConnectionError("try again")
        return "done"

    async def script(task: gr.Task, job: Job) -> str:
        return await task.run(flaky)

    async with database.runtime(agents(script)) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        while len(tries) < 9:  # noqa: ASYNC110 - virtual time; nothing else tells of it
            await anyio.sleep(1)
        began = anyio.current_time()
    assert anyio.current_time() - began < 1
    async with database.runtime(agents(script)) as runtime:
        assert await runtime.task("T1").result() == "done"
    assert tries == list(range(1, 13))


async def test_control_code_that_a_stranger_cancels_while_its_task_rests_is_run_again_at_once(database: Shared) -> None:
    scopes: list[anyio.CancelScope] = []

    async def script(task: gr.Task, job: Job) -> str:
        scope = anyio.CancelScope()
        scopes.append(scope)
        with scope:
            return (await task.receive(Steer, timeout=None)).text
        raise AssertionError("it went on behind a foreign cancellation")

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await eventually(lambda: len(scopes) == 1)
        await anyio.sleep(5)
        scopes[0].cancel()
        await eventually(lambda: len(scopes) == 2, within=5)
        await handle.signal(Steer("left"))
        assert await handle.result() == "left"


async def test_c11_a_crash_ahead_of_what_is_on_record_is_a_crash_and_no_divergence(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()
    begun: list[str] = []

    async def script(task: gr.Task, job: Job) -> str:
        begun.append("begun")
        if len(begun) == 2:
            raise Boom("out of memory, say")
        await task.run(note, "a")
        return (await task.receive(Steer, timeout=None)).text

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(1)
    async with database.runtime(agents(script)) as runtime:
        handle = runtime.task("T1")
        await handle.signal(Steer("left"))
        assert await handle.result(timeout=100) == "left"
    assert len(begun) == 3
    assert calls.made == ["a"]


async def test_k01_a_crash_that_the_store_could_not_take_in_time_is_told_to_it_again(
    database: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []
    refused: list[str] = []
    commit = Committer.commit

    async def away_once(store: Committer, transition: Any) -> Any:
        if isinstance(transition, ReleaseTask) and not refused:
            refused.append(transition.address)
            raise gr.StoreUnavailable("a test's", "it is away")
        return await commit(store, transition)

    monkeypatch.setattr(Committer, "commit", away_once)

    async def script(task: gr.Task, job: Job) -> str:
        runs.append("run")
        if len(runs) == 1:
            raise Boom
        return "done"

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert await handle.result(timeout=100) == "done"  # its lease has held all the time: nobody else could find it
    assert refused == ["task:T1"]
