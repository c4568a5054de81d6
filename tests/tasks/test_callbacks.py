"""Callbacks of tasks: one answer from outside, before, while or after it is waited for, through deaths, and never two (K05)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from attrs import define, field

import greenroom as gr
from greenroom.persistence import AnswerCallback, CallbackStatus, ReadCallback, digest_of, split_token
from greenroom.persistence.callbacks import AnsweredCallbacks, OpenCallbacks
from greenroom.persistence.retention import Prunable, Prune
from greenroom.persistence.tasks import Condition
from greenroom.runtime.durable.payloads import Payloads
from tests.durable.helpers import raised, settled
from tests.tasks.scripts import POOL, Job, Steer, agents, journal_of, patient

if TYPE_CHECKING:
    from greenroom.persistence.journal import JournalEntry
    from tests.durable.helpers import Shared
    from tests.tasks.scripts import Script


@define(eq=False)
class Told:
    """What the tasks of a test have told the outside, also beyond the deaths of their processes."""

    tokens: list[str] = field(factory=list)
    names: list[str] = field(factory=list)
    waiting: anyio.Event = field(factory=anyio.Event)

    def payment(self, *, timeout: float | None = None, pause: float = 0.0) -> Script:
        """Opens a callback, tells its token to the outside, pauses, and waits for the answer."""

        @gr.operation(effect=gr.Effect.KEYED)
        async def publish(token: str) -> None:
            self.tokens.append(token)

        async def script(task: gr.Task, job: Job) -> Any:
            callback = await task.callback("payment", timeout=timeout)
            self.names.append(callback.name)
            await task.run(publish, callback.token)
            if pause:
                await task.sleep(pause)
            try:
                answer = await callback.wait()
            except gr.WaitTimeout as error:
                return str(error)
            assert await callback.wait() == answer
            return answer

        return script


def identity_of(row: JournalEntry) -> object:
    """What the call has come to that opened a callback."""
    assert isinstance(row.body, bytes)
    return Payloads().decode(row.body, "a row")


async def answered(database: Shared, token: str, value: object) -> str:
    async with database.client() as client:
        return await client.answer(token, value)


async def test_k05_an_answer_ends_the_wait_for_it(database: Shared) -> None:
    told = Told()
    async with database.runtime(agents(told.payment())) as runtime:
        handle = await runtime.submit(POOL, Job())
        await settled()
        assert await answered(database, told.tokens[0], "paid") == "accepted"
        assert await handle.result() == "paid"
        assert set(told.names) == {"payment"}


async def test_k05_an_answer_that_comes_before_anybody_waits_is_kept(database: Shared) -> None:
    told = Told()
    async with database.runtime(agents(told.payment(pause=100))) as runtime:
        handle = await runtime.submit(POOL, Job())
        await settled()
        assert await answered(database, told.tokens[0], ["paid", 7]) == "accepted"
        assert await handle.result() == ["paid", 7]
        assert anyio.current_time() == pytest.approx(100, abs=1)


async def test_k05_an_answer_while_no_process_runs_wakes_the_task_in_the_next(database: Shared) -> None:
    told = Told()
    async with database.runtime(agents(told.payment(timeout=1000))) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
    assert await answered(database, told.tokens[0], "paid") == "accepted"
    database.time.pass_time(5000)  # it was in time, though nobody looked at it then
    async with database.runtime(agents(told.payment(timeout=1000))) as runtime:
        assert await runtime.task("T1").result() == "paid"
    assert len(told.tokens) == 1


async def test_k05_an_answer_whose_giver_died_on_the_way_is_brought_by_the_sweep(database: Shared) -> None:
    told = Told()
    async with database.runtime(agents(told.payment(), max_resident=1)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
        await runtime.submit(POOL, Job("another"))
        await settled()
        assert (await handle.status()).condition is Condition.WAITING
        async with database.open() as store:
            parts = split_token(told.tokens[0])
            assert parts is not None
            data = Payloads().encode_value("paid")
            await store.commit(
                AnswerCallback(callback_id=parts[0], secret_digest=parts[1], answer=data, digest=digest_of(data))
            )
            assert len(await store.read(AnsweredCallbacks())) == 1
        assert await handle.result() == "paid"
        async with database.open() as store:
            assert await store.read(AnsweredCallbacks()) == ()


async def test_an_answer_is_given_once(database: Shared) -> None:
    told = Told()
    async with database.runtime(agents(told.payment(pause=10))) as runtime:
        handle = await runtime.submit(POOL, Job())
        await settled()
        token = told.tokens[0]
        assert await answered(database, token, "paid") == "accepted"
        assert await answered(database, token, "paid") == "duplicate"
        assert await answered(database, token, "not paid") == "conflict"
        assert await handle.result() == "paid"


async def test_an_answer_to_a_task_that_has_ended_is_late(database: Shared) -> None:
    told = Told()

    async def leaves(task: gr.Task, job: Job) -> str:
        return (await task.callback("payment", timeout=None)).token

    async with database.runtime(agents(leaves)) as runtime:
        token = await (await runtime.submit(POOL, Job())).result()
        assert await answered(database, token, "paid") == "late"
    async with database.runtime(agents(told.payment())) as runtime:
        handle = await runtime.submit(POOL, Job())
        await settled()
        await handle.terminate("enough")
        assert await answered(database, told.tokens[0], "paid") == "late"


async def test_a_wait_ends_when_no_answer_has_come_in_time(database: Shared) -> None:
    told = Told()
    async with database.runtime(agents(told.payment(timeout=50))) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert "callback 'payment'" in await handle.result()
        assert anyio.current_time() == pytest.approx(50, abs=1)
        assert await answered(database, told.tokens[0], "paid") == "late"


async def test_a_wait_that_begins_when_the_time_is_up_ends_at_once(database: Shared) -> None:
    told = Told()
    async with database.runtime(agents(told.payment(timeout=50, pause=80)), source=patient(database)) as runtime:
        handle = await runtime.submit(POOL, Job())
        assert "callback 'payment'" in await handle.result()
        assert anyio.current_time() == pytest.approx(80, abs=1)


async def test_a_task_that_was_dropped_from_memory_wakes_when_the_time_of_its_callback_is_up(database: Shared) -> None:
    told = Told()
    pool = agents(told.payment(timeout=500), max_resident=1)
    async with database.runtime(pool, source=patient(database)) as runtime:
        handles = [await runtime.submit(POOL, Job(), task_id=f"T{n}") for n in range(3)]
        await anyio.sleep(1)
        waiting = [handle for handle in handles if (await handle.status()).condition is Condition.WAITING]
        assert len(waiting) == 2
        for handle in handles:
            assert "callback 'payment'" in await handle.result()
        assert anyio.current_time() == pytest.approx(500, abs=5)


async def test_an_answer_in_the_last_moment_counts_and_one_after_it_does_not(database: Shared) -> None:
    """The store decides, and the task is told what it has decided."""
    told = Told()
    async with database.runtime(agents(told.payment(timeout=50)), source=patient(database)) as runtime:
        for moment, expected in ((49.999, "accepted"), (50.001, "late")):
            handle = await runtime.submit(POOL, Job())
            await anyio.sleep(moment)
            disposition = await answered(database, told.tokens[-1], "paid")
            assert disposition == expected
            assert (await handle.result() == "paid") == (disposition == "accepted")


async def test_a_token_is_the_same_at_replay_and_cannot_be_made_from_what_is_public(database: Shared) -> None:
    told = Told()
    async with database.runtime(agents(told.payment(pause=10))) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
    async with database.runtime(agents(told.payment(pause=10))) as runtime:
        await anyio.sleep(20)
        token = told.tokens[0]
        assert len(told.names) == 2
        assert await answered(database, token, "paid") == "accepted"
        assert await runtime.task("T1").result() == "paid"
    async with database.open() as store:
        identity, _, secret = token.partition(".")
        record = await store.read(ReadCallback(callback_id=identity))
        assert record is not None
        assert record.status is CallbackStatus.ANSWERED
        assert all(
            secret.encode() not in repr(row).encode() for row in await journal_of(store, "T1") if row.name != "publish"
        )
    async with database.runtime(agents(told.payment())) as runtime:
        await runtime.submit(POOL, Job(), task_id="T2")
        await settled()
        assert told.tokens[-1].partition(".")[2] != secret


async def test_a_token_with_another_secret_opens_nothing(database: Shared) -> None:
    told = Told()
    async with database.runtime(agents(told.payment())) as runtime:
        await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
        identity = told.tokens[0].partition(".")[0]
        assert isinstance(await raised(answered(database, f"{identity}.{'0' * 64}", "paid")), gr.UnknownToken)


async def test_callbacks_of_one_name_are_different_ones(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> list[str]:
        async def ask() -> str:
            callback = await task.callback("payment", timeout=None)
            tokens.append(callback.token)
            answer: str = await callback.wait()
            return answer

        async with task.nursery() as branches:
            both = [branches.start_soon(ask) for _ in range(2)]
        return [branch.result for branch in both]

    tokens: list[str] = []
    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await settled()
        first, second = tokens
        await answered(database, second, "two")
        await answered(database, first, "one")
        assert await handle.result() == ["one", "two"]


async def test_the_wait_for_a_callback_can_be_cut_short_and_taken_up_again(database: Shared) -> None:
    tokens: list[str] = []

    async def script(task: gr.Task, job: Job) -> str:
        callback = await task.callback("payment", timeout=None)
        tokens.append(callback.token)
        with task.move_on_after(10) as limit:
            await callback.wait()
        assert limit.expired
        answer: str = await callback.wait()
        return answer

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await anyio.sleep(20)
        await answered(database, tokens[0], "paid")
        assert await handle.result() == "paid"


@pytest.mark.parametrize("phase", ["before", "unacknowledged", "after"])
async def test_a_callback_is_there_exactly_when_its_task_has_the_row_that_says_so(database: Shared, phase: str) -> None:
    told = Told()
    async with (
        database.death_at(f"{phase} CommitTurn task:T1") as source,
        database.runtime(agents(told.payment()), source=source) as runtime,
    ):
        await (await runtime.submit(POOL, Job(), task_id="T1")).result()
    async with database.open() as store:
        opened = await store.read(OpenCallbacks(address="task:T1"))
        said = [str(identity_of(row)) for row in await journal_of(store, "T1")]
    assert list(opened) == said
    assert len(said) == (phase != "before")


@pytest.mark.parametrize("point", ["before CommitTurn task:T1", "after CommitTurn task:T1"])
async def test_a_callback_is_opened_once_whatever_becomes_of_the_process(database: Shared, point: str) -> None:
    told = Told()
    async with (
        database.death_at(point) as source,
        database.runtime(agents(told.payment()), source=source) as runtime,
    ):
        await (await runtime.submit(POOL, Job(), task_id="T1")).result()
    async with database.runtime(agents(told.payment())) as runtime:
        await settled()
        assert await answered(database, told.tokens[0], "paid") == "accepted"
        assert await runtime.task("T1").result() == "paid"
        assert len(set(told.tokens)) == 1


async def test_a_callback_that_is_opened_and_waited_for_at_once_is_waited_for_until_its_time_is_up(
    database: Shared,
) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        callback = await task.callback("payment", timeout=1e-6)
        try:
            await callback.wait()
        except gr.WaitTimeout:
            return callback.token
        return "?"

    async with database.runtime(agents(script)) as runtime, database.open() as store:
        token = await (await runtime.submit(POOL, Job())).result()
        parts = split_token(token)
        assert parts is not None
        record = await store.read(ReadCallback(callback_id=parts[0]))
        assert record is not None
        assert record.status is CallbackStatus.EXPIRED


async def test_a_task_that_ends_with_the_turn_that_has_opened_a_callback_leaves_none_open(database: Shared) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        return (await task.callback("payment", timeout=None)).token

    async with database.runtime(agents(script)) as runtime:
        token = await (await runtime.submit(POOL, Job())).result()
        assert await answered(database, token, "paid") == "late"


async def test_a_segment_that_ends_with_the_turn_that_has_opened_a_callback_leaves_it_to_the_next(
    database: Shared,
) -> None:
    tokens: list[str] = []

    async def script(task: gr.Task, job: Job) -> str:
        if not job.text:
            tokens.append((await task.callback("payment", timeout=None)).token)
            await task.continue_as(Job(tokens[-1]))
        answer: str = await task.callback_of(job.text).wait()
        return answer

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await settled()
        assert await answered(database, tokens[0], "paid") == "accepted"
        assert await handle.result() == "paid"


async def test_signals_go_on_while_a_callback_is_waited_for(database: Shared) -> None:
    tokens: list[str] = []

    async def script(task: gr.Task, job: Job) -> list[str]:
        callback = await task.callback("payment", timeout=None)
        tokens.append(callback.token)
        heard: list[str] = []

        async def listen() -> None:
            heard.append((await task.receive(Steer, timeout=None)).text)

        async with task.nursery() as branches:
            branches.start_soon(listen)
            heard.append(await callback.wait())
        return heard

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await settled()
        await answered(database, tokens[0], "paid")
        await handle.signal(Steer("left"))
        assert await handle.result() == ["paid", "left"]


@pytest.mark.parametrize(("name", "timeout"), [("", None), ("  ", None), ("payment", 0), ("payment", float("nan"))])
async def test_what_cannot_be_a_callback_is_refused(database: Shared, name: str, timeout: float | None) -> None:
    async def script(task: gr.Task, job: Job) -> str:
        try:
            await task.callback(name, timeout=timeout)
        except ValueError:
            return "refused"
        return "?"

    async with database.runtime(agents(script)) as runtime:
        assert await (await runtime.submit(POOL, Job())).result() == "refused"


# ------------------------------------------------------------------------------------------------- in other segments


def sequel(tokens: list[str], *, segments: int = 1, timeout: float | None = None) -> Script:
    """Opens a callback, goes on through segments of 100 seconds, and waits for the answer in the last."""

    async def script(task: gr.Task, job: Job) -> Any:
        number, _, token = job.text.partition(" ")
        if not token:
            token = (await task.callback("payment", timeout=timeout)).token
            tokens.append(token)
        if int(number or 0) < segments:
            await task.sleep(100)
            await task.continue_as(Job(f"{int(number or 0) + 1} {token}"))
        try:
            return await task.callback_of(token).wait()
        except gr.WaitTimeout as error:
            return f"{error}"
        except gr.OperationFailed as failed:
            return failed.type

    return script


@pytest.mark.parametrize("when", [50, 150, 500])
async def test_r18_the_answer_to_a_callback_of_an_earlier_segment_is_found_whenever_it_comes(
    database: Shared, when: float
) -> None:
    tokens: list[str] = []
    async with database.runtime(agents(sequel(tokens, segments=2)), source=patient(database)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await anyio.sleep(when)
        assert await answered(database, tokens[0], "paid") == "accepted"
        assert await handle.result() == "paid"
        assert len(tokens) == 1


async def test_r18_an_answer_that_nobody_has_waited_for_goes_on_with_the_task_beyond_retention(
    database: Shared,
) -> None:
    tokens: list[str] = []
    script = sequel(tokens, segments=5)
    async with database.runtime(agents(script), source=patient(database)) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        await settled()
        assert await answered(database, tokens[0], "paid") == "accepted"
        await anyio.sleep(150)
        async with database.open() as store:
            await store.commit(Prune(kind=Prunable.CALLBACKS, age=timedelta(0)))
            parts = split_token(tokens[0])
            assert parts is not None
            assert await store.read(ReadCallback(callback_id=parts[0])) is None
        assert await handle.result() == "paid"
        assert [event.kind async for event in handle.events()].count("signal") == 1


async def test_r18_a_callback_of_an_earlier_segment_has_its_time(database: Shared) -> None:
    tokens: list[str] = []
    async with database.runtime(agents(sequel(tokens, timeout=250)), source=patient(database)) as runtime:
        handle = await runtime.submit(POOL, Job())
        assert "the answer to the callback" in await handle.result()
        assert anyio.current_time() == pytest.approx(250, abs=2)
        assert await answered(database, tokens[0], "paid") == "late"


async def test_a_callback_whose_answer_retention_has_forgotten_is_said_to_be_forgotten(database: Shared) -> None:
    tokens: list[str] = []

    async def script(task: gr.Task, job: Job) -> Any:
        if not job.text:
            callback = await task.callback("payment", timeout=None)
            tokens.append(callback.token)
            await callback.wait()
            await task.sleep(100)
            await task.continue_as(Job(callback.token))
        try:
            return await task.callback_of(job.text).wait()
        except gr.OperationFailed as failed:
            return failed.type

    async with database.runtime(agents(script), source=patient(database)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await settled()
        assert await answered(database, tokens[0], "paid") == "accepted"
        await anyio.sleep(50)
        async with database.open() as store:
            await store.commit(Prune(kind=Prunable.CALLBACKS, age=timedelta(0)))
        assert await handle.result() == "Forgotten"


async def test_what_is_no_token_of_the_attempt_is_refused(database: Shared) -> None:
    tokens: list[str] = []
    seen: list[str] = []

    async def script(task: gr.Task, job: Job) -> None:
        own = (await task.callback("payment", timeout=None)).token
        tokens.append(own)
        for token in ("", "nonsense", f"{own}0", own.rpartition(".")[0], tokens[0]):
            try:
                task.callback_of(token)
            except ValueError as error:
                seen.append(str(error))

    async with database.runtime(agents(script)) as runtime:
        await (await runtime.submit(POOL, Job(), task_id="T1")).wait()
        await (await runtime.submit(POOL, Job(), task_id="T2")).wait()
    assert len(seen) == 4 + 5
    assert seen[-1] == "that is no token of a callback that attempt 1 of task 'T2' has opened"


async def test_an_answer_that_its_task_has_not_waited_for_is_late_when_the_task_ends(database: Shared) -> None:
    tokens: list[str] = []

    async def script(task: gr.Task, job: Job) -> None:
        tokens.append((await task.callback("payment", timeout=None)).token)
        await task.sleep(100)

    async with database.runtime(agents(script)) as runtime:
        handle = await runtime.submit(POOL, Job())
        await settled()
        assert await answered(database, tokens[0], "paid") == "accepted"
        await handle.wait()
        assert await handle.disposition(tokens[0].rpartition(".")[0]) == "late"
