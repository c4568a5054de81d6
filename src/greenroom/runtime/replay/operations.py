"""Operations as they are declared: a function, a name, and how its effect behaves when nobody knows whether it happened."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, cast, overload

import anyio.lowlevel
from attrs import evolve, field, frozen, validators

from greenroom.actors import check_storable

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")

NO_NAMES: Final[Mapping[str, object]] = MappingProxyType({})


class Effect(Enum):
    """What an operation does to the world when it is invoked again."""

    SAFE = "safe"
    """Nothing that matters: it may be repeated freely."""
    KEYED = "keyed"
    """Its receiver recognises a repetition by the operation's key."""
    RECONCILED = "reconciled"
    """A lookup can tell whether it happened."""
    ONCE = "once"
    """It must not be repeated."""


@frozen
class RetryPolicy:
    """How often an operation is invoked before its failure is recorded."""

    invocations: int = field(default=1, validator=validators.ge(1))
    """In all, the first one included."""
    within: float | None = field(default=None, validator=validators.optional(validators.gt(0)))
    """Seconds from the first invocation, after which no other begins."""


@frozen(kw_only=True)
class Operation:
    """What an invocation knows of itself. A function that declares it as its first parameter is given it."""

    key: str
    """The idempotency key: the same at each invocation of the operation."""
    id: str
    invocation: int
    """From 1."""
    deadline: datetime | None = None
    """The task's: what cannot be done by then need not be begun."""
    link: Callable[[str, str], object] = field(default=lambda name, value: None, eq=False, repr=False)
    """`link(name, value)` records what this invocation is known by elsewhere: a provider's request id, a trace."""
    beat: Callable[[object], object] = field(default=lambda detail: None, eq=False, repr=False)
    """For Greenroom's own use."""

    async def heartbeat(self, detail: object = None) -> None:
        """Give a sign of life: it is shown in the task's status, with when it was, and what there is to tell.

        Args:
            detail: how far it is, for people: "page 3 of 10". Its text is shown, up to 200 characters. It is written once a second at most,
                and gone when the operation has ended.
        Raises: the event loop's cancellation, when the operation is to stop.
        """
        self.beat(detail)
        await anyio.lowlevel.checkpoint()


@frozen
class OperationDef(Generic[P, R_co]):
    """An operation. It is not callable: control code performs it with `await task.run(operation, ...)`, which records it.

    `function` is what was decorated, for unit tests.
    """

    name: str
    function: Callable[..., Awaitable[R_co]]
    effect: Effect
    retry: RetryPolicy = RetryPolicy()
    timeout: float | None = field(default=None, validator=validators.optional(validators.gt(0)))
    """Seconds for one invocation."""
    takes_operation: bool = False
    instance: Any = None
    """The object that it was taken from, when it is a method."""

    def using(self, *, timeout: float | None = None, retry: RetryPolicy | None = None) -> OperationDef[P, R_co]:
        """The same operation with other options, for one call. What is left out stays."""
        return evolve(
            self, timeout=self.timeout if timeout is None else timeout, retry=self.retry if retry is None else retry
        )

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> OperationDef[P, R_co]: ...
    @overload
    def __get__(
        self: OperationDef[Concatenate[S, Q], R_co], instance: S, owner: type[Any]
    ) -> OperationDef[Q, R_co]: ...
    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        return self if instance is None else evolve(self, instance=instance)

    def invoke(
        self, operation: Operation | None, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> Awaitable[R_co]:
        """Run the function once. Whatever it raises comes out, here or of what is awaited.

        Args:
            operation: what it is told, if it `takes_operation`.
        """
        leading: tuple[object, ...] = () if self.instance is None else (self.instance,)
        if self.takes_operation:
            leading = (*leading, operation)
        return self.function(*leading, *args, **kwargs)


def packed(args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """The arguments of a call as the one value that is recorded: those that have no names, and what has names, if anything has."""
    return [args, kwargs] if kwargs else args


def unpacked(params: Any) -> tuple[Sequence[object], Mapping[str, object]]:
    """The arguments again."""
    if type(params) is list:
        args, kwargs = params
        return args, kwargs
    return params, NO_NAMES


class Declare(Protocol):
    """The decorator: of a function that takes an `Operation` first, of a method that does, of one that does not."""

    @overload
    def __call__(self, function: Callable[Concatenate[Operation, P], Awaitable[R]], /) -> OperationDef[P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[S, Operation, P], Awaitable[R]], /
    ) -> OperationDef[Concatenate[S, P], R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> OperationDef[P, R]: ...


def operation(
    *, effect: Effect, name: str | None = None, retry: RetryPolicy | None = None, timeout: float | None = None
) -> Declare:
    """Declare an operation.

    Args:
        effect: there is no default: somebody has to think about it.
        name: what the journal calls it. None: the function's name. Give one before renaming the function.
        retry: None: one invocation.
        timeout: seconds for one invocation. None: no limit.
    Raises `TypeError` or `ValueError` for a name that cannot be recorded.
    """

    if name is not None:
        check_storable(name, "the name of an operation")

    def declare(function: Callable[..., Awaitable[Any]]) -> OperationDef[Any, Any]:
        return OperationDef(
            name=function.__name__ if name is None else name,
            function=function,
            effect=effect,
            retry=RetryPolicy() if retry is None else retry,
            timeout=timeout,
            takes_operation=_takes_operation(function),
        )

    return cast("Declare", declare)


def _takes_operation(function: Callable[..., Awaitable[Any]]) -> bool:
    """Whether its first parameter, or the one after `self`, is annotated as `Operation`."""
    first = list(inspect.signature(function).parameters.values())[:2]
    annotations = [parameter.annotation for parameter in first]
    return any(
        annotation is Operation or (isinstance(annotation, str) and annotation.rpartition(".")[2] == Operation.__name__)
        for annotation in annotations
    )
