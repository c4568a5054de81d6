"""The bare loop: the least that could pass for an actor, and so the ceiling for ours.

A deque and one wake-up on the event loop's own primitives; one `await handler(message)` per message; what is queued is
handled before parking again. No bound, no timeout, no supervision, no dispatch by type, no checkpoint between messages;
the reply to an ask goes through the loop's own one-shot.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import attrs
import sniffio

from benchmarks.harness import Figures
from benchmarks.meters import FAN_OUT, RING, Bell, Countdown, meter_ask, meter_fan_out, meter_ring, meter_tell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import outcome
    import trio

Handler = Callable[[Any], Awaitable[Any]]


class BareActor(Protocol):
    """What both loops offer."""

    def tell(self, message: object) -> None: ...
    async def ask(self, message: object) -> Any: ...
    async def run(self) -> None: ...


class AsyncioActor:
    """The bare loop on asyncio (and uvloop): parked on a Future, replies by a Future."""

    __slots__ = ("_handler", "_loop", "_parked", "_queue")

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[object, asyncio.Future[Any] | None]] = deque()
        self._parked: asyncio.Future[None] | None = None

    def tell(self, message: object) -> None:
        self._queue.append((message, None))
        if self._parked is not None:
            self._wake(self._parked)

    async def ask(self, message: object) -> Any:
        reply: asyncio.Future[Any] = self._loop.create_future()
        self._queue.append((message, reply))
        if self._parked is not None:
            self._wake(self._parked)
        return await reply

    def _wake(self, parked: asyncio.Future[None]) -> None:
        self._parked = None
        parked.set_result(None)

    async def run(self) -> None:
        queue, handler = self._queue, self._handler
        while True:
            while queue:
                message, reply = queue.popleft()
                answer = await handler(message)
                if reply is not None:
                    reply.set_result(answer)
            self._parked = self._loop.create_future()
            await self._parked


class TrioActor:
    """The bare loop on trio: the event-loop task parks itself, the asker's task is the one-shot of its reply."""

    __slots__ = ("_handler", "_lowlevel", "_parked", "_queue", "_value")

    def __init__(self, handler: Handler) -> None:
        import outcome
        import trio

        self._handler = handler
        self._lowlevel = trio.lowlevel
        self._value = outcome.Value
        self._queue: deque[tuple[object, trio.lowlevel.Task | None]] = deque()
        self._parked: trio.lowlevel.Task | None = None

    def tell(self, message: object) -> None:
        self._queue.append((message, None))
        if self._parked is not None:
            self._wake(self._parked)

    async def ask(self, message: object) -> Any:
        self._queue.append((message, self._lowlevel.current_task()))
        if self._parked is not None:
            self._wake(self._parked)
        return await self._lowlevel.wait_task_rescheduled(self._refuse_abort)

    def _wake(self, parked: trio.lowlevel.Task) -> None:
        self._parked = None
        self._lowlevel.reschedule(parked)

    async def run(self) -> None:
        queue, handler = self._queue, self._handler
        reschedule, value = self._lowlevel.reschedule, self._value
        while True:
            while queue:
                message, asker = queue.popleft()
                answer = await handler(message)
                if asker is not None:
                    reschedule(asker, value(answer))
            self._parked = self._lowlevel.current_task()
            await self._lowlevel.wait_task_rescheduled(self._abort_parked)

    def _abort_parked(self, _: Callable[[], outcome.Outcome[object]]) -> trio.lowlevel.Abort:
        self._parked = None
        return self._lowlevel.Abort.SUCCEEDED

    def _refuse_abort(self, _: Callable[[], outcome.Outcome[object]]) -> trio.lowlevel.Abort:
        # No ask ends without its reply; or the reply would reschedule a task that waits for something else.
        return self._lowlevel.Abort.FAILED


def make_actor(handler: Handler) -> BareActor:
    """A bare actor for the event loop that runs."""
    return TrioActor(handler) if sniffio.current_async_library() == "trio" else AsyncioActor(handler)


def running(*actors: BareActor) -> AbstractAsyncContextManager[None]:
    """Run the actors' loops for as long as the block lasts."""
    return _running(actors)


@asynccontextmanager
async def _running(actors: tuple[BareActor, ...]) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        for actor in actors:
            group.start_soon(actor.run)
        yield
        group.cancel_scope.cancel()


@attrs.frozen
class Tick:
    """A message that asks for nothing."""


@attrs.frozen
class Last:
    """The last message of a burst."""


@attrs.frozen
class Echo:
    """A message with a value: answered with it, or ignored when it is only told."""

    value: int


async def tell(n: int) -> Figures:
    handled = Bell()
    last = Last()

    async def handle(message: object) -> None:
        if message is last:
            handled.ring()

    actor = make_actor(handle)
    async with running(actor):
        return await meter_tell(actor.tell, Echo, last, handled, n)


async def ask(n: int) -> Figures:
    async def handle(message: Echo) -> int:
        return message.value

    actor = make_actor(handle)
    async with running(actor):
        return await meter_ask(actor.ask, Echo(7), n)


async def fan_out(n: int) -> Figures:
    handled = Countdown()

    async def handle(message: object) -> None:
        handled.hit()

    actors = [make_actor(handle) for _ in range(FAN_OUT)]
    async with running(*actors):
        return await meter_fan_out([actor.tell for actor in actors], Tick(), handled, n)


async def ring(n: int) -> Figures:
    """The last actor counts the laps and keeps the token after the last one; the others only pass it on."""
    laps = Countdown(max(1, n // RING))
    hops = max(1, n // RING) * RING
    actors: list[BareActor] = []

    def pass_on(index: int) -> Handler:
        async def handle(token: object) -> None:
            if index == RING - 1 and laps.hit():
                return
            actors[(index + 1) % RING].tell(token)

        return handle

    actors.extend(make_actor(pass_on(index)) for index in range(RING))
    async with running(*actors):
        return await meter_ring(actors[0].tell, Tick(), laps.bell, hops)
