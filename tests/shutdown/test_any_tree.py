"""Whatever the tree, whatever its children do and however the stop comes: it ends, nothing is left, and the report has everything."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, Literal, TypeAlias

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.testing import VirtualClock
from tests.conformance.probes import settle

Behaviour: TypeAlias = Literal["quick", "slow", "failing", "holding", "nursing", "crashing"]
Way: TypeAlias = Literal["block ends", "body raises", "host cancelled", "asked"]


@attrs.frozen
class Leaf:
    """A child to be: what it does, and its rule."""

    behaviour: Behaviour
    seconds: float
    shutdown: float | Literal["kill"] | None
    start: float


@attrs.frozen
class Node:
    """A supervisor to be."""

    children: tuple[Leaf | Node, ...]
    strategy: Literal["one_for_one", "one_for_all", "rest_for_one"]
    shutdown: float | None


SECONDS = st.sampled_from([0.0, 0.25, 1.0, 4.0])
LEAVES = st.builds(
    Leaf,
    behaviour=st.sampled_from(["quick", "slow", "failing", "holding", "nursing", "crashing"]),
    seconds=SECONDS,
    shutdown=st.sampled_from([0, "kill", 0.5, 2.0, None]),
    start=st.sampled_from([0.0, 0.0, 0.5]),
)


def above(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Node]:
    return st.builds(
        Node,
        children=st.lists(children, max_size=4).map(tuple),
        strategy=st.sampled_from(["one_for_one", "one_for_all", "rest_for_one"]),
        shutdown=st.sampled_from([None, None, 1.0]),
    )


TREES = above(st.recursive(LEAVES, above, max_leaves=8))


class Go(gr.Message[None]):
    """Do what the behaviour says."""


class Player(gr.Actor):
    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf

    async def on_start(self) -> None:
        await anyio.sleep(self.leaf.start)
        if self.leaf.behaviour == "nursing":
            self.context.nursery.start_soon(self.nurse)

    async def nurse(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(min(self.leaf.seconds, 1.0))

    @gr.handles
    async def go(self, _message: Go) -> None:
        match self.leaf.behaviour:
            case "holding":
                await anyio.sleep_forever()
            case "crashing":
                await anyio.sleep(self.leaf.seconds)
                raise ValueError("on purpose")

    async def on_stop(self, _exit: gr.Exit) -> None:
        if self.leaf.behaviour == "slow":
            await anyio.sleep(self.leaf.seconds)
        if self.leaf.behaviour == "failing":
            raise ValueError("on purpose")


def spec(name: str, part: Leaf | Node) -> gr.Child | gr.Supervisor:
    if isinstance(part, Leaf):
        return gr.Child(name, Player, part, shutdown=part.shutdown)
    children = [spec(str(number), child) for number, child in enumerate(part.children)]
    return gr.Supervisor(name, *children, strategy=part.strategy, shutdown=part.shutdown, intensity=3, period=60.0)


def patient_ones(node: Node) -> bool:
    """May the ordered stop take for ever? A child without a limit holds its message."""
    return any(
        (part.behaviour == "holding" and part.shutdown is None) if isinstance(part, Leaf) else patient_ones(part)
        for part in node.children
    )


class Raised(Exception):
    """By the body."""


async def play(top: Node, way: Way, at: float, again: tuple[float, ...]) -> None:
    """Run the tree, set everybody going, stop it in this way at this second and push it after these; then look at what is left."""
    tree = spec("top", top)
    assert isinstance(tree, gr.Supervisor)
    runtime = gr.Runtime(tree)
    events = runtime.events()
    pushes = (*again, 60.0) if patient_ones(top) else again
    seen: list[BaseException] = []
    async with anyio.create_task_group() as group:
        scope = anyio.CancelScope()

        async def push() -> None:
            await anyio.sleep(at)
            if way == "host cancelled":
                scope.cancel()
            if way == "asked":
                runtime.request_stop()
            for seconds in pushes:
                await anyio.sleep(seconds)
                runtime.request_stop()

        async def host() -> None:
            with scope:
                try:
                    async with runtime:
                        for node in runtime.tree().walk():
                            if node.kind == "worker":
                                runtime.ref(node.path).tell(Go())
                        if way in ("block ends", "body raises"):
                            await anyio.sleep(at)
                        else:
                            await anyio.sleep_forever()
                        if way == "body raises":
                            raise Raised
                except (gr.TreeFailed, gr.StartFailed, Raised) as error:
                    seen.append(error)
            group.cancel_scope.cancel()

        group.start_soon(host)
        group.start_soon(push)
    look_at(runtime, events.pending(), seen)


def look_at(runtime: gr.Runtime, happened: list[gr.Event], seen: list[BaseException]) -> None:
    assert runtime.exit is not None
    report = runtime.report
    assert report is not None
    assert (report.stuck, report.unknown, report.abandoned, report.killed) == ((), (), (), ())
    named = [*report.stopped, *report.cancelled, *report.failed]
    assert len(named) == len(set(named))
    started = Counter((event.path, event.incarnation) for event in happened if isinstance(event, gr.ActorStarted))
    ended = Counter((event.path, event.incarnation) for event in happened if isinstance(event, gr.ActorEnded))
    assert started <= ended
    # What shields its clean-up may be caught by the third stage, which leaves it no time for that.
    stuck = [event for event in happened if isinstance(event, gr.ActorStuck)]
    assert not stuck or report.stage >= gr.Stage.FORCED
    assert not {event.path for event in stuck}.intersection(report.stopped)
    assert {node.state for node in runtime.tree().walk()} == {gr.State.DOWN}
    if any(isinstance(error, gr.TreeFailed) for error in seen):
        assert not runtime.exit.clean or runtime.exit.cause is not None


WAYS: st.SearchStrategy[Way] = st.sampled_from(["block ends", "body raises", "host cancelled", "asked"])
MOMENTS = st.sampled_from([0.0, 0.25, 0.5, 1.0, 4.0, 30.0])
PUSHES = st.lists(st.sampled_from([0.0, 0.25, 1.0, 10.0]), max_size=3).map(tuple)


@given(top=TREES, way=WAYS, at=MOMENTS, again=PUSHES)
async def test_any_tree_ends_whatever_its_children_do_and_however_it_is_told(
    top: Node, way: Way, at: float, again: tuple[float, ...]
) -> None:
    await play(top, way, at, again)
    await settle()


@pytest.mark.backends("trio")
@given(top=TREES, way=WAYS, at=MOMENTS, again=PUSHES, seed=st.integers(0, 1000))
def test_only_trio_in_whatever_order_its_tasks_run(
    top: Node, way: Way, at: float, again: tuple[float, ...], seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trio._core._run._r", random.Random(seed))
        VirtualClock().run(play, top, way, at, again, backend="trio")
