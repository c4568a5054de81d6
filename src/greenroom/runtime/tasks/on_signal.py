"""`@on_signal`: which method of an agent takes which signal, found out once for each class.

Such a signal is not for `task.receive`. When it comes, its handler begins as a branch beside `perform`, in the order of the journal,
so that a replay begins it at the same place. What it returns is the reply to whoever has asked (`TaskHandle.ask`).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from greenroom.actors import Message
from greenroom.actors.handlers import Handled, check_reply, examined
from greenroom.errors import BadHandler

if TYPE_CHECKING:
    from greenroom.runtime.replay import Task
    from greenroom.runtime.tasks.agent import Agent
    from greenroom.runtime.tasks.codec import TaskCodec

A = TypeVar("A")
M = TypeVar("M", bound="Message[Any]")
R = TypeVar("R")

MARK: Final = "__greenroom_on_signal__"


def on_signal(method: Callable[[A, Task, M], Awaitable[R]], /) -> Callable[[A, Task, M], Awaitable[R]]:
    """Mark a method of an agent as the handler of its message's type (or of each member of a union): `(self, task, message)`.

    It runs beside `perform`, as a branch: it may call `task.*`, and ends before the task does. Raising `Rejected` refuses the signal, and
    nothing else; any other exception is the task's.

    Raises `BadHandler` at once when it is no `async def` of these parameters, or the annotation names no message.
    """
    handled = examined(method, sys._getframe(1), ("`self`", "the task", "one message"))
    if handled.blocking:
        raise BadHandler(f"handler {method.__qualname__} is a plain `def`: control code is `async def`")
    setattr(method, MARK, handled)
    return method


def collect(cls: type) -> dict[type, str]:
    """The names of the methods of an agent's class that handle signals, by type. A subclass's handler takes the place of its base's.

    Raises `BadHandler` for two of one type in one class, and for one that does not return what its message promises.
    """
    table: dict[type, str] = {}
    for base in reversed(cls.__mro__):
        of_base: dict[type, str] = {}
        for name, attribute in vars(base).items():
            handled = getattr(attribute, MARK, None)
            if not isinstance(handled, Handled):
                continue
            if not inspect.iscoroutinefunction(getattr(cls, name)):
                raise BadHandler(f"{cls.__qualname__}.{name} overrides a handler of signals, and is no `async def`")
            check_reply(cls, name, handled)
            for message in handled.messages:
                if message in of_base:
                    other = of_base[message]
                    raise BadHandler(
                        f"{cls.__qualname__}: both {other!r} and {name!r} handle {message.__qualname__}; keep one"
                    )
                of_base[message] = table[message] = name
    return table


def signal_handlers(agent: Agent[Any, Any], codec: TaskCodec) -> dict[str, Callable[[Task, Any], Awaitable[object]]]:
    """The handlers of an agent, by what the store calls their messages. Raises `NotEncodable`."""
    methods = agent.signal_methods.items()
    return {tag: getattr(agent, name) for message, name in methods for tag in codec.tags(message)}
