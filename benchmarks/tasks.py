"""Durable tasks: `python -m benchmarks.tasks [--quick] [--json FILE] [--only METRIC]`.

A pool of agents on SQLite and on PostgreSQL, on asyncio and on trio. Tasks do ten trivial SAFE operations, one after another; each of these is
an operation that was invoked, and whose outcome was durable before the next began. In the same run: the databases' raw limits, the floor
of a durable runtime (`benchmarks/floor.py`), and the steps of DBOS and LangGraph on the same databases. The figures that are kept are in
`docs/performance.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from benchmarks import dbos_steps, floor, greenroom_tasks, langgraph_steps, raw
from benchmarks.databases import KINDS, Databases, Kind
from benchmarks.harness import Benchmark, Figures, Metric, Target, main
from benchmarks.memory import measure_idle
from benchmarks.subjects import Measure, Size, Subject, benchmark, on_loop

AT_ONCE: Final = floor.AT_ONCE

METRICS: Final = (
    Metric(name="steps_1", unit="ops/s", meaning="one task of ten after another; raw: a row a commit"),
    Metric(name="steps_1_p50", topic="steps_1", unit="ms", meaning="one such task, median"),
    Metric(name="steps_1_p99", topic="steps_1", unit="ms", meaning="one such task, 99 of 100"),
    Metric(name="steps_200", unit="ops/s", meaning="200 tasks at once; raw: 100 rows a commit"),
    Metric(name="steps_200_p50", topic="steps_200", unit="ms", meaning="one task of 200, median"),
    Metric(name="steps_200_p99", topic="steps_200", unit="ms", meaning="one task of 200, 99 of 100"),
    Metric(name="replay", unit="ops/s", meaning="control code comes back over n operations"),
    Metric(
        name="recovery_claimed", topic="recovery", unit="s", meaning="kill -9 of a worker with n tasks, all claimed"
    ),
    Metric(name="recovery_ended", topic="recovery", unit="s", meaning="the same, all ended"),
    Metric(name="recovery_again", topic="recovery", unit="ops", meaning="invoked again: each task had one under way"),
    Metric(name="recovery_kept", topic="recovery", unit="ops", meaning="not invoked again"),
    Metric(name="idle_bytes", topic="waiting", unit="bytes", meaning="memory of a resident waiting task"),
    Metric(name="idle_traced", topic="waiting", unit="bytes", meaning="of these, Python's allocations"),
    Metric(name="asleep_memory", topic="asleep", unit="bytes", meaning="memory of a sleeping task"),
    Metric(name="asleep_stored", topic="asleep", unit="bytes", meaning="database of a sleeping task"),
    Metric(name="asleep_due", topic="asleep", unit="s", meaning="1,000 fall due among n: all run"),
)

TRIO_SHARE: Final = 0.6
"""What trio is to reach of asyncio's targets."""


def _targets() -> Iterator[Target]:
    for kind, dbos in (("postgres", 20.0), ("sqlite", 30.0)):
        for loop, share in (("asyncio", 1.0), ("trio", TRIO_SHARE)):
            on = (f"{kind} {loop}",)
            for metric, against_floor, against_dbos in (("steps_1", 0.5, 3.0), ("steps_200", 0.25, dbos)):
                for against, backend, ratio in (("floor", None, against_floor), ("dbos", kind, against_dbos)):
                    yield Target(
                        metric=metric,
                        subject="greenroom",
                        against=against,
                        backends=on,
                        against_backend=backend,
                        at_least=round(ratio * share, 3),
                    )
    for metric in ("steps_1", "steps_200"):
        for kind in KINDS:
            yield Target(
                metric=metric,
                subject="greenroom",
                against="langgraph",
                backends=(f"{kind} asyncio",),
                against_backend=kind,
            )


SIZES: Final = {
    "steps_1": Size(full=3_000, quick=200),
    "steps_200": Size(full=20_000, quick=4_000),
    "replay": Size(full=10_000, quick=1_000, rounds=1, warm=False),
    "recovery": Size(full=1_000, quick=100, rounds=1, warm=False),
    "waiting": Size(full=5_000, quick=1_000, rounds=1, warm=False),
    "asleep": Size(full=100_000, quick=3_000, rounds=1, warm=False),
}


def by_tasks(measure: Measure, other: Measure) -> dict[str, Measure]:
    return {"steps_1": measure, f"steps_{AT_ONCE}": other}


def greenroom_steps(at_once: int) -> Measure:
    return on_loop(lambda url, n: greenroom_tasks.steps(url, at_once, n))


def floor_steps(at_once: int) -> Measure:
    def measure(databases: Databases, kind: Kind, loop: str, n: int) -> Figures:
        found = floor.measure(databases, kind, loop, at_once, n)
        return {name: found[name] for name in (f"steps_{at_once}", f"steps_{at_once}_p50")}

    return measure


def raw_rows(at_once: int, group: int) -> Measure:
    def measure(databases: Databases, kind: Kind, _: str, n: int) -> Figures:
        if kind == "postgres":
            return {f"steps_{at_once}": raw.postgres_rows(databases.server, group, n)}
        with databases.fresh_file() as path:
            return {f"steps_{at_once}": raw.sqlite_rows(path, group, n)}

    return measure


def dbos(at_once: int) -> Measure:
    return lambda databases, kind, _, n: dbos_steps.measure(databases, kind, at_once, n)


def langgraph(at_once: int) -> Measure:
    return lambda databases, kind, _, n: langgraph_steps.measure(databases, kind, at_once, n)


def on_store(measure: Callable[[str, str, int], Figures]) -> Measure:
    def on(databases: Databases, kind: Kind, loop: str, n: int) -> Figures:
        with databases.fresh_store(kind) as url:
            return measure(url, loop, n)

    return on


def waiting(_: Databases, __: Kind, loop: str, n: int) -> Figures:
    return measure_idle("benchmarks.greenroom_tasks:hold_waiting", loop, n)


SUBJECTS: Final = (
    Subject(name="raw", loops=(), measures=by_tasks(raw_rows(1, 1), raw_rows(AT_ONCE, raw.GROUP))),
    Subject(name="floor", measures=by_tasks(floor_steps(1), floor_steps(AT_ONCE))),
    Subject(
        name="greenroom",
        measures={
            **by_tasks(greenroom_steps(1), greenroom_steps(AT_ONCE)),
            "replay": on_loop(greenroom_tasks.replay),
            "recovery": on_store(greenroom_tasks.recovery),
            "asleep": on_store(greenroom_tasks.asleep),
        },
    ),
    Subject(name="greenroom", kinds=("sqlite",), measures={"waiting": waiting}),
    Subject(name="dbos", loops=(), share=0.2, measures=by_tasks(dbos(1), dbos(AT_ONCE))),
    Subject(name="langgraph", loops=(), share=0.2, measures=by_tasks(langgraph(1), langgraph(AT_ONCE))),
)

PEERS: Final = {"dbos": "dbos", "langgraph": "langgraph.checkpoint.postgres"}


def build(databases: Databases, quick: bool) -> Benchmark:
    return benchmark("Durable tasks", METRICS, _targets(), databases, SUBJECTS, SIZES, quick=quick, peers=PEERS)


if __name__ == "__main__":
    with Databases() as databases:
        sys.exit(main(partial(build, databases)))
