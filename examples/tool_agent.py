"""An agent that works with tools: a loop of model calls and tool calls, under supervision, steered while it runs.

    python examples/tool_agent.py

What there is to see:

* **Each piece of work is an actor.** `agents` starts one agent for each goal. Its loop runs in its own nursery, so its
  mailbox stays open: a `Steer` message reaches it in the middle of its work, and `Answer` can be asked for at any time.
* **Tools are supervised actors.** They are reached by their address and restarted when they crash; the agent tells the model
  what happened, and goes on.
* **What might hang has a process of its own.** The calculator runs expressions that a model wrote: each in a fresh process,
  which is killed when it has answered, or has not answered in time.

There is no model in here: `call_model` follows a script, so that the program runs offline and does the same each time. Put a
call to a real one in its place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import anyio
import attrs

import greenroom as gr

PATIENCE = 1.0
"""Seconds that a tool may take."""


# ------------------------------------------------------------------------------------------------------------- the model


@attrs.frozen
class UseTool:
    """The model wants a tool to be used."""

    tool: str
    request: str


@attrs.frozen
class Say:
    """The model has its answer."""

    text: str


async def call_model(transcript: list[str]) -> UseTool | Say:
    """Choose the next step.

    PLUG A REAL MODEL IN HERE: send it the transcript and the list of tools, and translate what it answers. Let errors pass:
    they crash the agent, which starts again from its goal.
    """
    await anyio.sleep(0.1)
    seen = "\n".join(transcript)
    if "[notes]" not in seen:
        return UseTool("notes", "radius of the earth")
    if "[calculator]" not in seen:
        return UseTool("calculator", "sum(itertools.repeat(6371))")  # a mistake: it never ends
    if "did not answer" in seen and "40030" not in seen:
        return UseTool("calculator", "round(2 * 3.14159 * 6371)")
    return Say("40030 km" if "shorter" in seen else "The circumference of the earth is about 40030 kilometres.")


# ------------------------------------------------------------------------------------------------------------- the tools


@attrs.frozen
class Use(gr.Message[str]):
    """Use a tool. What it refuses it says as `gr.Rejected`."""

    request: str


class Notes(gr.Actor):
    """A tool that looks things up."""

    def __init__(self) -> None:
        self.notes = {"radius of the earth": "6371 km"}

    @gr.handles
    async def use(self, message: Use) -> str:
        if message.request not in self.notes:
            raise gr.Rejected(f"there is no note on {message.request!r}")
        return self.notes[message.request]


class Calculator(gr.Actor):
    """A tool that runs what somebody else wrote. Only ever in a process of its own, and that is no sandbox either."""

    @gr.handles
    def use(self, message: Use) -> str:
        allowed = {"__builtins__": {"sum": sum, "round": round}, "itertools": itertools}
        return str(eval(message.request, allowed))


# ------------------------------------------------------------------------------------------------------------- the agent


@attrs.frozen
class Steer(gr.Message[None]):
    """A wish of the user's, while the agent works."""

    wish: str


@attrs.frozen
class Answer(gr.Message[str]):
    """What is the answer? Waits until there is one."""


@attrs.frozen
class Finished(gr.Message[None]):
    text: str


class Agent(gr.Actor):
    """Pursues one goal. After a crash it begins anew with the goal."""

    def __init__(self, goal: str) -> None:
        self.transcript = [f"[goal] {goal}"]
        self.answer: str | None = None

    async def on_start(self) -> None:
        self.context.nursery.start_soon(self.pursue)

    async def pursue(self) -> None:
        while True:
            step = await call_model(self.transcript)
            if isinstance(step, Say):
                await self.context.ref.send(Finished(step.text))
                return
            outcome = await self.use(step)
            self.transcript.append(f"[{step.tool}] {step.request}: {outcome}")

    async def use(self, step: UseTool) -> str:
        tools = self.context.runtime.ref("assistant/tools/calculators")
        try:
            if step.tool != "calculator":
                tool = self.context.runtime.ref(f"assistant/tools/{step.tool}")
                return await tool.ask(Use(step.request), timeout=PATIENCE)
            calculator: gr.Ref = await tools.start_child()
            try:
                return await calculator.ask(Use(step.request), timeout=PATIENCE)
            finally:
                with anyio.move_on_after(5.0, shield=True):  # also when the agent itself is stopped
                    await tools.terminate_child(calculator)
        except gr.Rejected as refusal:
            return str(refusal)
        except gr.ActorCrashed as crash:
            return f"it failed: {crash.__cause__}"
        except gr.AskTimeout:
            return f"it did not answer within {PATIENCE:g} s"

    @gr.handles
    async def steer(self, message: Steer) -> None:
        self.transcript.append(f"[user] {message.wish}")

    @gr.handles
    async def finish(self, message: Finished) -> None:
        self.answer = message.text
        self.context.unstash()

    @gr.handles
    async def tell_answer(self, message: Answer) -> str:
        if self.answer is None:
            self.context.stash(message)  # until it is there; whoever asks goes on waiting
            return ""
        return self.answer


def tree() -> gr.Supervisor:
    agent: Callable[..., gr.Actor] = Agent  # its goal comes with `start_child`
    calculator = gr.Child(
        "calculator",
        Calculator,
        isolation="process",
        memory_limit=2 * 1024**3,
        shutdown="kill",  # it keeps nothing
        restart="temporary",  # nor is it wanted again
    )
    return gr.Supervisor(
        "assistant",
        gr.Supervisor(
            "tools",
            gr.Child("notes", Notes),
            gr.DynamicSupervisor("calculators", calculator, max_children=8),
        ),
        gr.DynamicSupervisor("agents", gr.Child("agent", agent, restart="transient"), max_children=20, intensity=10),
    )


async def main() -> None:
    async with gr.Runtime(tree()) as runtime:
        agents = runtime.ref("assistant/agents")
        goal = "How long is the way around the earth?"
        first, second = await agents.start_child(goal), await agents.start_child(goal)
        await anyio.sleep(0.5)
        second.tell(Steer("shorter, please"))
        print("first: ", await first.ask(Answer(), timeout=None))
        print("second:", await second.ask(Answer(), timeout=None))
        counts = await runtime.ref("assistant/tools/calculators").count_children()
        print("calculators that are left:", counts.active)


if __name__ == "__main__":
    anyio.run(main)
