"""What every benchmark shares: cases measured in turn, figures reduced to rows, rows compared with targets.

The machines we have are noisy: a neighbour may take half of a core for a second. So the subjects of one metric are
measured in turn within one run (A B C, A B C, A B C) and the median of the rounds is kept. A disturbance then falls on
one round of some subjects, not on all rounds of one. Ratios between subjects of one run mean something; figures of two
runs hardly do.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from benchmarks.machine import describe_machine
from benchmarks.table import print_report

Figures = Mapping[str, float]
"""What one measurement found: a value for each metric, in that metric's unit."""


@attrs.frozen(kw_only=True)
class Metric:
    """One thing that is measured. `meaning` says in a few words what a value of it counts.

    `topic` names the cases that find it; empty: those of its own name.
    """

    name: str
    unit: str
    meaning: str
    topic: str = ""


@attrs.frozen(kw_only=True)
class Case:
    """One subject, on one backend, doing one thing.

    `topic` groups the cases that are measured in turn; one measurement may find several metrics (ask: the rate, p50 and
    p99). `measure(n)` does `n` operations from a cold start of its own event loop. `warm` is how many it does first,
    uncounted, so that imports and the interpreter's specialisation are paid; 0 for what measures in a fresh process.
    """

    topic: str
    subject: str
    backend: str
    measure: Callable[[int], Figures]
    n: int = attrs.field(validator=attrs.validators.gt(0))
    rounds: int = attrs.field(default=1, validator=attrs.validators.gt(0))
    warm: int = 0


@attrs.frozen(kw_only=True)
class Row:
    """The median of what the rounds found; `n` operations were measured in each round."""

    metric: str
    subject: str
    backend: str
    value: float
    unit: str
    n: int


@attrs.frozen(kw_only=True)
class Target:
    """A ratio to reach: our value divided by that of `against`, at least or at most so much.

    With neither bound the ratio is shown for information. `against_backend` is where the other subject is looked up;
    None means on the same backend as ours.
    """

    metric: str
    subject: str
    against: str
    backends: tuple[str, ...]
    against_backend: str | None = None
    at_least: float | None = None
    at_most: float | None = None

    def __attrs_post_init__(self) -> None:
        if self.at_least is not None and self.at_most is not None:
            raise ValueError(f"target for {self.metric!r} against {self.against!r}: give at_least or at_most, not both")

    @property
    def wanted(self) -> str:
        """The bound as people read it, empty if there is none."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return ""

    def is_met_by(self, ratio: float) -> bool | None:
        """Whether a measured ratio reaches the bound; None if there is no bound."""
        if self.at_least is not None:
            return ratio >= self.at_least
        if self.at_most is not None:
            return ratio <= self.at_most
        return None


@attrs.frozen(kw_only=True)
class Comparison:
    """A target beside what was measured. `met` is None when the target has no bound."""

    target: Target
    ours: Row
    theirs: Row
    ratio: float
    met: bool | None


@attrs.frozen(kw_only=True)
class Benchmark:
    """A set of cases with their metrics and targets. `notes` say what was left out on this machine, and why."""

    title: str
    metrics: tuple[Metric, ...]
    cases: tuple[Case, ...]
    targets: tuple[Target, ...] = ()
    notes: tuple[str, ...] = ()


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of the values that is not below `percent` per cent of them (nearest rank): always one that occurred.

    Raises:
        ValueError: if there are no values, or percent is not above 0 and at most 100.
    """
    if not values:
        raise ValueError("no values: a percentile needs at least one")
    if not 0 < percent <= 100:
        raise ValueError(f"percent is {percent!r}: it must be above 0 and at most 100")
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def p50(values: Sequence[float]) -> float:
    """The median by nearest rank."""
    return percentile(values, 50)


def p99(values: Sequence[float]) -> float:
    """The value that 99 of 100 do not exceed."""
    return percentile(values, 99)


def interleave(cases: Sequence[Case]) -> Iterator[tuple[int, Case]]:
    """The order of measurement: topic by topic in order of first appearance; within a topic, round by round (A B C, A B
    C).

    Yields (round counted from 1, case). A case with fewer rounds than its neighbours drops out of the later ones.
    """
    for topic in dict.fromkeys(case.topic for case in cases):
        members = [case for case in cases if case.topic == topic]
        for number in range(1, max(case.rounds for case in members) + 1):
            for case in members:
                if number <= case.rounds:
                    yield number, case


def reduce_rounds(case: Case, found: Sequence[Figures], metrics: Mapping[str, Metric]) -> list[Row]:
    """One row for each metric that the rounds of a case found: the median over the rounds.

    Raises:
        KeyError: if a round found a metric that the benchmark does not declare.
    """
    return [
        Row(
            metric=name,
            subject=case.subject,
            backend=case.backend,
            value=statistics.median(figures[name] for figures in found),
            unit=metrics[name].unit,
            n=case.n,
        )
        for name in found[0]
    ]


def measure_cases(
    cases: Sequence[Case], metrics: Sequence[Metric], *, progress: Callable[[int, Case], None] | None = None
) -> list[Row]:
    """Measure all cases in interleaved rounds and reduce them to rows, in the order of the metrics, then of the cases.

    An exception of a case ends the whole run, with a note that names the case: a table with holes would be read as
    complete.
    """
    found: dict[Case, list[Figures]] = {case: [] for case in cases}
    for number, case in interleave(cases):
        if progress is not None:
            progress(number, case)
        try:
            if number == 1 and case.warm:
                case.measure(case.warm)
            # What other cases have loaded and left behind must not be looked through, and collected, on this one's time.
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            found[case].append(case.measure(case.n))
        except Exception as error:
            error.add_note(f"while measuring {case.topic} of {case.subject} on {case.backend}, round {number}")
            raise
    declared = {metric.name: metric for metric in metrics}
    rows = [row for case, figures in found.items() for row in reduce_rounds(case, figures, declared)]
    order = {metric.name: index for index, metric in enumerate(metrics)}
    return sorted(rows, key=lambda row: order[row.metric])


def compare(rows: Sequence[Row], targets: Sequence[Target]) -> list[Comparison]:
    """Each target beside its ratio, on each of its backends where both sides were measured, else left out."""
    by_key = {(row.metric, row.subject, row.backend): row for row in rows}
    comparisons = []
    for target in targets:
        for backend in target.backends:
            ours = by_key.get((target.metric, target.subject, backend))
            theirs = by_key.get((target.metric, target.against, target.against_backend or backend))
            if ours is None or theirs is None or theirs.value == 0:
                continue
            ratio = ours.value / theirs.value
            comparisons.append(
                Comparison(target=target, ours=ours, theirs=theirs, ratio=ratio, met=target.is_met_by(ratio))
            )
    return comparisons


def select(cases: Sequence[Case], metrics: Sequence[Metric], only: Sequence[str]) -> list[Case]:
    """The cases that find the named metrics, or all of them if none is named. The name of a topic stands for all its
    metrics.

    Raises:
        ValueError: if there is no metric or topic of a name; the message lists those there are.
    """
    topics = {case.topic: case.topic for case in cases} | {
        metric.name: metric.topic or metric.name for metric in metrics
    }
    unknown = [name for name in only if name not in topics]
    if unknown:
        raise ValueError(f"no metric is called {', '.join(unknown)}: choose from {', '.join(sorted(topics))}")
    wanted = {topics[name] for name in only}
    return [case for case in cases if not only or case.topic in wanted]


def write_json(rows: Sequence[Row], path: Path) -> None:
    """Write the rows to `path` as one JSON array of objects with the fields of `Row`."""
    text = json.dumps([attrs.asdict(row) for row in rows], indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def main(build: Callable[[bool], Benchmark], argv: Sequence[str] | None = None) -> int:
    """The command line that all benchmarks share. `build(quick)` makes the benchmark for the sizes that were asked for.

    Returns: the exit code; 0 also when targets were missed, 2 when `--only` names what does not exist.
    """
    parser = argparse.ArgumentParser(description="Measure, and print a table with ratios and the targets beside them.")
    parser.add_argument("--quick", action="store_true", help="small sizes, all done in under a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to FILE as a JSON array")
    parser.add_argument("--only", action="append", default=[], metavar="METRIC", help="only this one; may be repeated")
    options = parser.parse_args(argv)

    benchmark = build(options.quick)
    try:
        cases = select(benchmark.cases, benchmark.metrics, options.only)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    rows = measure_cases(cases, benchmark.metrics, progress=_say_progress)
    comparisons = compare(rows, benchmark.targets)
    print_report(benchmark, rows, comparisons, describe_machine(), quick=options.quick)
    if options.json is not None:
        write_json(rows, options.json)
    return 0


def _say_progress(number: int, case: Case) -> None:
    """One line to stderr for each measurement, so that stdout holds the report alone."""
    print(f"{case.topic}: {case.subject} on {case.backend}, round {number} of {case.rounds}", file=sys.stderr)
