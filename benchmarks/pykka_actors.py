"""Pykka: an actor is a thread with a queue. It is what a Python programmer would reach for, and a dependency of
ours."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from itertools import pairwise
from time import perf_counter, perf_counter_ns

import attrs
import pykka

from benchmarks.harness import Figures, p50, p99
from benchmarks.meters import split_bursts


@attrs.frozen
class _Tick:
    """A message like everybody's: a small frozen value."""


class _Sink(pykka.ThreadingActor):
    """Ignores messages, but for the last of a burst."""

    def __init__(self, last: Hashable, handled: threading.Event) -> None:
        super().__init__()
        self._last = last
        self._handled = handled

    def on_receive(self, message: object) -> None:
        if message is self._last:
            self._handled.set()


class _Echo(pykka.ThreadingActor):
    """Answers with what it was sent."""

    def on_receive(self, message: object) -> object:
        return message


class _Idle(pykka.ThreadingActor):
    """Waits for messages that do not come."""


def tell(n: int) -> Figures:
    """As `meters.meter_tell`, but the teller is a thread and waits on a thread's event."""
    handled = threading.Event()
    last = ("last",)
    sink = _Sink.start(last, handled)
    bursts, size = split_bursts(n)
    tick = _Tick()
    again = range(size - 1)
    begin = perf_counter()
    for _ in range(bursts):
        for _ in again:
            sink.tell(tick)
        sink.tell(last)
        handled.wait()
        handled.clear()
    between = perf_counter()
    for _ in range(bursts):
        for _ in again:
            sink.tell(_Tick())
        sink.tell(last)
        handled.wait()
        handled.clear()
    end = perf_counter()
    sink.stop()
    return {"tell_same": bursts * size / (between - begin), "tell": bursts * size / (end - between)}


def ask(n: int) -> Figures:
    """As `meters.meter_ask`, but the asker is a thread that blocks."""
    echo = _Echo.start()
    marks = [perf_counter_ns()]
    for _ in range(n):
        echo.ask(7)
        marks.append(perf_counter_ns())
    echo.stop()
    trips = [(after - before) / 1000 for before, after in pairwise(marks)]
    return {"ask": n / ((marks[-1] - marks[0]) / 1e9), "ask_p50": p50(trips), "ask_p99": p99(trips)}


def spawn(n: int) -> Figures:
    """Actors per second: started; started and stopped one by one; started and stopped by the registry."""
    begin = perf_counter()
    refs = [_Idle.start() for _ in range(n)]
    first_up = perf_counter()
    for ref in refs:
        ref.stop()
    each_down = perf_counter()
    for _ in range(n):
        _Idle.start()
    second_up = perf_counter()
    pykka.ActorRegistry.stop_all()
    all_down = perf_counter()
    return {
        "spawn": 2 * n / (first_up - begin + second_up - each_down),
        "spawn_stop_each": n / (each_down - begin),
        "spawn_stop_all": n / (all_down - each_down),
    }
