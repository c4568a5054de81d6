"""Seeded simulation: processes that share a store, in one event loop and in virtual time, and whatever may go wrong with them (C48).

A seed decides in which order event-loop tasks run, which commits the store fails and how, how long it takes, when processes die and
for how long they are gone, and when the machine's clock jumps. For a while; then nothing more goes wrong, and the scenario has to come
to its end. Throughout, a ledger of what was committed is compared with the database. The same seed is the same run, to the byte.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Container
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
from attrs import define, field, frozen

from greenroom.actors import described
from greenroom.actors.exits import lone
from greenroom.errors import Failure
from greenroom.mailbox import current_loop
from greenroom.persistence import ListObservations, ObservationKind, ReadJournal, open_store
from greenroom.persistence.tasks import Condition, ListTasks
from greenroom.runtime.durable.opening import StoreSource
from greenroom.testing.audit import audit
from greenroom.testing.crash_points import CrashPoints
from greenroom.testing.fresh_store import clear_store
from greenroom.testing.in_step import Conductor
from greenroom.testing.ledger import Ledger
from greenroom.testing.seeded_chance import seeded_chance
from greenroom.testing.store_faults import Away, Contention, Fault, OutcomeLost, Slow, StoreFaults
from greenroom.testing.store_time import StoreTime
from greenroom.testing.transition_names import MADE_UP, TransitionNames
from greenroom.testing.virtual_clock import Backend, VirtualClock

if TYPE_CHECKING:
    from greenroom.persistence import Driver, Store

T = TypeVar("T")

LEASE: Final = 300.0
"""Virtual seconds of a lease, which is not renewed: whoever lives longer loses it, and begins anew."""

SWEEP: Final = 150.0
TROUBLE: Final = 600.0
"""Virtual seconds for which things go wrong."""

LIMIT: Final = 6 * 3600.0
"""Virtual seconds after that in which the scenario must have ended."""

PAGE: Final = 10_000


@frozen(kw_only=True)
class Weather:
    """How bad a run is to be. Each kind of trouble is there in some runs only, so that none is always hidden behind another."""

    faults: float
    """The fraction of commits that the store fails."""
    among: tuple[Fault, ...]
    deaths: float
    """The fraction of points at which a process dies."""
    jumps: float | None
    """Seconds between two jumps of the clock, on average."""

    @classmethod
    def of(cls, seed: int) -> Weather:
        """What a seed brings."""
        random = Random(f"{seed} weather")
        kinds: tuple[Fault, ...] = (
            Contention(),
            OutcomeLost(committed=False),
            OutcomeLost(committed=True),
            OutcomeLost(committed=True, seconds=2.0),
            Away(1.0),
            Slow(0.02),
            Slow(3.0),
            Slow(1.1 * LEASE),
        )
        return cls(
            faults=random.choice((0.0, 0.02, 0.1, 0.25)),
            among=tuple(kind for kind in kinds if random.random() < 0.6) or kinds,
            deaths=random.choice((0.0, 0.005, 0.02, 0.05)),
            jumps=random.choice((None, 300.0, 60.0)),
        )


@frozen(kw_only=True)
class Process:
    """One life of a process, given to its main function."""

    name: str
    life: int
    """From 1; each further one follows a death."""
    store: StoreSource
    """For `Runtime(tree, store=process.store)` and `gr.Client(process.store)`."""


Main = Callable[[Process], Awaitable[T]]


@frozen(kw_only=True)
class Simulated:
    """What a simulation has come to."""

    seed: int
    backend: Backend
    seconds: float
    """Virtual ones that it took."""
    journal: bytes
    """What is on record of all tasks: the same for the same seed."""
    deaths: tuple[str, ...]
    """The points at which processes died, as `CrashPoints` calls them."""
    faults: tuple[str, ...]
    """The transitions that the store failed, each with its fault."""
    jumps: int
    """Of the clock."""
    refused: int
    """Writes of owners that were the owners no more, each kept as an observation."""


class SimulationFailed(Failure):
    """A scenario did not come through what a seed brought. What it raised, or `InvariantBroken`, is chained.

    Fields: `seed`, `backend`.
    """

    def __init__(self, seed: int, backend: str, why: str) -> None:
        self.seed, self.backend = seed, backend
        super().__init__(f"seed {seed} ({backend}): {why}; run it alone by simulate(..., {seed})")


class NotEnded(Failure):
    """A scenario did not come to its end though nothing went wrong any more. Names what had not ended."""


Scenario = Callable[["World"], Awaitable[object]]


def simulate(
    scenario: Scenario, seed: int, *, url: str, backend: Backend | None = None, trouble: float = TROUBLE
) -> Simulated:
    """Run a scenario in the world that a seed makes. Not to be called on an event loop's thread.

    Args:
        scenario: `async def scenario(world: World) -> None`. It starts processes, brings work to its end, and checks the result.
        url: of a store of its own, as by `fresh_store`; it is emptied first.
        backend: None: the seed decides.
        trouble: virtual seconds for which things go wrong.
    Raises:
        SimulationFailed: the scenario, or an invariant, did not hold.
    """
    clear_store(url)
    chosen: Backend = backend or ("trio" if seed % 2 else "asyncio")
    clock = VirtualClock(seed=seed)
    try:
        with seeded_chance(seed):
            return clock.run(_run, scenario, seed, chosen, url, clock, trouble, backend=chosen)
    except Exception as error:
        raise SimulationFailed(seed, chosen, described(lone(error))) from error


class Fate(Container[str]):
    """The points at which one process dies, by a seed; none in fair weather."""

    def __init__(self, world: World, who: str) -> None:
        self._world = world
        self._who = who

    def __contains__(self, point: object) -> bool:
        world = self._world
        return not world.calm and Random(f"{world.seed} {self._who} {point}").random() < world.weather.deaths


@define(eq=False)
class World:
    """The world of one run. Given to the scenario."""

    seed: int
    url: str
    clock: VirtualClock
    weather: Weather
    ledger: Ledger = field(factory=Ledger)
    kept: dict[str, Any] = field(factory=dict)
    """What is outside of all processes: receivers of effects, and what they have got."""
    calm: bool = False
    """Nothing more goes wrong."""
    over: anyio.Event = field(factory=anyio.Event)
    """The scenario has ended: processes that serve it may go."""
    deaths: list[str] = field(factory=list)
    jumps: int = 0
    _time: StoreTime = field(factory=StoreTime)
    _names: TransitionNames = field(factory=TransitionNames)
    _conductor: Conductor = field(factory=Conductor)
    _faults: StoreFaults = field(init=False)
    _group: anyio.abc.TaskGroup = field(init=False)

    def start(self, name: str, main: Main[object]) -> None:
        """Run a process beside the scenario, life after life; it is to end when the world is `over`."""
        self._group.start_soon(self.survive, name, main)

    async def survive(self, name: str, main: Main[T]) -> T:
        """Run a process, life after life, until one of them comes to its end. Its main function finds what the last one has left."""
        absence = Random(f"{self.seed} {name} is away")
        life = 0
        while True:
            life += 1
            async with CrashPoints(Fate(self, f"{name} {life}"), self._names, self._conductor) as points:

                def wrap(driver: Driver, points: CrashPoints = points) -> Driver:
                    return points.wrap(self._faults.wrap(self.ledger.wrap(driver), points.stepper))

                store = StoreSource(self.url, clock=self._time.store_clock, driver=wrap, lease=LEASE, sweep=SWEEP)
                result = await main(Process(name=name, life=life, store=store))
            if points.died_at is None:
                return result
            self.deaths.append(f"{name}: {points.died_at}")
            await anyio.sleep(absence.choice((0.0, 1.0, 2 * LEASE)))

    async def run(self, scenario: Scenario, trouble: float) -> None:
        """The scenario, from fair weather to fair weather."""
        self._faults = StoreFaults(seed=self.seed, rate=self.weather.faults, among=self.weather.among)
        async with self._faults, self._conductor, anyio.create_task_group() as bad, anyio.create_task_group() as group:
            self._group = group
            bad.start_soon(self._clear_up, trouble)
            if self.weather.jumps is not None:
                bad.start_soon(self._jump, self.weather.jumps)
            try:
                with anyio.fail_after(trouble + LIMIT):
                    await scenario(self)
            except TimeoutError:
                raise NotEnded(await self._unfinished()) from None
            self._end_trouble()
            self.over.set()
            bad.cancel_scope.cancel()

    async def _clear_up(self, trouble: float) -> None:
        await anyio.sleep(trouble)
        self._end_trouble()

    def _end_trouble(self) -> None:
        self.calm = True
        self._faults.cease()

    async def _jump(self, mean: float) -> None:
        """The machine sleeps, or somebody sets its clock."""
        random = Random(f"{self.seed} jumps")
        while True:
            await anyio.sleep(random.expovariate(1 / mean))
            if self.calm:
                return
            self.jumps += 1
            if random.random() < 0.5:
                self._time.pass_time(random.uniform(1.0, 1.5 * LEASE))
            else:
                self._time.start += timedelta(seconds=random.uniform(-120.0, 120.0))

    # ------------------------------------------------------------------------------------------------------- at the end

    async def _unfinished(self) -> str:
        async with self._look() as store:
            tasks = await store.read(ListTasks(limit=PAGE))
        left = [
            f"{task.task_id} is {task.condition.value}, parked={task.parked}, owner={task.owner}, due={task.due_at}, "
            f"waits={task.waits}"
            for task in tasks
            if task.condition is not Condition.TERMINAL
        ]
        return (
            f"{LIMIT:g} s after the last trouble these had not ended: {'; '.join(left) or 'no task, but the scenario'}"
        )

    def _look(self) -> Any:
        """The bare store."""
        return open_store(self.url, loop=current_loop(), clock=self._time.store_clock)

    async def examine(self, backend: Backend) -> Simulated:
        """Compare the database with the ledger, and tell what it holds. Raises `InvariantBroken`."""
        seconds = self.clock.now()
        async with self._look() as store:
            await audit(store, self.ledger)
            refused = await store.read(ListObservations(kind=ObservationKind.REFUSED, limit=PAGE))
            return Simulated(
                seed=self.seed,
                backend=backend,
                seconds=seconds,
                journal=await records(store),
                deaths=tuple(self.deaths),
                faults=tuple(f"{name}: {fault}" for name, fault in self._faults.struck),
                jumps=self.jumps,
                refused=len(refused),
            )


async def _run(
    scenario: Scenario, seed: int, backend: Backend, url: str, clock: VirtualClock, trouble: float
) -> Simulated:
    world = World(seed=seed, url=url, clock=clock, weather=Weather.of(seed))
    world._time.follow(clock.now)
    await world.run(scenario, trouble)
    return await world.examine(backend)


async def records(store: Store) -> bytes:
    """All journals and ends of tasks, for comparison. Identities that are made up at run time go by the order of their appearance."""
    lines = []
    for task in await store.read(ListTasks(limit=PAGE)):
        lines.append(f"{task.task_id} {task.outcome} {task.result!r} {task.error!r} {task.ended_at}")
        for attempt in range(1, task.attempt + 1):
            for segment in range(1, task.segment + 1):
                query = ReadJournal(address=task.address, attempt=attempt, segment=segment, limit=PAGE)
                lines += map(repr, await store.read(query))
    known: dict[str, str] = {}

    def call(match: re.Match[str]) -> str:
        return known.setdefault(match.group(), f"~{len(known) + 1}")

    return MADE_UP.sub(call, "\n".join(lines)).encode()
