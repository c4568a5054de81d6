"""Nurseries and limits, as control code has them: `task.nursery()`, `task.move_on_after()`, `task.cleanup()`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar, TypeVarTuple, Unpack, cast

from greenroom.errors import BranchNotEnded, Cancelled
from greenroom.runtime.replay.branch_state import BranchState, NurseryState
from greenroom.runtime.replay.endings import FOREIGN
from greenroom.runtime.replay.scopes import Scope, ScopeKind

if TYPE_CHECKING:
    from greenroom.runtime.replay.engine import Engine

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Ts = TypeVarTuple("Ts")


class Branch(Generic[R_co]):
    """A branch that was started. Its result is there when its nursery has ended."""

    __slots__ = ("_state",)

    def __init__(self, state: BranchState) -> None:
        self._state = state

    @property
    def result(self) -> R_co:
        """What its function returned.

        Raises:
            BranchNotEnded: inside the nursery's block.
            BranchCancelled: it was cancelled.
            Exception: what its function raised.
        """
        state = self._state
        if state.nursery is not None and not state.nursery.ended:
            raise BranchNotEnded(state.label)
        if state.error is not None:
            raise state.error
        return cast("R_co", state.value)


class Branches:
    """An open nursery of control code."""

    __slots__ = ("_engine", "_nursery")

    def __init__(self, engine: Engine, nursery: NurseryState) -> None:
        self._engine = engine
        self._nursery = nursery

    def start_soon(self, func: Callable[[Unpack[Ts]], Awaitable[R]], *args: Unpack[Ts]) -> Branch[R]:
        """Start a branch. It has its first turn after those that are ready by now.

        Raises:
            NurseryEnded: the block has been left, and all branches have ended.
        """
        engine = self._engine
        return Branch(engine.calls.start_branch(engine.caller(), self._nursery, partial(func, *args)))

    def cancel(self) -> None:
        """Cancel the block and its branches. The block then ends without an error, unless one of them fails."""
        self._engine.calls.cancel_nursery(self._engine.caller(), self._nursery)


class NurseryBlock:
    """The block of a nursery: leaving it waits for all branches. It raises an `ExceptionGroup` of all that failed."""

    __slots__ = ("_engine", "_nursery")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._nursery: NurseryState | None = None

    async def __aenter__(self) -> Branches:
        engine = self._engine
        self._nursery = engine.calls.enter_nursery(await engine.caller_in_turn())
        return Branches(engine, self._nursery)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        assert self._nursery is not None
        return await self._engine.leave_nursery(self._nursery, error)


class HandlersBlock(NurseryBlock):
    """The block of a task's control code, beside which handlers of signals run. What comes out of it is as if they did not."""

    async def __aenter__(self) -> Branches:
        engine = self._engine
        self._nursery = engine.calls.enter_handlers(await engine.caller_in_turn())
        return Branches(engine, self._nursery)


class Limit:
    """A time limit over a block of control code: when it is up, the block is cancelled and left."""

    __slots__ = ("_engine", "_scope", "_seconds", "expired")

    def __init__(self, engine: Engine, seconds: float) -> None:
        self._engine = engine
        self._seconds = seconds
        self._scope: Scope | None = None
        self.expired = False
        """The block was left early because the time was up. False when it came to its end all the same."""

    def __enter__(self) -> Limit:
        engine = self._engine
        self._scope = engine.calls.enter_limit(engine.caller(), self._seconds, ScopeKind.LIMIT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.expired = _leave(self._engine, self._scope, error)
        return self.expired


class CleanupBlock:
    """A block that cancellation from outside does not reach, for so many seconds."""

    __slots__ = ("_engine", "_scope", "_seconds")

    def __init__(self, engine: Engine, seconds: float) -> None:
        self._engine = engine
        self._seconds = seconds
        self._scope: Scope | None = None

    async def __aenter__(self) -> None:
        engine = self._engine
        branch = await engine.caller_in_turn()
        self._scope = engine.calls.enter_limit(branch, self._seconds, ScopeKind.CLEANUP)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return _leave(self._engine, self._scope, error)


def _leave(engine: Engine, scope: Scope | None, error: BaseException | None) -> bool:
    assert scope is not None
    ending = engine.block_ending(error)
    if ending is FOREIGN:
        return False
    return engine.calls.leave_limit(engine.caller(), scope, cancelled=isinstance(ending, Cancelled))
