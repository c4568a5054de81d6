"""An actor with a concurrent handler, for the tests of those."""

from __future__ import annotations

from typing import Any

import anyio
import attrs

import greenroom as gr
from tests.actors.helpers import Do, Note


@attrs.frozen(eq=False)
class Job(gr.Message[str]):
    name: str
    seconds: float = 1.0
    error: BaseException | None = None


@attrs.frozen(eq=False)
class Other(gr.Message[str]):
    name: str


@attrs.frozen(eq=False)
class Singleton(gr.Message[int]):
    """Sent many times as one and the same object."""


class Worker(gr.Actor):
    """Runs three jobs at once, and handles everything else meanwhile."""

    def __init__(self, log: list[str], stash: list[str] | None = None) -> None:
        self.log = log
        self.stash = stash or []
        self.running = 0
        self.most = 0

    @gr.handles(concurrency=3)
    async def job(self, message: Job | Other) -> str:
        name = message.name
        if isinstance(message, Job) and name in self.stash:
            self.stash.remove(name)
            self.log.append(f"stash {name}")
            self.context.stash(message)
            return "nobody gets this"
        self.running += 1
        self.most = max(self.most, self.running)
        self.log.append(f"begin {name}")
        try:
            await anyio.sleep(message.seconds if isinstance(message, Job) else 1.0)
            if isinstance(message, Job) and message.error is not None:
                raise message.error
        finally:
            self.running -= 1
            self.log.append(f"end {name}")
        return f"done {name}"

    @gr.handles
    async def note(self, message: Note) -> int:
        self.log.append(str(message.what))
        return self.most

    @gr.handles
    async def do(self, message: Do) -> Any:
        return await message.work(self)


async def ask_all(ref: gr.Ref, *messages: gr.Message[Any], timeout: float | None = 60) -> list[Any]:
    """What each of several asks, made at once and in order, returns or raises."""
    outcomes: list[Any] = [None] * len(messages)

    async def ask(index: int, message: gr.Message[Any]) -> None:
        try:
            outcomes[index] = await ref.ask(message, timeout=timeout)
        except (gr.GreenroomError, gr.Rejected) as error:
            outcomes[index] = error

    async with anyio.create_task_group() as group:
        for index, message in enumerate(messages):
            group.start_soon(ask, index, message)
            await anyio.lowlevel.checkpoint()
    return outcomes
