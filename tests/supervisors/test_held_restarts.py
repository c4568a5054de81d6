"""P3: no new incarnation starts while the old one may still run; everything else goes on meanwhile.

The stuck child here is one that swallows its cancellation until an event is set. Asked to stop, it is cancelled after its shutdown
time and stuck after the kill time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import anyio
import pytest

import greenroom as gr
from tests.conformance.probes import Boom, Crash, Hold, Log, Touch, crash, reports, settle, states
from tests.isolation.threads import Gate, come_back

SHUTDOWN = 1.0
LONG = 6.0
"""Seconds: more than the shutdown and kill times together, and less than until the next try to cancel what is stuck."""


@asynccontextmanager
async def running(tree: gr.Supervisor, event: anyio.Event) -> AsyncIterator[gr.Runtime]:
    """Run a tree. At the end of the block the event is set, whatever has happened: nothing is left stuck."""
    async with gr.Runtime(tree) as runtime:
        try:
            yield runtime
        finally:
            event.set()


async def release(event: anyio.Event) -> None:
    """Let what is stuck end, and everything settle.

    While something spins, the virtual clock counts turns of the loop: a second is more of them than anything here takes.
    """
    event.set()
    await anyio.sleep(1.0)


async def swallow_until(event: anyio.Event) -> None:
    """Wait for an event, whatever anybody cancels."""
    while not event.is_set():
        try:
            await event.wait()
        except anyio.get_cancelled_exc_class():
            continue


class SlowStarter(gr.Actor):
    """Its second start swallows its cancellation until the event is set."""

    def __init__(self, log: Log, starts: Iterator[Callable[[], Awaitable[None]]]) -> None:
        self.log = log
        self.starts = starts

    async def on_start(self) -> None:
        self.log.add("begin", "a")
        await next(self.starts)()

    @gr.handles
    async def crash(self, _message: Crash) -> None:
        raise Boom


async def nothing() -> None:
    """A good start."""


async def test_p03_a_group_restart_waits_for_a_stuck_sibling_and_says_so() -> None:
    log = Log()
    tree = gr.Supervisor(
        "sup", log.child("a", shutdown=SHUTDOWN), log.child("b"), log.child("c"), strategy="one_for_all", intensity=1
    )
    event = anyio.Event()
    async with running(tree, event) as runtime:
        events = runtime.events()
        runtime.ref("sup/a").tell(Hold(event, swallow=True))
        await settle()
        log.take()
        await crash(runtime.ref("sup/b"))
        await anyio.sleep(LONG)
        assert log.take() == ["die b", "stop c"]
        (waiting,) = [one for one in events.pending() if isinstance(one, gr.RestartWaiting)]
        assert (waiting.path, waiting.waits_for) == ("sup/b", ("sup/a",))
        await release(event)
        # Its `on_stop` after all, then one restart of all, counted once.
        assert log.take() == ["kill a", "start a", "start b", "start c"]


async def test_p03_the_supervisor_serves_calls_while_a_restart_is_held() -> None:
    log = Log()
    tree = gr.Supervisor("sup", log.child("a", shutdown=SHUTDOWN), log.child("b"), strategy="one_for_all")
    event = anyio.Event()
    async with running(tree, event) as runtime:
        sup = runtime.ref("sup")
        runtime.ref("sup/a").tell(Hold(event, swallow=True))
        await settle()
        await crash(runtime.ref("sup/b"))
        await anyio.sleep(LONG)
        assert await states(sup) == {"a": "stuck", "b": "restarting"}
        assert await sup.count_children() == gr.ChildCounts(specs=2, active=1, supervisors=0, workers=2)
        with pytest.raises(gr.ChildStillEnding):
            await sup.restart_child("a")
        with pytest.raises(gr.ChildStillEnding):
            await sup.delete_child("a")
        await sup.start_child(log.child("z"))
        assert await runtime.ref("sup/z").ask(Touch()) == 1


async def test_p03_messages_for_all_who_wait_are_kept() -> None:
    log = Log()
    tree = gr.Supervisor("sup", log.child("a", shutdown=SHUTDOWN), log.child("b"), strategy="one_for_all")
    event = anyio.Event()
    async with running(tree, event) as runtime, anyio.create_task_group() as group:
        runtime.ref("sup/a").tell(Hold(event, swallow=True))
        await settle()
        await crash(runtime.ref("sup/b"))
        await anyio.sleep(LONG)
        answers: list[int] = []

        async def ask(name: str) -> None:
            answers.append(await runtime.ref(f"sup/{name}").ask(Touch()))

        group.start_soon(ask, "a")
        group.start_soon(ask, "b")
        await settle()
        await release(event)
        assert answers == [1, 1]


async def test_p03_other_subtrees_go_on_while_a_restart_is_held() -> None:
    log = Log()
    held = gr.Supervisor("held", log.child("a", shutdown=SHUTDOWN), log.child("b"), strategy="one_for_all")
    free = gr.Supervisor("free", log.child("c"))
    event = anyio.Event()
    async with running(gr.Supervisor("sup", held, free), event) as runtime:
        runtime.ref("sup/held/a").tell(Hold(event, swallow=True))
        await settle()
        await crash(runtime.ref("sup/held/b"))
        await anyio.sleep(LONG)
        await crash(runtime.ref("sup/free/c"))
        assert runtime.ref("sup/free/c").incarnation == 2
        assert await runtime.ref("sup/free/c").ask(Touch()) == 1


async def test_p03_terminating_the_child_that_a_held_restart_is_for_calls_it_off() -> None:
    log = Log()
    tree = gr.Supervisor(
        "sup", log.child("a", shutdown=SHUTDOWN), log.child("b"), log.child("c"), strategy="one_for_all"
    )
    event = anyio.Event()
    async with running(tree, event) as runtime:
        sup = runtime.ref("sup")
        runtime.ref("sup/a").tell(Hold(event, swallow=True))
        await settle()
        await crash(runtime.ref("sup/b"))
        await anyio.sleep(LONG)
        await sup.terminate_child("b")
        assert await states(sup) == {"a": "stuck", "b": "down", "c": "down"}
        log.take()
        await release(event)
        assert log.take() == ["kill a"]
        assert await states(sup) == {"a": "down", "b": "down", "c": "down"}
        for name in "abc":
            await sup.restart_child(name)


async def test_p03_a_stop_goes_on_around_a_held_restart() -> None:
    log = Log()
    tree = gr.Supervisor(
        "sup", log.child("z"), log.child("a"), log.child("b", shutdown=SHUTDOWN), strategy="rest_for_one"
    )
    event = anyio.Event()
    async with running(tree, event) as runtime, anyio.create_task_group() as group:
        runtime.ref("sup/b").tell(Hold(event, swallow=True))
        await settle()
        await crash(runtime.ref("sup/a"))
        await anyio.sleep(LONG)
        log.take()
        group.start_soon(runtime.stop)
        await settle()
        assert log.take() == ["stop z"]
        assert runtime.report is not None
        assert runtime.report.stuck == ("sup/b",)
        event.set()


async def test_p03_a_temporary_sibling_that_is_stuck_holds_nothing_up_and_is_forgotten_when_it_has_ended() -> None:
    log = Log()
    stuck = log.child("t", restart="temporary", shutdown=SHUTDOWN)
    event = anyio.Event()
    async with running(gr.Supervisor("sup", log.child("a"), stuck, strategy="one_for_all"), event) as runtime:
        runtime.ref("sup/t").tell(Hold(event, swallow=True))
        await settle()
        await crash(runtime.ref("sup/a"))
        await anyio.sleep(LONG)
        assert await states(runtime.ref("sup")) == {"a": "running", "t": "stuck"}
        await release(event)
        assert await states(runtime.ref("sup")) == {"a": "running"}


@pytest.mark.parametrize(("restart", "later"), [("permanent", {"a": "down"}), ("temporary", {})])
async def test_p03_terminate_child_says_when_a_child_will_not_end_and_the_rest_is_done_when_it_does(
    restart: str, later: dict[str, str]
) -> None:
    log = Log()
    tree = gr.Supervisor("sup", log.child("a", restart=restart, shutdown=SHUTDOWN))
    event = anyio.Event()
    async with running(tree, event) as runtime:
        sup = runtime.ref("sup")
        runtime.ref("sup/a").tell(Hold(event, swallow=True))
        await settle()
        for _ in range(2):
            with pytest.raises(gr.ChildStillEnding):
                await sup.terminate_child("a")
            assert await states(sup) == {"a": "stuck"}
        await release(event)
        assert await states(sup) == later
        assert log.start_calls("a") == 1


async def test_p03_a_child_that_crashed_by_itself_and_was_stuck_on_its_way_is_restarted_when_it_has_ended() -> None:
    """Nobody asked it to stop: its end is its own, however long it takes."""
    log = Log()
    event = anyio.Event()

    class Host(gr.Actor):
        async def on_start(self) -> None:
            log.add("start", "a")
            self.context.nursery.start_soon(swallow_until, event)

        @gr.handles
        async def crash(self, _message: Crash) -> None:
            raise Boom

    async with running(gr.Supervisor("sup", gr.Child("a", Host), intensity=1), event) as runtime:
        events = runtime.events()
        await crash(runtime.ref("sup/a"))
        await anyio.sleep(LONG)
        assert await states(runtime.ref("sup")) == {"a": "stuck"}
        assert log.take() == ["start a"]
        await release(event)
        assert await states(runtime.ref("sup")) == {"a": "running"}
        assert log.take() == ["start a"]
        assert [report.context for report in reports(events)] == ["child_terminated"]


async def test_p03_a_restart_whose_start_is_stuck_is_tried_again_when_that_has_ended() -> None:
    log = Log()
    event = anyio.Event()
    starts = iter([nothing, lambda: swallow_until(event), nothing])
    child = gr.Child("a", SlowStarter, log, starts, start_timeout=2.0)
    async with running(gr.Supervisor("sup", child, intensity=2, period=60.0), event) as runtime:
        await crash(runtime.ref("sup/a"))
        await anyio.sleep(LONG)
        assert await states(runtime.ref("sup")) == {"a": "stuck"}
        assert log.take() == ["begin a", "begin a"]
        await release(event)
        assert log.take() == ["begin a"]
        assert await states(runtime.ref("sup")) == {"a": "running"}


async def test_p03_that_try_is_counted_when_it_is_made_and_not_before() -> None:
    log = Log()
    event = anyio.Event()
    starts = iter([nothing, lambda: swallow_until(event)])
    child = gr.Child("a", SlowStarter, log, starts, start_timeout=2.0)
    sup = gr.Supervisor("sup", child, intensity=1, period=60.0, restart="temporary")
    async with running(gr.Supervisor("top", sup), event) as runtime:
        await crash(runtime.ref("top/sup/a"))
        await anyio.sleep(LONG)
        assert await states(runtime.ref("top/sup")) == {"a": "stuck"}
        await release(event)
        assert await states(runtime.ref("top")) == {}


async def test_p03_a_start_child_whose_start_is_stuck_fails_and_its_place_is_free_when_that_has_ended() -> None:
    log = Log()
    event = anyio.Event()
    starts = iter([lambda: swallow_until(event)])
    child = gr.Child("a", SlowStarter, log, starts, start_timeout=2.0)
    async with running(gr.Supervisor("sup", intensity=0), event) as runtime:
        sup = runtime.ref("sup")
        with pytest.raises(gr.StartFailed):
            await sup.start_child(child)
        assert await states(sup) == {"a": "stuck"}
        with pytest.raises(gr.ChildStillEnding):
            await sup.start_child(child)
        await release(event)
        assert await states(sup) == {}


async def test_p06_a_crash_whose_thread_is_abandoned_is_reported_at_once_and_only_once() -> None:
    gate = Gate()

    class HangsAtItsEnd(gr.Actor):
        async def on_stop(self, exit: gr.Exit) -> None:
            gate.pass_through(self.context.runtime)(self)

        @gr.handles
        def crash(self, _message: Crash) -> None:
            raise Boom

    child = gr.Child("a", HangsAtItsEnd, isolation="thread", shutdown=SHUTDOWN)
    async with gr.Runtime(gr.Supervisor("sup", child)) as runtime:
        events = runtime.events()
        runtime.ref("sup/a").tell(Crash())
        await anyio.sleep(LONG)
        assert await states(runtime.ref("sup")) == {"a": "abandoned"}
        assert [report.context for report in reports(events)] == ["child_terminated"]
        await come_back("sup/a", gate)
        assert await states(runtime.ref("sup")) == {"a": "running"}
        assert reports(events) == []
