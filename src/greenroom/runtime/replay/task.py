"""The task, as control code has it: one object for the whole activation, used by all branches."""

from __future__ import annotations

import math
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar, cast, overload
from uuid import UUID

from greenroom.errors import Defect
from greenroom.runtime.replay.branch_state import OperationKind
from greenroom.runtime.replay.branches import Branches, CleanupBlock, Limit, NurseryBlock
from greenroom.runtime.replay.codec import ValueCodec
from greenroom.runtime.replay.operations import OperationDef
from greenroom.runtime.replay.rows import Start

if TYPE_CHECKING:
    from greenroom.actors import Message
    from greenroom.runtime.replay.engine import Engine

M = TypeVar("M", bound="Message[Any]")
M2 = TypeVar("M2", bound="Message[Any]")
P = ParamSpec("P")
R = TypeVar("R")


class Task:
    """What control code acts with. Every call that waits raises `Cancelled` in a scope that is cancelled.

    Calls belong to branches: they are made by the root, which `perform` is, or by a branch of one of its nurseries, one at a time.
    """

    __slots__ = ("_codec", "_engine", "_start")

    def __init__(self, engine: Engine, start: Start, codec: ValueCodec) -> None:
        self._engine = engine
        self._start = start
        self._codec = codec

    @property
    def id(self) -> str:
        """The task's `task_id`."""
        return self._start.task_id

    @property
    def attempt(self) -> int:
        """Which pursuit of the task this is, from 1."""
        return self._start.attempt

    @property
    def execution(self) -> str:
        """The execution that runs this activation. Decide nothing by it: it is another one after each recovery."""
        return self._start.execution

    @property
    def deadline(self) -> datetime | None:
        """The task's; None when it has none."""
        return self._start.deadline

    async def run(self, operation: OperationDef[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Perform an operation and return its recorded result.

        Raises:
            OperationFailed: as recorded.
            NotEncodable: arguments that cannot be recorded.
        """
        params = self._codec.encode((args, kwargs))
        calls = self._engine.calls
        return cast("R", await self._engine.call(calls.operation, OperationKind.RUN, operation.name, params, operation))

    async def sleep(self, until: float | datetime, /) -> None:
        """Sleep for so many seconds, or until an aware instant. One that has passed is due at once."""
        await self._engine.call(self._engine.calls.sleep, _moment(until))

    @overload
    async def receive(self, kind: type[M], /, *, timeout: float | None) -> M: ...
    @overload
    async def receive(self, kind: type[M], kind2: type[M2], /, *, timeout: float | None) -> M | M2: ...
    @overload
    async def receive(self, *kinds: type[M], timeout: float | None) -> M: ...
    async def receive(self, *kinds: type[Any], timeout: float | None) -> Any:
        """The first signal of one of these classes that nobody has received, or the next one to come.

        Args:
            timeout: seconds. None: wait for ever.
        Raises:
            WaitTimeout: none has come in time.
            NotEncodable: a class that no signal can have.
        """
        if not kinds:
            raise TypeError("receive() needs at least one class of messages")
        tags = [self._codec.tags(kind) for kind in kinds]
        types = tuple(dict.fromkeys(tag for names in tags for tag in names))
        shown = f"receive {', '.join(names[0] for names in tags)}"
        return await self._engine.call(self._engine.calls.receive, types, shown, _limit(timeout))

    async def submit(self, pool: str, request: Message[R], /) -> ChildTask[R]:
        """Submit a child task. It is accepted when this returns."""
        calls = self._engine.calls
        child = await self._engine.call(calls.operation, OperationKind.SUBMIT, pool, self._codec.encode(request), None)
        return ChildTask(self._engine, child)

    async def continue_as(self, request: object, /) -> NoReturn:
        """Go on as a new segment, with an empty journal: `perform` begins again with this request. Never returns.

        Raises:
            SegmentBusy: outside the root branch, or inside a nursery.
        """
        await self._engine.call(self._engine.calls.continue_as, self._codec.encode(request))
        raise Defect("a segment that has ended went on")

    def nursery(self) -> AbstractAsyncContextManager[Branches]:
        """Open a nursery: `async with task.nursery() as branches`. Leaving the block waits for all branches in it."""
        return NurseryBlock(self._engine)

    def move_on_after(self, seconds: float) -> AbstractContextManager[Limit]:
        """Leave the block after so many seconds: what it waits for is cancelled, and the limit's `expired` is true."""
        return Limit(self._engine, _seconds(seconds))

    def cleanup(self, seconds: float) -> AbstractAsyncContextManager[None]:
        """The only place where a `finally` of a cancelled branch may wait: cancellation from outside does not reach it.

        After so many seconds it is cancelled and left itself, and that is reported.
        """
        return CleanupBlock(self._engine, _seconds(seconds))

    def version(self, name: str) -> bool:
        """Whether to take the road that a change has made, and not the one that this attempt may have gone before it.

        if task.version("ask-legal-first"):
            ...  # tasks that get here with this code
        else:
            ...  # tasks that older code has already taken past here
        """
        return self._engine.calls.version(name)

    def now(self) -> datetime:
        """Logical time: when what this branch was told last was recorded."""
        return self._engine.machine.at

    def uuid(self) -> UUID:
        """A random identity, the same at every replay."""
        return self._engine.calls.uuid(self._engine.caller())

    def random(self) -> float:
        """A random number from 0 up to but not including 1, the same at every replay."""
        return self._engine.calls.random(self._engine.caller())


class ChildTask(Generic[R]):
    """A child task that was submitted."""

    __slots__ = ("_engine", "id")

    def __init__(self, engine: Engine, id: str) -> None:
        self._engine = engine
        self.id = id

    async def result(self, *, timeout: float | None = None) -> R:
        """Wait for its end and return its result."""
        calls = self._engine.calls
        return cast("R", await self._engine.call(calls.ask, child_key(self.id), f"child {self.id}", _limit(timeout)))


def child_key(task_id: str) -> str:
    """The key under which a child's end answers its parent."""
    return f"child {task_id}"


def _seconds(seconds: float) -> float:
    if not math.isfinite(seconds):
        raise ValueError(f"{seconds!r} is no number of seconds that ends; leave the limit out instead")
    return float(seconds)


def _limit(timeout: float | None) -> float | None:
    return None if timeout is None else _seconds(timeout)


def _moment(until: float | datetime) -> float | datetime:
    if isinstance(until, datetime):
        if until.tzinfo is None:
            raise ValueError(f"{until!r} has no time zone: give an aware datetime, for example from task.now()")
        return until
    return _seconds(until)
