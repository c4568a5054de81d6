"""R35, I1 to I5: tasks are killed at each point of what they commit, and come to the same end, with no accepted operation repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from attrs import frozen

import greenroom as gr
from greenroom.persistence.journal import EntryKind
from greenroom.persistence.tasks import ReadTask, task_address
from greenroom.testing import interrupt_everywhere
from tests.durable.helpers import Add
from tests.tasks.scripts import POOL, Job, Script, Steer, agents, journal_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from greenroom.testing import Life
    from greenroom.testing.interrupt import Scenario
    from greenroom.testing.virtual_clock import Backend
    from tests.persistence.postgres.servers import Server

FEW = 0.1
"""The fraction of trials that may go another way than the undisturbed one: whether two messages share a commit is the store's affair."""


async def accepted(life: Life, task_id: str) -> set[str]:
    """The operations of a task whose outcomes are on record."""
    async with life.open_store() as store:
        if await store.read(ReadTask(address=task_address(task_id))) is None:
            return set()
        rows = await journal_of(store, task_id)
        return {str(row.call) for row in rows if row.kind is EntryKind.OUTCOME}


class World:
    """What the world outside has seen of operations, in all lives of a trial."""

    def __init__(self, life: Life, done: set[str]) -> None:
        self.life = life
        self.done = done
        self.seen: list[str] = life.kept.setdefault("seen", [])
        self.received: dict[str, str] = life.kept.setdefault("received", {})

        @gr.operation(effect=gr.Effect.SAFE)
        async def look(op: gr.Operation, text: str) -> str:
            assert op.id not in self.done, f"{op.id} was accepted, and is invoked again"
            self.seen.append(text)
            await anyio.sleep(0.5)
            return text.upper()

        @gr.operation(effect=gr.Effect.KEYED)
        async def pay(op: gr.Operation, text: str) -> str:
            assert op.id not in self.done, f"{op.id} was accepted, and is invoked again"
            assert self.received.setdefault(op.key, text) == text, "one key has two meanings"
            await anyio.sleep(0.5)
            return f"paid {text}"

        self.look, self.pay = look, pay


async def one_task(life: Life, script: Callable[[World], Script], result: Any, signals: Sequence[Steer] = ()) -> None:
    """Bring one task to its end, and check its result."""
    world = World(life, await accepted(life, "T1"))
    async with gr.Runtime(gr.Supervisor("service", agents(script(world)), intensity=100), store=life.store) as runtime:
        handle = await runtime.submit(POOL, Job("a"), task_id="T1")
        for number, signal in enumerate(signals):
            await handle.signal(signal, message_id=f"signal {number}")
        assert await handle.result() == result
        assert len(set(world.received.values())) == len(world.received), "an effect has two keys"


async def operations_in_a_row(life: Life) -> None:
    def script(world: World) -> Script:
        async def perform(task: gr.Task, job: Job) -> str:
            first = await task.run(world.look, job.text)
            second = await task.run(world.pay, first)
            return await task.run(world.look, second)

        return perform

    await one_task(life, script, "PAID A")
    assert set(life.kept["seen"]) == {"a", "paid A"}


async def branches_side_by_side(life: Life) -> None:
    def script(world: World) -> Script:
        async def part(task: gr.Task, name: str) -> str:
            return await task.run(world.pay, await task.run(world.look, name))

        async def perform(task: gr.Task, job: Job) -> list[str]:
            async with task.nursery() as branches:
                parts = [branches.start_soon(part, task, name) for name in "abc"]
            return [branch.result for branch in parts]

        return perform

    await one_task(life, script, ["paid A", "paid B", "paid C"])
    assert sorted(life.kept["received"].values()) == ["A", "B", "C"]


async def sleeps_and_signals(life: Life) -> None:
    def script(world: World) -> Script:
        async def perform(task: gr.Task, job: Job) -> list[str]:
            said = []
            for _ in range(2):
                said.append((await task.receive(Steer, timeout=None)).text)
                await task.sleep(300)
                await task.run(world.look, said[-1])
            return said

        return perform

    await one_task(life, script, ["left", "right"], [Steer("left"), Steer("right")])


async def a_crash_of_control_code_is_followed_by_another_run(life: Life) -> None:
    crashes: list[str] = life.kept.setdefault("crashes", [])

    def script(world: World) -> Script:
        async def perform(task: gr.Task, job: Job) -> str:
            seen = await task.run(world.look, job.text)
            if not crashes:
                crashes.append(seen)
                raise RuntimeError("once")
            return await task.run(world.pay, seen)

        return perform

    await one_task(life, script, "paid A")


async def a_callback_is_answered_from_outside(life: Life) -> None:
    tokens: list[str] = life.kept.setdefault("tokens", [])

    def script(world: World) -> Script:
        @gr.operation(effect=gr.Effect.KEYED)
        async def publish(op: gr.Operation, token: str) -> None:
            assert op.id not in world.done, f"{op.id} was accepted, and is invoked again"
            tokens.append(token)
            tell.start_soon(answer, token)

        async def perform(task: gr.Task, job: Job) -> Any:
            callback = await task.callback("payment", timeout=1e6)
            await task.run(publish, callback.token)
            return [await callback.wait(), await task.run(world.look, "after")]

        return perform

    async def answer(token: str) -> None:
        async with gr.Client(life.store) as client:
            assert await client.answer(token, "paid") in ("accepted", "duplicate")

    async with anyio.create_task_group() as tell:
        for token in set(tokens):  # it was given away, and whoever has it goes on until it is told that it was taken
            tell.start_soon(answer, token)
        await one_task(life, script, ["paid", "AFTER"])
    assert len(set(tokens)) == 1, "a callback has two tokens"


@frozen
class Balance:
    amount: int = 0


class Account(gr.DurableActor[Balance]):
    """Adds up: what it is asked for twice shows."""

    @gr.handles
    async def add(self, message: Add) -> int:
        self.state = Balance(self.state.amount + message.number)
        return self.state.amount


async def a_durable_actor_is_told_and_asked(life: Life) -> None:
    world = World(life, await accepted(life, "T1"))

    async def script(task: gr.Task, job: Job) -> Any:
        await task.tell("service/accounts/ann", Add(5))
        first = await task.ask("service/accounts/ann", Add(7), timeout=3000)
        seen = await task.run(world.look, str(first))
        await task.tell("service/accounts/ann", Add(1))
        return [seen, await task.ask("service/accounts/ann", Add(10), timeout=3000)]

    tree = gr.Supervisor("service", gr.DurableActors("accounts", Account), agents(script), intensity=100)
    async with gr.Runtime(tree, store=life.store) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        assert await handle.result() == ["12", 23]


async def signals_are_handled_beside_perform(life: Life) -> None:
    world = World(life, await accepted(life, "T1"))

    class Counter(gr.Agent[Job, Any]):
        def __init__(self) -> None:
            self.total = 0

        async def perform(self, task: gr.Task, request: Job) -> Any:
            await task.run(world.look, "begin")
            await task.receive(Steer, timeout=None)
            return self.total

        @gr.on_signal
        async def add(self, task: gr.Task, message: Add) -> int:
            if message.number < 0:
                raise gr.Rejected("no debts")
            await task.run(world.pay, str(message.number))
            self.total += message.number
            return self.total

    tree = gr.Supervisor("service", gr.Agents("agents", Counter, max_running=8), intensity=100)
    async with gr.Runtime(tree, store=life.store) as runtime:
        handle = await runtime.submit(POOL, Job(), task_id="T1")
        answers = [await handle.ask(Add(number), message_id=f"add {number}", timeout=3000) for number in (3, 4)]
        assert answers == [3, 7]
        with pytest.raises(gr.Rejected, match="no debts"):
            await handle.ask(Add(-1), message_id="debt", timeout=3000)
        await handle.signal(Steer("end"), message_id="end")
        assert await handle.result() == 7


SCENARIOS: tuple[Scenario, ...] = (
    operations_in_a_row,
    branches_side_by_side,
    sleeps_and_signals,
    a_crash_of_control_code_is_followed_by_another_run,
    a_callback_is_answered_from_outside,
    a_durable_actor_is_told_and_asked,
    signals_are_handled_beside_perform,
)

pytestmark = pytest.mark.usefixtures("quiet")
each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)


def loops(scenario: Scenario) -> tuple[Backend, Backend]:
    """The one on which each of its points is tried, and the other one."""
    return ("trio", "asyncio") if SCENARIOS.index(scenario) % 2 else ("asyncio", "trio")


def tried_all(scenario: Scenario, **options: object) -> None:
    tried = interrupt_everywhere(scenario, **options)  # type: ignore[arg-type]
    assert len(tried.trials) > 0
    assert len(tried.unmet) <= FEW * len(tried.trials), tried.unmet


@each_scenario
def test_r35_each_point_on_sqlite(scenario: Scenario) -> None:
    tried_all(scenario, backend=loops(scenario)[0], seed=1)


@each_scenario
def test_r35_a_quarter_of_the_points_on_sqlite_on_the_other_loop(scenario: Scenario) -> None:
    tried_all(scenario, backend=loops(scenario)[1], seed=1, sample=(SCENARIOS.index(scenario), 0.25))


@each_scenario
def test_r35_a_tenth_of_the_points_on_postgres(scenario: Scenario, postgres: Server) -> None:
    tried_all(scenario, backend=loops(scenario)[1], server=postgres.url, sample=(SCENARIOS.index(scenario), 0.1))


@pytest.mark.full
@each_scenario
def test_r35_each_point_on_sqlite_on_each_loop(scenario: Scenario, backend: Backend) -> None:
    tried_all(scenario, backend=backend, seed=2)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
@each_scenario
def test_r35_points_of_recoveries_on_sqlite(scenario: Scenario, backend: Backend, seed: int) -> None:
    tried_all(scenario, backend=backend, seed=seed, twice=True, sample=(seed, 0.15))
