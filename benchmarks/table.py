"""The printed report: the machine, the figures, and the ratios beside the targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from benchmarks.harness import Benchmark, Comparison, Metric, Row

# Wide enough that no cell wraps where there is no terminal to ask, as in a pipe or in CI.
_WIDTH = 130


def format_value(value: float) -> str:
    """A figure with the digits that carry meaning: thousands are separated, below them are three digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def figures_table(rows: Sequence[Row], metrics: Sequence[Metric]) -> Table:
    """All rows, in their order, with a line between metrics."""
    meanings = {metric.name: metric.meaning for metric in metrics}
    table = Table(title="Figures (median of the rounds)", title_justify="left")
    for heading in ("metric", "subject", "backend"):
        table.add_column(heading, no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("what it is")
    previous: str | None = None
    for row in rows:
        first = row.metric != previous
        if first and previous is not None:
            table.add_section()
        previous = row.metric
        table.add_row(
            row.metric if first else "",
            row.subject,
            row.backend,
            format_value(row.value),
            row.unit,
            f"{row.n:,}",
            meanings[row.metric] if first else "",
        )
    return table


def ratios_table(comparisons: Sequence[Comparison]) -> Table:
    """Each comparison: both values, the ratio measured and the ratio to reach, in the order of the targets."""
    table = Table(title="Ratios (ours divided by theirs)", title_justify="left")
    for heading in ("metric", "subject", "backend"):
        table.add_column(heading, no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("against", no_wrap=True)
    table.add_column("its value", justify="right", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("to reach", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for comparison in comparisons:
        table.add_row(
            comparison.target.metric,
            comparison.ours.subject,
            comparison.ours.backend,
            format_value(comparison.ours.value),
            f"{comparison.theirs.subject} on {comparison.theirs.backend}",
            format_value(comparison.theirs.value),
            f"{comparison.ratio:.2f}",
            comparison.target.wanted,
            verdict(comparison.met),
        )
    return table


def verdict(met: bool | None) -> str:
    """One word for a comparison; nothing where there was nothing to reach."""
    if met is None:
        return ""
    return "met" if met else "MISSED"


def print_report(
    benchmark: Benchmark,
    rows: Sequence[Row],
    comparisons: Sequence[Comparison],
    machine: Mapping[str, str],
    *,
    quick: bool,
    console: Console | None = None,
) -> None:
    """Print header, figures, ratios and notes to `console` (stdout by default)."""
    out = console or Console()
    if not out.is_terminal:
        out.width = max(out.width, _WIDTH)
    # Text of ours goes out as it is: no markup, and no highlighting of numbers inside words.
    out.print(benchmark.title + (" (quick sizes: for a rough look only)" if quick else ""), markup=False, style="bold")
    for heading, text in machine.items():
        out.print(f"  {heading}: {text}", markup=False, highlight=False, soft_wrap=True)
    out.print(figures_table(rows, benchmark.metrics))
    if comparisons:
        out.print(ratios_table(comparisons))
        judged = [comparison for comparison in comparisons if comparison.met is not None]
        reached = sum(comparison.met is True for comparison in judged)
        out.print(f"{reached} of {len(judged)} targets met", markup=False, highlight=False)
    else:
        out.print("No ratios: no target had both of its sides measured.", markup=False, highlight=False)
    for note in benchmark.notes:
        out.print(f"Note: {note}", markup=False, highlight=False, soft_wrap=True)
