"""`@handles`: which method handles which message, found out once for each class.

A handler's message parameter is resolved when it is decorated, not when it is first used: a wrong annotation is an error at the
line that has it. Dispatch is a dictionary from message class to function; a class that is not in it is looked up along its MRO
once and remembered.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, Union, overload

from attrs import frozen

from greenroom.actors.messages import UNKNOWN, Message, reply_type
from greenroom.errors import BadHandler
from greenroom.mailbox import is_whole

S = TypeVar("S")
M = TypeVar("M", bound="Message[Any]")
R = TypeVar("R")

_MARK = "__greenroom_handles__"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@frozen
class Handled:
    """What `@handles` found out about a method; kept on the function."""

    messages: tuple[type[Message[Any]], ...]
    concurrency: int
    blocking: bool
    """A plain `def`: runs on a thread or in a process, never on the event loop."""
    returns: Any
    """What the method says it returns, resolved where that was possible."""
    promised: tuple[Any, ...]
    """What each message says its reply is, likewise."""


@frozen
class Handler:
    """A method of one class for one type of message."""

    name: str
    function: Callable[..., Any]
    concurrency: int


@overload
def handles(function: Callable[[S, M], R], /) -> Callable[[S, M], R]: ...
@overload
def handles(
    *, concurrency: int = 1
) -> Callable[[Callable[[S, M], Coroutine[Any, Any, R]]], Callable[[S, M], Coroutine[Any, Any, R]]]: ...
def handles(function: Any = None, /, *, concurrency: int = 1) -> Any:
    """Mark a method as the handler of its parameter's message type (or of each member of a union).

    Args:
        concurrency: how many of this handler (int > 0) may run at once. 1: in the actor's message loop, one message at a time.
            Above 1: in the actor's own nursery; messages beyond that wait, in order, and other messages go on.

    Raises `BadHandler` at once when the annotation is missing, cannot be resolved or names no message.
    """
    if not is_whole(concurrency, least=1):
        raise BadHandler(f"@handles(concurrency={concurrency!r}): how many may run at once is a whole number above 0")
    if function is not None and not callable(function) and not isinstance(function, (staticmethod, classmethod)):
        raise BadHandler(f"@handles({function!r}) marks a method; for a limit write @handles(concurrency={function!r})")

    def mark(method: Callable[..., Any], depth: int) -> Callable[..., Any]:
        handled = examined(method, sys._getframe(depth), ("`self`", "one message"), concurrency)
        if handled.blocking and concurrency > 1:
            raise BadHandler(
                f"{_where(method)}: a plain `def` handler runs on one thread; concurrency needs `async def`"
            )
        setattr(method, _MARK, handled)
        return method

    if function is not None:
        return mark(function, 2)
    return lambda method: mark(method, 2)


def examined(
    method: Callable[..., Any], frame: types.FrameType | None, takes: tuple[str, ...], concurrency: int = 1
) -> Handled:
    """What there is to know of a handler.

    Args:
        frame: of the class body in which it is defined.
        takes: its parameters, in words. The last one is the message.

    Raises `BadHandler`.
    """
    names = surrounding_names(frame, method)
    if inspect.isgeneratorfunction(method) or inspect.isasyncgenfunction(method):
        raise BadHandler(f"{_where(method)} yields: a handler returns its one reply")
    messages = _message_types(method, names, takes)
    returns = _resolve_if_possible(inspect.signature(method).return_annotation, _globals_of(method), names)
    promised = tuple(_resolve_if_possible(reply_type(m), _module_of(m), names) for m in messages)
    return Handled(messages, concurrency, not inspect.iscoroutinefunction(method), returns, promised)


def _where(method: Callable[..., Any]) -> str:
    return f"handler {getattr(method, '__qualname__', method)!s}"


def surrounding_names(frame: types.FrameType | None, method: Callable[..., Any]) -> dict[str, Any]:
    """The locals of the class body and of the functions around it: a test defines its messages inside a function.

    Around it in the source, that is, so that the variables of whoever calls are never taken for a definition's.
    """
    module = _globals_of(method)
    names: dict[str, Any] = {}
    while frame is not None:
        around = f"{method.__qualname__}.".startswith(f"{frame.f_code.co_qualname}.")
        if (around or frame.f_code.co_name == "<module>") and frame.f_globals is module is not frame.f_locals:
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def _globals_of(method: Callable[..., Any]) -> dict[str, Any]:
    """The globals of the module where a method was written, whatever decorators it has."""
    names: dict[str, Any] = getattr(inspect.unwrap(method), "__globals__", {})
    return names


def _module_of(cls: type) -> dict[str, Any]:
    """The globals of a class's module; none when nobody could import that."""
    module = sys.modules.get(cls.__module__)
    return {} if module is None else vars(module)


def _resolve(annotation: Any, module: dict[str, Any], names: dict[str, Any]) -> Any:
    for _ in range(2):  # twice for one that is quoted besides
        if isinstance(annotation, str):
            annotation = eval(annotation, module, names)  # the class's own source, as typing.get_type_hints would
    return annotation


def _resolve_if_possible(annotation: Any, module: dict[str, Any], names: dict[str, Any]) -> Any:
    """Resolve a reply's type; a name that only the type checker knows stays text, and texts can still be compared."""
    try:
        return _resolve(annotation, module, names)
    except Exception:  # noqa: BLE001 - whatever evaluating somebody's annotation raises
        return annotation


def _message_types(
    method: Callable[..., Any], names: dict[str, Any], takes: tuple[str, ...]
) -> tuple[type[Message[Any]], ...]:
    parameters = list(inspect.signature(method).parameters.values())
    if len(parameters) != len(takes) or not all(parameter.kind in _POSITIONAL for parameter in parameters):
        raise BadHandler(
            f"{_where(method)} has the parameters {inspect.signature(method)}: a handler takes {_listed(takes)}"
        )
    message = parameters[-1]
    annotation = message.annotation
    if annotation is inspect.Parameter.empty:
        raise BadHandler(f"{_where(method)}: annotate {message.name!r} with the type of the message it handles")
    try:
        resolved = _resolve(annotation, _globals_of(method), names)
    except Exception as error:  # whatever evaluating somebody's annotation raises
        raise BadHandler(
            f"{_where(method)}: the annotation {annotation!r} cannot be resolved ({type(error).__name__}: {error}). "
            "Define or import the message class above the actor, not under TYPE_CHECKING"
        ) from error
    members = typing.get_args(resolved) if typing.get_origin(resolved) in (Union, types.UnionType) else (resolved,)
    found = []
    for member in members:
        cls = typing.get_origin(member) or member
        if not (isinstance(cls, type) and issubclass(cls, Message)):
            raise BadHandler(
                f"{_where(method)}: {getattr(member, '__qualname__', member)} is not a message: derive it from gr.Message[Reply]"
            )
        found.append(cls)
    return tuple(found)


def _listed(words: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def collect(cls: type) -> tuple[dict[type, Handler], bool | None]:
    """The handlers of a class by message type, and whether they are plain `def`s (None without handlers).

    A subclass's handler of the same message replaces its base's; a method that overrides a handler by name handles the same
    messages. Raises `BadHandler` for two handlers of one message, a mixture of `def` and `async def`, or a return annotation
    that contradicts the message's reply type.
    """
    table: dict[type, Handler] = {}
    kinds: dict[bool, str] = {}
    for base in reversed(cls.__mro__):
        of_base: dict[type, str] = {}
        for name, attribute in vars(base).items():
            handled = getattr(attribute, _MARK, None)
            if not isinstance(handled, Handled):
                continue
            function = getattr(cls, name)
            own = getattr(function, _MARK, None)
            if own is None:
                if inspect.iscoroutinefunction(function) == handled.blocking:
                    raise BadHandler(
                        f"{cls.__qualname__}.{name} overrides a handler: one is `def`, the other `async def`"
                    )
                own = handled
            kinds[handled.blocking] = name
            check_reply(cls, name, handled)
            for message in handled.messages:
                if message in of_base:
                    raise BadHandler(
                        f"{cls.__qualname__}: both {of_base[message]!r} and {name!r} handle {_name(message)}; keep one"
                    )
                of_base[message] = name
                table[message] = Handler(name, function, own.concurrency)
    if len(kinds) > 1:
        raise BadHandler(
            f"{cls.__qualname__}: {kinds[True]!r} is a plain `def` and {kinds[False]!r} an `async def`. "
            "Handlers of one class are all `async def` (task or process) or all `def` (thread or process)"
        )
    return table, next(iter(kinds), None)


def check_reply(cls: type, name: str, handled: Handled) -> None:
    """Compare a handler's return annotation with the reply its messages promise; a type checker cannot see this."""
    returned = handled.returns
    if returned is inspect.Signature.empty:
        return
    for message, promised in zip(handled.messages, handled.promised, strict=True):
        if promised is not UNKNOWN and not _fits(returned, promised, lenient=len(handled.messages) > 1):
            raise BadHandler(
                f"{cls.__qualname__}.{name} returns {_name(returned)}, but {_name(message)} is a "
                f"Message[{_name(promised)}]: make the two agree"
            )


def _fits(returned: Any, promised: Any, *, lenient: bool) -> bool:
    """May a handler return this where that is promised? Unknown cases pass: the type checker has the rest."""
    returned = type(None) if returned is None else returned
    promised = type(None) if promised is None else promised
    if returned == promised or Any in (returned, promised) or promised is object:
        return True
    if isinstance(returned, str) or isinstance(promised, str):
        # Only the type checker knows one of them. Two plain names can still be told apart, wherever they were imported from.
        names = [_name(one).rpartition(".")[2] for one in (returned, promised)]
        return names[0] == names[1] or not all(name.isidentifier() for name in names)
    if returned is typing.NoReturn or returned is typing.Never:
        return True
    members = typing.get_args(returned) if typing.get_origin(returned) in (Union, types.UnionType) else (returned,)
    allowed = typing.get_args(promised) if typing.get_origin(promised) in (Union, types.UnionType) else (promised,)
    if lenient:
        return any(_member_fits(member, allowed) for member in members)
    return all(_member_fits(member, allowed) for member in members)


def _member_fits(member: Any, allowed: tuple[Any, ...]) -> bool:
    for one in allowed:
        if member == one or isinstance(one, TypeVar) or isinstance(member, TypeVar):
            return True
        plain, target = typing.get_origin(member) or member, typing.get_origin(one) or one
        if not (isinstance(plain, type) and isinstance(target, type)):
            return True  # Literal, Annotated, protocols of typing: left to the type checker
        arguments, wanted = typing.get_args(member), typing.get_args(one)
        try:
            fits = issubclass(plain, _NUMBERS.get(target, target))
        except TypeError:
            return True  # a protocol that is not checkable at run time
        if fits and (
            not arguments or not wanted or arguments == wanted or plain is not target or _loose(arguments, wanted)
        ):
            return True
    return False


_NUMBERS: dict[type, tuple[type, ...]] = {float: (float, int), complex: (complex, float, int)}
"""What a type checker takes for a number of this kind."""


def _loose(arguments: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    if len(arguments) != len(wanted):
        return ... in arguments + wanted  # tuples of any length
    return all(_fits(a, w, lenient=False) for a, w in zip(arguments, wanted, strict=True))


def _name(annotation: Any) -> str:
    if annotation is None or annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__qualname__.rpartition("<locals>.")[2]
    return str(annotation).strip("'\"")
