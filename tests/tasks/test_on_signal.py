"""Handlers of signals: they run beside `perform`, answer those who ask, and end with the task (C05, K08)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from attrs import define, field, frozen

import greenroom as gr
from greenroom.runtime.replay.calls import GRACE
from greenroom.testing import replay
from tests.durable.helpers import raised, settled
from tests.tasks.scripts import POOL, Calls, Job, Steer, journal_of, patient, task_of

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


@frozen
class Rename(gr.Message[str]):
    """Call it that; the reply is what it was called."""

    name: str
    pause: float = 0.0


@frozen
class Finish(gr.Message[None]):
    """Come to an end."""


@frozen
class Spoil(gr.Message[None]):
    """Fail by that."""

    how: str


@define(eq=False)
class World:
    """What outlives processes."""

    calls: Calls = field(factory=Calls)
    begun: list[str] = field(factory=list)
    cancelled: list[str] = field(factory=list)


class Desk(gr.Agent[Job, Any]):
    """Has a name, which may be changed while it waits for its end."""

    def __init__(self, world: World, *, waits: bool = True) -> None:
        self.world, self.waits = world, waits
        self.name = ""
        self.note = world.calls.safe()

    async def perform(self, task: gr.Task, request: Job) -> Any:
        self.name = request.text
        if self.waits:
            await task.receive(Finish, timeout=None)
        return self.name

    @gr.on_signal
    async def rename(self, task: gr.Task, message: Rename) -> str:
        self.world.begun.append(message.name)
        if not message.name:
            raise gr.Rejected("a name, please")
        if message.pause:
            try:
                await task.sleep(message.pause)
            except gr.Cancelled as cancelled:
                self.world.cancelled.append(cancelled.reason)
                raise
        if message.name == "taken":
            raise gr.Rejected("too late")
        before, self.name = self.name, message.name
        return await task.run(self.note, before)

    @gr.on_signal
    async def spoil(self, task: gr.Task, message: Spoil) -> None:
        if message.how == "failed":
            raise gr.Failed("spoilt")
        raise RuntimeError("spoilt")


def desk(world: World, **options: Any) -> gr.Agents[Job, Any]:
    return gr.Agents("agents", lambda: Desk(world, **options), max_running=8)


async def test_c05_a_question_is_answered_by_the_handler_of_its_class(database: Shared) -> None:
    async with database.runtime(desk(World())) as runtime:
        handle = await runtime.submit(POOL, Job("one"))
        assert await handle.ask(Rename("two")) == "ONE"
        assert await handle.ask(Rename("three")) == "TWO"
        await handle.signal(Finish())
        assert await handle.result() == "three"


async def test_c05_the_same_question_asked_twice_is_handled_once_and_has_one_answer(database: Shared) -> None:
    world = World()
    async with database.runtime(desk(world)) as runtime:
        handle = await runtime.submit(POOL, Job("one"))
        answers = [await handle.ask(Rename("two"), message_id="q") for _ in range(2)]
        assert answers == ["ONE", "ONE"]
        assert world.begun == ["two"]
        assert isinstance(await raised(handle.ask(Rename("three"), message_id="q")), gr.NotAccepted)


async def test_c05_acceptance_and_answer_are_two_moments(database: Shared) -> None:
    async with database.runtime(desk(World())) as runtime:
        handle = await runtime.submit(POOL, Job("one"))
        await handle.ask(Rename("two", pause=100), until="accepted", message_id="q")
        assert anyio.current_time() < 1
        assert isinstance(await raised(handle.ask(Rename("two", pause=100), timeout=5, message_id="q")), gr.AskTimeout)
        assert await handle.ask(Rename("two", pause=100), timeout=None, message_id="q") == "ONE"
        assert anyio.current_time() == pytest.approx(100, abs=2)


@pytest.mark.parametrize("until", ["accepted", "answered"])
async def test_c05_a_rejected_question_changes_nothing_and_the_task_goes_on(database: Shared, until: Any) -> None:
    async with database.runtime(desk(World())) as runtime:
        handle = await runtime.submit(POOL, Job("one"))
        error = await raised(handle.ask(Rename(""), until=until, message_id="q"))
        assert isinstance(error, gr.Rejected)
        assert str(error) == "a name, please"
        assert await handle.disposition("q") == "rejected"
        assert isinstance(await raised(handle.ask(Rename(""), until=until, message_id="q")), gr.Rejected)
        await handle.signal(Finish())
        assert await handle.result() == "one"


async def test_a_handler_may_reject_what_it_has_accepted(database: Shared) -> None:
    async with database.runtime(desk(World())) as runtime:
        handle = await runtime.submit(POOL, Job("one"))
        await handle.ask(Rename("taken", pause=10), until="accepted", message_id="q")
        assert isinstance(
            await raised(handle.ask(Rename("taken", pause=10), timeout=None, message_id="q")), gr.Rejected
        )


async def test_a_signal_is_handled_without_anybody_asking(database: Shared) -> None:
    async with database.runtime(desk(World())) as runtime:
        handle = await runtime.submit(POOL, Job("one"))
        assert (await handle.signal(Rename("two"), message_id="m")).disposition == "accepted"
        await settled()
        assert await handle.disposition("m") == "delivered"
        await handle.signal(Finish())
        assert await handle.result() == "two"


async def test_handlers_run_side_by_side_in_the_order_of_their_signals(database: Shared) -> None:
    world = World()
    async with database.runtime(desk(world)) as runtime:
        handle = await runtime.submit(POOL, Job("one"))
        await handle.signal(Rename("slow", pause=50))
        await handle.signal(Rename("quick"))
        await settled()
        assert world.begun == ["slow", "quick"]
        assert world.calls.made == ["one"]
        await anyio.sleep(60)
        assert world.calls.made == ["one", "quick"]


async def test_k08_the_task_waits_for_handlers_that_run_when_perform_returns(database: Shared) -> None:
    async with database.runtime(desk(World())) as runtime:
        handle = await runtime.submit(POOL, Job("one"))
        await handle.signal(Rename("two", pause=GRACE - 10), message_id="q")
        await handle.signal(Finish())
        assert await handle.result() == "one"
        assert anyio.current_time() == pytest.approx(GRACE - 10, abs=2)
        assert await handle.ask(Rename("two", pause=GRACE - 10), message_id="q") == "ONE"


async def test_k08_a_handler_that_takes_too_long_is_interrupted_and_its_asker_is_told(database: Shared) -> None:
    world = World()
    async with database.runtime(desk(world)) as runtime:
        handle = await runtime.submit(POOL, Job("one"))
        await handle.ask(Rename("two", pause=10 * GRACE), until="accepted", message_id="q")
        await handle.signal(Finish())
        error = await raised(handle.ask(Rename("two", pause=10 * GRACE), timeout=None, message_id="q"))
        assert isinstance(error, gr.Interrupted)
        assert (error.task_id, error.message_id) == (handle.id, "q")
        assert await handle.result() == "one"
        assert anyio.current_time() == pytest.approx(GRACE, abs=2)
        assert len(world.cancelled) == 1
        assert await handle.disposition("q") == "interrupted"


async def test_k08_a_question_that_comes_when_perform_has_returned_is_late(database: Shared) -> None:
    world = World()
    async with database.runtime(desk(world)) as runtime:
        handle = await runtime.submit(POOL, Job("one"))
        await handle.ask(Rename("two", pause=30), until="accepted")
        await handle.signal(Finish())
        await settled()
        error = await raised(handle.ask(Rename("three"), timeout=None, message_id="q"))
        assert isinstance(error, gr.NotAccepted)
        assert error.disposition == "late"
        assert world.begun == ["two"]
        assert await handle.disposition("q") == "late"
        error = await raised(handle.ask(Rename("four")))
        assert isinstance(error, gr.NotAccepted)
        assert isinstance(await raised(runtime.task("T9").ask(Rename("five"))), gr.NotAccepted)


async def test_c05_termination_interrupts_what_is_asked(database: Shared) -> None:
    async with database.runtime(desk(World())) as runtime:
        handle = await runtime.submit(POOL, Job("one"))
        await handle.ask(Rename("two", pause=100), until="accepted", message_id="q")
        await handle.terminate("enough")
        assert isinstance(await raised(handle.ask(Rename("two", pause=100), message_id="q")), gr.Interrupted)


async def test_a_cancelled_task_cancels_its_handlers_and_tells_them_why(database: Shared) -> None:
    world = World()
    async with database.runtime(desk(world)) as runtime:
        handle = await runtime.submit(POOL, Job("one"))
        await handle.ask(Rename("two", pause=100), until="accepted", message_id="q")
        await handle.cancel("superseded")
        error = await raised(handle.result())
        assert isinstance(error, gr.TaskCancelled)
        assert error.reason == "superseded"
        assert world.cancelled == ["superseded"]
        error = await raised(handle.ask(Rename("two", pause=100), message_id="q"))
        assert isinstance(error, gr.Interrupted)
        assert error.why == "superseded"


async def test_a_handler_that_fails_fails_the_task(database: Shared) -> None:
    async with database.runtime(desk(World())) as runtime:
        handle = await runtime.submit(POOL, Job("one"))
        await handle.signal(Spoil("failed"))
        error = await raised(handle.result())
        assert isinstance(error, gr.TaskFailed)
        assert error.message == "spoilt"


async def test_a_crash_of_perform_answers_no_question_for_the_handlers_run_again(database: Shared) -> None:
    class Rash(Desk):
        crashed = False

        async def perform(self, task: gr.Task, request: Job) -> Any:
            await task.receive(Steer, timeout=None)
            if not Rash.crashed:
                Rash.crashed = True
                raise RuntimeError("a bug")
            return await super().perform(task, request)

    world = World()
    pool = gr.Agents("agents", lambda: Rash(world), max_running=8)
    async with database.runtime(pool) as runtime, anyio.create_task_group() as group:
        handle = await runtime.submit(POOL, Job("one"))
        answers: list[str] = []

        async def ask() -> None:
            answers.append(await handle.ask(Rename("two", pause=50), timeout=None))

        group.start_soon(ask)
        await settled()
        await handle.signal(Steer(""))
        await anyio.sleep(100)
        assert world.cancelled == ["the task is ending"]
        assert answers == ["ONE"]
        await handle.signal(Finish())
        assert await handle.result() == "two"


async def test_a_handler_that_crashes_is_a_crash_of_the_task(database: Shared) -> None:
    async with database.runtime(desk(World()), source=patient(database)) as runtime:
        handle = await runtime.submit(POOL, Job("one"))
        await handle.signal(Spoil("crash"))
        await anyio.sleep(100)
        status = await handle.status()
        assert status.parked is gr.ParkReason.CRASH_LOOP
        assert "spoilt" in (status.parked_detail or "")


@pytest.mark.parametrize(
    "point", ["before CommitTurn task:T1", "unacknowledged CommitTurn task:T1", "after CommitTurn task:T1 (2)"]
)
async def test_a_question_is_answered_once_whatever_becomes_of_the_process(database: Shared, point: str) -> None:
    world = World()
    async with database.death_at(point) as source, database.runtime(desk(world), source=source) as runtime:
        handle = await runtime.submit(POOL, Job("one"), task_id="T1")
        await handle.ask(Rename("two"), timeout=None, message_id="q")
        await handle.signal(Finish())
        await handle.result()
    async with database.runtime(desk(world)) as runtime:
        handle = runtime.task("T1")
        assert await handle.ask(Rename("two"), timeout=None, message_id="q") == "ONE"
        await handle.signal(Finish())
        assert await handle.result() == "two"
    assert set(world.calls.made) == {"one"}


async def test_a_task_with_running_handlers_is_dropped_and_comes_back(database: Shared) -> None:
    world = World()
    async with database.runtime(desk(world)) as runtime:
        handle = await runtime.submit(POOL, Job("one"), task_id="T1")
        await handle.ask(Rename("two", pause=1000), until="accepted", message_id="q")
    async with database.runtime(desk(world)) as runtime:
        handle = runtime.task("T1")
        assert await handle.ask(Rename("two", pause=1000), timeout=None, message_id="q") == "ONE"
        assert world.begun == ["two", "two"]
        assert world.calls.made == ["one"]


async def test_r18_a_task_does_not_go_on_as_another_segment_while_handlers_run(database: Shared) -> None:
    class Going(Desk):
        async def perform(self, task: gr.Task, request: Job) -> Any:
            if request.text == "second":
                return "second"
            await task.receive(Finish, timeout=None)
            try:
                await task.continue_as(Job("second"))
            except gr.SegmentBusy as busy:
                first = str(busy)
            await task.sleep(100)
            assert "root/0.1" in first
            return await task.continue_as(Job("second"))

    world = World()
    pool = gr.Agents("agents", lambda: Going(world))
    async with database.runtime(pool) as runtime:
        handle = await runtime.submit(POOL, Job("first"))
        await handle.ask(Rename("two", pause=10), until="accepted")
        await handle.signal(Finish())
        assert await handle.result() == "second"


async def test_receive_of_a_class_that_has_a_handler_is_refused(database: Shared) -> None:
    class Greedy(Desk):
        async def perform(self, task: gr.Task, request: Job) -> Any:
            try:
                await task.receive(Rename, timeout=None)
            except TypeError as error:
                return str(error)

    pool = gr.Agents("agents", lambda: Greedy(World()))
    async with database.runtime(pool) as runtime:
        assert "handler" in await (await runtime.submit(POOL, Job())).result()


async def test_a_large_answer_comes_whole(database: Shared) -> None:
    class Loud(gr.Agent[Job, Any]):
        async def perform(self, task: gr.Task, request: Job) -> Any:
            await task.receive(Finish, timeout=None)

        @gr.on_signal
        async def rename(self, task: gr.Task, message: Rename) -> str:
            return "x" * 200_000

    async with database.runtime(gr.Agents("agents", Loud)) as runtime:
        handle = await runtime.submit(POOL, Job())
        assert await handle.ask(Rename("a")) == "x" * 200_000


async def test_a_client_asks_a_task(database: Shared) -> None:
    async with database.runtime(desk(World())) as runtime:
        await runtime.submit(POOL, Job("one"), task_id="T1")
        await settled()
        async with database.runtime(gr.Supervisor("nothing")) as other:
            assert await other.task("T1").ask(Rename("two"), timeout=None) == "ONE"


async def test_the_journal_says_nothing_of_handlers_but_their_signals_and_operations(database: Shared) -> None:
    async with database.runtime(desk(World())) as runtime:
        handle = await runtime.submit(POOL, Job("one"), task_id="T1")
        await handle.ask(Rename("two"))
        await handle.signal(Finish())
        await handle.result()
    async with database.open() as store:
        rows = await journal_of(store, "T1")
        assert [(row.kind.value, row.call) for row in rows] == [
            ("signal", None),
            ("outcome", "root/0.1#1"),
            ("signal", None),
        ]
        assert (await task_of(store, "T1")).handled_seq == 2


# ------------------------------------------------------------------------------------------------- declarations


def test_what_cannot_be_a_handler_is_refused_where_it_is_defined() -> None:
    with pytest.raises(gr.BadHandler, match="plain `def`"):

        class Plain(gr.Agent[Job, Any]):
            @gr.on_signal  # type: ignore[arg-type]
            def rename(self, task: gr.Task, message: Rename) -> str:
                return ""

    with pytest.raises(gr.BadHandler, match="a handler takes `self`, the task and one message"):

        class Short(gr.Agent[Job, Any]):
            @gr.on_signal  # type: ignore[arg-type]
            async def rename(self, message: Rename) -> str:
                return ""

    with pytest.raises(gr.BadHandler, match="both 'rename' and 'again' handle Rename"):

        class Twice(gr.Agent[Job, Any]):
            @gr.on_signal
            async def rename(self, task: gr.Task, message: Rename) -> str:
                return ""

            @gr.on_signal
            async def again(self, task: gr.Task, message: Rename) -> str:
                return ""

    with pytest.raises(gr.BadHandler, match="make the two agree"):

        class Other(gr.Agent[Job, Any]):
            @gr.on_signal
            async def rename(self, task: gr.Task, message: Rename) -> int:
                return 7


def test_a_handler_of_a_union_takes_each_of_its_members() -> None:
    from greenroom.runtime.tasks.on_signal import collect

    class Both(gr.Agent[Job, Any]):
        @gr.on_signal
        async def either(self, task: gr.Task, message: Steer | Finish) -> None: ...

    assert collect(Both) == {Steer: "either", Finish: "either"}


async def test_a_saved_journal_of_a_task_with_handlers_is_gone_on_with(database: Shared) -> None:
    world = World()
    async with database.runtime(desk(world)) as runtime:
        handle = await runtime.submit(POOL, Job("one"))
        await handle.ask(Rename("two"))
        await handle.signal(Finish())
        await handle.result()
        journal = await handle.export()
    replayed = await replay(lambda: Desk(world), journal)
    assert replayed.ended
    assert world.calls.made == ["one"]
