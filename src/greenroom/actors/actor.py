"""`Actor`: what users derive their actors from."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, Self

from greenroom.actors.current import constructing
from greenroom.actors.handlers import Handler, collect
from greenroom.actors.messages import Exit
from greenroom.errors import BadHandler

if TYPE_CHECKING:
    from greenroom.actors.context import Context


def attach(actor: Actor, context: Context) -> None:
    """Give an actor its context, also one whose class is frozen."""
    object.__setattr__(actor, "context", context)


class Actor:
    """Private state, a mailbox, and one message at a time.

    Derive, keep state in attributes, and mark handlers with `@gr.handles`. All handlers of a class are `async def` (the actor runs
    as an event-loop task, or in a process of its own) or all plain `def` (a thread, or a process).

    `context` is there before `__init__` runs; `super().__init__()` is not needed.
    """

    __slots__ = ("__weakref__", "context")

    context: Context

    __handlers__: ClassVar[dict[type, Handler]] = {}
    __blocking__: ClassVar[bool | None] = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        context = constructing()
        if context is not None:
            attach(self, context)
        return self

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__handlers__, cls.__blocking__ = collect(cls)
        plain = [name for name in ("on_start", "on_stop") if not inspect.iscoroutinefunction(getattr(cls, name))]
        if plain and cls.__blocking__ is False:
            raise BadHandler(
                f"{cls.__qualname__}.{plain[0]} is a plain `def`; beside `async def` handlers it is one, too"
            )
        if plain:
            cls.__blocking__ = True

    async def on_start(self) -> object:
        """Runs before the first message of an incarnation. What it returns is handed to `start_child`'s caller (OTP: start info).

        Raising is a start failure; `raise gr.Ignore` leaves the child down without an error. Bounded by `start_timeout`.

        On a thread this and `on_stop` have no event loop to await: leave out `await`, or write a plain `def`.
        """

    async def on_stop(self, exit: Exit) -> None:
        """Runs once after the last message, also after a crash; not when `on_start` did not complete, nor at a kill.

        Shielded from cancellation and bounded: by what is left of `shutdown` on a stop request, by the kill time (2 s) after a
        cancellation. `shutdown=0` and `"kill"` give none. Not a place for what must not be lost.
        """
