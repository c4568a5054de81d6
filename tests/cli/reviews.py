"""A service whose tasks the commands look after."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from attrs import frozen

import greenroom as gr

POOL = "service/reviewers"


@frozen
class Review(gr.Message[str]):
    topic: str
    pages: int = 1


@frozen
class Steer(gr.Message[None]):
    text: str


@gr.operation(effect=gr.Effect.SAFE)
async def read(topic: str) -> str:
    return topic.upper()


@gr.operation(effect=gr.Effect.ONCE, timeout=0.01)
async def pay() -> str:
    """Takes too long, so that nobody knows whether it happened."""
    await anyio.sleep(1000)
    return "receipt"


class Reviewer(gr.Agent[Review, str]):
    """Reads, and goes on as it is told. The topic `pay` ends in doubt, and `fail` fails."""

    async def perform(self, task: gr.Task, request: Review) -> str:
        task.phase("reading")
        text = await task.run(read, request.topic)
        if request.topic == "pay":
            return await task.run(pay)
        if request.topic == "fail" and task.attempt == 1:
            raise gr.Failed("nobody knows that")
        if request.topic == "fail":
            return text
        steer = await task.receive(Steer, timeout=None)
        return f"{text}, {steer.text}"


TREE = gr.Supervisor("service", gr.Agents("reviewers", Reviewer, max_running=8))


def serve(url: str, work: Callable[[gr.Runtime], Awaitable[object]] | None = None) -> None:
    """Run the service, for the length of some work."""

    async def main() -> None:
        async with gr.Runtime(TREE, store=url) as runtime:
            if work is not None:
                await work(runtime)

    anyio.run(main)
