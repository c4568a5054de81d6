"""Greenroom's actors, used as anybody would: default mailboxes, default timeouts, under a supervisor, in a runtime."""

from __future__ import annotations

import logging
from time import perf_counter

import attrs

import greenroom as gr
from benchmarks.harness import Figures
from benchmarks.memory import ReadMemory, bytes_each, first_tenth
from benchmarks.meters import (
    FAN_OUT,
    RING,
    Bell,
    Countdown,
    CrashClock,
    meter_ask,
    meter_fan_out,
    meter_restart,
    meter_ring,
    meter_tell,
)


@attrs.frozen
class Tick(gr.Message[None]):
    """A message that asks for nothing."""


@attrs.frozen
class Last(gr.Message[None]):
    """The last message of a burst."""


@attrs.frozen
class Echo(gr.Message[int]):
    """A message that is answered with its own value."""

    value: int


@attrs.frozen
class Crash(gr.Message[None]):
    """A message whose handler raises."""


@attrs.frozen
class Number(gr.Message[None]):
    """A message with a value that is ignored."""

    value: int


class Sink(gr.Actor):
    """Ignores numbers, rings for the last message of a burst."""

    def __init__(self, handled: Bell) -> None:
        self._handled = handled

    @gr.handles
    async def number(self, message: Number) -> None:
        pass

    @gr.handles
    async def last(self, message: Last) -> None:
        self._handled.ring()


class Echoer(gr.Actor):
    """Answers with what it was sent."""

    @gr.handles
    async def echo(self, message: Echo) -> int:
        return message.value


class Counted(gr.Actor):
    """Counts each message in a count that it shares with others."""

    def __init__(self, handled: Countdown) -> None:
        self._handled = handled

    @gr.handles
    async def tick(self, message: Tick) -> None:
        self._handled.hit()


class Passer(gr.Actor):
    """Passes the token on to the next of the ring; the last one counts the laps, and keeps it after the last lap."""

    def __init__(self, index: int, refs: list[gr.Ref], laps: Countdown) -> None:
        self._index = index
        self._refs = refs
        self._laps = laps

    @gr.handles
    async def tick(self, message: Tick) -> None:
        if self._index == RING - 1 and self._laps.hit():
            return
        self._refs[(self._index + 1) % RING].tell(message)


class Idle(gr.Actor):
    """Waits for messages that do not come."""


class Crashing(gr.Actor):
    """Raises when it is told to; its next incarnation handles what is queued behind."""

    def __init__(self, clock: CrashClock) -> None:
        self._clock = clock

    @gr.handles
    async def crash(self, message: Crash) -> None:
        self._clock.crashed()
        raise RuntimeError("told to crash")

    @gr.handles
    async def tick(self, message: Tick) -> None:
        self._clock.handled()


async def tell(n: int) -> Figures:
    handled = Bell()
    async with gr.Runtime(gr.Supervisor("bench", gr.Child("sink", Sink, handled))) as runtime:
        return await meter_tell(runtime.ref("bench/sink").tell, Number, Last(), handled, n)


async def ask(n: int) -> Figures:
    async with gr.Runtime(gr.Supervisor("bench", gr.Child("echo", Echoer))) as runtime:
        return await meter_ask(runtime.ref("bench/echo").ask, Echo(7), n)


async def fan_out(n: int) -> Figures:
    handled = Countdown()
    children = [gr.Child(f"a{index}", Counted, handled) for index in range(FAN_OUT)]
    async with gr.Runtime(gr.Supervisor("bench", *children)) as runtime:
        tells = [runtime.ref(f"bench/a{index}").tell for index in range(FAN_OUT)]
        return await meter_fan_out(tells, Tick(), handled, n)


async def ring(n: int) -> Figures:
    laps = Countdown(max(1, n // RING))
    hops = max(1, n // RING) * RING
    refs: list[gr.Ref] = []
    children = [gr.Child(f"a{index}", Passer, index, refs, laps) for index in range(RING)]
    async with gr.Runtime(gr.Supervisor("bench", *children)) as runtime:
        refs.extend(runtime.ref(f"bench/a{index}") for index in range(RING))
        return await meter_ring(refs[0].tell, Tick(), laps.bell, hops)


def _pool() -> gr.Supervisor:
    return gr.Supervisor("bench", gr.DynamicSupervisor("pool", Idle))


async def _start(runtime: gr.Runtime, n: int) -> list[gr.Ref]:
    """Start n actors, each when the one before has said that it runs."""
    pool = runtime.ref("bench/pool")
    return [await pool.start_child() for _ in range(n)]


async def spawn(n: int) -> Figures:
    """Actors per second: started; started and terminated one by one; started and ended together with their runtime."""
    async with gr.Runtime(_pool()) as runtime:
        begin = perf_counter()
        refs = await _start(runtime, n)
        first_up = perf_counter()
        pool = runtime.ref("bench/pool")
        for ref in refs:
            await pool.terminate_child(ref.path.rpartition("/")[2])
        each_down = perf_counter()
    async with gr.Runtime(_pool()) as runtime:
        again = perf_counter()
        await _start(runtime, n)
        second_up = perf_counter()
    all_down = perf_counter()
    return {
        "spawn": 2 * n / (first_up - begin + second_up - again),
        "spawn_stop_each": n / (each_down - begin),
        "spawn_stop_all": n / (all_down - again),
    }


async def start_and_stop_all(n: int) -> float:
    """Seconds that n actors take from the first start to the end of the last, when they end with their runtime."""
    async with gr.Runtime(_pool()) as runtime:
        begin = perf_counter()
        await _start(runtime, n)
    return perf_counter() - begin


async def hold_idle(n: int, read: ReadMemory) -> float:
    """Bytes of one actor that waits for messages, all that its supervisor keeps of it included."""
    async with gr.Runtime(_pool()) as runtime:
        refs = await _start(runtime, first_tenth(n))
        before = read()
        refs += await _start(runtime, n - len(refs))
        return bytes_each(before, read(), n)


async def restart(n: int) -> Figures:
    # Crash reports are made, but written nowhere: the terminal's speed is not the supervisor's.
    logger = logging.getLogger("greenroom")
    silence = logging.NullHandler()
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(silence)
    clock = CrashClock()
    # More restarts than can happen in the period, and a period that keeps the window as short as in a real service.
    tree = gr.Supervisor("bench", gr.Child("crashing", Crashing, clock), intensity=1_000, period=0.01)
    try:
        async with gr.Runtime(tree) as runtime:
            return await meter_restart(runtime.ref("bench/crashing").tell, Crash(), Tick(), clock, n)
    finally:
        logger.removeHandler(silence)
        logger.propagate = propagated
