"""Scriptable actors for the conformance tests, and the log that they write.

    log = Log()
    tree = gr.Supervisor("sup", log.child("a"), log.child("b", restart="transient"))
    log.next_starts("b", Boom("no"))                     # b's next start fails, later ones are good
    async with gr.Runtime(tree) as runtime:
        runtime.ref("sup/a").tell(Crash())
        await settle()
    assert log.take() == ["start a", ...]

The log has one entry for each start call and each end of a probe:

    start a    its start is good (a scripted delay comes after the entry)
    fail a     its start raises (after a scripted delay, if any)
    ignore a   its start raises `gr.Ignore`
    die a      it crashes: `Crash`
    end a      it ends by its own will: `End`
    stop a     its `on_stop`, after a request to stop
    kill a     its `on_stop`, after a cancellation
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

import anyio
import attrs

import greenroom as gr
from greenroom.mailbox import Subscription

MOMENT = 2.0**-20
"""Virtual seconds, about a microsecond: short beside every duration in the tests, exact in sums."""


class Boom(Exception):
    """What probes crash with."""


Step: TypeAlias = "BaseException | float | anyio.Event | tuple[Step, ...] | None"
"""What a start or a stop does: raise this, take so many seconds, wait for this; None: nothing; or one after another."""


@attrs.frozen
class Crash(gr.Message[None]):
    """Crash with this error, `Boom()` by default."""

    error: BaseException | None = None


@attrs.frozen
class End(gr.Message[None]):
    """End by the actor's own will: NORMAL, SHUTDOWN, SHUTDOWN(detail), or KILLED.

    The last by a normal end whose `on_stop` overruns the child's `shutdown` time and is cancelled.
    """

    how: Literal["normal", "shutdown", "detail", "killed"] = "normal"


@attrs.frozen
class Hold(gr.Message[None]):
    """Stay in this handler until the event is set: no request to stop is seen meanwhile. `swallow`: no cancellation either."""

    until: anyio.Event
    swallow: bool = False


@attrs.frozen
class Touch(gr.Message[int]):
    """Answered by how many of them this incarnation has had, this one included."""


class Log:
    """What the probes did, in order, and what they are to do at their next starts and stops."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.times: list[float] = []
        """The moment of each entry, in seconds of the event loop's clock."""
        self._starts: defaultdict[str, deque[Step]] = defaultdict(deque)
        self._stops: defaultdict[str, deque[Step]] = defaultdict(deque)

    def child(self, name: str, **options: Any) -> gr.Child:
        """The spec of a probe of this name."""
        return gr.Child(name, Probe, self, name, **options)

    def next_starts(self, name: str, *steps: Step) -> None:
        """Script the next starts of a probe, one step for each; later starts are good."""
        self._starts[name].extend(steps)

    def next_stops(self, name: str, *steps: Step) -> None:
        """Script the next `on_stop`s of a probe that follow a request to stop."""
        self._stops[name].extend(steps)

    def add(self, what: str, name: str) -> None:
        self.entries.append(f"{what} {name}")
        self.times.append(anyio.current_time())

    def take(self) -> list[str]:
        """The entries since the last `take`."""
        taken, self.entries, self.times = self.entries, [], []
        return taken

    def start_calls(self, name: str) -> int:
        """How often a start of this probe was begun since the last `take`, well or not."""
        return sum(entry in (f"start {name}", f"fail {name}", f"ignore {name}") for entry in self.entries)

    def when(self, entry: str) -> list[float]:
        """The moments of this entry since the last `take`."""
        return [time for one, time in zip(self.entries, self.times, strict=True) if one == entry]

    def start_step(self, name: str) -> Step:
        return self._starts[name].popleft() if self._starts[name] else None

    def stop_step(self, name: str) -> Step:
        return self._stops[name].popleft() if self._stops[name] else None


class Probe(gr.Actor):
    """An actor that does what the log's script and its messages say, and writes the log."""

    def __init__(self, log: Log, name: str, *more: object) -> None:
        self.log = log
        self.name = name
        self.more = more
        self.touches = 0
        self.ending: str | None = None

    async def on_start(self) -> None:
        step = self.log.start_step(self.name)
        match step[-1] if isinstance(step, tuple) else step:
            case gr.Ignore():
                self.log.add("ignore", self.name)
            case BaseException():
                self.log.add("fail", self.name)
            case _:
                self.log.add("start", self.name)
        await perform(step)

    async def on_stop(self, exit: gr.Exit) -> None:
        if self.ending is not None:
            if self.ending == "killed":
                await anyio.sleep_forever()
            return
        self.log.add("kill" if exit.kind == "killed" else "stop", self.name)
        await perform(self.log.stop_step(self.name))

    @gr.handles
    async def crash(self, message: Crash) -> None:
        self.ending = "crash"
        self.log.add("die", self.name)
        raise Boom if message.error is None else message.error

    @gr.handles
    async def end(self, message: End) -> None:
        self.ending = message.how
        self.log.add("end", self.name)
        match message.how:
            case "normal" | "killed":
                raise gr.Stop
            case "shutdown":
                raise gr.Stop(shutdown=True)
            case "detail":
                raise gr.Stop("detail", shutdown=True)

    @gr.handles
    async def hold(self, message: Hold) -> None:
        while not message.until.is_set():
            try:
                await message.until.wait()
            except anyio.get_cancelled_exc_class():
                if not message.swallow:
                    raise

    @gr.handles
    async def touch(self, _message: Touch) -> int:
        self.touches += 1
        return self.touches


async def perform(step: Step) -> None:
    match step:
        case BaseException():
            raise step
        case anyio.Event():
            await step.wait()
        case tuple():
            for one in step:
                await perform(one)
        case float() | int():
            await anyio.sleep(step)


async def settle() -> None:
    """Return when everything that could happen without the passing of time has happened.

    The virtual clock moves only when every event-loop task waits: this is a wait for that, not for a duration.
    """
    await anyio.sleep(MOMENT)


async def crash(*refs: gr.Ref) -> None:
    """Crash these one after another, letting everything settle after each."""
    for ref in refs:
        ref.tell(Crash())
        await settle()


@asynccontextmanager
async def below_top(sup: gr.Supervisor | gr.DynamicSupervisor, *siblings: gr.Child) -> AsyncIterator[gr.Runtime]:
    """Run a supervisor as the child of another one, `top`, so that its end can be looked at: it is `top/<name>`.

    `top` allows no restart: give `sup` `restart="temporary"` (or transient) when it is to end.
    """
    async with gr.Runtime(gr.Supervisor("top", sup, *siblings, intensity=0)) as runtime:
        yield runtime


def exits(events: Subscription[gr.Event], path: str) -> list[gr.Exit]:
    """How the incarnations at a path have ended, out of the events buffered so far. Takes them all: call it once."""
    return [event.exit for event in events.pending() if isinstance(event, gr.ActorEnded) and event.path == path]


def reports(events: Subscription[gr.Event], *contexts: str) -> list[gr.SupervisorReport]:
    """The supervisors' reports of these contexts (none: all but progress), out of the events buffered so far."""
    return [
        event
        for event in events.pending()
        if isinstance(event, gr.SupervisorReport)
        and (event.context in contexts if contexts else event.context != "progress")
    ]


async def states(supervisor: gr.Ref) -> dict[str, str]:
    """Name to state of a supervisor's children, in start order."""
    return {info.name: info.state.value for info in reversed(await supervisor.which_children())}
