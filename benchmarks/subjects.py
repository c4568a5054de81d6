"""Who is measured in the benchmarks of databases, and the cases that this makes: by topic, database, event loop and subject."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Final

import attrs

from benchmarks.databases import KINDS, Databases, Kind, missing_for_postgres
from benchmarks.harness import Benchmark, Case, Figures, Metric, Target
from benchmarks.loops import run_on

LOOPS: Final = ("asyncio", "trio")

Measure = Callable[[Databases, Kind, str, int], Figures]
"""Does n operations on a database and an event loop."""


@attrs.frozen(kw_only=True)
class Size:
    """How much is done of one topic, in full and under `--quick`."""

    full: int
    quick: int
    rounds: int = 5
    quick_rounds: int = 1
    warm: bool = True


@attrs.frozen(kw_only=True)
class Subject:
    """Who is measured, and how for each topic. `loops` is empty for one that runs on no event loop of ours."""

    name: str
    measures: dict[str, Measure]
    kinds: tuple[Kind, ...] = KINDS
    loops: tuple[str, ...] = LOOPS
    share: float = 1.0
    """Of the operations."""


def on_loop(measure: Callable[[str, int], Awaitable[Figures]]) -> Measure:
    """Run an asynchronous measurement of an empty store, in a fresh event loop."""

    def on(databases: Databases, kind: Kind, loop: str, n: int) -> Figures:
        with databases.fresh_store(kind) as url:
            return run_on(loop, measure, url, n)

    return on


def make_cases(
    databases: Databases, subjects: Sequence[Subject], sizes: Mapping[str, Size], *, quick: bool
) -> Iterator[Case]:
    """Each topic's cases, database by database, so that those that will be compared are measured close together."""
    for topic, size in sizes.items():
        for kind in KINDS:
            for loop in (*LOOPS, ""):
                for subject in subjects:
                    if topic in subject.measures and kind in subject.kinds and loop in (subject.loops or ("",)):
                        yield _make_case(databases, topic, size, subject, kind, loop, quick=quick)


def _make_case(
    databases: Databases, topic: str, size: Size, subject: Subject, kind: Kind, loop: str, *, quick: bool
) -> Case:
    n = max(1, round((size.quick if quick else size.full) * subject.share))
    return Case(
        topic=topic,
        subject=subject.name,
        backend=f"{kind} {loop}".strip(),
        measure=partial(subject.measures[topic], databases, kind, loop),
        n=n,
        rounds=size.quick_rounds if quick else size.rounds,
        warm=max(1, n // 10) if size.warm and not quick else 0,
    )


def is_there(module: str) -> bool:
    """Whether a package is installed, and this module of it."""
    return find_spec(module.partition(".")[0]) is not None and find_spec(module) is not None


def benchmark(
    title: str,
    metrics: tuple[Metric, ...],
    targets: Iterable[Target],
    databases: Databases,
    subjects: Sequence[Subject],
    sizes: Mapping[str, Size],
    *,
    quick: bool,
    peers: Mapping[str, str],
) -> Benchmark:
    """The benchmark for this machine, with a note for what is not installed here.

    Args:
        peers: by the name of a subject, the module that it needs.
    """
    missing = [name for name, module in peers.items() if not is_there(module)]
    there = [subject for subject in subjects if subject.name not in missing]
    notes = [f"{name} is not installed: left out" for name in missing]
    if (absent := missing_for_postgres()) is not None:
        notes.append(f"{absent} is not installed: PostgreSQL is left out")
        there = [attrs.evolve(subject, kinds=("sqlite",)) for subject in there if "sqlite" in subject.kinds]
    return Benchmark(
        title=title,
        metrics=metrics,
        cases=tuple(make_cases(databases, there, sizes, quick=quick)),
        targets=tuple(targets),
        notes=(*notes, f"databases in {databases.folder}, on the disk of that folder"),
    )
