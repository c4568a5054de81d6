"""Calls on a supervisor in any order, at any moment: what holds for all of them, found out by hypothesis."""

from __future__ import annotations

from typing import Literal, TypeAlias

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from tests.conformance.calls import CALLS
from tests.conformance.probes import Boom, Crash, End, Log, settle, states

RestartName: TypeAlias = Literal["permanent", "transient", "temporary"]
Outcome: TypeAlias = Literal["good", "fails", "ignores"]


@attrs.frozen
class Step:
    """Something that is done to a child, and how its next start turns out."""

    what: Literal["start", "terminate", "restart", "delete", "crash", "end"]
    name: str
    restart: RestartName = "permanent"
    outcome: Outcome = "good"


@attrs.define
class Entry:
    """A child, as the model knows it."""

    restart: RestartName
    running: bool


class Model:
    """What the children of a one-for-one supervisor with room for any number of restarts are to be, by OTP's tables."""

    def __init__(self) -> None:
        self.children: dict[str, Entry] = {}

    def expected(self, step: Step) -> type[Exception] | None:
        """The error that a call is to raise; None for one that succeeds."""
        entry = self.children.get(step.name)
        match step.what:
            case "start" if entry is not None:
                return gr.AlreadyStarted if entry.running else gr.AlreadyPresent
            case "terminate" | "restart" | "delete" if entry is None:
                return gr.ChildNotFound
            case "restart" | "delete" if entry is not None and entry.running:
                return gr.ChildRunning
            case "start" | "restart" if step.outcome == "fails":
                return gr.StartFailed
        return None

    def starts(self, step: Step) -> bool:
        """Is there a start, whose outcome has to be arranged?"""
        entry = self.children.get(step.name)
        match step.what:
            case "start":
                return entry is None
            case "restart":
                return entry is not None and not entry.running
        return False

    def apply(self, step: Step) -> None:
        """What becomes of the children."""
        entry = self.children.get(step.name)
        match step.what:
            case "start" if entry is None and step.outcome != "fails":
                self.children[step.name] = Entry(step.restart, step.outcome == "good")
                self.forget_if_temporary(step.name)
            case "restart" if entry is not None and not entry.running:
                entry.running = step.outcome == "good"
                if step.outcome == "ignores":
                    self.forget_if_temporary(step.name)
            case "terminate" if entry is not None:
                entry.running = False
                self.forget_if_temporary(step.name)
            case "delete" if entry is not None and not entry.running:
                del self.children[step.name]
            case "crash" if entry is not None and entry.running:
                entry.running = entry.restart != "temporary"
                self.forget_if_temporary(step.name)
            case "end" if entry is not None and entry.running:
                entry.running = entry.restart == "permanent"
                self.forget_if_temporary(step.name)

    def forget_if_temporary(self, name: str) -> None:
        entry = self.children[name]
        if entry.restart == "temporary" and not entry.running:
            del self.children[name]

    def states(self) -> list[tuple[str, str]]:
        return [(name, "running" if entry.running else "down") for name, entry in self.children.items()]


steps = st.builds(
    Step,
    what=st.sampled_from(("start", "start", "terminate", "restart", "delete", "crash", "end")),
    name=st.sampled_from("abc"),
    restart=st.sampled_from(("permanent", "transient", "temporary")),
    outcome=st.sampled_from(("good", "good", "good", "fails", "ignores")),
)


async def perform(step: Step, runtime: gr.Runtime, log: Log) -> None:
    sup = runtime.ref("sup")
    match step.what:
        case "start":
            await sup.start_child(log.child(step.name, restart=step.restart))
        case "terminate":
            await sup.terminate_child(step.name)
        case "restart":
            await sup.restart_child(step.name)
        case "delete":
            await sup.delete_child(step.name)
        case "crash" | "end":
            runtime.ref(f"sup/{step.name}").tell(Crash() if step.what == "crash" else End())
            await settle()


@given(script=st.lists(steps, max_size=25))
async def test_any_sequence_of_calls_and_ends_leaves_the_children_as_the_tables_say(script: list[Step]) -> None:
    log, model = Log(), Model()
    async with gr.Runtime(gr.Supervisor("sup", intensity=1000)) as runtime:
        for step in script:
            if step.what in ("crash", "end") and step.name not in model.children:
                continue  # nobody has that address
            if model.starts(step) and step.outcome != "good":
                log.next_starts(step.name, Boom("no") if step.outcome == "fails" else gr.Ignore())
            error = model.expected(step)
            if error is None:
                await perform(step, runtime, log)
            else:
                with pytest.raises(error):
                    await perform(step, runtime, log)
            model.apply(step)
            assert list((await states(runtime.ref("sup"))).items()) == model.states()
            running = sum(entry.running for entry in model.children.values())
            counts = await runtime.ref("sup").count_children()
            assert (counts.specs, counts.active) == (len(model.children), running)


@attrs.frozen
class Moment:
    """A call, and when it is made."""

    call: str
    at: float


moments = st.builds(
    Moment, call=st.sampled_from(sorted(CALLS)), at=st.integers(0, 40).map(lambda quarters: quarters / 4)
)


@given(
    script=st.lists(moments, max_size=12),
    stop_at=st.integers(0, 40).map(lambda quarters: quarters / 4),
    crash_at=st.integers(0, 40).map(lambda quarters: quarters / 4),
    seconds=st.sampled_from((0.0, 0.5, 2.0)),
    strategy=st.sampled_from(("one_for_one", "one_for_all", "rest_for_one")),
)
async def test_no_call_hangs_whenever_it_comes_and_whatever_happens_meanwhile(
    script: list[Moment],
    stop_at: float,
    crash_at: float,
    seconds: float,
    strategy: Literal["one_for_one", "one_for_all", "rest_for_one"],
) -> None:
    log, answered = Log(), list[str]()
    for name in ("a", "down", "new"):
        log.next_starts(name, *([seconds] * 40))
        log.next_stops(name, *([seconds] * 40))
    children = [log.child("a"), log.child("down", restart="transient")]
    tree = gr.Supervisor("top", gr.Supervisor("sup", *children, strategy=strategy), intensity=100)
    async with gr.Runtime(tree) as runtime, anyio.create_task_group() as group:
        sup = runtime.ref("top/sup")

        async def ask(moment: Moment) -> None:
            await anyio.sleep(moment.at)
            try:
                await CALLS[moment.call](sup, log)
            except (gr.ChildRefused, gr.ActorStopped) as error:
                answered.append(type(error).__name__)
            else:
                answered.append("done")

        async def stop() -> None:
            await anyio.sleep(stop_at)
            await runtime.ref("top").terminate_child("sup")

        async def crash() -> None:
            await anyio.sleep(crash_at)
            child.tell(Crash())

        child = runtime.ref("top/sup/a")
        for moment in script:
            group.start_soon(ask, moment)
        group.start_soon(stop)
        group.start_soon(crash)
    assert len(answered) == len(script)
