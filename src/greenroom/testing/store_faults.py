"""Stores that fail on purpose: away, slow, at odds with another transaction, or silent about what they have committed.

A `Fault` is what goes wrong with one commit; `StoreFaults` says with which one, by the name of a transition in it or by a seed. What
is then to be seen is what the real failure would show: the store tries again, looks the batch up, tells its callers. How long a
request may wait in all (the store's `bound`) is real time in any case, for it is the last resort against a dead thread.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from attrs import field, frozen, validators

from greenroom.persistence.driver import Contended, NotReached, OutcomeUnknown, StatementFailed
from greenroom.testing.pace import Pace
from greenroom.testing.transition_names import TransitionNames
from greenroom.testing.wrapped_driver import WrappedDriver

if TYPE_CHECKING:
    from types import TracebackType

    from greenroom.persistence import Driver, Query, Renewer, Transition
    from greenroom.persistence.driver import Applied, News

WHY = "a fault was injected"


class Sleeper(Protocol):
    """How a store thread waits for time to pass on the event loop."""

    def sleep(self, seconds: float) -> None: ...


class Fault(ABC):
    """Something that goes wrong with a commit."""

    @abstractmethod
    async def strike(self, driver: FaultyDriver, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        """In the place of `driver.commit`. In the store thread."""


@frozen
class Away(Fault):
    """The store cannot be reached, from then on for `seconds` on the loop's clock, or until `StoreFaults.heal`. Nothing is applied."""

    seconds: float = field(default=math.inf, validator=validators.ge(0))

    async def strike(self, driver: FaultyDriver, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        driver.faults.go_away(self.seconds)
        raise NotReached(WHY)


@frozen
class Slow(Fault):
    """The commit takes so many seconds on the loop's clock. Time passes meanwhile, also under a virtual clock."""

    seconds: float = field(validator=validators.ge(0))

    async def strike(self, driver: FaultyDriver, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        driver.pace.sleep(self.seconds)
        return await driver.commit(batch_id, items)


@frozen
class Contention(Fault):
    """Another transaction comes first (a deadlock, a serialization failure): nothing is applied, and it is tried again."""

    async def strike(self, driver: FaultyDriver, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        raise Contended(WHY)


@frozen
class StatementError(Fault):
    """The database refuses the transition by an error: its caller gets `TransitionFailed`, and whoever shared the batch does not."""

    async def strike(self, driver: FaultyDriver, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        raise StatementFailed(WHY)


@frozen(kw_only=True)
class OutcomeLost(Fault):
    """The connection breaks at COMMIT, so that nobody can know whether it was committed before the store is reached again.

    Args:
        committed: it was.
        seconds: until the store is reached again; `math.inf`: by `StoreFaults.heal`. Callers that wait longer than the store's bound
            get `StoreUnavailable` with `unknown` set: their acknowledgement is lost.
    """

    committed: bool
    seconds: float = field(default=0.0, validator=validators.ge(0))

    async def strike(self, driver: FaultyDriver, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        if self.committed:
            await driver.commit(batch_id, items)
        driver.faults.go_away(self.seconds)
        raise OutcomeUnknown(WHY)


class StoreFaults:
    """Faults for the stores that are opened through it, within its `async with` block.

    Args:
        script: faults by name of a transition (`AcceptMessage shop/till sale-1`) or a pattern with `*` and `?`. Several faults strike
            one after another, at each try.
        seed: with `rate` (0 to 1): that fraction of the transitions, which ones and by which fault of `among` is decided by the
            seed and their names, is struck, each once.
    """

    def __init__(
        self,
        script: Mapping[str, Fault | Sequence[Fault]] | None = None,
        *,
        seed: int = 0,
        rate: float = 0.0,
        among: Sequence[Fault] = (Contention(), OutcomeLost(committed=False), OutcomeLost(committed=True), Away(1.0)),
    ) -> None:
        self.pace = Pace()
        self.names = TransitionNames()
        self.struck: list[tuple[str, Fault]] = []
        """What has gone wrong so far, in order, with the name of the transition."""
        self._script = {
            pattern: deque([faults] if isinstance(faults, Fault) else faults)
            for pattern, faults in (script or {}).items()
        }
        self._seed, self._rate, self._among = seed, rate, among
        self._drawn: set[str] = set()
        self._away_until = -math.inf

    async def __aenter__(self) -> StoreFaults:
        await self.pace.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.pace.__aexit__(kind, error, trace)

    def wrap(self, driver: Driver, pace: Sleeper | None = None) -> Driver:
        """For `open_store(driver=…)` and `StoreSource(driver=…)`. `pace`: for Greenroom's own use."""
        return FaultyDriver(driver, self, pace or self.pace)

    @property
    def left(self) -> tuple[str, ...]:
        """Names and patterns of the script that have faults left, which never struck. A test wants it empty at its end."""
        return tuple(pattern for pattern, faults in self._script.items() if faults)

    @property
    def away(self) -> bool:
        """Cannot the store be reached now?"""
        return self.pace.now() < self._away_until

    def go_away(self, seconds: float = math.inf) -> None:
        """Let nothing reach the store for so long on the loop's clock. From any thread."""
        self._away_until = self.pace.now() + seconds

    def cease(self) -> None:
        """Let nothing more go wrong, and the store be reached again. From any thread."""
        self._script, self._rate = {}, 0.0
        self.heal()

    def heal(self) -> None:
        """Let the store be reached again. From any thread."""
        self._away_until = -math.inf

    def next_fault(self, items: Sequence[Transition[Any]]) -> Fault | None:
        """What is to go wrong with this batch, if anything is."""
        for item in items:
            name = self.names.of(item)
            fault = self._scripted(name, alone=len(items) == 1) or self._by_seed(name)
            if fault is not None:
                self.struck.append((name, fault))
                return fault
        return None

    def _scripted(self, name: str, *, alone: bool) -> Fault | None:
        for pattern, faults in self._script.items():
            if faults and (name == pattern or fnmatchcase(name, pattern)):
                # A batch in which one fails is applied one by one: the one is to fail then, too.
                keep = isinstance(faults[0], StatementError) and not alone
                return faults[0] if keep else faults.popleft()
        return None

    def _by_seed(self, name: str) -> Fault | None:
        random = Random(f"{self._seed} {name}")
        if name in self._drawn or random.random() >= self._rate:
            return None
        self._drawn.add(name)
        return random.choice(self._among)


class FaultyDriver(WrappedDriver):
    """A driver that fails when `StoreFaults` says so."""

    def __init__(self, inner: Driver, faults: StoreFaults, pace: Sleeper) -> None:
        super().__init__(inner)
        self.faults = faults
        self.pace = pace

    async def pause(self, seconds: float) -> None:
        if self.faults.pace.virtual:
            self.pace.sleep(seconds)
        else:
            await self.inner.pause(seconds)

    def _check(self) -> None:
        if self.faults.away:
            raise NotReached(WHY)

    async def open(self) -> None:
        self._check()
        await self.inner.open()

    async def apply(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        self._check()
        fault = self.faults.next_fault(items)
        if fault is not None:
            return await fault.strike(self, batch_id, items)
        return await self.commit(batch_id, items)

    async def commit(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        """Apply a batch for real."""
        applied = await self.inner.apply(batch_id, items)
        for item, answer in zip(items, applied.answers, strict=True):
            self.faults.names.learn(item, answer)
        return applied

    async def recover(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied | None:
        self._check()
        return await self.inner.recover(batch_id, items)

    async def read(self, query: Query[Any]) -> Any:
        self._check()
        answer = await self.inner.read(query)
        self.faults.names.learn(query, answer)
        return answer

    async def news(self) -> News:
        self._check()
        return await self.inner.news()

    def renewer(self) -> Renewer:
        return FaultyRenewer(self.inner.renewer(), self.faults)


class FaultyRenewer:
    """Renews leases while the store can be reached."""

    def __init__(self, inner: Renewer, faults: StoreFaults) -> None:
        self._inner = inner
        self._faults = faults
        self.close = inner.close

    def renew(self, execution_id: str, lease: float) -> bool:
        if self._faults.away:
            raise NotReached(WHY)
        return self._inner.renew(execution_id, lease)
