"""P21: an actor under a flood can be cancelled and lets others run: at most 64 messages in a row."""

from __future__ import annotations

from typing import Any

import anyio
import attrs
import pytest

import greenroom as gr
from greenroom.testing import VirtualClock
from tests.actors.helpers import Do, Hold, Note, Puppet, idle, node, tree


@attrs.frozen
class Again(gr.Message[None]):
    pass


@attrs.frozen
class Beside(gr.Message[None]):
    pass


class Flooded(gr.Actor):
    """Sends itself a message for each it handles, without end; `handled` counts."""

    def __init__(self, handled: list[int]) -> None:
        self.handled = handled

    async def on_start(self) -> None:
        self.context.ref.tell(Again())

    @gr.handles
    async def again(self, message: Again) -> None:
        self.handled[0] += 1
        self.context.ref.tell(message)

    @gr.handles(concurrency=2)
    async def beside(self, message: Beside) -> None:
        self.handled[0] += 1
        self.context.ref.tell(message)


def assert_others_ran(seen: list[int]) -> None:
    """Counts of messages handled, looked at once in each turn of the loop (trio's turns run tasks in any order)."""
    assert all(handled - seen[0] <= 64 * (turn + 2) for turn, handled in enumerate(seen)), seen


async def test_p21_a_flooded_actor_handles_at_most_64_messages_before_others_run() -> None:
    handled = [0]
    async with tree(gr.Child("a", Flooded, handled, shutdown="kill")):
        seen = []
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
            seen.append(handled[0])
        assert_others_ran(seen)
        assert seen[-1] > 2000


async def test_p21_a_flooded_actor_stops_on_request(clock: VirtualClock) -> None:
    handled = [0]
    async with tree(gr.Child("a", Flooded, handled)) as runtime:
        await anyio.lowlevel.checkpoint()
        await runtime.ref("app").terminate_child("a")
        assert clock.now() == 0.0
        assert runtime.dead_letter_counts() == {("app/a", gr.DeadLetterReason.ENDED): 1}


@pytest.mark.parametrize("shutdown", [0, "kill", 5.0])
async def test_p21_a_flooded_actor_can_be_cancelled(shutdown: float, clock: VirtualClock) -> None:
    handled = [0]
    async with tree(gr.Child("a", Flooded, handled, shutdown=shutdown)) as runtime:
        await anyio.lowlevel.checkpoint()
        life = runtime.ref("app/a")._cell.life
        assert life is not None
        life.cancel()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        assert runtime.ref("app/a").incarnation == 2
        await runtime.ref("app").terminate_child("a")
        assert clock.now() == 0.0


async def test_p21_a_draining_actor_that_floods_itself_is_cut_off_by_its_shutdown_time(clock: VirtualClock) -> None:
    handled = [0]
    async with tree(gr.Child("a", Flooded, handled, drain=True, shutdown=1.0)) as runtime:
        await runtime.ref("app").terminate_child("a")
        assert 1.0 <= clock.now() < 1.1


async def test_p21_concurrent_handlers_that_flood_let_others_run() -> None:
    handled = [0]
    async with tree(gr.Child("a", Flooded, handled, shutdown="kill")) as runtime:
        for _ in range(10):
            runtime.ref("app/a").tell(Beside())
        seen = []
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
            seen.append(handled[0])
        assert_others_ran(seen)


async def test_p21_a_full_mailbox_is_worked_off_in_batches_that_let_others_run() -> None:
    log: list[int] = []

    class Counts(gr.Actor):
        @gr.handles
        async def note(self, message: Note) -> int:
            log.append(len(log))
            return 0

    async with tree(gr.Child("a", Counts)) as runtime:
        for number in range(1000):
            runtime.ref("app/a").tell(Note(number))
        seen: list[int] = []
        while len(log) < 1000:
            await anyio.lowlevel.checkpoint()
            seen.append(len(log))
        assert_others_ran(seen)


async def test_p21_messages_without_handler_let_others_run_too() -> None:
    class Deaf(gr.Actor):
        pass

    async with tree(gr.Child("a", Deaf)) as runtime:
        for number in range(1000):
            runtime.ref("app/a").tell(Note(number))
        counts: list[int] = []
        while not counts or counts[-1] < 1000:
            await anyio.lowlevel.checkpoint()
            counts.append(sum(runtime.dead_letter_counts().values()))
        assert_others_ran(counts)


async def test_p21_void_ticks_let_others_run_too() -> None:
    hold = Hold()
    async with tree(gr.Child("a", Puppet)) as runtime:
        runtime.ref("app/a").tell(hold)
        life: Any = runtime.ref("app/a")._cell.life
        await idle()
        taken = []
        for number in range(1000):
            life.context.after(0, Note(number), key=f"k{number}")
        await idle()
        for number in range(1000):
            life.context.cancel(f"k{number}")
        hold.until.set()
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
            taken.append(1000 - node(runtime, "app/a").mailbox_depth)
        assert taken[-1] == 1000
        assert_others_ran(taken)


async def test_p21_two_actors_that_answer_each_other_for_ever_can_be_stopped(clock: VirtualClock) -> None:
    class Ping(gr.Actor):
        def __init__(self, other: str) -> None:
            self.other = other

        @gr.handles
        async def again(self, message: Again) -> None:
            self.context.runtime.ref(self.other).tell(message)

    async with tree(gr.Child("a", Ping, "app/b"), gr.Child("b", Ping, "app/a")) as runtime:
        runtime.ref("app/a").tell(Again())
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
    assert clock.now() == 0.0


async def test_p21_an_actor_that_sends_itself_messages_in_a_loop_lets_others_run() -> None:
    async def send_on(self: Puppet) -> int:
        sent = 0
        with anyio.CancelScope() as scope:
            stop.append(scope.cancel)
            while sent < 10_000:
                await self.context.ref.send(Note(sent))
                sent += 1
        return sent

    stop: list[Any] = []
    child = gr.Child("a", Puppet, mailbox=gr.Mailbox(capacity=None))
    async with tree(child) as runtime, anyio.create_task_group() as group:

        async def cancel() -> None:
            while not stop:
                await anyio.lowlevel.checkpoint()
            stop[0]()

        group.start_soon(cancel)
        assert await runtime.ref("app/a").ask(Do(send_on)) <= 200


async def test_p21_an_idle_actor_does_nothing(clock: VirtualClock) -> None:
    async with tree(gr.Child("a", Flooded, [0])) as runtime:
        await runtime.ref("app").terminate_child("a")
        await idle()
        before = clock.now()
        await anyio.sleep(80_000)
        assert clock.now() == before + 80_000
