"""What operators do with tasks: pursue them anew, decide about operations, release what is parked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

import greenroom as gr
from greenroom.persistence import ParkReason
from tests.durable.helpers import raised, settled
from tests.tasks.scripts import POOL, Calls, Job, Steer, agents, journal_of

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


async def fails_once(calls: Calls, task: gr.Task) -> str:
    """Three operations one after another; the first attempt fails behind them."""
    note = calls.safe()
    for text in ("a", "b", "c"):
        await task.run(note, f"{text}{task.attempt}")
    if task.attempt == 1:
        raise gr.Failed("not yet")
    return str(task.random())


# ------------------------------------------------------------------------------------------------- another attempt


async def test_r19_a_new_attempt_keeps_what_was_recorded_before_the_operation(database: Shared) -> None:
    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> list[str]:
        said = [await task.run(note, text) for text in ("a", "b", "c")]
        if task.attempt == 1:
            raise gr.Failed("not yet")
        return said

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await handle.wait()
        assert await handle.new_attempt("the page is back", from_operation="root#2") == 2
        assert await handle.result() == ["A", "B", "C"]
        assert calls.made == ["a", "b", "c", "b", "c"]


async def test_r19_before_an_operation_is_up_to_the_row_with_which_it_was_called(database: Shared) -> None:
    calls = Calls()

    @gr.operation(effect=gr.Effect.SAFE)
    async def slow(text: str, seconds: float) -> str:
        await anyio.sleep(seconds)
        calls.made.append(text)
        return text

    async def script(task: gr.Task, job: Job) -> str:
        await task.run(slow, "first", 0.1)
        async with task.nursery() as branches:
            branches.start_soon(task.run, slow, "quick", 1.0)
            branches.start_soon(task.run, slow, "late", 2.0)
        if task.attempt == 1:
            raise gr.Failed("not yet")
        return "done"

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await handle.wait()
        async with database.open() as store:
            _, quick, late = await journal_of(store, "T1")
            assert (quick.admitted, late.admitted, late.basis) == (1, 1, 2)
        await handle.new_attempt("again", from_operation=str(late.call))
        assert await handle.result() == "done"
        assert calls.made == ["first", "quick", "late", "quick", "late"]


async def test_r19_a_new_attempt_from_the_first_operation_has_the_same_seed(database: Shared) -> None:
    drawn: list[float] = []

    async def script(task: gr.Task, job: Job) -> None:
        drawn.append(task.random())
        await task.run(Calls().safe(), "a")
        raise gr.Failed("never")

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await handle.wait()
        await handle.new_attempt("again", from_operation="note")
        await handle.wait()
        await handle.new_attempt("from the beginning")
        await handle.wait()
        assert drawn[0] == drawn[1] != drawn[2]


async def test_r19_a_new_attempt_stays_in_the_segment_of_its_operation(database: Shared) -> None:
    calls = Calls()

    async def script(task: gr.Task, job: Job) -> str:
        await task.run(calls.safe(), job.text)
        if job.text == "first":
            await task.continue_as(Job("second"))
        if task.attempt == 1:
            raise gr.Failed("not yet")
        return job.text

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job("first"))
        await handle.wait()
        await handle.new_attempt("again", from_operation="root#1")
        assert await handle.result() == "second"
        assert calls.made == ["first", "second", "second"]


async def test_r19_an_operation_that_is_not_there_or_not_one_is_named(database: Shared) -> None:
    calls = Calls()

    async def script(task: gr.Task, job: Job) -> None:
        await fails_once(calls, task)

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await handle.wait()
        with pytest.raises(gr.StoreRefused, match=r"root#1, root#2, root#3") as several:
            await handle.new_attempt("again", from_operation="note")
        assert several.value.reason == "conflict"
        with pytest.raises(gr.StoreRefused, match=r"has no operation 'root#9'.*root#3 \(note\)") as unknown:
            await handle.new_attempt("again", from_operation="root#9")
        assert unknown.value.reason == "unknown_operation"
        assert (await handle.status()).attempt == 1


# ----------------------------------------------------------------------------------------------------- decisions


def pay(made: list[str]) -> gr.OperationDef[[], str]:
    @gr.operation(effect=gr.Effect.ONCE)
    async def pay() -> str:
        made.append("paid")
        await anyio.sleep(1000)
        return "receipt"

    return pay


async def lost(database: Shared, made: list[str], script: Any) -> None:
    """A task T1 whose worker dies while it pays."""
    async with (
        database.death_at("before AcceptMessage task:T2 strike") as source,
        database.runtime(agents(script), source=source) as runtime,
    ):
        await runtime.submit(POOL, Job(), task_id="T1")
        other = await runtime.submit(POOL, Job("other"), task_id="T2")
        await anyio.sleep(2)
        await other.signal(Steer(""), message_id="strike")
    assert made == ["paid"]


@pytest.mark.parametrize(
    ("decision", "result", "outcome", "payments"),
    [
        ("succeeded", "the old receipt", "the old receipt", 1),
        ("repeat", None, "receipt", 2),
        ("failed", None, "OperatorDecision", 1),
    ],
)
async def test_i8_what_an_operator_decides_of_an_unknown_operation_is_done(
    database: Shared, decision: Any, result: object, outcome: str, payments: int
) -> None:
    made: list[str] = []
    operation = pay(made)

    async def script(task: gr.Task, job: Job) -> str:
        if job.text:
            return (await task.receive(Steer, timeout=None)).text
        try:
            return await task.run(operation)
        except gr.OperationFailed as failed:
            return failed.type

    await lost(database, made, script)
    async with database.runtime(agents(script)) as runtime:
        handle = runtime.task("T1")
        await anyio.sleep(2)
        assert (await handle.status()).parked is ParkReason.UNRESOLVED
        (open_,) = await handle.unresolved()
        assert (open_.call, open_.name, open_.effect, open_.sent) == ("root#1", "pay", "once", 1)
        refused = await raised(handle.release())
        assert isinstance(refused, gr.StoreRefused)
        assert "'pay' (root#1)" in str(refused)
        assert "decide about 'pay' (root#1) and release it" in await handle.explain()
        assert await handle.decide("root#1", decision, by="ann", result=result)
        assert await handle.result() == outcome
        assert len(made) == payments
        assert await handle.unresolved() == ()
        _, event, _ = [event async for event in handle.events()]
        assert [(said.decision, said.by) for said in event.decisions] == [(decision, "ann")]


async def test_who_has_an_operation_repeated_is_told_when_it_is_in_doubt_again_and_with_its_outcome(
    database: Shared,
) -> None:
    made: list[str] = []
    operation = pay(made)

    async def script(task: gr.Task, job: Job) -> str:
        return (await task.receive(Steer, timeout=None)).text if job.text else await task.run(operation)

    await lost(database, made, script)
    async with database.runtime(agents(script)) as runtime:
        await anyio.sleep(2)
        assert [each.decisions for each in await runtime.task("T1").unresolved()] == [()]
        await runtime.task("T1").decide("root#1", "repeat", by="ann")
    async with (
        database.death_at("before AcceptMessage task:T2 again") as source,
        database.runtime(agents(script), source=source) as runtime,
    ):
        await anyio.sleep(1)
        assert made == ["paid", "paid"]
        await runtime.task("T2").signal(Steer(""), message_id="again")
    async with database.runtime(agents(script)) as runtime:
        handle = runtime.task("T1")
        await anyio.sleep(2)
        (open_,) = await handle.unresolved()
        assert [str(said) for said in open_.decisions] == ["repeat by ann"]
        await handle.decide("root#1", "succeeded", by="bob", result="the old receipt")
        assert await handle.result() == "the old receipt"
        _, event, _ = [event async for event in handle.events()]
        assert [str(said) for said in event.decisions] == ["repeat by ann", "succeeded by bob"]
        assert event.decisions[0].at < event.decisions[1].at


@pytest.mark.parametrize("amount", ["the same", "another"])
async def test_r19_a_decision_holds_in_a_new_attempt_when_that_comes_to_the_same_operation(
    database: Shared, amount: str
) -> None:
    made: list[str] = []
    attempts: list[int] = []

    @gr.operation(effect=gr.Effect.ONCE)
    async def send(text: str) -> str:
        made.append(text)
        await anyio.sleep(1000)
        return "receipt"

    calls = Calls()
    note = calls.safe()

    async def script(task: gr.Task, job: Job) -> str:
        attempts.append(task.attempt)
        for text in "ab":  # the new attempt has not come to what was decided when it begins
            await task.run(note, text)
        return await task.run(send, amount if task.attempt == 2 else "the same")

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await anyio.sleep(2)
        await handle.terminate("enough")
        (open_,) = await handle.unresolved()
        assert not await handle.decide(open_.call, "succeeded", by="ann", result="the old receipt")
        assert await handle.new_attempt("again") == 2
        if amount == "the same":
            assert await handle.result(timeout=100) == "the old receipt"
        else:  # it was not said of this one that it happened
            await anyio.sleep(10)
            status = await handle.status()
            assert status.parked is ParkReason.DIVERGED
            assert "calls it with other parameters" in (status.parked_detail or "")
        assert made == ["the same"]
        assert calls.made == ["a", "b"] * 2


async def test_i8_an_operation_that_is_not_unresolved_is_not_decided_about(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> None:
        await task.run(Calls().safe(), "a")

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await handle.wait()
        with pytest.raises(gr.StoreRefused):
            await handle.decide("root#1", "repeat", by="ann")
        with pytest.raises(ValueError, match="has no result"):
            await handle.decide("root#1", "failed", by="ann", result=5)
        with pytest.raises(ValueError, match="maybe"):
            await handle.decide("root#1", "maybe", by="ann")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------- releasing


async def test_a_parked_task_runs_again_when_it_is_released(database: Shared) -> None:
    broken = True

    async def script(task: gr.Task, job: Job) -> str:
        if broken:
            raise RuntimeError("a bug")
        return "mended"

    async with database.runtime(agents(script, max_restarts=0)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await settled()
        assert (await handle.status()).parked is ParkReason.CRASH_LOOP
        broken = False
        await handle.release()
        assert await handle.result() == "mended"


async def test_a_task_that_is_not_parked_is_not_released(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> None:
        await task.receive(Steer, timeout=None)

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await settled()
        refused = await raised(handle.release())
        assert isinstance(refused, gr.StoreRefused)
        assert refused.reason == "not_parked"
        assert isinstance(await raised(runtime.task("T9").release()), gr.NoSuchTask)
