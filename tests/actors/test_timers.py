"""Timers: keyed, of one incarnation, and never in the way of messages (DESIGN section 3, P18, P21)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

import greenroom as gr
from greenroom.testing import VirtualClock
from tests.actors.helpers import Boom, Do, Fail, Hold, Note, Puppet, idle, node, raised, tree


class Ticking(Puppet):
    """Logs each note with the second it was handled at."""

    @gr.handles
    async def note(self, message: Note) -> int:
        self.log.append((message.what, anyio.current_time()))
        return len(self.log)


def act(function: Callable[[gr.Context], object]) -> Do:
    """A message that makes the puppet do something with its context."""

    async def do(self: Puppet) -> None:
        function(self.context)

    return Do(do)


def cancel_both(context: gr.Context) -> None:
    context.cancel("a")
    context.cancel("e")


class One:
    """`app/a`, and the log of its ticks."""

    def __init__(self, **options: Any) -> None:
        self.log: list[Any] = []
        self._manager = tree(gr.Child("a", Ticking, self.log, **options))

    async def __aenter__(self) -> One:
        self.runtime = await self._manager.__aenter__()
        self.ref = self.runtime.ref("app/a")
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._manager.__aexit__(*error)

    async def act(self, function: Callable[[gr.Context], object]) -> None:
        await self.ref.ask(act(function))


async def test_a_timer_ticks_once_at_its_time() -> None:
    async with One() as one:
        await one.act(lambda context: context.after(2.5, Note("tick")))
        await anyio.sleep(100)
        assert one.log == [("tick", 2.5)]


async def test_a_timer_of_zero_seconds_ticks_after_the_message_in_hand() -> None:
    async with One() as one:
        await one.act(lambda context: context.after(0, Note("tick")))
        await idle()
        assert one.log == [("tick", 0.0)]


async def test_a_periodic_timer_ticks_first_after_one_period_and_does_not_drift() -> None:
    async with One() as one:
        await one.act(lambda context: context.every(10, Note("tick")))
        await anyio.sleep(45)
        assert one.log == [("tick", 10.0), ("tick", 20.0), ("tick", 30.0), ("tick", 40.0)]


async def test_a_periodic_timer_keeps_its_moments_though_the_actor_is_late() -> None:
    hold = Hold()
    async with One() as one:
        await one.act(lambda context: context.every(10, Note("tick")))
        await anyio.sleep(5)
        one.ref.tell(hold)
        await anyio.sleep(8)
        hold.until.set()
        await anyio.sleep(10)
        assert one.log == [("tick", 13.0), ("tick", 20.0)]


async def test_a_slow_actor_is_not_flooded_by_a_periodic_timer() -> None:
    hold = Hold()
    async with One() as one:
        await one.act(lambda context: context.every(1, Note("tick")))
        one.ref.tell(hold)
        await anyio.sleep(100.5)
        assert node(one.runtime, "app/a").mailbox_depth == 1
        hold.until.set()
        await anyio.sleep(1)
        assert one.log == [("tick", 100.5), ("tick", 101.0)]


async def test_timers_without_a_key_are_independent() -> None:
    def set_three(context: gr.Context) -> None:
        for seconds in (3, 1, 2):
            context.after(seconds, Note(seconds))

    async with One() as one:
        await one.act(set_three)
        await anyio.sleep(5)
        assert one.log == [(1, 1.0), (2, 2.0), (3, 3.0)]


async def test_ticks_of_one_moment_come_in_the_order_the_timers_were_set() -> None:
    def set_many(context: gr.Context) -> None:
        for number in range(20):
            context.after(1, Note(number))

    async with One() as one:
        await one.act(set_many)
        await anyio.sleep(5)
        assert [what for what, _ in one.log] == list(range(20))


async def test_a_key_replaces_the_timer_of_that_key() -> None:
    def replace(context: gr.Context) -> None:
        context.after(1, Note("first"), key="k")
        context.every(3, Note("second"), key="k")
        context.after(2, Note("other"), key="other")

    async with One() as one:
        await one.act(replace)
        await anyio.sleep(4)
        assert one.log == [("other", 2.0), ("second", 3.0)]


async def test_a_cancelled_timer_never_ticks() -> None:
    async with One() as one:
        await one.act(lambda context: context.after(1, Note("after"), key="a"))
        await one.act(lambda context: context.every(1, Note("every"), key="e"))
        await one.act(cancel_both)
        await anyio.sleep(10)
        assert one.log == []


async def test_cancelling_an_unknown_key_does_nothing() -> None:
    async with One() as one:
        await one.act(lambda context: context.cancel("no such key"))
        await one.act(lambda context: context.after(1, Note("tick"), key="k"))
        await anyio.sleep(2)
        await one.act(lambda context: context.cancel("k"))
        assert one.log == [("tick", 1.0)]


async def test_a_queued_tick_of_a_cancelled_timer_is_not_delivered() -> None:
    hold = Hold()
    async with One() as one:
        await one.act(lambda context: context.after(1, Note("after"), key="a"))
        await one.act(lambda context: context.every(1, Note("every"), key="e"))
        one.ref.tell(hold)
        one.ref.tell(act(cancel_both))
        await anyio.sleep(2)
        hold.until.set()
        await anyio.sleep(5)
        assert one.log == []


async def test_a_queued_tick_of_a_replaced_timer_is_not_delivered() -> None:
    hold = Hold()
    async with One() as one:
        await one.act(lambda context: context.after(1, Note("old"), key="k"))
        one.ref.tell(hold)
        one.ref.tell(act(lambda context: context.after(5, Note("new"), key="k")))
        await anyio.sleep(2)
        hold.until.set()
        await anyio.sleep(10)
        assert one.log == [("new", 7.0)]


async def test_a_periodic_timer_may_be_cancelled_by_its_own_tick() -> None:
    class Once(Ticking):
        async def note(self, message: Note) -> int:
            self.context.cancel("k")
            return await super().note(message)

    log: list[Any] = []
    async with tree(gr.Child("a", Once, log)) as runtime:
        await runtime.ref("app/a").ask(act(lambda context: context.every(1, Note("tick"), key="k")))
        await anyio.sleep(10)
        assert log == [("tick", 1.0)]


async def test_a_timer_may_be_set_again_by_its_own_tick() -> None:
    class Again(Ticking):
        async def note(self, message: Note) -> int:
            self.context.after(2, message, key="k")
            return await super().note(message)

    log: list[Any] = []
    async with tree(gr.Child("a", Again, log)) as runtime:
        await runtime.ref("app/a").ask(act(lambda context: context.after(1, Note("tick"), key="k")))
        await anyio.sleep(6)
        assert [at for _, at in log] == [1.0, 3.0, 5.0]


async def test_timers_die_with_their_incarnation() -> None:
    async with One() as one:
        await one.act(lambda context: context.every(1, Note("every")))
        await one.act(lambda context: context.after(2, Note("after")))
        await raised(one.ref.ask(Fail(Boom())))
        await anyio.sleep(10)
        assert one.log == []


async def test_a_tick_queued_for_the_last_incarnation_is_not_delivered_to_the_next() -> None:
    hold = Hold()
    async with One() as one:
        await one.act(lambda context: context.after(1, Note("tick")))
        one.ref.tell(hold)
        one.ref.tell(Fail(Boom()))
        await anyio.sleep(2)
        hold.until.set()
        await anyio.sleep(2)
        assert (one.log, one.ref.incarnation) == ([], 2)


async def test_a_tick_queued_for_an_actor_that_ends_is_no_dead_letter() -> None:
    hold = Hold()
    async with One() as one, anyio.create_task_group() as group:
        await one.act(lambda context: context.after(1, Note("tick")))
        one.ref.tell(hold)
        await anyio.sleep(2)
        group.start_soon(one.runtime.ref("app").terminate_child, "a")
        await idle()
        hold.until.set()
        await idle()
        assert one.runtime.dead_letter_counts() == {}


async def test_an_ended_context_sets_no_more_timers() -> None:
    contexts: list[gr.Context] = []
    async with One() as one:
        await one.act(contexts.append)
        await raised(one.ref.ask(Fail(Boom())))
        await idle()
        with pytest.raises(gr.Misuse, match="'app/a' has ended: it sets no more timers"):
            contexts[0].after(1, Note("tick"))


async def test_timers_set_in_on_start_tick() -> None:
    class Early(Ticking):
        async def on_start(self) -> None:
            self.context.every(1, Note("tick"))
            await anyio.sleep(2.5)

    log: list[Any] = []
    async with tree(gr.Child("a", Early, log)):
        await anyio.sleep(1)
        assert log == [("tick", 2.5), ("tick", 3.0)]


@pytest.mark.parametrize("seconds", [-1, float("nan")])
async def test_a_delay_that_is_no_time_is_refused(seconds: float) -> None:
    async with One() as one:
        for call in ("after", "every"):
            error = await raised(one.act(lambda context, call=call: getattr(context, call)(seconds, Note("x"))))  # type: ignore[misc]
            assert isinstance(error.__cause__, ValueError)
            assert "is a number of seconds, 0 or more" in str(error.__cause__)


async def test_a_period_of_zero_is_refused() -> None:
    async with One() as one:
        error = await raised(one.act(lambda context: context.every(0, Note("x"))))
        assert "period=0: a timer's period is above 0 seconds" in str(error.__cause__)


async def test_a_timer_for_no_message_is_refused_when_it_is_set() -> None:
    async with One() as one:
        error = await raised(one.act(lambda context: context.after(1, "tick")))  # type: ignore[arg-type]  # under test
        assert isinstance(error.__cause__, gr.NotAMessage)


async def test_ten_thousand_timers_set_and_cancelled_leave_nothing_behind(clock: VirtualClock) -> None:
    def churn(context: gr.Context) -> None:
        for number in range(10_000):
            context.after(1000 + number, Note(number), key="k")

    async with One() as one:
        await one.act(churn)
        heap = one.runtime.ref("app")._cell.services.timers._heap
        assert len(heap) < 5_000
        assert clock.now() == 0.0
