"""The task, as control code has it: one object for the whole activation, used by all branches."""

from __future__ import annotations

import math
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    NoReturn,
    ParamSpec,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    overload,
)
from uuid import UUID

from greenroom.actors import Message, Ref, check_storable
from greenroom.actors.messages import not_a_message
from greenroom.errors import Defect, OperationFailed, WaitTimeout
from greenroom.runtime.callback import Callback, check_callback
from greenroom.runtime.replay.branch_state import OperationKind
from greenroom.runtime.replay.branches import Branches, CleanupBlock, Limit, NurseryBlock
from greenroom.runtime.replay.codec import ValueCodec
from greenroom.runtime.replay.draws import drawn_secret
from greenroom.runtime.replay.operations import OperationDef, packed
from greenroom.runtime.replay.rows import Start
from greenroom.runtime.replay.signals import CALLBACK_KEY
from greenroom.runtime.replay.timers import after

if TYPE_CHECKING:
    from greenroom.runtime.replay.engine import Engine

M = TypeVar("M", bound="Message[Any]")
M2 = TypeVar("M2", bound="Message[Any]")
P = ParamSpec("P")
R = TypeVar("R")

WhenParentEnds: TypeAlias = Literal["stop", "detach"]

LONGEST_PHASE: Final = 200

NO_ANSWER: Final = WaitTimeout.__name__
"""By what a callback is recorded to have failed to which no answer came in time."""


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
        params = self._codec.encode(packed(args, kwargs))
        return cast("R", await self._operation(OperationKind.RUN, operation.name, params, operation))

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
            TypeError: a class for which the agent has a handler (`on_signal`).
        """
        return await self._receive(kinds, _limit(timeout))

    def _receive(self, kinds: tuple[type[Any], ...], timeout: float | None) -> Coroutine[Any, Any, Any]:
        # Apart, so that the branch does not keep all this while it waits.
        if not kinds:
            raise TypeError("receive() needs at least one class of messages")
        tags = [self._codec.tags(kind) for kind in kinds]
        types = tuple(dict.fromkeys(tag for names in tags for tag in names))
        handled = [type_ for type_ in types if type_ in self._engine.machine.handlers]
        if handled:
            raise TypeError(f"receive() of {handled[0]}: such signals go to the handler that the agent has for them")
        shown = f"receive {', '.join(names[0] for names in tags)}"
        return self._engine.call(self._engine.calls.receive, types, shown, timeout)

    async def submit(
        self, pool: str, request: Message[R], /, *, when_parent_ends: WhenParentEnds = "stop"
    ) -> ChildTask[R]:
        """Submit a child task. It is accepted when this returns.

        Args:
            when_parent_ends: what becomes of it when this task ends before it: `"stop"` cancels it, `"detach"` leaves it to itself.
        """
        if when_parent_ends not in get_args(WhenParentEnds):
            raise ValueError(f"when_parent_ends={when_parent_ends!r}: choose 'stop' or 'detach'")
        check_storable(pool, "the path of a pool")
        params = self._codec.encode(request)
        child = await self._operation(OperationKind.SUBMIT, pool, params, when_parent_ends)
        return ChildTask(self._engine, child)

    def child(self, task_id: str, /) -> ChildTask[Any]:
        """A child task that was submitted before, also in an earlier segment, by its `id`: to wait for its result.

        That raises `OperationFailed`, of type `NoSuchTask`, for what is no child of this task, or was forgotten by retention.
        """
        self._engine.machine.adopted[child_key(task_id)] = None
        return ChildTask(self._engine, task_id)

    async def callback(self, name: str, /, *, timeout: float | None) -> Callback:
        """Open a wait for one answer from outside. It may come from now on, whether or not anybody waits for it yet.

        Args:
            name: what it is for, for people.
            timeout: seconds from now after which an answer is late. None: it may come at any time.
        Raises:
            ValueError: a name that is none, or seconds that lead to no date.
        """
        check_callback(name, timeout)
        if timeout is not None:
            after(self.now(), timeout)
        callback_id = await self._operation(OperationKind.CALLBACK, name, self._codec.encode(timeout), timeout)
        token = callback_token(self._start, callback_id)
        return Callback(name, token, self.id, partial(self._answer, callback_id, name, timeout))

    def callback_of(self, token: str, /) -> Callback:
        """A callback that this attempt has opened before, also in an earlier segment. Its name is its identity, here.

        Waiting for it raises `OperationFailed`, of type `Forgotten`, when it was settled and retention has forgotten how.

        Args:
            token: as it was given out. The request of `continue_as` may take it along.
        Raises:
            ValueError: it is not of this attempt.
        """
        callback_id = token.rpartition(".")[0]
        if token != callback_token(self._start, callback_id):
            raise ValueError(
                f"that is no token of a callback that attempt {self.attempt} of task {self.id!r} has opened"
            )
        self._engine.machine.adopted[callback_key(callback_id)] = None
        return Callback(callback_id, token, self.id, partial(self._answer, callback_id, callback_id, None))

    async def _answer(self, callback_id: str, name: str, timeout: float | None) -> Any:
        calls = self._engine.calls
        try:
            return await self._engine.call(calls.ask, callback_key(callback_id), f"callback {name!r}", None)
        except OperationFailed as failed:
            if failed.type != NO_ANSWER:
                raise
            raise WaitTimeout(f"the answer to the callback {name!r} of task {self.id!r}", timeout) from None

    async def tell(self, to: Ref | ChildTask[Any] | str, message: Message[Any], /) -> None:
        """Send a message, once. It leaves with the commit of this turn.

        Args:
            to: an actor, durable or in memory, by its ref or path; or a child task, which gets it as a signal.
        """
        await self._operation(OperationKind.TELL, _path(to), self._codec.encode(_checked(message)), None)

    async def ask(self, to: Ref | str, message: Message[R], /, *, timeout: float | None = 5.0) -> R:
        """Ask an actor and return its recorded reply.

        An actor with a persistent mailbox is asked once, whatever becomes of this process. One in memory is asked again when the
        process dies before the reply is on record.

        Args:
            timeout: seconds for one try; after a death another begins. None: as long as it takes.
        Raises:
            OperationFailed: it was rejected, or no reply came; `type` names the exception, as `Ref.ask` raises it.
        """
        limit = _limit(timeout)
        params = self._codec.encode(packed((_checked(message),), {}))
        return cast("R", await self._operation(OperationKind.ASK, _path(to), params, limit))

    def _operation(self, kind: OperationKind, name: str, params: bytes, target: object) -> Coroutine[Any, Any, Any]:
        return self._engine.call(self._engine.calls.operation, kind, name, params, target)

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
        check_storable(name, "the name of a change")
        return self._engine.calls.version(name)

    def phase(self, name: str | None, /) -> None:
        """Say what the task is at, for people: it is the `phase` of its status until the next is named. It is no call, and changes nothing.

        Raises `ValueError` for what is no line of 1 to 200 printable characters.
        """
        if name is not None and not (0 < len(name) <= LONGEST_PHASE and name.isprintable() and name.strip()):
            raise ValueError(
                f"{name!r} cannot be a phase: a line of 1 to {LONGEST_PHASE} printable characters, or None"
            )
        self._engine.machine.phase = name

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


CHILD_KEY: Final = "child "


def child_key(task_id: str) -> str:
    """The key under which a child's end answers its parent."""
    return f"{CHILD_KEY}{task_id}"


def callback_key(callback_id: str) -> str:
    """The key under which a callback's answer reaches the task that waits for it."""
    return f"{CALLBACK_KEY}{callback_id}"


def callback_token(start: Start, callback_id: str) -> str:
    """The token of a callback: its identity, and a secret that comes from the attempt's seed, so that a replay gives the same."""
    return f"{callback_id}.{drawn_secret(start, callback_id)}"


def _checked(message: object) -> object:
    if not isinstance(message, Message):
        raise not_a_message(message)
    return message


def _path(to: Ref | ChildTask[Any] | str) -> str:
    if isinstance(to, ChildTask):
        return f"task:{to.id}"
    path = to.path if isinstance(to, Ref) else to
    if not isinstance(path, str) or not path.strip():
        raise TypeError(f"{to!r}: give the path of an actor, its ref, or a child task")
    check_storable(path, "the path of an actor")
    return path


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
        try:
            until.astimezone(UTC)
        except OverflowError as error:
            raise ValueError(f"{until!r} is no date in UTC") from error
        return until
    return _seconds(until)
