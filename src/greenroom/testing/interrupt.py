"""`interrupt_everywhere`: a scenario's execution is killed at each point, and has to come to its end all the same (R35).

A trial is a fresh database and a list of points. The scenario is run on it, one life after another: a life dies at the next point
of the list, and is followed by another one, which finds what the database holds; the last one lives on to its end. After each life
the tables are compared with what was committed. The points are those that an undisturbed trial has passed, each once; with
`twice`, each of them is followed by each point that its recovery has passed.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from random import Random
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field, frozen

from greenroom.errors import Failure, Misuse
from greenroom.mailbox import current_loop
from greenroom.persistence import open_store
from greenroom.runtime.durable.opening import StoreSource
from greenroom.testing.audit import audit
from greenroom.testing.crash_points import CrashPoints
from greenroom.testing.fresh_store import clear_store, fresh_store
from greenroom.testing.ledger import Ledger
from greenroom.testing.store_time import StoreTime
from greenroom.testing.transition_names import TransitionNames
from greenroom.testing.virtual_clock import Backend, VirtualClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from greenroom.persistence import Committer

THEN: Final = "; then "
"""Between the points of one trial, where they are written in a line."""

LEASE: Final = 3600.0
SWEEP: Final = 60.0
"""Virtual seconds between two rounds of the standing recovery: often enough to happen within a life."""


@define(eq=False)
class Life:
    """One execution of a scenario, from its start to its end or death. Given to the scenario."""

    number: int
    """From 1; each further one follows a death."""
    kept: dict[str, Any]
    """What the world outside remembers: the same dictionary in all lives of one trial, empty at first. For the client that sends
    again what was not acknowledged, for receivers of effects."""
    clock: VirtualClock
    store: StoreSource
    """For `Runtime(tree, store=life.store)`. All stores of a scenario are opened by it: what is committed elsewhere counts as
    made up."""
    _points: CrashPoints

    @property
    def alive(self) -> bool:
        """False once it has died: what its `finally` blocks still do must not count."""
        return self._points.died_at is None

    def open_store(self) -> AbstractAsyncContextManager[Committer]:
        """The bare store, for scenarios without a runtime."""
        return self.store.open(current_loop())


Scenario = Callable[[Life], Awaitable[object]]


@frozen(kw_only=True)
class Interruptions:
    """What `interrupt_everywhere` has tried."""

    trials: tuple[str, ...]
    """The points of each, as `only=` takes them."""
    unmet: tuple[str, ...]
    """Those that did not come to all of their points: the scenario went another way than before. Threads and processes of its
    own may make it do so; if many are unmet, little was tried."""


class InterruptionFailed(Failure):
    """A scenario did not come through being killed. What it raised, or `InvariantBroken`, is chained.

    Fields: `points` at which it was killed, as `only=` takes them; `backend`; `seed`.
    """

    def __init__(self, points: str, backend: str, seed: int) -> None:
        self.points, self.backend, self.seed = points, backend, seed
        where = f"when it was killed {points!r}" if points else "without being killed at all"
        alone = f"only={points!r}, " if points else ""
        super().__init__(
            f"the scenario failed {where}. Run it alone by "
            f"interrupt_everywhere(..., {alone}backend={backend!r}, seed={seed})"
        )


def interrupt_everywhere(
    scenario: Scenario,
    *,
    server: str | None = None,
    backend: Backend = "asyncio",
    seed: int = 0,
    twice: bool = False,
    only: str | None = None,
    sample: tuple[int, float] | None = None,
    lease: float = LEASE,
) -> Interruptions:
    """Kill a scenario's execution at each point of what it commits, recover, and check what came of it.

    The scenario brings its work to an end, whatever it finds in the store, and checks the result, by assertions. It is run under a
    virtual clock, many times: once undisturbed, to find the points, and once for each of them. When it is killed, its store answers
    nothing more, its scopes are cancelled, and what it raises is of no interest. Then the lease passes, and it is run again.

    Args:
        scenario: `async def scenario(life: Life) -> None`.
        server: `postgresql://…`, in a schema of its own there. None: a SQLite file.
        seed: of the order in which event-loop tasks run.
        twice: kill each recovery, too, at each of its points. For small scenarios.
        only: the one trial to run, as a failure or `Interruptions.trials` names it.
        sample: a seed and a fraction (above 0, at most 1) of the points to try, chosen by that seed. Of `twice`, too.
        lease: seconds (> 0) of a lease, which is not renewed, and passes between two lives. A life must be shorter, in virtual
            time.
    Raises:
        InterruptionFailed: the scenario, or an invariant, did not hold.
        Misuse: an argument has no sense, or the points of `only` are not met.
    """
    if sample is not None and not 0 < sample[1] <= 1:
        raise Misuse(f"sample={sample!r}: a seed, and a fraction above 0 and at most 1")
    with fresh_store(server) as url:
        trials = _Trials(scenario, url, backend, seed, lease)
        if only is not None:
            lives = trials.attempt(*only.split(THEN))
            if trials.unmet:
                passed = ", ".join(_passed(lives)) or "none"
                raise Misuse(f"only={only!r} was not met; the points passed were: {passed}")
        else:
            for first in _sampled(_passed(trials.run()), sample):
                lives = trials.attempt(first)
                for second in _sampled(_passed(lives[1:]), sample) if twice else ():
                    trials.attempt(first, second)
    return Interruptions(trials=tuple(trials.tried), unmet=tuple(trials.unmet))


def _sampled(points: Sequence[str], sample: tuple[int, float] | None) -> Sequence[str]:
    if sample is None:
        return points
    seed, fraction = sample
    chosen = set(Random(seed).sample(points, math.ceil(len(points) * fraction)))
    return [point for point in points if point in chosen]


@frozen
class Passed:
    """A life that is over."""

    points: tuple[str, ...]
    """In order."""
    died_at: str | None


def _passed(lives: Sequence[Passed]) -> list[str]:
    return [point for life in lives for point in life.points]


@define
class _Trials:
    """Trials of one scenario, one after another in the same database, which is emptied before each."""

    scenario: Scenario
    url: str
    backend: Backend
    seed: int
    lease: float
    tried: list[str] = field(factory=list)
    unmet: list[str] = field(factory=list)

    def attempt(self, *points: str) -> Sequence[Passed]:
        """A trial that counts."""
        lives = self.run(*points)
        self.tried.append(THEN.join(points))
        if {life.died_at for life in lives} - {None} != set(points):
            self.unmet.append(self.tried[-1])
        return lives

    def run(self, *points: str) -> Sequence[Passed]:
        """Lives on an empty database, killed at these points, one after another."""
        clear_store(self.url)
        try:
            return [*self._lives(points)]
        except Exception as error:
            raise InterruptionFailed(THEN.join(points), self.backend, self.seed) from error

    def _lives(self, points: Sequence[str]) -> Iterator[Passed]:
        world = _World(self.url, StoreTime(), self.lease)
        kill_at = [*points]
        while True:
            life = self._live(world, kill_at)
            VirtualClock().run(world.audit, backend=self.backend)
            yield life
            if life.died_at is None:
                return
            kill_at.remove(life.died_at)
            world.time.pass_time(self.lease + 1)

    def _live(self, world: _World, kill_at: Sequence[str]) -> Passed:
        clock = VirtualClock(seed=self.seed)
        world.time.follow(clock.now)
        world.lives += 1
        return clock.run(_live, self.scenario, world, clock, kill_at, backend=self.backend)


@define(eq=False)
class _World:
    """What outlives an execution."""

    url: str
    time: StoreTime
    lease: float
    kept: dict[str, Any] = field(factory=dict)
    ledger: Ledger = field(factory=Ledger)
    names: TransitionNames = field(factory=TransitionNames)
    lives: int = 0

    async def audit(self) -> None:
        async with open_store(self.url, clock=self.time.store_clock) as store:
            await audit(store, self.ledger)


async def _live(scenario: Scenario, world: _World, clock: VirtualClock, kill_at: Sequence[str]) -> Passed:
    async with CrashPoints(kill_at, world.names) as points:
        source = StoreSource(
            world.url,
            clock=world.time.store_clock,
            driver=lambda driver: points.wrap(world.ledger.wrap(driver)),
            lease=world.lease,
            sweep=SWEEP,
        )
        await scenario(Life(world.lives, world.kept, clock, source, points))
    return Passed(tuple(points.passed), points.died_at)
