"""What an incarnation's loop drives: an actor in this event-loop task, or a stand-in for one on a thread or in a process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from greenroom.actors.actor import Actor, attach
from greenroom.actors.cell import Cell
from greenroom.actors.context import Context
from greenroom.actors.durable import DurableActor
from greenroom.actors.handlers import Handler
from greenroom.actors.messages import Exit

Perform = Callable[[Any, Any], Awaitable[object]]
"""A handler as the loop calls it: with the body's target and the message."""


class Unserved(Exception):
    """Out of a body, where messages are kept until they are handled: this one was not, though the actor has not failed.

    The cause says why it cannot be handled. Without a cause the body has ended before it came to it.
    """


class Body(Protocol):
    """One incarnation's user code."""

    target: Any
    """First argument of every handler."""
    table: dict[type, Perform]
    """Handlers that run in the message loop, by exact message type; what is found along an MRO is added."""
    concurrent: dict[type, Handler]
    """Handlers that run in the actor's nursery instead, by message type."""
    offers_nursery: bool
    grace: float
    """Seconds from the last cancellation until the life counts as stuck: how long its real end may take."""
    must_finish: bool
    """`finish` is called even when the start failed or no `on_stop` is due: there is something to reap."""

    @property
    def has_on_stop(self) -> bool:
        """There is an `on_stop` to run; false spares a phase."""

    async def start(self) -> object:
        """Construct the actor and run `on_start`; returns the start info."""

    def resolve(self, message: type) -> Perform | None:
        """The handler of a type that is in neither table nor `concurrent`, exactly or along its MRO; None when there is none."""

    def handled_types(self) -> tuple[str, ...]:
        """Names of the message types that have handlers, for errors."""

    async def finish(self, exit: Exit, *, polite: bool) -> Exit | None:
        """Run `on_stop` if `polite` and end what is outside this task. Another exit replaces the given one."""


class TaskBody:
    """An actor that runs in the event-loop task itself."""

    offers_nursery = True
    grace = 0.1
    must_finish = False

    __slots__ = ("_args", "_cell", "_context", "_factory", "concurrent", "table", "target")

    target: Any

    def __init__(self, factory: Callable[..., Any], args: tuple[object, ...], cell: Cell, context: Context) -> None:
        self._factory = factory
        self._args = args
        self._cell = cell
        self._context = context
        self.table = _NO_TABLE
        self.concurrent = _NO_HANDLERS

    async def start(self) -> object:
        self._cell.offer_context(self._context)
        try:
            actor = self._factory(*self._args)
        finally:
            self._cell.offer_context(None)
        if not isinstance(actor, Actor):
            raise TypeError(
                f"the factory of {self._cell.path!r} made a {type(actor).__qualname__}; it has to make a gr.Actor"
            )
        if type(actor).__blocking__:
            raise TypeError(
                f"{type(actor).__qualname__} has plain `def` handlers: give {self._cell.path!r} isolation='thread' or 'process'"
            )
        custody = self._cell.mailbox.custody
        if custody is not None:
            custody.adopt(actor)
        elif isinstance(actor, DurableActor):
            raise TypeError(
                f"{type(actor).__qualname__} is a durable actor, and {self._cell.path!r} was not specified as one: give gr.Child the "
                "class itself, or a functools.partial of it"
            )
        attach(actor, self._context)
        self.target = actor
        self.table, self.concurrent = _tables(type(actor))
        return None if type(actor).on_start is Actor.on_start else await actor.on_start()

    @property
    def has_on_stop(self) -> bool:
        return type(self.target).on_stop is not Actor.on_stop

    def resolve(self, message: type) -> Perform | None:
        return None

    def handled_types(self) -> tuple[str, ...]:
        return tuple(
            sorted(message.__qualname__.rpartition("<locals>.")[2] for message in type(self.target).__handlers__)
        )

    async def finish(self, exit: Exit, *, polite: bool) -> Exit | None:
        if polite:
            await self.target.on_stop(exit)
        return None


def _tables(cls: type[Actor]) -> tuple[dict[type, Perform], dict[type, Handler]]:
    """A class's dispatch table, shared by its instances, and its concurrent handlers."""
    tables: tuple[dict[type, Perform], dict[type, Handler]] | None = cls.__dict__.get("__dispatch__")
    if tables is None:
        handlers = cls.__handlers__.items()
        tables = (
            {message: handler.function for message, handler in handlers if handler.concurrency == 1},
            {message: handler for message, handler in handlers if handler.concurrency > 1},
        )
        cls.__dispatch__ = tables  # type: ignore[attr-defined]
    return tables


_NO_TABLE: dict[type, Perform] = {}
_NO_HANDLERS: dict[type, Handler] = {}
