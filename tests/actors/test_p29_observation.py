"""P29: what people see of a running tree: types and times, never contents."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import attrs
import pytest

import greenroom as gr
from tests.actors.helpers import Boom, Do, Fail, Hold, Note, Puppet, events_of, idle, node, raised, tree

SECRET = "hunter2"


async def test_p29_the_tree_shows_the_message_in_hand_and_for_how_long() -> None:
    hold = Hold()
    async with tree(gr.Child("a", Puppet)) as runtime:
        assert (node(runtime, "app/a").message_type, node(runtime, "app/a").in_hand_for) == (None, None)
        runtime.ref("app/a").tell(hold)
        await anyio.sleep(2.5)
        assert (node(runtime, "app/a").message_type, node(runtime, "app/a").in_hand_for) == ("Hold", 2.5)
        hold.until.set()
        await idle()
        assert (node(runtime, "app/a").message_type, node(runtime, "app/a").in_hand_for) == (None, None)


async def test_p29_the_tree_shows_mailboxes_and_states() -> None:
    hold = Hold()
    mailbox = gr.Mailbox(capacity=2, overflow="drop_new")
    async with tree(gr.Child("a", Puppet, mailbox=mailbox)) as runtime:
        ref = runtime.ref("app/a")
        ref.tell(hold)
        await hold.begun.wait()
        for number in range(5):
            ref.tell(Note(number))
        shown = node(runtime, "app/a")
        assert (shown.mailbox_depth, shown.mailbox_capacity, shown.mailbox_high_water, shown.dropped) == (2, 2, 2, 3)
        assert (shown.state, shown.kind, shown.isolation, shown.incarnation, shown.restarts) == (
            gr.State.RUNNING, "worker", "task", 1, 0,
        )  # fmt: skip
        hold.until.set()


async def test_p29_what_is_shown_is_frozen() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        shown = runtime.tree()
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            shown.state = gr.State.DOWN  # type: ignore[misc]  # under test


async def test_p29_a_slow_handler_is_reported_once_for_each_message_with_its_stack() -> None:
    async def slowly(_: Puppet) -> None:
        await anyio.sleep(200)

    async with tree(gr.Child("a", Puppet)) as runtime:
        events = runtime.events()
        runtime.ref("app/a").tell(Do(slowly))
        runtime.ref("app/a").tell(Do(slowly))
        await anyio.sleep(500)
        reported = events_of(gr.SlowHandler, events)
        assert [(event.path, event.incarnation, event.message_type) for event in reported] == [("app/a", 1, "Do")] * 2
        assert all(30 <= event.age <= 45 for event in reported)
        assert all("await anyio.sleep(200)" in event.stack for event in reported)


async def test_p29_handlers_that_are_quick_enough_are_not_reported_though_the_actor_is_always_busy() -> None:
    async def quickly(_: Puppet) -> None:
        await anyio.sleep(29)

    async with tree(gr.Child("a", Puppet)) as runtime:
        events = runtime.events()
        for _ in range(20):
            runtime.ref("app/a").tell(Do(quickly))
        await anyio.sleep(600)
        assert events_of(gr.SlowHandler, events) == []


async def test_p29_when_a_handler_counts_as_slow_is_chosen_for_the_runtime() -> None:
    hold = Hold()
    async with tree(gr.Child("a", Puppet), slow_handler=2.0) as runtime:
        events = runtime.events()
        runtime.ref("app/a").tell(hold)
        await anyio.sleep(4)
        [event] = events_of(gr.SlowHandler, events)
        assert 2.0 <= event.age <= 3.0
        hold.until.set()


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "2", True])
def test_a_time_for_slow_handlers_that_is_none_is_refused(seconds: Any) -> None:
    with pytest.raises(gr.BadSpec, match=r"slow_handler=.*a number of seconds above 0"):
        tree(slow_handler=seconds)


class Secretive(Puppet):
    def __init__(self, password: str) -> None:
        super().__init__()
        self.password = password


async def test_p29_logs_events_and_reports_show_types_and_never_contents(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="greenroom")

    async def wait(_: Puppet) -> None:
        await anyio.sleep(100)

    child = gr.Child("a", Secretive, SECRET, shutdown=1.0, mailbox=gr.Mailbox(capacity=2, overflow="drop_oldest"))
    async with tree(child) as runtime:
        events = runtime.events()
        ref = runtime.ref("app/a")
        shown = [repr(child), repr(ref), repr(runtime.tree())]
        errors = [await raised(ref.ask(Fail(Boom())))]
        ref.tell(Do(wait))
        await idle()
        for _ in range(4):
            ref.tell(Note(SECRET))
        errors += [await raised(ref.ask(Note(SECRET), timeout=1))]
        shown.append(repr(runtime.tree()))
        await anyio.sleep(50)
        await runtime.ref("app").terminate_child("a")
        errors += [await raised(ref.ask(Note(SECRET)))]
        shown += [repr(event) for event in events.pending()]
    shown += [str(error) for error in errors] + [repr(error) for error in errors] + [caplog.text, str(runtime.report)]
    assert len(errors) == 3
    assert "Note" in caplog.text
    assert not [text for text in shown if SECRET in text]


async def test_a_handlers_own_stack_is_named_where_the_actor_is_stuck() -> None:
    release = anyio.Event()

    async def swallow(_: Puppet) -> None:
        while not release.is_set():
            try:
                await release.wait()
            except anyio.get_cancelled_exc_class():
                continue

    async with tree(gr.Child("a", Puppet, shutdown=1.0)) as runtime, anyio.create_task_group() as group:
        events = runtime.events()
        runtime.ref("app/a").tell(Do(swallow))
        group.start_soon(raised, runtime.ref("app").terminate_child("a"))
        await anyio.sleep(5)
        [stuck, *_] = events_of(gr.ActorStuck, events)
        assert (stuck.path, stuck.message_type) == ("app/a", "Do")
        assert "await release.wait()" in stuck.stack
        release.set()


@attrs.frozen
class Shown(gr.Message[None]):
    __loggable__ = True

    order: int
    note: str = ""


async def test_p29_a_class_may_allow_its_repr_to_be_seen() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        with pytest.raises(gr.UnhandledMessage, match=r"no handler for Shown\(order=7, note='x'\)"):
            await runtime.ref("app/a").ask(Shown(7, "x"))


async def test_p29_a_long_repr_is_cut() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        with pytest.raises(gr.UnhandledMessage) as caught:
            await runtime.ref("app/a").ask(Shown(7, "x" * 1_000))
    assert len(caught.value.message_type) == 200
