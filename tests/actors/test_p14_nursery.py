"""P14: the actor's own nursery. What it starts ends with the actor; a crash in it is the actor's crash."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

import greenroom as gr
from greenroom.testing import VirtualClock
from tests.actors.helpers import Boom, Do, Fail, Note, Puppet, events_of, idle, node, raised, tree

Work = Callable[..., Awaitable[object]]


def start(work: Work, *args: object) -> Do:
    """A message that makes the puppet start this in its nursery."""

    async def start_it(self: Puppet) -> None:
        self.context.nursery.start_soon(work, *args)

    return Do(start_it)


async def test_p14_the_nursery_runs_what_it_is_given_beside_the_actor() -> None:
    ran: list[tuple[str, float]] = []

    async def work(name: str, seconds: float) -> None:
        await anyio.sleep(seconds)
        ran.append((name, anyio.current_time()))

    async with tree(gr.Child("a", Puppet)) as runtime:
        ref = runtime.ref("app/a")
        await ref.ask(start(work, "slow", 2))
        await ref.ask(start(work, "quick", 1))
        assert await ref.ask(Note("meanwhile")) == 1
        await anyio.sleep(3)
        assert ran == [("quick", 1.0), ("slow", 2.0)]


async def test_p14_what_is_started_before_the_nursery_runs_is_queued_in_order() -> None:
    ran: list[int] = []

    async def work(number: int) -> None:
        ran.append(number)

    class Early(Puppet):
        def __init__(self) -> None:
            self.log = []
            self.context.nursery.start_soon(work, 1)

        async def on_start(self) -> None:
            self.context.nursery.start_soon(work, 2)
            self.context.nursery.start_soon(work, 3)
            assert ran == []

    async with tree(gr.Child("a", Early)):
        await idle()
        assert sorted(ran) == [1, 2, 3]


async def test_p14_a_crash_in_the_nursery_is_the_actors_crash() -> None:
    boom = Boom("in the nursery")

    async def crash() -> None:
        raise boom

    async with tree(gr.Child("a", Puppet)) as runtime:
        events = runtime.events()
        ref = runtime.ref("app/a")
        await ref.ask(start(crash))
        await idle()
        assert [event.exit for event in events_of(gr.ActorEnded, events)] == [gr.Exit("error", boom)]
        assert (await ref.ask(Note("restarted")), ref.incarnation) == (1, 2)


async def test_p14_a_crash_in_the_nursery_ends_the_handler_in_hand_and_its_asker_gets_the_cause() -> None:
    boom = Boom("in the nursery")

    async def crash() -> None:
        await anyio.sleep(1)
        raise boom

    async def wait(self: Puppet) -> None:
        self.context.nursery.start_soon(crash)
        await anyio.sleep(100)

    async with tree(gr.Child("a", Puppet)) as runtime:
        error = await raised(runtime.ref("app/a").ask(Do(wait), timeout=50))
        assert isinstance(error, gr.ActorCrashed)
        assert error.__cause__ is boom
        assert "crashed while it handled a Do" in str(error)


async def test_p15_several_crashes_in_the_nursery_are_one_exit() -> None:
    async def crash(error: Exception) -> None:
        try:
            await anyio.sleep(1)
        finally:
            raise error

    async with tree(gr.Child("a", Puppet)) as runtime:
        events = runtime.events()
        ref = runtime.ref("app/a")
        one, other = Boom("one"), Boom("other")
        await ref.ask(start(crash, one))
        await ref.ask(start(crash, other))
        await anyio.sleep(2)
        [ended] = events_of(gr.ActorEnded, events)
        assert isinstance(ended.exit.cause, BaseExceptionGroup)
        assert set(ended.exit.cause.exceptions) == {one, other}
        assert ref.incarnation == 2


async def test_p14_a_crash_in_the_nursery_during_on_start_fails_the_start() -> None:
    class Early(Puppet):
        async def on_start(self) -> None:
            async def crash() -> None:
                raise Boom("early")

            self.context.nursery.start_soon(crash)
            await anyio.sleep(10)

    with pytest.raises(gr.StartFailed) as caught:
        async with tree(gr.Child("a", Early)):
            raise AssertionError("it must not start")
    assert isinstance(caught.value.__cause__, Boom)


async def test_stop_in_the_nursery_is_a_normal_end() -> None:
    async def stop() -> None:
        raise gr.Stop

    async with tree(gr.Child("a", Puppet, restart="transient")) as runtime:
        events = runtime.events()
        await runtime.ref("app/a").ask(start(stop))
        await idle()
        assert [event.exit for event in events_of(gr.ActorEnded, events)] == [gr.Exit("normal")]


async def test_p14_what_the_nursery_runs_is_cancelled_and_awaited_before_the_actor_has_ended() -> None:
    story: list[str] = []

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(1)
            story.append("work has ended")

    class Watched(Puppet):
        async def on_stop(self, exit: gr.Exit) -> None:
            story.append("on_stop")

    async with tree(gr.Child("a", Watched)) as runtime:
        await runtime.ref("app/a").ask(start(work))
        await idle()
        await runtime.ref("app").terminate_child("a")
        story.append("terminated")
    assert story == ["work has ended", "on_stop", "terminated"]


async def test_p14_no_new_incarnation_starts_while_the_old_nursery_still_runs() -> None:
    story: list[str] = []

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(1)
            story.append("old work has ended")

    class Watched(Puppet):
        async def on_start(self) -> None:
            story.append(f"start {self.context.incarnation}")

    async with tree(gr.Child("a", Watched)) as runtime:
        ref = runtime.ref("app/a")
        await ref.ask(start(work))
        await raised(ref.ask(Fail(Boom())))
        await ref.ask(Note("x"))
    assert story == ["start 1", "old work has ended", "start 2"]


async def test_p14_a_failure_while_the_nursery_is_cleaned_up_at_a_stop_is_the_exit() -> None:
    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise Boom("while cleaning up")

    async with tree(gr.Child("a", Puppet)) as runtime:
        events = runtime.events()
        await runtime.ref("app/a").ask(start(work))
        await idle()
        await runtime.ref("app").terminate_child("a")
        [ended] = events_of(gr.ActorEnded, events)
        assert (ended.exit.kind, str(ended.exit.cause)) == ("error", "while cleaning up")


async def test_p14_after_the_end_the_nursery_starts_nothing_more() -> None:
    contexts: list[gr.Context] = []

    class Leaks(Puppet):
        def __init__(self) -> None:
            self.log = []
            contexts.append(self.context)

    async def work() -> None:
        raise AssertionError("it must not run")

    async with tree(gr.Child("a", Leaks)) as runtime:
        await runtime.ref("app").terminate_child("a")
        with pytest.raises(gr.Misuse, match="'app/a' is ending: its nursery starts nothing more"):
            contexts[0].nursery.start_soon(work)


@pytest.mark.parametrize("used_before", [True, False])
async def test_p14_in_on_stop_the_nursery_starts_nothing_more_and_the_actor_ends(used_before: bool) -> None:
    errors: list[BaseException] = []

    async def work() -> None: ...

    class Late(Puppet):
        async def on_stop(self, exit: gr.Exit) -> None:
            try:
                self.context.nursery.start_soon(work)
            except gr.Misuse as error:
                errors.append(error)

    async with tree(gr.Child("a", Late)) as runtime:
        if used_before:
            await runtime.ref("app/a").ask(start(work))
        await runtime.ref("app").terminate_child("a")
        assert len(errors) == 1


async def test_p14_an_actor_with_a_nursery_can_be_stopped_again_and_again(clock: VirtualClock) -> None:
    async def forever() -> None:
        await anyio.sleep_forever()

    async with tree(gr.Child("a", Puppet)) as runtime:
        ref = runtime.ref("app/a")
        for _ in range(20):
            await ref.ask(start(forever))
            await raised(ref.ask(Fail(Boom())))
        assert (await ref.ask(Note("x")), ref.incarnation) == (1, 21)
        assert clock.now() == 0.0


async def test_p14_a_nursery_is_one_of_an_incarnation() -> None:
    ran: list[int] = []

    async def tick(self: Any) -> None:
        while True:
            ran.append(self.context.incarnation)
            await anyio.sleep(1)

    class Ticks(Puppet):
        async def on_start(self) -> None:
            self.context.nursery.start_soon(tick, self)

    async with tree(gr.Child("a", Ticks)) as runtime:
        await anyio.sleep(2.5)
        await raised(runtime.ref("app/a").ask(Fail(Boom())))
        await anyio.sleep(1.25)
    assert ran == [1, 1, 1, 2, 2]


async def test_p25_a_thread_child_has_no_nursery_on_the_loop() -> None:
    class Blocking(gr.Actor):
        @gr.handles
        def note(self, message: Note) -> int:
            self.context.nursery.start_soon(anyio.sleep, 1)
            return 1

    async with tree(gr.Child("a", Blocking, isolation="thread")) as runtime:
        error = await raised(runtime.ref("app/a").ask(Note("x"), timeout=None))
        assert isinstance(error, gr.ActorCrashed)
        assert "'app/a' runs on a thread or in a process: it has no nursery on the event loop" in str(error.__cause__)


async def test_a_nursery_called_from_another_thread_names_the_way_out() -> None:
    async def start_elsewhere(self: Puppet) -> BaseException:
        def work() -> BaseException:
            try:
                self.context.nursery.start_soon(anyio.sleep, 1)
            except gr.WrongThread as error:
                return error
            raise AssertionError

        return await anyio.to_thread.run_sync(work)

    async with tree(gr.Child("a", Puppet)) as runtime:
        error = await runtime.ref("app/a").ask(Do(start_elsewhere), timeout=None)
        assert "runtime.from_thread.call" in str(error)
        assert node(runtime, "app/a").state is gr.State.RUNNING


async def test_p01_an_actor_that_is_stuck_in_its_nursery_is_reported_with_the_stack_of_that_task() -> None:
    released = anyio.Event()

    async def stubborn_work() -> None:
        while not released.is_set():
            with contextlib.suppress(BaseException):  # it swallows its cancellation
                await anyio.sleep(1)

    async with tree(gr.Child("a", Puppet, shutdown=1.0)) as runtime:
        await runtime.ref("app/a").ask(start(stubborn_work))
        with runtime.events() as events:
            runtime.request_stop()
            async for event in events:
                if isinstance(event, gr.ActorStuck):
                    assert "stubborn_work" in event.stack
                    break
        released.set()
