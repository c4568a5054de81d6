"""A tool loop that outlives its process: model, tools and a question to a person, as one straight function over a journal.

    python -m examples.tool_loop.service

See README.md beside this file.
"""

from __future__ import annotations

import itertools

import anyio
from attrs import field, frozen

import greenroom as gr

DAY = 24 * 3600.0


# ------------------------------------------------------------------------------------------------------------ the model


@frozen
class UseTool:
    """The model wants a tool to be used."""

    tool: str
    request: str


@frozen
class Ask:
    """The model wants to know something from the person."""

    question: str


@frozen
class Say:
    """The model has its answer."""

    text: str


@frozen
class Bench:
    """What there is outside: it counts what really happens."""

    thoughts: itertools.count[int] = field(factory=itertools.count)
    orders: dict[str, str] = field(factory=dict)
    """By idempotency key, as a shop keeps them."""


BENCH = Bench()


@gr.operation(effect=gr.Effect.SAFE, retry=gr.RetryPolicy(invocations=5, within=60.0), timeout=30.0)
async def call_model(transcript: tuple[str, ...]) -> UseTool | Ask | Say:
    """Choose the next step.

    PLUG A REAL MODEL IN HERE: send it the transcript and the list of tools, and translate what it answers. Let errors pass: they are
    tried again, and then recorded. A reply that is on record is never asked for again.
    """
    next(BENCH.thoughts)
    seen = "\n".join(transcript)
    if "[stock]" not in seen:
        return UseTool("stock", "screws")
    if "[person]" not in seen:
        return Ask("There are 3 screws left. How many shall I order?")
    if "[order]" not in seen:
        return UseTool("order", f"{transcript[-1].removeprefix('[person] ')} screws")
    return Say(f"Done: {transcript[-1].removeprefix('[order] ')}.")


# ------------------------------------------------------------------------------------------------------------ the tools


@gr.operation(effect=gr.Effect.SAFE)
async def stock(article: str) -> str:
    """Look something up: nothing happens if that is done twice."""
    return f"3 {article}"


@gr.operation(effect=gr.Effect.KEYED)
async def order(op: gr.Operation, what: str) -> str:
    """Order something: the shop knows a repeated order by its key."""
    BENCH.orders.setdefault(op.key, what)
    return f"ordered {what}"


TOOLS: dict[str, gr.OperationDef[[str], str]] = {"stock": stock, "order": order}


# ------------------------------------------------------------------------------------------------------------ the agent


@frozen
class Goal(gr.Message[str]):
    text: str


@frozen
class Reply(gr.Message[None]):
    text: str


class Buyer(gr.Agent[Goal, str]):
    """Does what the model says, until that has an answer."""

    async def perform(self, task: gr.Task, request: Goal) -> str:
        transcript: tuple[str, ...] = (request.text,)
        for _ in range(20):
            match await task.run(call_model, transcript):
                case Say(text):
                    return text
                case Ask(question):
                    task.phase(question)
                    reply = await task.receive(Reply, timeout=7 * DAY)
                    transcript += (f"[person] {reply.text}",)
                case UseTool(tool, wish):
                    task.phase(f"{tool}: {wish}")
                    transcript += (f"[{tool}] {await use(task, tool, wish)}",)
        raise gr.Failed("20 steps, and no answer")


async def use(task: gr.Task, tool: str, wish: str) -> str:
    """What a tool says; the model is told of a failure, too, and may try something else."""
    if tool not in TOOLS:
        return f"there is no such tool: {', '.join(TOOLS)}"
    try:
        return await task.run(TOOLS[tool], wish)
    except gr.OperationFailed as failed:
        return f"failed: {failed.message}"


def tree() -> gr.Supervisor:
    """The service."""
    return gr.Supervisor("shop", gr.Agents("buyers", Buyer, max_running=8))


# ------------------------------------------------------------------------------------------------------------- the show


async def main() -> None:
    async with anyio.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/shop.db"
        async with gr.Runtime(tree(), store=store) as runtime:
            handle = await runtime.submit("shop/buyers", Goal("See to it that we have screws."), task_id="screws")
            async for event in handle.events():
                if event.name == "call_model" and isinstance(event.value, Ask):
                    print("it asks:", event.value.question)
                    break
        # The process could be killed here, and nobody may answer for days. No service runs, and the answer is taken:
        async with gr.Client(store) as client:
            receipt = await client.task("screws").signal(Reply("12"), message_id="answer")
            print("the answer is", receipt.disposition)
        async with gr.Runtime(tree(), store=store) as runtime:  # another process, another day
            print(await runtime.task("screws").result(timeout=30))
        print(f"{next(BENCH.thoughts)} thoughts, {len(BENCH.orders)} order")


if __name__ == "__main__":
    anyio.run(main)
