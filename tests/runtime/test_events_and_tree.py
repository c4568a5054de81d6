"""What there is to see of a running tree: `runtime.events()` and `runtime.tree()`."""

from __future__ import annotations

import anyio
import attrs
import pytest

import greenroom as gr
from tests.conformance.probes import Boom, Crash, Hold, Log, Touch, settle
from tests.conformance.witnesses import released


def shown(events: list[gr.Event], *kinds: type[gr.Event]) -> list[tuple[str, str]]:
    """(kind, path) of the events of these kinds."""
    return [(type(event).__name__, event.path) for event in events if isinstance(event, kinds)]


async def test_the_life_of_a_tree_is_shown_in_order() -> None:
    log = Log()
    runtime = gr.Runtime(gr.Supervisor("top", log.child("a"), gr.Supervisor("in", log.child("b"))))
    events = runtime.events()
    async with runtime:
        pass
    seen = shown(events.pending(), gr.ActorStarted, gr.ActorEnded, gr.StopRequested)
    assert seen == [
        ("ActorStarted", "top/a"),
        ("ActorStarted", "top/in/b"),
        ("ActorStarted", "top/in"),
        ("ActorStarted", "top"),
        ("StopRequested", "top"),
        ("ActorEnded", "top/in/b"),
        ("ActorEnded", "top/in"),
        ("ActorEnded", "top/a"),
        ("ActorEnded", "top"),
    ]


async def test_a_crash_is_shown_with_its_exit_its_report_and_the_next_incarnation() -> None:
    log = Log()
    boom = Boom("on purpose")
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        with runtime.events() as events:
            runtime.ref("sup/a").tell(Crash(boom))
            await settle()
            ended, report, started, progress = events.pending()
    assert isinstance(ended, gr.ActorEnded)
    assert (ended.path, ended.incarnation, ended.exit) == ("sup/a", 1, gr.Exit("error", boom))
    assert isinstance(report, gr.SupervisorReport)
    assert (report.path, report.context, report.offender.path) == ("sup", "child_terminated", "sup/a")
    assert isinstance(started, gr.ActorStarted)
    assert (started.path, started.incarnation) == ("sup/a", 2)
    assert isinstance(progress, gr.SupervisorReport)
    assert (progress.context, progress.offender.incarnation) == ("progress", 2)


async def test_events_carry_the_moment_they_happened() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        with runtime.events() as events:
            await anyio.sleep(2.5)
            runtime.ref("sup/a").tell(Crash())
            await settle()
            assert {event.at for event in events.pending()} == {2.5}


async def test_a_reader_is_woken_by_what_happens() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime, anyio.create_task_group() as group:
        seen: list[gr.Event] = []

        async def read() -> None:
            with runtime.events() as events:
                seen.append(await anext(events))

        group.start_soon(read)
        await settle()
        assert seen == []
        runtime.ref("sup/a").tell(Crash())
        await settle()
        assert shown(seen, gr.Event) == [("ActorEnded", "sup/a")]


async def test_the_iteration_ends_with_the_runtime_after_what_is_buffered() -> None:
    log = Log()
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a")))
    events = runtime.events()
    async with runtime:
        pass
    seen = [event async for event in events]
    assert shown(seen, gr.ActorEnded) == [("ActorEnded", "sup/a"), ("ActorEnded", "sup")]
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_a_subscription_that_is_made_after_the_end_is_empty() -> None:
    runtime = gr.Runtime(gr.Supervisor("sup"))
    async with runtime:
        pass
    assert [event async for event in runtime.events()] == []
    assert [letter async for letter in runtime.dead_letters()] == []


async def test_a_slow_reader_misses_the_oldest_and_knows_how_many() -> None:
    log = Log()
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a"), intensity=100))
    events = runtime.events(buffer=3)
    async with runtime:
        for _ in range(5):
            runtime.ref("sup/a").tell(Crash())
        await settle()
        seen = events.pending()
        assert len(seen) == 3
        assert events.missed > 0
        last = seen[-1]
        assert isinstance(last, gr.SupervisorReport)
        assert last.offender.incarnation == 6


async def test_a_closed_subscription_costs_nothing_and_ends() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        with runtime.events() as events:
            pass
        runtime.ref("sup/a").tell(Crash())
        await settle()
        assert [event async for event in events] == []


async def test_readers_do_not_take_from_each_other() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        with runtime.events() as one, runtime.events() as two:
            runtime.ref("sup/a").tell(Crash())
            await settle()
            assert one.pending() == two.pending() != []


async def test_dead_letters_are_shown_and_counted() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        letters = runtime.dead_letters()
        a = runtime.ref("sup/a")
        await runtime.ref("sup").terminate_child("a")
        a.tell(Touch())
        (letter,) = letters.pending()
    assert (letter.recipient, letter.sender, letter.reason) == ("sup/a", None, gr.DeadLetterReason.ENDED)
    assert runtime.dead_letter_counts() == {("sup/a", gr.DeadLetterReason.ENDED): 1}


# --------------------------------------------------------------------------------------------------------- the snapshot


async def test_p29_the_tree_shows_structure_states_and_options() -> None:
    log = Log()
    tree = gr.Supervisor(
        "top",
        log.child("a"),
        gr.Supervisor("in", log.child("b", restart="temporary"), strategy="rest_for_one"),
        gr.DynamicSupervisor("dyn", log.child("c")),
    )
    async with gr.Runtime(tree) as runtime:
        await runtime.ref("top/dyn").start_child()
        root = runtime.tree()
    assert [(node.path, node.kind, node.state.value) for node in root.walk()] == [
        ("top", "supervisor", "running"),
        ("top/a", "worker", "running"),
        ("top/in", "supervisor", "running"),
        ("top/in/b", "worker", "running"),
        ("top/dyn", "supervisor", "running"),
        ("top/dyn/1", "worker", "running"),
    ]
    found = {node.path: node for node in root.walk()}
    assert found["top/in"].strategy == "rest_for_one"
    assert found["top/a"].isolation == "task"
    assert root.find("top/in/b") is found["top/in/b"]
    assert root.find("nowhere") is None


async def test_p29_it_shows_the_message_type_in_hand_and_for_how_long_but_never_its_contents() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        with released() as until:
            runtime.ref("sup/a").tell(Hold(until))
            await anyio.sleep(2.5)
            node = runtime.tree().find("sup/a")
            runtime.ref("sup/a").tell(Touch())
            queued = runtime.tree().find("sup/a")
    assert node is not None
    assert node.message_type is not None
    assert node.message_type.endswith("Hold")
    assert node.in_hand_for == 2.5
    assert queued is not None
    assert (queued.mailbox_depth, queued.mailbox_capacity) == (1, 10_000)
    assert "Event" not in repr(node)


async def test_p29_it_shows_restarts_and_the_last_error() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        runtime.ref("sup/a").tell(Crash(Boom("on purpose")))
        await settle()
        node = runtime.tree().find("sup/a")
    assert node is not None
    assert (node.incarnation, node.restarts) == (2, 1)
    assert node.last_error == "error: Boom: on purpose"
    assert (node.message_type, node.in_hand_for) == (None, None)


async def test_a_child_that_is_down_or_restarting_is_still_in_the_tree_as_what_it_is() -> None:
    log = Log()
    tree = gr.Supervisor(
        "top",
        log.child("a", backoff=gr.Backoff(5.0, jitter=0.0)),
        gr.Supervisor("in"),
        gr.DynamicSupervisor("dyn", log.child("c")),
    )
    async with gr.Runtime(tree) as runtime:
        for name in ("in", "dyn"):
            await runtime.ref("top").terminate_child(name)
        runtime.ref("top/a").tell(Crash())
        await settle()
        nodes = [(node.path, node.kind, node.state.value) for node in runtime.tree().children]
    assert nodes == [
        ("top/a", "worker", "restarting"),
        ("top/in", "supervisor", "down"),
        ("top/dyn", "supervisor", "down"),
    ]


async def test_a_snapshot_is_frozen_and_stays_as_it_was() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a"))) as runtime:
        before = runtime.tree()
        runtime.ref("sup/a").tell(Crash())
        await settle()
    assert before.children[0].incarnation == 1
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        before.children[0].restarts = 7  # type: ignore[misc]


async def test_the_tree_can_be_looked_at_when_it_has_ended() -> None:
    log = Log()
    runtime = gr.Runtime(gr.Supervisor("sup", log.child("a")))
    async with runtime:
        pass
    assert {node.state for node in runtime.tree().walk()} == {gr.State.DOWN}
