"""A child that swallows its cancellation: it cannot be ended, only named, left in peace, and waited for."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import anyio
import attrs
import pytest

import greenroom as gr
from greenroom.mailbox import Subscription
from tests.conformance.probes import Crash, Hold, Log, settle, states
from tests.conformance.witnesses import Watch, Watcher, kinds, released, settle_after_spinning

SHUTDOWN, KILL_TIME, GRACE, AGAIN = 1.0, 2.0, 0.1, 5.0
"""Virtual seconds: until a cancellation; from there to the last chance; to `stuck`; to the next try."""
UNTIL_STUCK = SHUTDOWN + KILL_TIME + GRACE


@attrs.frozen
class Swallow(gr.Message[None]):
    """Swallow every cancellation until the event is set, and note the moment of each."""

    until: anyio.Event
    swallowed: list[float]


class Swallower(gr.Actor):
    """Its handler cannot be ended."""

    @gr.handles
    async def swallow(self, message: Swallow) -> None:
        while not message.until.is_set():
            try:
                await message.until.wait()
            except anyio.get_cancelled_exc_class():
                message.swallowed.append(anyio.current_time())


@attrs.define
class Stuck:
    """A runtime with a child `sup/stuck` that has a message in hand which it will not let go of."""

    runtime: gr.Runtime
    events: Subscription[gr.Event]
    until: anyio.Event = attrs.field(factory=anyio.Event)
    swallowed: list[float] = attrs.field(factory=list)

    async def found(self) -> float:
        """Ask the tree to stop and wait until the child is known to be stuck, and a second more. The moment of the request."""
        self.runtime.request_stop()
        began = anyio.current_time()
        await anyio.sleep(UNTIL_STUCK + 1)
        return began

    def named(self) -> list[gr.ActorStuck]:
        """The events that name it, since the last call."""
        return [event for event in self.events.pending() if isinstance(event, gr.ActorStuck)]


@asynccontextmanager
async def stuck_child(
    *others: gr.Child, strategy: Literal["one_for_one", "one_for_all"] = "one_for_one"
) -> AsyncIterator[Stuck]:
    """It lets go when the block ends, at the latest."""
    child = gr.Child("stuck", Swallower, shutdown=SHUTDOWN)
    runtime = gr.Runtime(gr.Supervisor("sup", *others, child, strategy=strategy))
    stuck = Stuck(runtime, runtime.events())
    async with runtime:
        runtime.ref("sup/stuck").tell(Swallow(stuck.until, stuck.swallowed))
        await settle()
        try:
            yield stuck
        finally:
            stuck.until.set()


# -------------------------------------------------------------------------------------------------------- it is named


async def test_p01_a_stuck_child_is_named_by_an_event_with_message_type_age_and_stack() -> None:
    async with stuck_child() as stuck:
        began = await stuck.found()
        (event,) = stuck.named()
    assert (event.path, event.incarnation) == ("sup/stuck", 1)
    assert event.message_type is not None
    assert event.message_type.endswith("Swallow")
    assert event.at - began == pytest.approx(UNTIL_STUCK)
    assert event.age == pytest.approx(UNTIL_STUCK)
    assert "in swallow" in event.stack
    assert "message.until.wait()" in event.stack


async def test_p01_the_event_is_repeated_while_it_lasts_and_the_age_grows() -> None:
    async with stuck_child() as stuck:
        await stuck.found()
        await anyio.sleep(2 * AGAIN)
        ages = [event.age for event in stuck.named()]
    assert ages == [pytest.approx(UNTIL_STUCK + n * AGAIN) for n in range(3)]


async def test_p01_the_log_says_so_each_time(caplog: pytest.LogCaptureFixture) -> None:
    async with stuck_child() as stuck:
        await stuck.found()
        await anyio.sleep(AGAIN)
    lines = [record for record in caplog.records if record.getMessage().startswith("stuck: sup/stuck ")]
    assert [record.levelno for record in lines] == [logging.ERROR, logging.ERROR]
    assert all("Swallow" in line.getMessage() and "in swallow" in line.getMessage() for line in lines)


async def test_p01_nothing_more_is_said_when_it_has_ended() -> None:
    async with stuck_child() as stuck:
        with pytest.raises(gr.ChildStillEnding):
            await stuck.runtime.ref("sup").terminate_child("stuck")
        stuck.until.set()
        await settle_after_spinning()
        assert len(stuck.named()) == 1
        await anyio.sleep(3 * AGAIN)
        assert stuck.named() == []


async def test_p01_a_child_that_is_stuck_after_its_own_crash_is_named_with_its_age() -> None:
    hold = anyio.Event()

    class Mother(gr.Actor):
        """Crashes beside a task in her nursery that cannot be ended."""

        @gr.handles
        async def crash(self, message: Crash) -> None:
            async def deaf() -> None:
                with anyio.CancelScope(shield=True):
                    await hold.wait()

            self.context.nursery.start_soon(deaf)
            await settle()
            raise ValueError("on purpose")

    runtime = gr.Runtime(gr.Supervisor("sup", gr.Child("mother", Mother)))
    events = runtime.events()
    async with runtime:
        runtime.ref("sup/mother").tell(Crash())
        await anyio.sleep(KILL_TIME + GRACE + AGAIN + 1)
        ages = [event.age for event in events.pending() if isinstance(event, gr.ActorStuck)]
        hold.set()
    assert ages == [pytest.approx(GRACE), pytest.approx(GRACE + AGAIN)]


async def test_p01_no_stage_ends_or_abandons_a_task_that_swallows_its_cancellation() -> None:
    async with stuck_child() as stuck:
        for _ in range(5):
            stuck.runtime.request_stop()
        await anyio.sleep(UNTIL_STUCK + 1)
        report = stuck.runtime.report
    assert report is not None
    assert (report.stage, report.stuck) == (gr.Stage.EXIT, ("sup/stuck",))
    assert (report.killed, report.abandoned) == ((), ())


# ------------------------------------------------------------------------------------------------ it is left in peace


async def test_p02_a_stuck_child_is_not_resumed_while_it_is_left_in_peace() -> None:
    async with stuck_child() as stuck:
        await stuck.found()
        before = len(stuck.swallowed)
        await anyio.sleep(AGAIN - 1.5)
        after = len(stuck.swallowed)
    assert before > 0
    assert after == before


async def test_p02_its_cancellation_is_tried_again_every_few_seconds_for_a_few_turns() -> None:
    async with stuck_child() as stuck:
        began = await stuck.found()
        stuck.swallowed.clear()
        await anyio.sleep(2 * AGAIN)
        moments = {round(at - began - UNTIL_STUCK, 6) for at in stuck.swallowed}
        count = len(stuck.swallowed)
    assert moments == {AGAIN, 2 * AGAIN}
    assert count <= 2 * 20


async def test_p02_a_child_that_gives_in_at_a_later_try_ends() -> None:
    class Grudging(gr.Actor):
        @gr.handles
        async def hold(self, message: Hold) -> None:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(SHUTDOWN + UNTIL_STUCK)
            await message.until.wait()

    runtime = gr.Runtime(gr.Supervisor("sup", gr.Child("grudging", Grudging, shutdown=SHUTDOWN)))
    async with runtime:
        runtime.ref("sup/grudging").tell(Hold(anyio.Event()))
        await settle()
        began = anyio.current_time()
    assert anyio.current_time() - began == pytest.approx(UNTIL_STUCK + AGAIN)
    assert runtime.report is not None
    assert runtime.report.cancelled == ("sup/grudging",)


async def test_p02_a_stuck_task_of_an_actors_nursery_is_left_in_peace_as_well() -> None:
    swallowed: list[float] = []
    with released() as never:

        class Mother(gr.Actor):
            async def on_start(self) -> None:
                self.context.nursery.start_soon(self.deaf)

            async def deaf(self) -> None:
                while not never.is_set():
                    try:
                        await never.wait()
                    except anyio.get_cancelled_exc_class():
                        swallowed.append(anyio.current_time())

        runtime = gr.Runtime(gr.Supervisor("sup", gr.Child("mother", Mother, shutdown=SHUTDOWN)))
        async with runtime:
            runtime.request_stop()
            await anyio.sleep(KILL_TIME + GRACE + 1)  # no handler is in the way of the request
            before = len(swallowed)
            await anyio.sleep(AGAIN - 1.5)
            after = len(swallowed)
            report = runtime.report
            never.set()
    assert before > 0
    assert after == before
    assert report is not None
    assert report.stuck == ("sup/mother",)


# ------------------------------------------------------------------------------------------ the stop goes on around it


async def test_p03_the_rest_of_the_stop_goes_on_around_it_in_order() -> None:
    log = Log()
    tree = gr.Supervisor("sup", log.child("a"), log.child("b"), log.child("stuck", shutdown=SHUTDOWN), log.child("z"))
    runtime = gr.Runtime(tree)
    async with runtime:
        with released() as never:
            runtime.ref("sup/stuck").tell(Hold(never, swallow=True))
            await settle()
            log.take()
            runtime.request_stop()
            began = anyio.current_time()
            await anyio.sleep(UNTIL_STUCK + 1)
            entries, moments = log.entries, [at - began for at in log.times]
    assert entries[:3] == ["stop z", "stop b", "stop a"]
    assert moments[:3] == [0, pytest.approx(UNTIL_STUCK), pytest.approx(UNTIL_STUCK)]


async def test_p03_the_report_is_complete_with_the_stuck_one_while_it_still_runs() -> None:
    log = Log()
    tree = gr.Supervisor("sup", log.child("a"), gr.Supervisor("in", log.child("stuck", shutdown=SHUTDOWN)))
    runtime = gr.Runtime(tree)
    async with runtime:
        with released() as never:
            runtime.ref("sup/in/stuck").tell(Hold(never, swallow=True))
            await settle()
            runtime.request_stop()
            await anyio.sleep(UNTIL_STUCK + 1)
            report, exit = runtime.report, runtime.exit
    assert report is not None
    assert (report.stopped, report.stuck, report.unknown) == (("sup/a",), ("sup/in/stuck",), ())
    assert not report.clean
    assert exit is None


async def test_p03_the_report_follows_when_it_ends_after_all() -> None:
    async with stuck_child() as stuck:
        await stuck.found()
    report = stuck.runtime.report
    assert report is not None
    assert (report.cancelled, report.stuck) == (("sup/stuck",), ())
    assert not report.clean


async def test_p03_terminated_is_sent_only_when_it_has_really_ended() -> None:
    seen: list[gr.Terminated] = []
    async with stuck_child(gr.Child("watcher", Watcher, seen)) as stuck:
        sup = stuck.runtime.ref("sup")
        await stuck.runtime.ref("sup/watcher").ask(Watch(stuck.runtime.ref("sup/stuck")))
        with pytest.raises(gr.ChildStillEnding):
            await sup.terminate_child("stuck")
        await anyio.sleep(2 * AGAIN)
        assert seen == []
        stuck.until.set()
        await settle_after_spinning()
        assert kinds(seen) == {"sup/stuck": "killed"}


async def test_p03_a_group_restart_waits_for_it_and_says_for_what() -> None:
    log = Log()
    async with stuck_child(log.child("a"), strategy="one_for_all") as stuck:
        log.take()
        stuck.runtime.ref("sup/a").tell(Crash())
        await anyio.sleep(UNTIL_STUCK + 2 * AGAIN)
        waiting = [event for event in stuck.events.pending() if isinstance(event, gr.RestartWaiting)]
        assert [(event.path, event.waits_for) for event in waiting] == [("sup/a", ("sup/stuck",))]
        assert log.take() == ["die a"]
        stuck.until.set()
        await settle_after_spinning()
        assert log.take() == ["start a"]
        assert stuck.runtime.ref("sup/stuck").incarnation == 2


async def test_p03_administration_is_served_while_a_group_restart_waits() -> None:
    log = Log()
    async with stuck_child(log.child("a"), strategy="one_for_all") as stuck:
        sup = stuck.runtime.ref("sup")
        stuck.runtime.ref("sup/a").tell(Crash())
        await anyio.sleep(UNTIL_STUCK + 1)
        assert await states(sup) == {"a": "restarting", "stuck": "stuck"}
        await sup.start_child(log.child("new"))
        assert (await states(sup))["new"] == "running"


async def test_p03_other_subtrees_go_on() -> None:
    log = Log()
    tree = gr.Supervisor("top", log.child("else"), gr.Supervisor("sup", log.child("stuck", shutdown=SHUTDOWN)))
    async with gr.Runtime(tree) as runtime:
        with released() as never:
            runtime.ref("top/sup/stuck").tell(Hold(never, swallow=True))
            await settle()
            with pytest.raises(gr.ChildStillEnding):
                await runtime.ref("top").terminate_child("sup")
            log.take()
            runtime.ref("top/else").tell(Crash())
            await settle_after_spinning()
            assert log.take() == ["die else", "start else"]


async def test_p03_a_supervisor_with_a_stuck_child_is_stuck_itself_until_that_has_ended() -> None:
    log = Log()
    tree = gr.Supervisor("top", gr.Supervisor("sup", log.child("stuck", shutdown=SHUTDOWN)))
    async with gr.Runtime(tree) as runtime:
        with released() as never:
            runtime.ref("top/sup/stuck").tell(Hold(never, swallow=True))
            await settle()
            with pytest.raises(gr.ChildStillEnding):
                await runtime.ref("top").terminate_child("sup")
            assert await states(runtime.ref("top")) == {"sup": "stuck"}
        await settle_after_spinning()
        assert await states(runtime.ref("top")) == {"sup": "down"}


# ---------------------------------------------------------------------------------------------------- the block waits


async def test_p04_an_embedded_block_does_not_return_while_a_task_child_runs() -> None:
    hours = 3600.0
    never = anyio.Event()
    began = anyio.current_time()
    async with anyio.create_task_group() as group:

        async def release() -> None:
            await anyio.sleep(hours)
            never.set()

        group.start_soon(release)
        async with gr.Runtime(gr.Supervisor("sup", gr.Child("stuck", Swallower))) as runtime:
            runtime.ref("sup/stuck").tell(Swallow(never, []))
            await settle()
        assert anyio.current_time() - began == pytest.approx(hours)


async def test_p04_it_says_that_it_waits_and_for_what(caplog: pytest.LogCaptureFixture) -> None:
    async with stuck_child() as stuck:
        await stuck.found()
        lines = [r.getMessage() for r in caplog.records if r.name == "greenroom.runtime" and r.levelno > logging.INFO]
    (line,) = lines
    assert "waiting for what is stuck" in line
    assert "stuck: sup/stuck" in line


async def test_p04_cancelling_the_host_does_not_let_it_return_either() -> None:
    released_at: list[float] = []
    never = anyio.Event()
    runtime = gr.Runtime(gr.Supervisor("sup", gr.Child("stuck", Swallower)))
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def release() -> None:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(100)
                released_at.append(anyio.current_time())
                never.set()

            group.start_soon(release)
            async with runtime:
                runtime.ref("sup/stuck").tell(Swallow(never, []))
                await settle()
                scope.cancel()
    assert scope.cancelled_caught
    assert released_at == [pytest.approx(100, abs=0.1)]
    assert runtime.exit == gr.Exit("shutdown")
