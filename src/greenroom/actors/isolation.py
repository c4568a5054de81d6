"""Where an actor runs, and whether its class can run there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pykka

from greenroom.actors.actor import Actor
from greenroom.actors.bodies import Body, TaskBody
from greenroom.actors.processes.body import ProcessBody
from greenroom.actors.processes.parcels import Parcels
from greenroom.actors.processes.references import check_handlers, taken_apart
from greenroom.actors.threads.body import ThreadBody
from greenroom.errors import BadSpec, NotEncodable
from greenroom.mailbox import is_whole

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

    if isolation == "process":
        _check_travel(where, factory, args)


def _check_travel(where: str, factory: Callable[..., Any], args: tuple[object, ...]) -> None:
    """Raise `BadSpec` for what cannot get into another process."""
    try:
        call = taken_apart(factory, args)
        cls = plain_factory(factory)
        if isinstance(cls, type):
            check_handlers(cls)
    except (ValueError, TypeError) as error:
        raise BadSpec(f"{where}{error}") from None
    parcels = Parcels(_no_refs)
    parcels.teach(cls)
    named = {f"argument {number}": value for number, value in enumerate(call.arguments, 1)}
    for name, value in (named | call.keywords).items():
        try:
            parcels.encode(value)
        except NotEncodable as error:
            raise BadSpec(f"{where}{name} cannot get into another process: {error}") from error


def _no_refs(path: str, incarnation: int) -> Any:
    raise AssertionError("nothing is decoded while a specification is checked")


def check_memory_limit(where: str, memory_limit: object, isolation: str) -> None:
    """Raise `BadSpec` for a `memory_limit` that is none."""
    if memory_limit is None:
        return
    if isolation != "process":
        raise BadSpec(
            f"{where}memory_limit={memory_limit!r}: only a process has memory of its own: isolation='process', or leave it out"
        )
    if not is_whole(memory_limit, least=1):
        raise BadSpec(f"{where}memory_limit={memory_limit!r}: a whole number of bytes above 0, or None")


def body_for(
    factory: Callable[..., Any],
    args: tuple[object, ...],
    isolation: Isolation,
    life: ActorLife,
    ask_failure: str | None,
    memory_limit: int | None,
) -> Body:
    """The body of one incarnation."""
    if isolation == "process":
        return ProcessBody(factory, args, life, memory_limit)
    life.mailbox.examine_by(None)
    if isolation == "thread":
        return ThreadBody(factory, args, life, ask_failure)
    return TaskBody(factory, args, life.cell, life.context)
