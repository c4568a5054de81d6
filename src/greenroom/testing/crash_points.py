"""Points at which an execution may die, named by what it commits (R35), and a store that stops the world at one of them.

A point is a phase and a transition's name. `before AcceptMessage shop/till sale-1`: it was asked for, and never happened.
`unacknowledged AcceptMessage …`: it was committed, and nobody was told. `after AcceptMessage …`: it was committed and answered,
and what could be done on the answer without the store was done.

Stores under `CrashPoints` work in step with the event loop (see `in_step`), so that each run of a scenario passes the same points
in the same order.
"""

from __future__ import annotations

import threading
from enum import Enum
from typing import TYPE_CHECKING, Any

import anyio

from greenroom.persistence.driver import NotReached
from greenroom.testing.in_step import PATIENCE, Conductor, Stepper, SteppingDriver, Stopped
from greenroom.testing.transition_names import TransitionNames

if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from types import TracebackType

    from greenroom.persistence import Driver, Hold, Query, Renewer, Transition
    from greenroom.persistence.driver import Applied


class Phase(Enum):
    BEFORE = "before"
    UNACKNOWLEDGED = "unacknowledged"
    AFTER = "after"


class CrashPoints:
    """The points that the stores of one execution pass, and its death at one of them.

        async with CrashPoints({"before FinishDelivery shop/till sale-1"}) as points:
            async with gr.Runtime(tree, store=StoreSource(url, driver=points.wrap)):
                ...
        assert points.died_at is not None

    At the death the stores stop to answer, then the block is cancelled, so that no `finally` of it can write; whatever comes out of
    it ends there. It needs a virtual clock.

    Args:
        kill_at: points; the first that is reached is the execution's death.
        names: those of the database's earlier executions, to go on with.
        conductor: for Greenroom's own use: of several executions on one event loop.
    Raises:
        Misuse: on entering it without a virtual clock.
    """

    def __init__(
        self,
        kill_at: Container[str] = (),
        names: TransitionNames | None = None,
        conductor: Conductor | None = None,
    ) -> None:
        self.names = names or TransitionNames()
        self.passed: dict[str, None] = {}
        """The points so far, in order."""
        self.died_at: str | None = None
        self._kill_at = kill_at
        self._doomed_at: str | None = None
        """Die there once the loop is idle: what was acknowledged has its effect first."""
        self.stepper = Stepper(rested=self._meet_doom, conductor=conductor)
        self._scope = anyio.CancelScope()
        self._buried = threading.Event()
        self._holds: list[Hold] = []

    def wrap(self, driver: Driver) -> Driver:
        """For `open_store(driver=…)` and `StoreSource(driver=…)`."""
        return MortalDriver(driver, self, self.stepper)

    async def __aenter__(self) -> CrashPoints:
        await self.stepper.__aenter__()
        self._scope.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            return bool(self._scope.__exit__(kind, error, trace)) or self._is_wreckage(error)
        except Exception as left:  # what is left of a group when its cancellations are taken out
            if not self._is_wreckage(left):
                raise
            return True
        finally:
            await self.stepper.__aexit__(None, None, None)

    def _is_wreckage(self, error: BaseException | None) -> bool:
        """Did something fall to pieces as the execution died? That is of no interest: it is what it was killed for."""
        return self.died_at is not None and isinstance(error, Exception)

    def _bury(self) -> None:
        self._scope.cancel()
        self._buried.set()
        self.stepper.stop()

    def _meet_doom(self) -> None:
        if self._doomed_at is not None and self.died_at is None:
            self._die(self._doomed_at)
            self._bury()

    def _die(self, point: str) -> None:
        self.died_at = point
        for hold in self._holds:
            hold.let_go()

    # ------------------------------------------------------------------------------------ called in the store thread

    def check(self) -> None:
        """Raise `Stopped` when the execution is dead."""
        if self.died_at is not None:
            raise Stopped(self.died_at)

    def reach(self, phase: Phase, name: str) -> None:
        """Pass a point, or die there, by `Stopped`."""
        point = f"{phase.value} {name}"
        self.passed[point] = None
        if point in self._kill_at:
            if phase is Phase.AFTER:
                self._doomed_at = point
            else:
                self._die(point)
                self.stepper.post(self._bury)
                # Or the end of this thread might come before the cancellation, by real time.
                self._buried.wait(PATIENCE)
                raise Stopped(point)

    def keep(self, hold: Hold) -> Hold:
        self._holds.append(hold)
        return MortalHold(hold, self)


class MortalDriver(SteppingDriver):
    """A driver of an execution that may die: from then on it answers nothing."""

    def __init__(self, inner: Driver, points: CrashPoints, stepper: Stepper) -> None:
        super().__init__(inner, stepper)
        self._points = points

    async def open(self) -> None:
        self._stepping.open()
        self._points.check()
        await self.inner.open()

    async def apply(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        points = self._points
        points.check()
        (item,) = items  # the inbox gives one at a time
        name = points.names.of(item)
        points.reach(Phase.BEFORE, name)
        applied = await self.inner.apply(batch_id, items)
        self._committed(name, item, applied)
        return applied

    async def recover(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied | None:
        self._points.check()
        applied = await self.inner.recover(batch_id, items)
        if applied is not None:
            self._committed(self._points.names.of(items[0]), items[0], applied)
        return applied

    def _committed(self, name: str, item: Transition[Any], applied: Applied) -> None:
        self._points.names.learn(item, applied.answers[0])
        self._points.reach(Phase.UNACKNOWLEDGED, name)
        self._points.reach(Phase.AFTER, name)

    async def read(self, query: Query[Any]) -> Any:
        self._points.check()
        answer = await self.inner.read(query)
        self._points.names.learn(query, answer)
        return answer

    def renewer(self) -> Renewer:
        return MortalRenewer(self.inner.renewer(), self._points)

    def hold(self, execution_id: str) -> Hold | None:
        hold = self.inner.hold(execution_id)
        return None if hold is None else self._points.keep(hold)


class MortalRenewer:
    """Renews until the execution dies."""

    def __init__(self, inner: Renewer, points: CrashPoints) -> None:
        self._inner = inner
        self._points = points
        self.close = inner.close

    def renew(self, execution_id: str, lease: float) -> bool:
        if self._points.died_at is not None:
            raise NotReached("the execution is dead")
        return self._inner.renew(execution_id, lease)


class MortalHold:
    """The proof of life of an execution that cannot take it back in an orderly way once it has died."""

    def __init__(self, inner: Hold, points: CrashPoints) -> None:
        self._inner = inner
        self._points = points
        self.let_go = inner.let_go

    def release(self) -> None:
        if self._points.died_at is None:
            self._inner.release()
