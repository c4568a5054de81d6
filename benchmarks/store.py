"""The store: `python -m benchmarks.store [--quick] [--json FILE] [--only METRIC]`.

Persistent mailboxes and durable actors, on SQLite and on PostgreSQL, on asyncio and on trio; in the same run the databases' raw limits,
the floor of a durable runtime (`benchmarks/floor.py`), the store by itself, and DBOS on the same PostgreSQL. A message is *accepted* when
`send` has returned: it is durable then. It is *handled* when its delivery has been counted, its handler has run, and the mark of that
is durable. The figures that are kept are in `docs/performance.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final

from benchmarks import dbos_send, floor, greenroom_store, raw, store_alone
from benchmarks.databases import KINDS, Databases, Kind
from benchmarks.harness import Benchmark, Figures, Metric, Target, main
from benchmarks.subjects import LOOPS, Measure, Size, Subject, benchmark, on_loop

METRICS: Final = (
    Metric(name="accepted_1", unit="messages/s", meaning="one sender; raw: a row a commit"),
    Metric(name="accepted_1_p50", topic="accepted_1", unit="ms", meaning="one send, median"),
    Metric(name="accepted_1_p99", topic="accepted_1", unit="ms", meaning="one send, 99 of 100"),
    Metric(name="accepted_200", unit="messages/s", meaning="200 senders; raw: 100 rows a commit"),
    Metric(name="accepted_200_p50", topic="accepted_200", unit="ms", meaning="one send of 200, median"),
    Metric(name="accepted_200_p99", topic="accepted_200", unit="ms", meaning="one send of 200, 99 of 100"),
    Metric(name="handled_1", unit="messages/s", meaning="one sender, one actor; floor: steps"),
    Metric(name="handled_200", unit="messages/s", meaning="200 senders, an actor each; floor: steps"),
    Metric(name="transitions_1", unit="messages/s", meaning="one sender, one durable actor"),
    Metric(name="transitions_200", unit="messages/s", meaning="200 senders, a durable actor each"),
    Metric(name="recovery_first", topic="recovery", unit="s", meaning="start over n waiting messages, first handled"),
    Metric(name="recovery", unit="s", meaning="the same, all handled"),
    Metric(name="waiting_sent", topic="waiting", unit="MiB", meaning="growth of a process that sends n that wait"),
    Metric(name="waiting_found", topic="waiting", unit="MiB", meaning="what one holds more that finds n waiting"),
)

TRIO_SHARE: Final = 0.6
"""What trio is to reach of asyncio's targets."""


def _targets() -> Iterator[Target]:
    def reach(metric: str, against: str, kind: Kind, ratio: float, *, alone: bool = False) -> Iterator[Target]:
        """`alone`: the other side runs on no event loop of ours."""
        for loop, share in (("asyncio", 1.0), ("trio", TRIO_SHARE)):
            yield Target(
                metric=metric,
                subject="greenroom",
                against=against,
                backends=(f"{kind} {loop}",),
                against_backend=kind if alone else None,
                at_least=round(ratio * share, 3),
            )

    yield from reach("accepted_1", "raw", "sqlite", 0.3, alone=True)
    yield from reach("accepted_1", "raw", "postgres", 0.6, alone=True)
    yield from reach("accepted_200", "raw", "sqlite", 0.12, alone=True)
    yield from reach("accepted_200", "raw", "postgres", 0.4, alone=True)
    yield from reach("handled_200", "floor", "sqlite", 0.4)
    yield from reach("handled_200", "floor", "postgres", 0.3)
    yield from reach("handled_200", "dbos", "postgres", 40.0, alone=True)
    on_all = tuple(f"{kind} {loop}" for kind in KINDS for loop in LOOPS)
    for metric in ("accepted_1", "accepted_200", "handled_200", "transitions_200"):
        yield Target(metric=metric, subject="greenroom", against="store", backends=on_all)
    yield Target(metric="handled_1", subject="greenroom", against="floor", backends=on_all)


SIZES: Final = {
    "accepted_1": Size(full=5_000, quick=300),
    "accepted_200": Size(full=100_000, quick=6_000),
    "handled_1": Size(full=2_500, quick=200),
    "handled_200": Size(full=50_000, quick=4_000),
    "transitions_1": Size(full=2_500, quick=200),
    "transitions_200": Size(full=50_000, quick=4_000),
    "recovery": Size(full=100_000, quick=5_000, rounds=1, warm=False),
    "waiting": Size(full=1_000_000, quick=10_000, rounds=1, warm=False),
}


def by_senders(stem: str, measure: Callable[[str, int, int], Awaitable[Figures]]) -> dict[str, Measure]:
    """The same by one sender and by 200, a topic for each."""

    def by(senders: int) -> Measure:
        return on_loop(lambda url, n: measure(url, senders, n))

    return {f"{stem}_1": by(1), f"{stem}_200": by(200)}


def raw_rows(topic: str, group: int) -> dict[str, Measure]:
    """So many rows a commit stand beside messages that are accepted."""

    def measure(databases: Databases, kind: Kind, _: str, n: int) -> Figures:
        if kind == "postgres":
            return {topic: raw.postgres_rows(databases.server, group, n)}
        with databases.fresh_file() as path:
            return {topic: raw.sqlite_rows(path, group, n)}

    return {topic: measure}


def floor_steps(topic: str, at_once: int) -> dict[str, Measure]:
    """A step of the floor stands beside a message that is handled."""

    def measure(databases: Databases, kind: Kind, loop: str, n: int) -> Figures:
        return {topic: floor.measure(databases, kind, loop, at_once, n)[f"steps_{at_once}"]}

    return {topic: measure}


def dbos_messages(databases: Databases, _: Kind, __: str, n: int) -> Figures:
    return {"handled_200": dbos_send.measure(databases.server, n)}


def waiting(databases: Databases, kind: Kind, loop: str, n: int) -> Figures:
    with databases.fresh_store(kind) as url:
        return greenroom_store.waiting(url, loop, n)


SUBJECTS: Final = (
    Subject(name="raw", loops=(), measures={**raw_rows("accepted_1", 1), **raw_rows("accepted_200", raw.GROUP)}),
    Subject(name="floor", measures={**floor_steps("handled_1", 1), **floor_steps("handled_200", floor.AT_ONCE)}),
    Subject(
        name="store",
        measures={
            **by_senders("accepted", store_alone.accepted),
            **by_senders("handled", store_alone.handled),
            **by_senders("transitions", store_alone.transitions),
        },
    ),
    Subject(
        name="greenroom",
        measures={
            **by_senders("accepted", greenroom_store.accepted),
            **by_senders("handled", greenroom_store.handled),
            **by_senders("transitions", greenroom_store.transitions),
            "recovery": on_loop(greenroom_store.recovery),
            "waiting": waiting,
        },
    ),
    Subject(name="dbos", kinds=("postgres",), loops=(), share=0.05, measures={"handled_200": dbos_messages}),
)


def build(databases: Databases, quick: bool) -> Benchmark:
    title = "The store: persistent mailboxes and durable actors"
    return benchmark(title, METRICS, _targets(), databases, SUBJECTS, SIZES, quick=quick, peers={"dbos": "dbos"})


if __name__ == "__main__":
    with Databases() as databases:
        sys.exit(main(partial(build, databases)))
