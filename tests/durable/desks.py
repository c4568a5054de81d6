"""A desk: an actor with a persistent mailbox that does with each message what its script says. The script outlives it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
from attrs import define, field, frozen

import greenroom as gr
from tests.durable.helpers import Add, Boom, Note

DESK = "service/desk"


@frozen
class Refuse(gr.Message[int]):
    """The desk rejects it."""

    why: str


@frozen
class Leave(gr.Message[int]):
    """The desk ends, normally."""


@frozen
class Unheard(gr.Message[int]):
    """The desk has no handler for it."""

    text: str = ""


@define(eq=False)
class Gate:
    """Holds the desk up at a message."""

    begun: anyio.Event = field(factory=anyio.Event)
    opened: anyio.Event = field(factory=anyio.Event)


@define(eq=False)
class Script:
    """What happens to a desk, and what it has done."""

    seen: list[str] = field(factory=list)
    """Texts of notes, and sums, in the order in which their handlers began."""
    crashes: Counter[str] = field(factory=Counter)
    """How often the note of this text crashes the desk."""
    gates: dict[str, Gate] = field(factory=dict)
    starts: int = 0
    """Incarnations that have begun."""
    ends: list[gr.Exit] = field(factory=list)
    """How they ended, as `on_stop` was told."""

    def gate(self, text: str) -> Gate:
        """Hold the desk up at the note of this text."""
        return self.gates.setdefault(text, Gate())

    async def play(self, text: str) -> None:
        self.seen.append(text)
        if (gate := self.gates.get(text)) is not None:
            gate.begun.set()
            await gate.opened.wait()
        if self.crashes[text] > 0:
            self.crashes[text] -= 1
            raise Boom(text)


class Desk(gr.Actor):
    """Plays its script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.total = 0
        script.starts += 1

    async def on_stop(self, exit: gr.Exit) -> None:
        self.script.ends.append(exit)

    @gr.handles
    async def note(self, message: Note) -> None:
        await self.script.play(message.text)

    @gr.handles
    async def add(self, message: Add) -> int:
        self.total += message.number
        await self.script.play(str(self.total))
        return self.total

    @gr.handles
    async def refuse(self, message: Refuse) -> int:
        raise gr.Rejected(message.why)

    @gr.handles
    async def leave(self, message: Leave) -> int:
        raise gr.Stop


def desk(script: Script, *, mailbox: gr.PersistentMailbox | None = None, **options: Any) -> gr.Child:
    """The spec of the desk `service/desk`."""
    return gr.Child("desk", Desk, script, mailbox=mailbox or gr.PersistentMailbox(), **options)
