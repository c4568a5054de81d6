"""What `benchmarks.simulate` simulates: workers that perform tasks by random plans, their clients, and an operator.

A plan is a value, so the same agent performs any of them, and what must come of it is known beforehand: which words its result holds,
in some order. The world outside counts what it is asked for, and objects at once to an operation whose outcome is on record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any, Final

import anyio
from attrs import define, field, frozen

import greenroom as gr
from greenroom.persistence import ParkReason
from greenroom.persistence.journal import EntryKind
from greenroom.persistence.tasks import task_address

if TYPE_CHECKING:
    from greenroom.testing.simulation import Process, World

POOL: Final = "service/agents"

DEEPEST: Final = 2
"""Plans within plans."""

CRASHES: Final = 10
"""Of one task within a minute: more than stumbles make."""

PATIENCE: Final = 250.0
"""Virtual seconds after which an operator believes that what is parked as unresolved does not run any more anywhere."""


@frozen
class Do:
    """Perform an operation, which fails so often before it succeeds."""

    effect: str
    word: str
    fails: int = 0
    seconds: float = 0.1


@frozen
class Rest:
    seconds: float


@frozen
class Hear:
    """Receive one signal."""


@frozen
class Stumble:
    """Crash, the first time. Only in the outermost plan."""

    word: str


@frozen
class Together:
    """Plans side by side, in a nursery."""

    plans: tuple[Any, ...]


@frozen
class Within:
    """A plan that is given so much time. What it comes to is not looked at."""

    seconds: float
    plan: Any


@frozen
class Hand:
    """A plan for a child task."""

    plan: Any


@frozen
class Again:
    """Go on as another segment. Only in the outermost plan."""


@frozen
class Plan(gr.Message[list[str]]):
    """The request of a task: steps one after another."""

    steps: tuple[Any, ...]
    so_far: tuple[str, ...] = ()
    """Words of earlier segments."""


@frozen
class Word(gr.Message[None]):
    """A signal."""

    word: str


# ------------------------------------------------------------------------------------------------------------- making them


@define
class Author:
    """Makes plans by chance."""

    random: Random
    words: int = 0

    def task(self) -> Plan:
        """The plan of a task that is submitted from outside."""
        steps = [*self._steps(0, self.random.randint(1, 4), hears=True)]
        if self.random.random() < 0.3:
            steps.insert(self.random.randrange(len(steps) + 1), Again())
        return Plan(tuple(steps))

    def _steps(self, depth: int, count: int, *, hears: bool) -> Iterator[Any]:
        for _ in range(count):
            yield self._step(depth, hears=hears)

    def _step(self, depth: int, *, hears: bool) -> Any:
        random = self.random
        choice = random.random()
        if choice < 0.45 or (choice >= 0.7 and depth >= DEEPEST):
            return self._do()
        if choice < 0.55:
            return Rest(random.choice((0.0, 1.0, 30.0, 200.0)))
        if choice < 0.65:
            return Hear() if hears else self._do()
        if choice < 0.7:
            # Not in a nursery: there it would cancel the branches beside it, which is on record, and would have to happen again.
            return self._do() if depth else Stumble(self._word())
        if choice < 0.85:
            sizes = [random.randint(0, 2) for _ in range(random.randint(1, 3))]
            return Together(tuple(Plan(tuple(self._steps(depth + 1, size, hears=hears))) for size in sizes))
        if choice < 0.92:
            return Within(random.choice((0.5, 5.0)), Plan((Rest(random.choice((0.1, 20.0))), self._do())))
        return Hand(Plan(tuple(self._steps(depth + 1, random.randint(1, 2), hears=False))))

    def _do(self) -> Do:
        effect = self.random.choice(("safe", "safe", "keyed", "once"))
        fails = 0 if effect == "once" else self.random.choice((0, 0, 0, 1, 3))
        return Do(effect, self._word(), fails, self.random.choice((0.0, 0.1, 4.0, 40.0)))

    def _word(self) -> str:
        self.words += 1
        return f"w{self.words}"


def words_of(plan: Plan) -> list[str]:
    """What the result holds but for what is heard, in some order."""
    found: list[str] = []
    for step in plan.steps:
        match step:
            case Do():
                found.append(step.word)
            case Together():
                found += [word for part in step.plans for word in words_of(part)]
            case Hand():
                found += words_of(step.plan)
            case _:
                pass
    return found


def hears(plan: Plan) -> int:
    """How many signals it wants."""
    return sum(
        1 if isinstance(step, Hear) else sum(map(hears, step.plans)) if isinstance(step, Together) else 0
        for step in plan.steps
    )


# ------------------------------------------------------------------------------------------------------ the world outside


@define(eq=False)
class Outside:
    """What has come out of the processes, and outlives them. No operation is begun once its outcome is on record (C02, I2)."""

    world: World
    tries: Counter[str] = field(factory=Counter)
    """By key."""
    meant: dict[str, str] = field(factory=dict)
    """By key, what it was sent with first: a key has one meaning (C03)."""
    posted: Counter[str] = field(factory=Counter)
    """By key: effects that must not be repeated, and have happened."""
    stumbled: set[str] = field(factory=set)

    def begin(self, op: gr.Operation, task_id: str, word: str) -> int:
        """Returns how often it was begun before."""
        ledger = self.world.ledger
        segment = ledger.segments.get(task_address(task_id))
        entries = [] if segment is None else ledger.journals.get(segment, [])
        if any(entry.kind is EntryKind.OUTCOME and entry.call == op.id for entry in entries):
            raise SystemExit(f"{op.id} of {task_id!r} has its outcome on record, and is invoked again")
        if self.meant.setdefault(op.key, word) != word:
            raise SystemExit(f"the key {op.key} was sent with {self.meant[op.key]!r}, and now with {word!r}")
        self.tries[op.key] += 1
        return self.tries[op.key] - 1


def agent_of(outside: Outside) -> type[gr.Agent[Plan, list[str]]]:
    """The agent that performs plans in a world."""
    retry = gr.RetryPolicy(invocations=100)

    async def work(op: gr.Operation, task_id: str, do: Do) -> None:
        tries = outside.begin(op, task_id, do.word)
        await anyio.sleep(do.seconds)
        if tries < do.fails:
            raise ConnectionError(f"try {tries} fails")

    @gr.operation(effect=gr.Effect.SAFE, retry=retry)
    async def safe(op: gr.Operation, task_id: str, do: Do) -> str:
        await work(op, task_id, do)
        return do.word

    @gr.operation(effect=gr.Effect.KEYED, retry=retry)
    async def keyed(op: gr.Operation, task_id: str, do: Do) -> str:
        await work(op, task_id, do)
        return do.word

    @gr.operation(effect=gr.Effect.ONCE)
    async def once(op: gr.Operation, task_id: str, do: Do) -> str:
        await work(op, task_id, do)
        outside.posted[op.key] += 1
        return do.word

    operations = {"safe": safe, "keyed": keyed, "once": once}

    class Performer(gr.Agent[Plan, list[str]]):
        async def perform(self, task: gr.Task, request: Plan) -> list[str]:
            words = [*request.so_far]
            for number, step in enumerate(request.steps, 1):
                if isinstance(step, Again):
                    await task.continue_as(Plan(request.steps[number:], tuple(words)))
                words += await self.step(task, step)
            return words

        async def part(self, task: gr.Task, plan: Plan) -> list[str]:
            return [word for step in plan.steps for word in await self.step(task, step)]

        async def step(self, task: gr.Task, step: Any) -> list[str]:
            match step:
                case Do():
                    return [await task.run(operations[step.effect], task.id, step)]
                case Rest(seconds):
                    await task.sleep(seconds)
                case Hear():
                    return [(await task.receive(Word, timeout=None)).word]
                case Stumble(word) if word not in outside.stumbled:
                    outside.stumbled.add(word)
                    raise RuntimeError("a stumble")
                case Together(plans):
                    async with task.nursery() as branches:
                        parts = [branches.start_soon(self.part, task, plan) for plan in plans]
                    return [word for part in parts for word in part.result]
                case Within(seconds, plan):
                    with task.move_on_after(seconds):
                        await self.part(task, plan)
                case Hand(plan):
                    child: Any = await task.submit(POOL, plan)
                    return [*await child.result()]
            return []

    return Performer


@frozen
class Unwanted:
    """A task that its client cancels after so many seconds, or terminates by force."""

    after: float
    force: bool


# --------------------------------------------------------------------------------------------------------- the processes


async def tasks_by_random_plans(world: World) -> None:
    """The scenario: some tasks, two or three workers, an operator; each task comes to the result that its plan says, if it is not ended."""
    random = Random(f"{world.seed} plans")
    author = Author(random)
    plans = {f"T{n}": author.task() for n in range(random.randint(1, 4))}
    outside = Outside(world)
    performer = agent_of(outside)

    async def work(process: Process) -> None:
        pool = gr.Agents(
            "agents",
            performer,
            max_running=random.randint(1, 4),
            max_resident=random.choice((1, 3, 100)),
            max_restarts=CRASHES,
        )
        tree = gr.Supervisor("service", pool, intensity=1000)
        async with gr.Runtime(tree, store=process.store):
            await world.over.wait()

    async def operate(process: Process) -> None:
        await _when_there(process, lambda client: _decide_until_over(world, outside, client))

    unwanted = {
        task_id: Unwanted(random.choice((0.0, 1.0, 30.0, 300.0)), force=random.random() < 0.4)
        for task_id in plans
        if random.random() < 0.25
    }

    async def ask(process: Process) -> None:
        await _when_there(process, lambda client: _see_through(client, plans, unwanted))

    for number in range(random.randint(2, 3)):
        world.start(f"worker {number}", work)
    world.start("operator", operate)
    await world.survive("client", ask)
    repeated = {key: count for key, count in outside.posted.items() if count > 1}
    assert not repeated, f"what must not be repeated was: {repeated}"


async def _when_there(process: Process, use: Callable[[gr.Client], Awaitable[None]]) -> None:
    """Use a client as soon as somebody has made the store, and the pool."""
    while True:
        try:
            async with gr.Client(process.store) as client:
                await use(client)
                return
        except (gr.NoSuchStore, gr.NoSuchPool):
            await anyio.sleep(5.0)


async def _see_through(client: gr.Client, plans: dict[str, Plan], unwanted: dict[str, Unwanted]) -> None:
    """Submit, say what is to be heard, put an end to some, and wait for the ends of all: all of it again in each life."""
    for task_id, plan in plans.items():
        handle = await client.submit(POOL, plan, task_id=task_id)
        for number in range(hears(plan)):
            word = f"{task_id} hears {number}"
            receipt = await handle.signal(Word(word), message_id=f"{task_id}-{number}")
            assert receipt.disposition in ("accepted", "delivered", "duplicate", "late"), receipt
    async with anyio.create_task_group() as group:
        for task_id, end in unwanted.items():
            group.start_soon(_put_an_end_to, client.task(task_id), end)
        for task_id, plan in plans.items():
            heard = [f"{task_id} hears {number}" for number in range(hears(plan))]
            try:
                result = await client.task(task_id).result()
            except gr.TaskCancelled:
                assert task_id in unwanted, f"{task_id} was cancelled by nobody"
            else:
                assert sorted(result) == sorted([*words_of(plan), *heard]), f"{task_id} by {plan} came to {result}"
    async for status in client.tasks():  # children of those that were ended, too
        await client.task(status.task_id).wait()


async def _put_an_end_to(handle: gr.TaskHandle[Any], end: Unwanted) -> None:
    await anyio.sleep(end.after)
    if end.force:
        await handle.terminate("it is not wanted any more")
    else:
        await handle.cancel("it is not wanted any more")


async def _decide_until_over(world: World, outside: Outside, client: gr.Client) -> None:
    """Say of operations in doubt what has become of them, when nothing of them can run any more, and let suspects run again (R22)."""
    doubtful: dict[str, float] = {}
    while not world.over.is_set():
        now = world.clock.now()
        async for status in client.tasks(parked=True):
            since = doubtful.setdefault(f"{status.task_id} {status.journal_rows}", now)
            if now - since < PATIENCE:
                continue
            handle = client.task(status.task_id)
            if status.parked is not ParkReason.UNRESOLVED:
                assert status.parked is ParkReason.CRASH_LOOP, status
                assert status.restarts < CRASHES, status.parked_detail  # it has crashed, and no process has died
                await handle.release()
            for operation in await handle.unresolved():
                if outside.posted[operation.key]:
                    word = outside.meant[operation.key]
                    await handle.decide(operation.call, "succeeded", by="the operator", result=word)
                else:
                    await handle.decide(operation.call, "repeat", by="the operator")
        with anyio.move_on_after(50.0):
            await world.over.wait()
