"""`Unit`: what the handler of a durable actor does to the world, held until its message is committed as handled (R25).

The cell of the actor points to it while the handler runs. Refs and the context ask it first: what the handler's own event-loop task sends
or sets is held here; what the actor's other tasks do is theirs, and happens at once.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from greenroom.errors import Misuse

if TYPE_CHECKING:
    from datetime import datetime

    from greenroom.actors.cell import Cell


@define(eq=False)
class Held:
    """A message to an address in the store."""

    recipient: str
    message: Any
    message_id: str | None
    deliver_at: datetime | None


@define(eq=False)
class HeldTimer:
    """A timer to set under a key, or, without a message, to cancel."""

    key: str | None
    delay: float = 0.0
    message: Any = None


@define(eq=False)
class Published:
    """A message to a destination outside of the store."""

    destination: str
    message: Any


@define(eq=False)
class Unit:
    """One handler's effects. For the event loop's thread."""

    task: object
    """The event-loop task in which the handler runs."""
    message_id: str
    """Of the message in hand."""
    messages: list[Held] = field(factory=list)
    timers: list[HeldTimer] = field(factory=list)
    published: list[Published] = field(factory=list)
    afterwards: list[Callable[[], object]] = field(factory=list)
    """What is told to actors in memory, after the commit."""
    asks: int = 0
    """Questions it has put to addresses in the store, which are numbered so that a repeated handler repeats them."""


CONTROL_CODE: Final = Unit(task=None, message_id="")
"""Instead of a unit, where the control code of a task runs: nothing that it does by itself would be recorded (R26)."""


def in_control_code(cell: Cell) -> Cell:
    """The same actor, as control code of tasks has it for the current one."""
    stand_in = copy(cell)
    stand_in.unit = CONTROL_CODE
    return stand_in


def open_unit(sender: Cell | None) -> Unit | None:
    """The unit that what this sender does now belongs to; None when it takes effect at once.

    Raises `Misuse` in the control code of a task.
    """
    if sender is None or sender.unit is None:
        return None
    if sender.unit is CONTROL_CODE:
        raise Misuse(
            "what control code sends by a ref is not recorded, and would be sent again by each replay: "
            "call `await task.tell(ref, message)` or `await task.ask(ref, message)`, or do it in an operation"
        )
    return sender.unit if sender.unit.task is sender.services.loop.current_task() else None
