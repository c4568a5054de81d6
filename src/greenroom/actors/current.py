"""Who is running: the one piece of ambient state.

Set once when an actor's event-loop task or thread starts and inherited by what it starts. It names the sender of dead letters, tells a
self-ask from an ask, and gives an actor under construction its context.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from greenroom.actors.cell import Cell
    from greenroom.actors.context import Context

current_actor: ContextVar[Cell | None] = ContextVar("greenroom current actor", default=None)

_offered: ContextVar[Context | None] = ContextVar("greenroom offered context", default=None)
"""On a thread of an actor: the context for the actor that it constructs. Not in the cell, which belongs to the loop's thread, and to
which an abandoned thread may still hold on while the next incarnation is being constructed."""


@contextmanager
def offering(context: Context) -> Iterator[None]:
    """On a thread of its own: the first actor that is constructed inside gets this context."""
    token = _offered.set(context)
    try:
        yield
    finally:
        _offered.reset(token)


def constructing() -> Context | None:
    """The context for the actor that is being constructed in this event-loop task or thread, once; None outside a start."""
    context = _offered.get()
    if context is not None:
        _offered.set(None)
        return context
    cell = current_actor.get()
    return cell.take_context() if cell is not None else None
