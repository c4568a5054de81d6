"""Who is running: the one piece of ambient state.

Set once when an actor's event-loop task starts and inherited by what it starts. It names the sender of dead letters, tells a
self-ask from an ask, and gives an actor under construction its context.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from greenroom.actors.cell import Cell
    from greenroom.actors.context import Context

current_actor: ContextVar[Cell | None] = ContextVar("greenroom current actor", default=None)


def constructing() -> Context | None:
    """The context for the actor that is being constructed in this event-loop task, once; None outside a start."""
    cell = current_actor.get()
    return cell.take_context() if cell is not None else None
