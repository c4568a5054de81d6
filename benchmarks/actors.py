"""Actors in one process: `python -m benchmarks.actors [--quick] [--json FILE] [--only METRIC]`.

Greenroom beside the bare loop (its ceiling), beside the bare child of an anyio task group (the floor of what a
supervised child costs) and beside Pykka. Children are started one by one, each awaited until it runs; "anyio batch"
starts all before waiting. The figures that are kept are in `docs/performance.md`.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import attrs

from benchmarks import anyio_child, bare
from benchmarks.harness import Benchmark, Case, Figures, Metric, Target, main
from benchmarks.loops import BACKENDS, available_backends, run_on
from benchmarks.memory import measure_idle

Measure = Callable[[str, int], Figures]
"""Does n operations on a backend."""

METRICS: Final = (
    Metric(name="tell", unit="messages/s", meaning="made, told in bursts of 5,000, handled"),
    Metric(name="tell_same", topic="tell", unit="messages/s", meaning="the same, one message object again and again"),
    Metric(name="ask", unit="round trips/s", meaning="one asker, one reply at a time"),
    Metric(name="ask_p50", topic="ask", unit="µs", meaning="one round trip, median"),
    Metric(name="ask_p99", topic="ask", unit="µs", meaning="one round trip, 99 of 100"),
    Metric(name="fan_out", unit="messages/s", meaning="one to each of 1,000 actors, all handled"),
    Metric(name="ring", unit="hops/s", meaning="a token passed round 100 actors"),
    Metric(name="spawn", unit="starts/s", meaning="started one by one, each running"),
    Metric(name="spawn_stop_each", topic="spawn", unit="lives/s", meaning="the same, then stopped one by one"),
    Metric(name="spawn_stop_all", topic="spawn", unit="lives/s", meaning="the same, then stopped all together"),
    Metric(name="idle_bytes", topic="idle", unit="bytes", meaning="resident memory of one idle actor"),
    Metric(name="idle_traced", topic="idle", unit="bytes", meaning="the same, seen by tracemalloc"),
    Metric(name="restart_p50", topic="restart", unit="µs", meaning="crash to next message, median"),
    Metric(name="restart_p99", topic="restart", unit="µs", meaning="the same, 99 of 100"),
    Metric(name="many", unit="lives/s", meaning="n started, stopped all together"),
    Metric(name="many_growth", topic="many", unit="x", meaning="time of one: among n / among 1,000"),
)

_ASYNCIO: Final = ("asyncio", "uvloop")

TARGETS: Final = (
    Target(metric="tell", subject="greenroom", against="bare", backends=BACKENDS, at_least=0.5),
    Target(metric="tell_same", subject="greenroom", against="bare", backends=BACKENDS),
    Target(metric="ask", subject="greenroom", against="bare", backends=BACKENDS, at_least=0.4),
    Target(metric="fan_out", subject="greenroom", against="bare", backends=BACKENDS, at_least=0.5),
    Target(metric="ring", subject="greenroom", against="bare", backends=BACKENDS),
    Target(metric="spawn", subject="greenroom", against="anyio child", backends=BACKENDS, at_least=0.5),
    Target(metric="spawn_stop_each", subject="greenroom", against="anyio child", backends=BACKENDS),
    Target(metric="spawn_stop_all", subject="greenroom", against="anyio child", backends=BACKENDS),
    Target(metric="spawn", subject="greenroom", against="anyio batch", backends=BACKENDS),
    Target(metric="idle_bytes", subject="greenroom", against="anyio child", backends=BACKENDS, at_most=2.2),
    Target(metric="restart_p50", subject="greenroom", against="anyio child", backends=BACKENDS, at_most=2.5),
    Target(metric="restart_p50", subject="greenroom", against="anyio itself", backends=BACKENDS),
    Target(metric="many", subject="greenroom", against="anyio child", backends=BACKENDS),
    Target(
        metric="tell", subject="greenroom", against="pykka", backends=BACKENDS, against_backend="threads", at_least=5.0
    ),
    Target(
        metric="ask", subject="greenroom", against="pykka", backends=_ASYNCIO, against_backend="threads", at_least=4.0
    ),
    Target(
        metric="ask", subject="greenroom", against="pykka", backends=("trio",), against_backend="threads", at_least=2.5
    ),
    Target(metric="spawn", subject="greenroom", against="pykka", backends=BACKENDS, against_backend="threads"),
)


@attrs.frozen(kw_only=True)
class Size:
    """How much is done of one topic: operations and rounds, in full and under `--quick`; `share` of it by Pykka."""

    full: int
    quick: int
    rounds: int = 5
    quick_rounds: int = 3
    share: float = 1.0
    warm: bool = True


SIZES: Final = {
    "tell": Size(full=500_000, quick=100_000, share=0.2),
    "ask": Size(full=50_000, quick=5_000, share=0.4),
    "fan_out": Size(full=200_000, quick=30_000),
    "ring": Size(full=200_000, quick=20_000),
    "spawn": Size(full=5_000, quick=1_000, share=0.1),
    "idle": Size(full=20_000, quick=4_000, rounds=3, quick_rounds=1, warm=False),
    "restart": Size(full=5_000, quick=500),
    "many": Size(full=100_000, quick=10_000, rounds=3, quick_rounds=1, warm=False),
}

# Growth is judged against so many children, the median of so many tries, as one takes a tenth of a second.
_FEW: Final = 1_000
_FEW_TIMES: Final = 3


def on_loop(measure: Callable[[int], Awaitable[Figures]]) -> Measure:
    """Run an asynchronous measurement in a fresh event loop."""
    return lambda backend, n: run_on(backend, measure, n)


def on_threads(measure: Callable[[int], Figures]) -> Measure:
    """Run a measurement that needs no event loop."""
    return lambda _, n: measure(n)


def idle_of(module: str) -> Measure:
    """Measure the memory of what `hold_idle` of that module makes."""
    return lambda backend, n: measure_idle(f"{module}:hold_idle", backend, n)


def growth_of(start_and_stop_all: Callable[[int], Awaitable[float]]) -> Measure:
    """Measure n lives, and how much longer one takes among n than among 1,000."""

    def measure(backend: str, n: int) -> Figures:
        few = statistics.median(run_on(backend, start_and_stop_all, _FEW) for _ in range(_FEW_TIMES)) / _FEW
        each = run_on(backend, start_and_stop_all, n) / n
        return {"many": 1 / each, "many_growth": each / few}

    return measure


@attrs.frozen(kw_only=True)
class Subject:
    """Who is measured: on which backends, and how for each topic."""

    name: str
    backends: tuple[str, ...]
    measures: dict[str, Measure]


def find_subjects() -> tuple[list[Subject], list[str]]:
    """Those that can run here, and a note for each that cannot. What is not installed is not imported."""
    backends = available_backends()
    notes = [f"{name} is not installed: left out" for name in BACKENDS if name not in backends]
    subjects = [
        Subject(
            name="bare",
            backends=backends,
            measures={
                "tell": on_loop(bare.tell),
                "ask": on_loop(bare.ask),
                "fan_out": on_loop(bare.fan_out),
                "ring": on_loop(bare.ring),
            },
        ),
        Subject(
            name="anyio child",
            backends=backends,
            measures={
                "spawn": on_loop(anyio_child.spawn),
                "idle": idle_of("benchmarks.anyio_child"),
                "restart": on_loop(anyio_child.restart),
                "many": growth_of(anyio_child.start_and_stop_all),
            },
        ),
        Subject(name="anyio itself", backends=backends, measures={"restart": on_loop(anyio_child.restart_itself)}),
        Subject(name="anyio batch", backends=backends, measures={"spawn": on_loop(anyio_child.spawn_together)}),
    ]
    if importlib.util.find_spec("pykka") is None:
        notes.append("pykka is not installed: left out")
    else:
        from benchmarks import pykka_actors

        subjects.append(
            Subject(
                name="pykka",
                backends=("threads",),
                measures={
                    "tell": on_threads(pykka_actors.tell),
                    "ask": on_threads(pykka_actors.ask),
                    "spawn": on_threads(pykka_actors.spawn),
                },
            )
        )
    if importlib.util.find_spec("greenroom") is None:
        notes.append("greenroom is not installed: left out")
    else:
        from benchmarks import greenroom_actors

        subjects.append(
            Subject(
                name="greenroom",
                backends=backends,
                measures={
                    "tell": on_loop(greenroom_actors.tell),
                    "ask": on_loop(greenroom_actors.ask),
                    "fan_out": on_loop(greenroom_actors.fan_out),
                    "ring": on_loop(greenroom_actors.ring),
                    "spawn": on_loop(greenroom_actors.spawn),
                    "idle": idle_of("benchmarks.greenroom_actors"),
                    "restart": on_loop(greenroom_actors.restart),
                    "many": growth_of(greenroom_actors.start_and_stop_all),
                },
            )
        )
    return subjects, notes


def make_cases(subjects: list[Subject], *, quick: bool) -> Iterator[Case]:
    """Each topic's cases, backend by backend, so that those that will be compared are measured close together."""
    for topic, size in SIZES.items():
        for backend in (*BACKENDS, "threads"):
            for subject in subjects:
                if backend in subject.backends and topic in subject.measures:
                    yield _make_case(topic, size, subject, backend, quick=quick)


def _make_case(topic: str, size: Size, subject: Subject, backend: str, *, quick: bool) -> Case:
    whole = size.quick if quick else size.full
    n = round(whole * size.share) if backend == "threads" else whole
    measure = subject.measures[topic]
    return Case(
        topic=topic,
        subject=subject.name,
        backend=backend,
        measure=lambda n: measure(backend, n),
        n=n,
        rounds=size.quick_rounds if quick else size.rounds,
        warm=max(1, n // 10) if size.warm else 0,
    )


def build(quick: bool) -> Benchmark:
    """The benchmark for this machine."""
    subjects, notes = find_subjects()
    return Benchmark(
        title="Actors in one process",
        metrics=METRICS,
        cases=tuple(make_cases(subjects, quick=quick)),
        targets=TARGETS,
        notes=tuple(notes),
    )


if __name__ == "__main__":
    sys.exit(main(build))
