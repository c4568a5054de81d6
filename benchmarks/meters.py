"""The measuring loops. Every subject that lives on an event loop is driven by these same lines, so that only it
differs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from time import perf_counter, perf_counter_ns
from typing import TypeVar

import anyio

from benchmarks.harness import Figures, p50, p99

M = TypeVar("M")
L = TypeVar("L")

BURST = 5_000
"""How many messages are told before the teller waits for them: half of what a Greenroom mailbox holds by default."""

FAN_OUT = 1_000
"""How many actors a fan-out reaches."""

RING = 100
"""How many actors a ring has."""


def split_bursts(n: int) -> tuple[int, int]:
    """About n messages as (bursts, messages in each): none above BURST, so that a default mailbox never refuses one."""
    bursts = max(1, -(-n // BURST))
    return bursts, max(1, n // bursts)


class Bell:
    """Rung by a handler, waited for by the measuring loop, again and again."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = anyio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        """Wait until it was rung since the last wait."""
        await self._event.wait()
        self._event = anyio.Event()


class Countdown:
    """Rings its bell when it was hit as often as it was set to."""

    __slots__ = ("_left", "bell")

    def __init__(self, left: int = 0) -> None:
        self._left = left
        self.bell = Bell()

    def set(self, left: int) -> None:
        self._left = left

    def hit(self) -> bool:
        """Count one; True if it was the last, and the bell was rung."""
        self._left -= 1
        if self._left:
            return False
        self.bell.ring()
        return True


async def meter_tell(
    tell: Callable[[M | L], None], make: Callable[[int], M], last: L, handled: Bell, n: int
) -> Figures:
    """Messages handled per second when one teller fills the mailbox in bursts and waits for each burst.

    What `make` makes must cause its handler to do nothing, `last` to ring `handled`: what is measured is the way of a
    message, not the work it causes. For `tell`, the figure that is judged, each message is made when it is told, as
    programs do. For `tell_same` one message made beforehand is told again and again: what is left for the bare loop then is
    two operations on a deque, so this is the harder comparison, and shows best what Greenroom adds.
    """
    bursts, size = split_bursts(n)
    message = make(0)
    again = range(size - 1)
    begin = perf_counter()
    for _ in range(bursts):
        for _ in again:
            tell(message)
        tell(last)
        await handled.wait()
    between = perf_counter()
    for _ in range(bursts):
        for index in again:
            tell(make(index))
        tell(last)
        await handled.wait()
    end = perf_counter()
    return {"tell_same": bursts * size / (between - begin), "tell": bursts * size / (end - between)}


async def meter_ask(ask: Callable[[M], Awaitable[object]], message: M, n: int) -> Figures:
    """Round trips per second of one asker that waits for each reply, and how long one takes (p50, p99, in µs)."""
    marks = [0] * (n + 1)
    marks[0] = perf_counter_ns()
    for index in range(1, n + 1):
        await ask(message)
        marks[index] = perf_counter_ns()
    trips = [(after - before) / 1000 for before, after in pairwise(marks)]
    return {"ask": n / ((marks[-1] - marks[0]) / 1e9), "ask_p50": p50(trips), "ask_p99": p99(trips)}


async def meter_fan_out(tells: Sequence[Callable[[M], None]], message: M, handled: Countdown, n: int) -> Figures:
    """Messages handled per second when one teller tells each actor one message and waits until all are handled."""
    waves = max(1, n // len(tells))
    begin = perf_counter()
    for _ in range(waves):
        handled.set(len(tells))
        for tell in tells:
            tell(message)
        await handled.bell.wait()
    return {"fan_out": waves * len(tells) / (perf_counter() - begin)}


async def meter_ring(tell_first: Callable[[M], None], token: M, arrived: Bell, hops: int) -> Figures:
    """Hops per second of a token that is passed from actor to actor until one of them keeps it and rings `arrived`."""
    begin = perf_counter()
    tell_first(token)
    await arrived.wait()
    return {"ring": hops / (perf_counter() - begin)}


class CrashClock:
    """Takes the time from a crash to the first message handled after it.

    `crashed` is called by the handler just before it raises, `handled` by the handler of the next message.
    """

    __slots__ = ("_crashed_at", "bell", "latencies")

    def __init__(self) -> None:
        self._crashed_at = 0
        self.bell = Bell()
        self.latencies: list[float] = []

    def crashed(self) -> None:
        self._crashed_at = perf_counter_ns()

    def handled(self) -> None:
        self.latencies.append((perf_counter_ns() - self._crashed_at) / 1000)
        self.bell.ring()


async def meter_restart(tell: Callable[[M], None], crash: M, after: M, clock: CrashClock, n: int) -> Figures:
    """Microseconds from the raise in a handler to the handling of the message behind it, by the next incarnation."""
    for _ in range(n):
        tell(crash)
        tell(after)
        await clock.bell.wait()
    return {"restart_p50": p50(clock.latencies), "restart_p99": p99(clock.latencies)}
