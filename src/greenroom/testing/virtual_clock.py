"""The virtual clock: tests of minutes and days that take milliseconds, the same on both event loops."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, TypeVarTuple, Unpack

import anyio

from greenroom.errors import Misuse
from greenroom.testing.asyncio_loop import VirtualTimeLoop
from greenroom.testing.timeline import Hold, Timeline
from greenroom.testing.trio_clock import JumpingClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Backend: TypeAlias = Literal["asyncio", "trio"]


class VirtualClock:
    """A clock that stands while anything runs, and jumps to the next timer when every event-loop task waits.

    It starts at 0.0 and serves one run. The event loop under it is asyncio's or trio's own: cancel scopes, deadlines,
    `anyio.current_time` and `loop.time` all speak virtual seconds.

    What is outstanding outside the loop keeps it from jumping, if it is known:

    * Worker threads that a task waits for are seen: `anyio.to_thread` (on asyncio with its default limiter),
      `trio.to_thread`, `loop.run_in_executor`. Such a thread must not in turn wait for virtual time to pass (say, by
      `anyio.from_thread.run(anyio.sleep, 1)`): each would wait for the other.
    * For threads of your own, child processes and everything else that works in real time, keep `hold()`.
    * Sockets and pipes are served whenever they are ready, and never hold the time: a server that listens would stop
      it for ever.

    A loop that is never idle would never see its next timer. So after 10,000 turns without a pause each further turn
    brings it a virtual millisecond nearer: code that spins (a task that swallows its cancellation does) still meets its
    deadlines, and they still come at their exact second.

    Args:
        patience: real seconds (above 0) to listen when every task waits, no timer is set, and neither hold, thread nor
            descriptor is outstanding. After them the run is cancelled and raises `Deadlock`. `math.inf`: wait for ever.
        seed: which of the tasks that could run runs next is decided by it: the same seed gives the same order, as far as
            nothing outside the loop wakes a task, and other seeds other orders. None leaves it to the loop, which takes
            turns on asyncio, and throws coins on trio. Trio has one scheduler for the whole process: run one such clock
            at a time.
    Raises:
        Misuse: if `patience` is not above 0.
    """

    def __init__(self, *, patience: float = 5.0, seed: int | None = None) -> None:
        if not patience > 0:
            raise Misuse(f"patience is {patience!r}; it must be a number of real seconds above 0")
        self._timeline = Timeline(self, patience=patience, seed=seed)
        self._claimed = False

    def now(self) -> float:
        """Virtual seconds since the run began; 0.0 before it."""
        return self._timeline.now

    def hold(self) -> Hold:
        """Keep time from jumping inside a `with` block, while something works in real time.

        Holds are counted: time moves again when the last one is gone. Real input and calls from other threads
        (`loop.call_soon_threadsafe`, `trio.from_thread`) are served meanwhile, and wake the loop.

        Raises:
            Misuse: on entering or leaving it in another thread than the event loop's.
        """
        return Hold(self._timeline)

    def lift_hold(self) -> Hold:
        """Let time pass inside a `with` block although somebody keeps one hold, with nothing to do in real time meanwhile.

        It cancels one hold out. For a store that is to seem slow: it keeps the time while it works.
        """
        return Hold(self._timeline, by=-1)

    async def wait_idle(self) -> None:
        """Wait until every other event-loop task waits. No time passes, and a hold does not matter.

        For tests that start something and want to see how far it gets. (`anyio.wait_all_tasks_blocked` does it on
        asyncio by sleeping: time moves, or under a hold it never returns.)

        Raises:
            Misuse: outside of a run under this clock.
        """
        if self._timeline.wait_idle is None:
            raise Misuse("wait_idle() works inside a run under this clock; start one with run()")
        await self._timeline.wait_idle()

    def run(self, async_fn: Callable[[Unpack[Ts]], Awaitable[T]], *args: Unpack[Ts], backend: Backend = "asyncio") -> T:
        """Run `async_fn(*args)` in a new event loop under this clock, and return what it returns.

        Raises:
            Deadlock: if nothing could wake the run any more; what it raised while it was cancelled is chained.
            Misuse: if the clock has been used before, or `backend` is no backend.
        """
        options = self.backend_options(backend)
        timeline = self._timeline

        async def main() -> T | None:
            with anyio.CancelScope() as scope:
                timeline.cancel_run = scope.cancel
                return await async_fn(*args)
            return None

        try:
            result = anyio.run(main, backend=backend, backend_options=options)
        except BaseException as error:
            if timeline.deadlock in (None, error) or isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            raise timeline.deadlock from error
        if timeline.deadlock is not None:
            raise timeline.deadlock
        return result  # type: ignore[return-value]  # None stands for "cancelled", and only a deadlock cancels

    def backend_options(self, backend: str) -> dict[str, Any]:
        """The `backend_options` for `anyio.run` and for anyio's pytest plugin; they serve one run.

        A run that nothing can wake is broken off there without being cancelled first: `Deadlock` comes out of the loop
        of an asyncio run, and is raised in the waiting tasks of a trio run.

        Raises:
            Misuse: if the clock has been used before, or `backend` is neither "asyncio" nor "trio".
        """
        options: dict[str, Any]
        match backend:
            case "asyncio":
                options = {"loop_factory": partial(VirtualTimeLoop, self._timeline)}
            case "trio":
                options = {"clock": JumpingClock(self._timeline)}
            case _:
                raise Misuse(f"backend is {backend!r}; a VirtualClock runs on 'asyncio' and on 'trio'")
        if self._claimed:
            raise Misuse("this VirtualClock has already served a run; make a new VirtualClock for each run")
        self._claimed = True
        return options
