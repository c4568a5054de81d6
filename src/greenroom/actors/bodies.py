"""What an incarnation's loop drives: an actor in this event-loop task, or a stand-in for one on a thread or in a process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from greenroom.actors.actor import Actor
from greenroom.actors.cell import Cell
from greenroom.actors.context import Context
from greenroom.actors.handlers import Handler
from greenroom.actors.messages import Exit

Perform = Callable[[Any, Any], Awaitable[object]]
"""A handler as the loop calls it: with the body's target and the message."""


class Body(Protocol):
    """One incarnation's user code."""

    target: Any
    """First argument of every handler."""
    table: dict[type, Perform]
    """Handlers by exact message type; filled by `resolve` as types turn up."""
    concurrent: dict[type, Handler]
    """Handlers that run in the actor's nursery, by message type."""
    offers_nursery: bool
    grace: float
    """Seconds from the last cancellation until the life counts as stuck: how long its real end may take."""
    must_finish: bool
    """`finish` is called even when the start failed or no `on_stop` is due: there is something to reap."""

    async def start(self) -> object:
        """Construct the actor and run `on_start`; returns the start info."""

    def resolve(self, message: type) -> Perform | None:
        """The handler for a type that is not in the table; None when there is none."""

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
        self.table: dict[type, Perform] = {}
        self.concurrent: dict[type, Handler] = {}

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
        actor.context = self._context
        self.target = actor
        self.table, self.concurrent = _tables(type(actor))
        return await actor.on_start()

    def resolve(self, message: type) -> Perform | None:
        return resolve(self.table, message)

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
    table: dict[type, Perform] | None = cls.__dict__.get("__dispatch__")
    if table is None:
        table = {message: handler.function for message, handler in cls.__handlers__.items()}
        cls.__dispatch__ = table  # type: ignore[attr-defined]
    return table, {message: handler for message, handler in cls.__handlers__.items() if handler.concurrency > 1}


def resolve(table: dict[type, Perform], message: type) -> Perform | None:
    """Find a handler along the message's MRO and remember it. The exact type is in the table already."""
    for base in message.__mro__[1:]:
        handler = table.get(base)
        if handler is not None:
            table[message] = handler
            return handler
    return None
