"""What the tests of actors are made with: a puppet that does what its messages say, and a tree for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import attrs

import greenroom as gr

E = TypeVar("E", bound=gr.Event)


@attrs.frozen(eq=False)
class Do(gr.Message[Any]):
    """Run this in the actor; the reply is what it returns."""

    work: Callable[[Any], Awaitable[Any]]


@attrs.frozen
class Note(gr.Message[int]):
    """Write this into the actor's log; the reply is the log's length."""

    what: object


@attrs.frozen(eq=False)
class Hold(gr.Message[str]):
    """Keep the actor busy until `until` is set."""

    until: anyio.Event = attrs.field(factory=anyio.Event)
    begun: anyio.Event = attrs.field(factory=anyio.Event)


@attrs.frozen
class Fail(gr.Message[int]):
    """Crash the actor."""

    error: BaseException


@attrs.frozen
class Unknown(gr.Message[str]):
    """Nobody handles this."""

    text: str = ""


class Puppet(gr.Actor):
    """Logs what it is told to, into a list that outlives its incarnations."""

    def __init__(self, log: list[Any] | None = None) -> None:
        self.log: list[Any] = [] if log is None else log

    @gr.handles
    async def do(self, message: Do) -> Any:
        return await message.work(self)

    @gr.handles
    async def note(self, message: Note) -> int:
        self.log.append(message.what)
        return len(self.log)

    @gr.handles
    async def hold(self, message: Hold) -> str:
        message.begun.set()
        await message.until.wait()
        return "held"

    @gr.handles
    async def fail(self, message: Fail) -> int:
        raise message.error

    @gr.handles
    async def terminated(self, message: gr.Terminated) -> None:
        self.log.append(message)


class Boom(Exception):
    """A crash that a test made."""


def tree(*children: Any, intensity: int = 1000, **options: Any) -> gr.Runtime:
    """A runtime whose top supervisor, `app`, puts up with many restarts."""
    return gr.Runtime(gr.Supervisor("app", *children, intensity=intensity, period=5.0), **options)


async def idle() -> None:
    """Return when everything else waits for something: virtual time moves only then."""
    await anyio.sleep(0.001)


async def raised(awaitable: Awaitable[object]) -> BaseException:
    """The exception that something raises."""
    try:
        result = await awaitable
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what was asked for
        return error
    raise AssertionError(f"nothing was raised, but {result!r} returned")


def events_of(kind: type[E], events: Any) -> list[E]:
    """The events of one kind among those that have come so far."""
    return [event for event in events.pending() if isinstance(event, kind)]


def node(runtime: gr.Runtime, path: str) -> gr.TreeNode:
    """One node of the live tree."""
    found = runtime.tree().find(path)
    assert found is not None
    return found
