"""A child that swallows its cancellation: it cannot be ended, only named, left in peace, and waited for."""

from __future__ import annotations

import logging
from collections.abc import Callable

import anyio
import attrs
import pytest

import greenroom as gr
from tests.conformance.probes import Crash, Hold, Log, settle, states
from tests.conformance.watching import Watch, Watcher, kinds, released

SHUTDOWN, KILL_TIME, GRACE, AGAIN = 1.0, 2.0, 0.1, 5.0
"""Virtual seconds: until a cancellation; from there to the last chance; to `stuck`; to the next try."""
UNTIL_STUCK = SHUTDOWN + KILL_TIME + GRACE


@attrs.frozen
class Swallow(gr.Message[None]):
    """Swallow every cancellation until the event is set, and count how often the handler is resumed."""

    until: anyio.Event
    resumed: list[float]


class Swallower(gr.Actor):
    """Its handler cannot be ended."""

    def __init__(self, log: Log | None = None) -> None:
        self.log = log

    @gr.handles
    async def swallow(self, message: Swallow) -> None:
        while not message.until.is_set():
            try:
                await message.until.wait()
            except anyio.get_cancelled_exc_class():
                message.resumed.append(anyio.current_time())


def stuck_events(events: list[gr.Event]) -> list[gr.ActorStuck]:
    return [event for event in events if isinstance(event, gr.ActorStuck)]


class Stuck:
    """A runtime with a stuck child `sup/stuck`, and what there is to see."""

    def __init__(self, *others: gr.Child, shutdown: float = SHUTDOWN, **options: object) -> None:
        self.until = anyio.Event()
        self.resumed: list[float] = []
        child = gr.Child("stuck", Swallower, shutdown=shutdown)
        self.runtime = gr.Runtime(gr.Supervisor("sup", *others, child, **options))  # type: ignore[arg-type]
        self.events = self.runtime.events()

    async def take_hold(self) -> None:
        self.runtime.ref("sup/stuck").tell(Swallow(self.until, self.resumed))
        await settle()


# --------------------------------------------------------------------------------------------------------- it is named


async def test_p01_a_stuck_child_is_named_by_an_event_with_message_type_age_and_stack() -> None:
    stuck = Stuck()
    async with stuck.runtime:
        await stuck.take_hold()
        stuck.runtime.request_stop()
        began = anyio.current_time()
        await anyio.sleep(UNTIL_STUCK + 1)
        (event,) = stuck_events(stuck.events.pending())
        stuck.until.set()
    assert (event.path, event.incarnation) == ("sup/stuck", 1)
    assert event.message_type is not None
    assert event.message_type.endswith("Swallow")
    assert (event.at - began, event.age) == (pytest.approx(UNTIL_STUCK), pytest.approx(UNTIL_STUCK))
    assert "in swallow" in event.stack
    assert "message.until.wait()" in event.stack


async def test_p01_the_event_is_repeated_while_it_lasts_and_the_age_grows() -> None:
    stuck = Stuck()
    async with stuck.runtime:
        await stuck.take_hold()
        stuck.runtime.request_stop()
        await anyio.sleep(UNTIL_STUCK + 2 * AGAIN + 1)
        ages = [event.age for event in stuck_events(stuck.events.pending())]
        stuck.until.set()
    assert ages == [pytest.approx(UNTIL_STUCK + n * AGAIN) for n in range(3)]


async def test_p01_the_log_says_so_each_time(caplog: pytest.LogCaptureFixture) -> None:
    stuck = Stuck()
    async with stuck.runtime:
        await stuck.take_hold()
        stuck.runtime.request_stop()
        await anyio.sleep(UNTIL_STUCK + AGAIN + 1)
        stuck.until.set()
    lines = [record for record in caplog.records if record.getMessage().startswith("stuck: sup/stuck ")]
    assert [record.levelno for record in lines] == [logging.ERROR, logging.ERROR]
    assert all("Swallow" in line.getMessage() and "in swallow" in line.getMessage() for line in lines)


async def test_p01_nothing_more_is_said_when_it_has_ended() -> None:
    stuck = Stuck()
    async with stuck.runtime as runtime:
        await stuck.take_hold()
        await runtime.ref("sup").start_child(gr.Child("other", Swallower))
        with pytest.raises(gr.ChildStillEnding):
            await runtime.ref("sup").terminate_child("stuck")
        stuck.until.set()
        await settle()
        stuck.events.pending()
        await anyio.sleep(3 * AGAIN)
        assert stuck_events(stuck.events.pending()) == []


async def test_p01_a_stuck_child_of_its_own_crash_is_named_with_its_age() -> None:
    hold = anyio.Event()

    class Mother(gr.Actor):
        """Crashes with a task in her nursery that cannot be ended."""

        @gr.handles
        async def crash(self, message: Crash) -> None:
            async def swallow() -> None:
                with anyio.CancelScope(shield=True):
                    await hold.wait()

            self.context.nursery.start_soon(swallow)
            await settle()
            raise ValueError("on purpose")

    runtime = gr.Runtime(gr.Supervisor("sup", gr.Child("mother", Mother)))
    events = runtime.events()
    async with runtime:
        runtime.ref("sup/mother").tell(Crash())
        await anyio.sleep(KILL_TIME + GRACE + AGAIN + 1)
        ages = [event.age for event in stuck_events(events.pending())]
        hold.set()
    assert ages == [pytest.approx(GRACE), pytest.approx(GRACE + AGAIN)]


# ------------------------------------------------------------------------------------------------ it is left in peace


async def test_p02_a_stuck_child_is_not_resumed_while_it_is_left_in_peace() -> None:
    stuck = Stuck()
    async with stuck.runtime:
        await stuck.take_hold()
        stuck.runtime.request_stop()
        await anyio.sleep(UNTIL_STUCK + 1)
        before = len(stuck.resumed)
        await anyio.sleep(AGAIN - 1.5)
        after = len(stuck.resumed)
        stuck.until.set()
    assert before > 0
    assert after == before


async def test_p02_its_cancellation_is_tried_again_every_few_seconds_for_a_few_turns() -> None:
    stuck = Stuck()
    async with stuck.runtime:
        await stuck.take_hold()
        stuck.runtime.request_stop()
        began = anyio.current_time()
        await anyio.sleep(UNTIL_STUCK + 1)
        stuck.resumed.clear()
        await anyio.sleep(2 * AGAIN)
        tries = {round(at - began - UNTIL_STUCK, 6) for at in stuck.resumed}
        stuck.until.set()
    assert tries == {AGAIN, 2 * AGAIN}
    assert len(stuck.resumed) <= 2 * 20


async def test_p02_a_child_that_gives_in_at_a_later_try_ends() -> None:
    patience = 2

    class Grudging(gr.Actor):
        @gr.handles
        async def hold(self, message: Hold) -> None:
            for _ in range(patience):
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(UNTIL_STUCK + 1)
                try:
                    await anyio.sleep_forever()
                except anyio.get_cancelled_exc_class():
                    continue
            await anyio.sleep_forever()

    runtime = gr.Runtime(gr.Supervisor("sup", gr.Child("grudging", Grudging, shutdown=SHUTDOWN)))
    events = runtime.events()
    async with runtime:
        runtime.ref("sup/grudging").tell(Hold(anyio.Event()))
        await settle()
    assert runtime.report is not None
    assert runtime.report.cancelled == ("sup/grudging",)
    assert len(stuck_events(events.pending())) > 0


# ------------------------------------------------------------------------------------- the stop goes on around it


async def test_p03_the_rest_of_the_stop_goes_on_around_it_in_order() -> None:
    log = Log()
    tree = gr.Supervisor("sup", log.child("a"), log.child("b"), log.child("stuck", shutdown=SHUTDOWN), log.child("z"))
    runtime = gr.Runtime(tree)
    with released() as never:
        async with runtime:
            runtime.ref("sup/stuck").tell(Hold(never, swallow=True))
            await settle()
            log.take()
            runtime.request_stop()
            began = anyio.current_time()
            await anyio.sleep(UNTIL_STUCK + 1)
            assert log.entries == ["stop z", "stop b", "stop a"]
            assert [at - began for at in log.times] == [0, pytest.approx(UNTIL_STUCK), pytest.approx(UNTIL_STUCK)]
            never.set()


async def test_p03_the_report_is_complete_with_the_stuck_one_while_it_still_runs() -> None:
    log = Log()
    tree = gr.Supervisor("sup", log.child("a"), gr.Supervisor("in", log.child("stuck", shutdown=SHUTDOWN)))
    runtime = gr.Runtime(tree)
    with released() as never:
        async with runtime:
            runtime.ref("sup/in/stuck").tell(Hold(never, swallow=True))
            await settle()
            runtime.request_stop()
            await anyio.sleep(UNTIL_STUCK + 1)
            report, exit = runtime.report, runtime.exit
            never.set()
    assert report is not None
    assert (report.stopped, report.stuck, report.unknown) == (("sup/a",), ("sup/in/stuck",), ())
    assert not report.clean
    assert exit is None


async def test_p03_the_report_follows_when_it_ends_after_all() -> None:
    stuck = Stuck()
    async with stuck.runtime:
        await stuck.take_hold()
        stuck.runtime.request_stop()
        await anyio.sleep(UNTIL_STUCK + 1)
        stuck.until.set()
    report = stuck.runtime.report
    assert report is not None
    assert (report.cancelled, report.stuck) == (("sup/stuck",), ())
    assert not report.clean


async def test_p03_terminated_is_sent_only_when_it_has_really_ended() -> None:
    seen: list[gr.Terminated] = []
    stuck = Stuck(gr.Child("watcher", Watcher, seen))
    async with stuck.runtime as runtime:
        await runtime.ref("sup/watcher").ask(Watch(runtime.ref("sup/stuck")))
        await stuck.take_hold()
        with pytest.raises(gr.ChildStillEnding):
            await runtime.ref("sup").terminate_child("stuck")
        await anyio.sleep(2 * AGAIN)
        before = list(seen)
        stuck.until.set()
        await settle()
        assert before == []
        assert kinds(seen) == {"sup/stuck": "killed"}


async def test_p03_a_group_restart_waits_for_it_and_says_for_what() -> None:
    log = Log()
    stuck = Stuck(log.child("a"), strategy="one_for_all")
    async with stuck.runtime as runtime:
        await stuck.take_hold()
        log.take()
        runtime.ref("sup/a").tell(Crash())
        await anyio.sleep(UNTIL_STUCK + 2 * AGAIN)
        waiting = [event for event in stuck.events.pending() if isinstance(event, gr.RestartWaiting)]
        while_it_waits = log.take()
        stuck.until.set()
        await settle()
        assert [(event.path, event.waits_for) for event in waiting] == [("sup/a", ("sup/stuck",))]
        assert while_it_waits == ["die a"]
        assert log.take() == ["start a"]
        assert runtime.ref("sup/stuck").incarnation == 2


async def test_p03_administration_is_served_while_a_group_restart_waits() -> None:
    log = Log()
    stuck = Stuck(log.child("a"), strategy="one_for_all")
    async with stuck.runtime as runtime:
        await stuck.take_hold()
        runtime.ref("sup/a").tell(Crash())
        await anyio.sleep(UNTIL_STUCK + 1)
        assert await states(runtime.ref("sup")) == {"a": "restarting", "stuck": "stuck"}
        await runtime.ref("sup").start_child(log.child("new"))
        assert (await states(runtime.ref("sup")))["new"] == "running"
        stuck.until.set()


async def test_p03_other_subtrees_go_on() -> None:
    log = Log()
    stuck = Stuck(log.child("b", restart="temporary"))
    tree = gr.Supervisor(
        "top", log.child("elsewhere"), gr.Supervisor("sup", gr.Child("stuck", Swallower, shutdown=1.0))
    )
    runtime = gr.Runtime(tree)
    async with runtime:
        runtime.ref("top/sup/stuck").tell(Swallow(stuck.until, stuck.resumed))
        await settle()
        with pytest.raises(gr.ChildStillEnding):
            await runtime.ref("top").terminate_child("sup")
        log.take()
        runtime.ref("top/elsewhere").tell(Crash())
        await settle()
        assert log.take() == ["die elsewhere", "start elsewhere"]
        stuck.until.set()


async def test_p03_a_supervisor_with_a_stuck_child_is_stuck_itself() -> None:
    log = Log()
    tree = gr.Supervisor("top", gr.Supervisor("sup", log.child("stuck", shutdown=SHUTDOWN)))
    runtime = gr.Runtime(tree)
    with released() as never:
        async with runtime:
            runtime.ref("top/sup/stuck").tell(Hold(never, swallow=True))
            await settle()
            with pytest.raises(gr.ChildStillEnding):
                await runtime.ref("top").terminate_child("sup")
            node = runtime.tree().find("top/sup")
            assert node is not None
            assert node.state is gr.State.STUCK
            never.set()
            await settle()
            assert await states(runtime.ref("top")) == {"sup": "down"}


# --------------------------------------------------------------------------------------------------- the block waits


async def test_p04_an_embedded_block_does_not_return_while_a_task_child_runs() -> None:
    stuck = Stuck()
    hours = 3600.0
    began = anyio.current_time()
    async with anyio.create_task_group() as group:

        async def release() -> None:
            await anyio.sleep(hours)
            stuck.until.set()

        group.start_soon(release)
        async with stuck.runtime:
            await stuck.take_hold()
        assert anyio.current_time() - began == pytest.approx(hours)


async def test_p04_it_says_that_it_waits_and_for_what(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "greenroom.runtime")
    stuck = Stuck()
    async with stuck.runtime:
        await stuck.take_hold()
        stuck.runtime.request_stop()
        await anyio.sleep(UNTIL_STUCK + 1)
        lines = [record.getMessage() for record in caplog.records if record.name == "greenroom.runtime"]
        stuck.until.set()
    assert len(lines) == 1
    assert "waiting for what is stuck" in lines[0]
    assert "stuck: sup/stuck" in lines[0]


async def test_p04_cancelling_the_host_does_not_let_it_return_either() -> None:
    stuck = Stuck()
    later: list[float] = []
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def release() -> None:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(100)
                later.append(anyio.current_time())
                stuck.until.set()

            group.start_soon(release)
            async with stuck.runtime:
                await stuck.take_hold()
                scope.cancel()
    assert later
    assert anyio.current_time() >= later[0]
    assert stuck.runtime.exit == gr.Exit("shutdown")


ESCALATIONS: list[tuple[str, Callable[[gr.Runtime], object]]] = [
    ("stop requests", lambda runtime: [runtime.request_stop() for _ in range(5)]),
]


@pytest.mark.parametrize(("_name", "escalate"), ESCALATIONS)
async def test_p01_no_stage_ends_or_abandons_a_task_that_swallows(
    _name: str, escalate: Callable[[gr.Runtime], object]
) -> None:
    stuck = Stuck()
    async with stuck.runtime as runtime:
        await stuck.take_hold()
        escalate(runtime)
        await anyio.sleep(UNTIL_STUCK + 1)
        report = runtime.report
        assert report is not None
        assert (report.stage, report.stuck) == (gr.Stage.EXIT, ("sup/stuck",))
        assert (report.killed, report.abandoned) == ((), ())
        stuck.until.set()
