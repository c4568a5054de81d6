"""What actors say to each other, and how an incarnation ends."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from attrs import frozen

from greenroom.errors import NotAMessage

if TYPE_CHECKING:
    from greenroom.actors.ref import Ref

R_co = TypeVar("R_co", covariant=True)


class Message(Generic[R_co]):
    """The base of every message; `R_co` is the type of its reply.

        @attrs.frozen
        class Add(gr.Message[int]):
            n: int

    `await ref.ask(Add(1))` is then typed `int`. Messages are values: make them frozen.

    Logs, errors and reports show a message's type, never its contents; a class whose repr may be seen says so with
    `__loggable__ = True` in its body.
    """

    __slots__ = ()


def not_a_message(value: object) -> NotAMessage:
    """The error for something else in the place of a message. Names its type, never its contents."""
    is_class = isinstance(value, type)
    return NotAMessage(value.__qualname__ if isinstance(value, type) else type(value).__qualname__, is_class=is_class)


LONGEST_TEXT = 2_000
"""Characters of an exception's text that are kept."""


def text_of(error: BaseException) -> str:
    """What an exception says. Never raises, whatever its own `__str__` does (that is user code, run where nothing may fail)."""
    try:
        text = str(error)
    except BaseException as failure:  # noqa: BLE001 - the crash of an actor must not become one of its supervisor
        return f"(its __str__ raises {type(failure).__qualname__})"
    return storable(text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}... ({len(text)} characters)")


def storable(text: str) -> str:
    """A text for people, as any store can keep it: what has no UTF-8 (a lone surrogate, out of a file name), and the zero character, which
    PostgreSQL refuses, is written as its escape. Whatever cannot be told must not keep its owner from telling the rest.
    """
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def described(error: BaseException) -> str:
    """An exception by its type and what it says, if it says anything."""
    text = text_of(error)
    return f"{type(error).__qualname__}: {text}" if text else type(error).__qualname__


def check_storable(text: object, what: str) -> None:
    """Raise `TypeError` or `ValueError` for what cannot be a name that is recorded: it is found out where it is given."""
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no text, and cannot be {what}")
    if storable(text) != text:
        raise ValueError(
            f"{text!r} cannot be {what}: it holds a lone surrogate or a zero character, which cannot be stored"
        )


ExitKind = Literal["normal", "shutdown", "error", "killed", "abandoned"]


@frozen
class Exit:
    """How an incarnation ended.

    `normal`: it finished by itself. `shutdown`: stopped on request, or ended itself in good order (`Stop(shutdown=True)`), or a
    supervisor that gave up. `error`: an exception, in `cause`. `killed`: cancelled or killed after its shutdown time, or death of
    its process by an OS signal. `abandoned`: a thread that did not stop; it may still run.
    """

    kind: ExitKind
    cause: BaseException | None = None

    @property
    def clean(self) -> bool:
        """True for `normal` and `shutdown`: no fault (OTP `supervisor`: normal, shutdown, {shutdown, term})."""
        return self.kind in ("normal", "shutdown")

    def __str__(self) -> str:
        return self.kind if self.cause is None else f"{self.kind}: {described(self.cause)}"


@frozen
class Terminated(Message[None]):
    """A watched actor's incarnation has really ended (OTP `erlang:monitor`, DOWN). Sent once for each `context.watch(ref)`."""

    ref: Ref
    exit: Exit
    incarnation: int = 0
    """Which incarnation ended; 0 when the actor had never started."""


class Stop(Exception):
    """Raised by a handler, `on_start` excepted: the actor ends by its own will.

    `Stop()` is a normal end. `Stop(shutdown=True)` ends it as `shutdown`; a reason makes that OTP's {shutdown, reason}.
    """

    def __init__(self, reason: object = None, *, shutdown: bool = False) -> None:
        super().__init__(*(() if reason is None else (reason,)))
        self.reason = reason
        self.shutdown = shutdown

    @property
    def exit(self) -> Exit:
        """The exit this makes; the exception is kept as its cause when it carries a reason."""
        return Exit("shutdown" if self.shutdown else "normal", self if self.reason is not None else None)


class Rejected(Exception):
    """Raised by a handler: the message is refused. It reaches the asker as raised, and crashes nothing."""


class Ignore(Exception):
    """Raised by `on_start`: there is nothing to do; the child stays down, without an error (OTP: `ignore`)."""


UNKNOWN: Any = object()
"""A reply type that cannot be found out: not declared, or a type variable."""


def reply_type(message: type[Message[Any]]) -> Any:
    """The `R` of `Message[R]`, found along the class's bases; a string where it is a forward reference, else `UNKNOWN`."""
    for cls in message.__mro__:
        for base in getattr(cls, "__orig_bases__", ()):
            if typing.get_origin(base) is Message:
                (reply,) = typing.get_args(base)
                if isinstance(reply, TypeVar):
                    return UNKNOWN
                return reply.__forward_arg__ if isinstance(reply, typing.ForwardRef) else reply
    return UNKNOWN
