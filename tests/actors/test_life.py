"""`on_start` and `on_stop`: when they run, what they see, and how long they may take (DESIGN section 3, P16, P20)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import greenroom as gr
from greenroom.testing import VirtualClock
from tests.actors.helpers import Boom, Do, Fail, Hold, Note, Puppet, events_of, idle, raised, tree


class Told(Puppet):
    """Logs its starts and stops. `log` outlives it."""

    async def on_start(self) -> object:
        self.log.append("start")
        return None

    async def on_stop(self, exit: gr.Exit) -> None:
        self.log.append(exit)


async def busy_with(hold: Hold, ref: gr.Ref) -> None:
    """Give an actor something to hold, and return when it has it in hand."""
    ref.tell(hold)
    await hold.begun.wait()


# --------------------------------------------------------------------------------------------------------- starting


async def test_on_start_runs_before_the_first_message() -> None:
    class Slow(Told):
        async def on_start(self) -> None:
            await anyio.sleep(1)
            self.log.append("started")

    log: list[Any] = []
    async with tree() as runtime:
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.ref("app").start_child, gr.Child("a", Slow, log))
            await idle()
            runtime.ref("app/a").tell(Note("message"))
        await idle()
        assert log == ["started", "message"]


async def test_p20_what_on_start_returns_is_the_start_info() -> None:
    class Informs(Told):
        async def on_start(self) -> str:
            return "port 8080"

    async with tree() as runtime:
        started = await runtime.ref("app").start_child(gr.Child("a", Informs))
        assert started == gr.Started(runtime.ref("app/a"), "port 8080")


async def test_p20_ignore_out_of_on_start_leaves_the_child_down_without_an_error() -> None:
    class Ignores(Told):
        async def on_start(self) -> object:
            raise gr.Ignore

    log: list[Any] = []
    async with tree(gr.Child("a", Ignores, log), gr.Child("b", Puppet)) as runtime:
        [b, a] = await runtime.ref("app").which_children()
        assert (a.state, b.state) == (gr.State.DOWN, gr.State.RUNNING)
        error = await raised(runtime.ref("app/a").ask(Note("x")))
        assert "it had nothing to do (it raised Ignore at its start)" in str(error)
        assert log == []


@pytest.mark.parametrize("place", ["__init__", "on_start"])
async def test_what_is_raised_before_the_start_is_over_is_a_start_failure_with_its_cause(place: str) -> None:
    boom = Boom("too early")
    log: list[Any] = []

    class Fails(Told):
        def __init__(self) -> None:
            if place == "__init__":
                raise boom
            self.log = log

        async def on_start(self) -> object:
            raise boom

    with pytest.raises(gr.StartFailed, match=r"'app/a' could not be started: .*too early") as caught:
        async with tree(gr.Child("a", Fails)):
            raise AssertionError("it must not start")
    assert caught.value.__cause__ is boom
    assert log == []


@pytest.mark.parametrize("error", [gr.Rejected("no"), gr.Stop()])
async def test_what_has_a_meaning_in_handlers_has_none_in_on_start(error: Exception) -> None:
    class Fails(Told):
        async def on_start(self) -> object:
            raise error

    with pytest.raises(gr.StartFailed):
        async with tree(gr.Child("a", Fails)):
            raise AssertionError("it must not start")


async def test_a_handler_does_not_run_before_on_start_is_over_though_it_sends_itself_messages() -> None:
    class Eager(Told):
        async def on_start(self) -> None:
            self.context.ref.tell(Note("to myself"))
            await anyio.sleep(1)
            self.log.append("started")

    log: list[Any] = []
    async with tree(gr.Child("a", Eager, log)):
        await idle()
        assert log == ["started", "to myself"]


async def test_an_actor_may_stop_itself_in_on_start_and_then_ends_normally() -> None:
    class Brief(Told):
        async def on_start(self) -> None:
            self.context.stop()

    log: list[Any] = []
    async with tree(gr.Child("a", Brief, log, restart="transient")):
        await idle()
        assert log == [gr.Exit("normal")]


# --------------------------------------------------------------------------------------------------- what on_stop sees


async def test_on_stop_sees_a_stop_on_request() -> None:
    log: list[Any] = []
    async with tree(gr.Child("a", Told, log)):
        pass
    assert log == ["start", gr.Exit("shutdown")]


async def test_on_stop_sees_a_normal_end() -> None:
    log: list[Any] = []
    async with tree(gr.Child("a", Told, log, restart="transient")) as runtime:
        runtime.ref("app/a").tell(Fail(gr.Stop()))
        await idle()
        assert log == ["start", gr.Exit("normal")]


async def test_on_stop_sees_a_crash_with_its_cause_and_the_next_incarnation_starts_after_it() -> None:
    boom, log = Boom(), list[Any]()
    async with tree(gr.Child("a", Told, log)) as runtime:
        runtime.ref("app/a").tell(Fail(boom))
        await idle()
        assert log == ["start", gr.Exit("error", boom), "start"]


async def test_on_stop_sees_a_crash_of_the_nursery() -> None:
    boom, log = Boom(), list[Any]()

    async def crash() -> None:
        raise boom

    async def start(self: Puppet) -> None:
        self.context.nursery.start_soon(crash)

    async with tree(gr.Child("a", Told, log)) as runtime:
        runtime.ref("app/a").tell(Do(start))
        await idle()
        assert log == ["start", gr.Exit("error", boom), "start"]


async def test_on_stop_sees_that_the_actor_was_cancelled_after_its_shutdown_time(clock: VirtualClock) -> None:
    log: list[Any] = []
    async with tree(gr.Child("a", Told, log, shutdown=3.0)) as runtime:
        await busy_with(Hold(), runtime.ref("app/a"))
        await runtime.ref("app").terminate_child("a")
        assert (log, clock.now()) == (["start", gr.Exit("killed")], 3.0)


@pytest.mark.parametrize("shutdown", [0, "kill"])
async def test_p16_a_child_that_is_to_be_killed_gets_no_on_stop(shutdown: Any, clock: VirtualClock) -> None:
    log: list[Any] = []
    async with tree(gr.Child("a", Told, log, shutdown=shutdown)) as runtime:
        await busy_with(Hold(), runtime.ref("app/a"))
        events = runtime.events()
        await runtime.ref("app").terminate_child("a")
        assert (log, clock.now()) == (["start"], 0.0)
        assert [event.exit.kind for event in events_of(gr.ActorEnded, events)] == ["killed"]


async def test_on_stop_runs_once_though_it_fails() -> None:
    class FailsTwice(Told):
        async def on_stop(self, exit: gr.Exit) -> None:
            self.log.append(exit)
            raise Boom("in on_stop")

    log: list[Any] = []
    async with tree(gr.Child("a", FailsTwice, log)) as runtime:
        await runtime.ref("app").terminate_child("a")
        assert log == ["start", gr.Exit("shutdown")]


async def test_a_failure_of_on_stop_is_the_exit_of_a_clean_end() -> None:
    class Fails(Told):
        async def on_stop(self, exit: gr.Exit) -> None:
            raise Boom("in on_stop")

    async with tree(gr.Child("a", Fails)) as runtime:
        events = runtime.events()
        await runtime.ref("app").terminate_child("a")
        [ended] = events_of(gr.ActorEnded, events)
        assert (ended.exit.kind, str(ended.exit.cause)) == ("error", "in on_stop")


async def test_a_failure_of_on_stop_after_a_crash_does_not_hide_the_crash() -> None:
    class Fails(Told):
        async def on_stop(self, exit: gr.Exit) -> None:
            raise Boom("in on_stop")

    boom = Boom("first")
    async with tree(gr.Child("a", Fails)) as runtime:
        events = runtime.events()
        runtime.ref("app/a").tell(Fail(boom))
        await idle()
        assert events_of(gr.ActorEnded, events)[0].exit == gr.Exit("error", boom)


# ------------------------------------------------------------------------------------------------------ its bounds


class Lingers(Told):
    """Its `on_stop` takes `seconds` and logs when it was over or cancelled."""

    def __init__(self, log: list[Any], seconds: float) -> None:
        super().__init__(log)
        self.seconds = seconds

    async def on_stop(self, exit: gr.Exit) -> None:
        begun = anyio.current_time()
        how = "cancelled"
        try:
            await anyio.sleep(self.seconds)
            how = "over"
        finally:
            self.log.append((exit.kind, how, anyio.current_time() - begun))


async def test_p16_on_stop_runs_within_what_is_left_of_the_shutdown_time(clock: VirtualClock) -> None:
    begun = anyio.Event()

    async def busy(_: Puppet) -> None:
        begun.set()
        await anyio.sleep(2)

    log: list[Any] = []
    async with tree(gr.Child("a", Lingers, log, 100.0, shutdown=5.0)) as runtime:
        runtime.ref("app/a").tell(Do(busy))
        await begun.wait()
        await runtime.ref("app").terminate_child("a")
        assert (log, clock.now()) == (["start", ("shutdown", "cancelled", 3.0)], 5.0)


async def test_p16_on_stop_that_ends_in_time_is_not_disturbed(clock: VirtualClock) -> None:
    log: list[Any] = []
    async with tree(gr.Child("a", Lingers, log, 4.5, shutdown=5.0)) as runtime:
        await runtime.ref("app").terminate_child("a")
        assert (log, clock.now()) == (["start", ("shutdown", "over", 4.5)], 4.5)


async def test_p16_after_a_cancellation_on_stop_gets_the_kill_time_once(clock: VirtualClock) -> None:
    log: list[Any] = []
    async with tree(gr.Child("a", Lingers, log, 100.0, shutdown=5.0), kill_time=2.0) as runtime:
        await busy_with(Hold(), runtime.ref("app/a"))
        await runtime.ref("app").terminate_child("a")
        assert (log, clock.now()) == (["start", ("killed", "cancelled", 2.0)], 7.0)


async def test_p16_after_a_crash_on_stop_is_bounded_by_the_shutdown_time() -> None:
    boom, log = Boom(), list[Any]()
    async with tree(gr.Child("a", Lingers, log, 100.0, shutdown=3.0)) as runtime:
        events = runtime.events()
        runtime.ref("app/a").tell(Fail(boom))
        await anyio.sleep(4)
        assert log == ["start", ("error", "cancelled", 3.0), "start"]
        assert events_of(gr.ActorEnded, events)[0].exit == gr.Exit("error", boom)


async def test_p16_after_a_normal_end_on_stop_that_runs_out_of_time_makes_it_killed() -> None:
    log: list[Any] = []
    async with tree(gr.Child("a", Lingers, log, 100.0, shutdown=3.0, restart="temporary")) as runtime:
        events = runtime.events()
        runtime.ref("app/a").tell(Fail(gr.Stop()))
        await anyio.sleep(4)
        assert log == ["start", ("normal", "cancelled", 3.0)]
        assert [event.exit.kind for event in events_of(gr.ActorEnded, events)] == ["killed"]


async def test_p8_without_a_shutdown_time_on_stop_takes_as_long_as_it_takes(clock: VirtualClock) -> None:
    log: list[Any] = []
    async with tree(gr.Child("a", Lingers, log, 1000.0, shutdown=None)) as runtime:
        await runtime.ref("app").terminate_child("a")
        assert (log, clock.now()) == (["start", ("shutdown", "over", 1000.0)], 1000.0)


async def test_p16_a_stop_takes_effect_after_the_message_in_hand_and_its_reply(clock: VirtualClock) -> None:
    async def work(_: Puppet) -> str:
        await anyio.sleep(2)
        return "done"

    log: list[Any] = []
    async with tree(gr.Child("a", Told, log)) as runtime, anyio.create_task_group() as group:
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await runtime.ref("app/a").ask(Do(work)))

        group.start_soon(ask)
        await idle()
        await runtime.ref("app").terminate_child("a")
        await idle()
        assert answers == ["done"]
        assert log == ["start", gr.Exit("shutdown")]


async def test_on_stop_may_ask_other_actors() -> None:
    class Reports(Told):
        async def on_stop(self, exit: gr.Exit) -> None:
            self.log.append(await self.context.runtime.ref("app/other").ask(Note("goodbye")))

    log: list[Any] = []
    async with tree(gr.Child("other", Puppet), gr.Child("a", Reports, log)) as runtime:
        await runtime.ref("app").terminate_child("a")
        assert log == ["start", 1]


async def test_p15_a_keyboard_interrupt_in_a_handler_ends_the_tree_and_comes_out_of_the_block() -> None:
    log: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        async with tree(gr.Child("a", Told, log), gr.Child("b", Told, log)) as runtime:
            runtime.ref("app/a").tell(Fail(KeyboardInterrupt()))
            await anyio.sleep(100)
    assert log.count(gr.Exit("shutdown")) == 1  # b was stopped in order; a had its own end
