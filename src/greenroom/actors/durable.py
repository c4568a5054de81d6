"""`DurableActor`: an actor whose state is in the store, and changes there together with the message that changed it."""

from __future__ import annotations

import functools
import inspect
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin

from greenroom.actors.actor import Actor
from greenroom.errors import BadHandler

S = TypeVar("S")


class DurableActor(Actor, Generic[S]):
    """An actor with a durable state of type `S`, an attrs class (or anything that messages may hold).

        class Account(gr.DurableActor[Balance]):
            def __init__(self) -> None:
                self.state = Balance(0)              # what a new one starts with; a stored state replaces it

            @gr.handles
            async def deposit(self, message: Deposit) -> int:
                self.state = Balance(self.state.cents + message.cents)
                return self.state.cents

    When a handler returns, one transaction holds the new state, the mark that its message was handled, the reply, and what it sent:
    messages to addresses in the store, timers (`context.after`), messages to the outside (`context.publish`). When it raises, none
    of them; after a crash the message comes back to the next incarnation, and after `max_deliveries` it becomes a dead letter.
    `Rejected` counts as an answer: the message is handled, and the state is as before.

    What it sends to actors without a persistent mailbox leaves after the commit, and at most once. An `ask` leaves at once: it is asked
    again when the message is delivered again, and an address in the store then gives the reply that it gave before.

    Its mailbox is persistent: `Child(..., mailbox=gr.PersistentMailbox(...))` says otherwise than the defaults, and `DurableActors` is
    a pool of many. It runs as an event-loop task, one message at a time: no concurrent handlers.
    """

    __slots__ = ("state",)

    state: S

    state_version: ClassVar[int] = 1
    """Of the form in which this code stores the state. Raise it when older states have to be converted; see `migrate`."""

    __state_type__: ClassVar[Any] = None
    """The type argument, in terms of the class's own parameters. See `state_type`."""

    @classmethod
    def migrate(cls, version: int, stored: Any) -> S:
        """Make a state of today from one that was stored under an older `state_version`.

        Args:
            version: the one it was stored under.
            stored: the state as plain JSON values, with the fields that it had then.

        Without this hook, or when it raises, the actor is parked as `incompatible`, its state and mailbox untouched.
        """
        raise LookupError(
            f"{cls.__qualname__} has no `migrate`: its state was stored as version {version}, this code writes {cls.state_version}"
        )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__blocking__:
            raise BadHandler(
                f"{cls.__qualname__} has plain `def` handlers: a durable actor runs on the event loop, make them `async def`"
            )
        for handler in cls.__handlers__.values():
            if handler.concurrency > 1:
                raise BadHandler(
                    f"{cls.__qualname__}.{handler.function.__name__} has concurrency={handler.concurrency}: "
                    "a durable actor handles one message at a time, so that each commit holds one"
                )
        for base in cls.__dict__.get("__orig_bases__", ()):
            origin = get_origin(base)
            if inspect.isclass(origin) and issubclass(origin, DurableActor):
                given = dict(zip(_parameters(origin), get_args(base), strict=True))
                (own,) = given.values() if origin is DurableActor else (_substituted(origin.__state_type__, given),)
                cls.__state_type__ = own


def _substituted(kind: Any, given: dict[Any, Any]) -> Any:
    if isinstance(kind, TypeVar):
        return given.get(kind, kind)
    if inspect.isclass(kind) or not _parameters(kind):
        return kind
    return kind[tuple(given.get(parameter, parameter) for parameter in _parameters(kind))]


def _parameters(kind: Any) -> tuple[Any, ...]:
    """The type variables of a generic class, or those left in an annotation."""
    return getattr(kind, "__parameters__", ())


def state_type(cls: type[DurableActor[Any]]) -> Any:
    """What the state of such actors is of: a class, or another annotation; None where they leave it open."""
    kind = cls.__state_type__
    is_open = kind is Any or isinstance(kind, TypeVar) or (_parameters(kind) and not inspect.isclass(kind))
    return None if is_open else kind


def is_durable(factory: object) -> bool:
    """Does this factory make durable actors, as far as it shows: the class itself, or a `functools.partial` of it?"""
    while isinstance(factory, functools.partial):
        factory = factory.func
    return inspect.isclass(factory) and issubclass(factory, DurableActor)
