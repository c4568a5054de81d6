"""What the tests of stopping and of calls need beside the probes: who watches, who takes notes, and a hold that always ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import attrs

import greenroom as gr
from tests.conformance.probes import Boom, Crash, Hold


@attrs.frozen
class Watch(gr.Message[None]):
    """Watch this one, `times` times."""

    ref: gr.Ref
    times: int = 1


@attrs.frozen
class Unwatch(gr.Message[None]):
    """Take the watch back; `again`: and watch anew, in the same breath."""

    ref: gr.Ref
    again: bool = False


class Watcher(gr.Actor):
    """Notes how those it watches have ended."""

    def __init__(self, seen: list[gr.Terminated]) -> None:
        self.seen = seen

    @gr.handles
    async def watch(self, message: Watch) -> None:
        for _ in range(message.times):
            self.context.watch(message.ref)

    @gr.handles
    async def unwatch(self, message: Unwatch) -> None:
        self.context.unwatch(message.ref)
        if message.again:
            self.context.watch(message.ref)

    @gr.handles
    async def terminated(self, message: gr.Terminated) -> None:
        self.seen.append(message)


@attrs.frozen
class Say(gr.Message[int]):
    """Note this word; the answer is how many words this incarnation has noted."""

    word: str


class Scribe(gr.Actor):
    """Notes what it is told, in order, in a list that outlives it."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.count = 0

    @gr.handles
    async def say(self, message: Say) -> int:
        self.words.append(message.word)
        self.count += 1
        return self.count

    @gr.handles
    async def hold(self, message: Hold) -> None:
        await message.until.wait()

    @gr.handles
    async def crash(self, _message: Crash) -> None:
        raise Boom


def kinds(seen: list[gr.Terminated]) -> dict[str, str]:
    """Path to the kind of exit that was seen there last."""
    return {one.ref.path: one.exit.kind for one in seen}


@contextmanager
def released() -> Iterator[anyio.Event]:
    """An event for `Hold` that is set when the block ends, also by a failure: nothing stays stuck for ever."""
    event = anyio.Event()
    try:
        yield event
    finally:
        event.set()


async def settle_after_spinning() -> None:
    """As `probes.settle`, once a task has swallowed its cancellation.

    While it did so the loop was never idle, and virtual time moved by the turn: a mere moment might be a single turn of the loop.
    """
    await anyio.sleep(0.25)
