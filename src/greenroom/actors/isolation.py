"""Where an actor runs, and whether its class can run there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pykka

from greenroom.actors.actor import Actor
from greenroom.actors.bodies import Body, TaskBody
from greenroom.errors import BadSpec

if TYPE_CHECKING:
    from greenroom.actors.life import ActorLife

Isolation: TypeAlias = Literal["task", "thread", "process"]


def plain_factory(factory: Any) -> Any:
    """The class or function inside any number of `functools.partial`s."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    return factory


def check_isolation(
    where: str, factory: Callable[..., Any], args: tuple[object, ...], isolation: str, ask_failure: str | None
) -> None:
    """Raise `BadSpec` when the factory's class cannot run under this isolation, as far as that can be known beforehand."""
    if isolation not in ("task", "thread", "process"):
        raise BadSpec(f"{where}isolation={isolation!r}: choose 'task', 'thread' or 'process'")
    if ask_failure not in (None, "reply", "crash"):
        raise BadSpec(f"{where}ask_failure={ask_failure!r}: choose 'reply' or 'crash', for a Pykka class")
    cls = plain_factory(factory)
    if isinstance(cls, type) and issubclass(cls, pykka.Actor):
        if isolation != "thread":
            raise BadSpec(f"{where}{cls.__qualname__} is a Pykka actor: give it isolation='thread'")
        if not issubclass(cls, pykka.ThreadingActor):
            raise BadSpec(
                f"{where}{cls.__qualname__} is a Pykka actor, but no ThreadingActor: only those can be supervised"
            )
        return
    if ask_failure is not None:
        raise BadSpec(
            f"{where}ask_failure={ask_failure!r} is for existing Pykka classes; in a gr.Actor raise gr.Rejected to spare the actor"
        )
    if isinstance(cls, type):
        if not issubclass(cls, Actor):
            raise BadSpec(f"{where}{cls.__qualname__} is not an actor: derive it from gr.Actor")
        if isolation == "task" and cls.__blocking__ is True:
            raise BadSpec(
                f"{where}{cls.__qualname__} has plain `def` handlers: isolation='thread' or 'process', or make them `async def`"
            )
        if isolation == "thread" and cls.__blocking__ is False:
            raise BadSpec(
                f"{where}{cls.__qualname__} has `async def` handlers: isolation='task' or 'process', or make them plain `def`"
            )


def body_for(
    factory: Callable[..., Any],
    args: tuple[object, ...],
    isolation: Isolation,
    life: ActorLife,
    ask_failure: str | None,
) -> Body:
    """The body of one incarnation."""
    return TaskBody(factory, args, life.cell, life.context)
