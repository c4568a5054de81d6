"""The logic of the benchmarks' harness: order of measurement, medians, ratios, table and JSON. Nothing here is
timed."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.harness import (
    Benchmark,
    Case,
    Figures,
    Metric,
    Row,
    Target,
    compare,
    interleave,
    main,
    measure_cases,
    p50,
    p99,
    percentile,
    select,
    write_json,
)
from benchmarks.memory import bytes_each, first_tenth
from benchmarks.meters import BURST, split_bursts
from benchmarks.table import format_value, print_report

RATE = Metric(name="rate", unit="messages/s", meaning="handled")
WAIT = Metric(name="wait", unit="µs", meaning="waited")


def make_case(
    topic: str = "rate",
    subject: str = "ours",
    backend: str = "asyncio",
    *,
    values: tuple[float, ...] = (1.0,),
    metric: str = "rate",
    log: list[str] | None = None,
    warm: int = 0,
) -> Case:
    """A case that finds the given values, one in each round, and logs what it was asked to do."""
    remaining = list(values)

    def measure(n: int) -> Figures:
        if log is not None:
            log.append(f"{subject} {n}")
        return {metric: remaining[0] if n == warm else remaining.pop(0)}

    return Case(topic=topic, subject=subject, backend=backend, measure=measure, n=100, rounds=len(values), warm=warm)


def make_row(subject: str, value: float, *, metric: str = "rate", backend: str = "asyncio") -> Row:
    return Row(metric=metric, subject=subject, backend=backend, value=value, unit="messages/s", n=100)


def test_subjects_of_one_topic_are_measured_in_turn_round_by_round() -> None:
    log: list[str] = []
    cases = [
        make_case(subject="A", values=(1, 1), log=log),
        make_case(topic="wait", metric="wait", subject="X", log=log),
        make_case(subject="B", values=(1, 1), log=log),
    ]
    measure_cases(cases, [RATE, WAIT])
    assert log == ["A 100", "B 100", "A 100", "B 100", "X 100"]


def test_a_case_with_fewer_rounds_drops_out_of_the_later_ones() -> None:
    cases = [make_case(subject="A", values=(1, 1, 1)), make_case(subject="B", values=(1,))]
    assert [(number, case.subject) for number, case in interleave(cases)] == [(1, "A"), (1, "B"), (2, "A"), (3, "A")]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), max_size=8))
def test_every_case_is_measured_exactly_as_often_as_it_has_rounds(shapes: list[tuple[str, int]]) -> None:
    cases = [
        make_case(topic=topic, subject=str(index), values=(1.0,) * rounds)
        for index, (topic, rounds) in enumerate(shapes)
    ]
    order = list(interleave(cases))
    for case in cases:
        assert [number for number, member in order if member is case] == list(range(1, case.rounds + 1))


def test_the_warm_up_comes_once_before_the_first_round_and_is_not_counted() -> None:
    log: list[str] = []
    rows = measure_cases([make_case(subject="A", values=(3, 5), log=log, warm=10)], [RATE])
    assert log == ["A 10", "A 100", "A 100"]
    assert [row.value for row in rows] == [4]


def test_the_median_of_the_rounds_is_kept_so_that_one_disturbed_round_does_not_count() -> None:
    rows = measure_cases([make_case(values=(10, 900, 12))], [RATE])
    assert rows == [make_row("ours", 12)]


def test_one_measurement_may_find_several_metrics_which_come_in_the_declared_order() -> None:
    case = Case(
        topic="ask", subject="ours", backend="trio", measure=lambda n: {"wait": 2.0, "rate": float(n)}, n=5, rounds=1
    )
    assert measure_cases([case], [RATE, WAIT]) == [
        Row(metric="rate", subject="ours", backend="trio", value=5, unit="messages/s", n=5),
        Row(metric="wait", subject="ours", backend="trio", value=2, unit="µs", n=5),
    ]


def test_a_failing_case_ends_the_run_and_is_named() -> None:
    def fail(n: int) -> Figures:
        raise RuntimeError("broken")

    case = Case(topic="rate", subject="ours", backend="trio", measure=fail, n=1)
    with pytest.raises(RuntimeError, match="broken") as caught:
        measure_cases([case], [RATE])
    assert caught.value.__notes__ == ["while measuring rate of ours on trio, round 1"]


def test_a_ratio_is_ours_divided_by_theirs_on_the_same_backend() -> None:
    rows = [make_row("ours", 60), make_row("theirs", 100), make_row("theirs", 1, backend="trio")]
    target = Target(metric="rate", subject="ours", against="theirs", backends=("asyncio",), at_least=0.5)
    (comparison,) = compare(rows, [target])
    assert (comparison.ratio, comparison.met) == (0.6, True)


def test_a_subject_without_event_loop_is_looked_up_on_its_own_backend() -> None:
    rows = [make_row("ours", 60), make_row("threaded", 20, backend="threads")]
    target = Target(
        metric="rate",
        subject="ours",
        against="threaded",
        backends=("asyncio", "trio"),
        against_backend="threads",
        at_least=4,
    )
    (comparison,) = compare(rows, [target])
    assert (comparison.ratio, comparison.met) == (3, False)


def test_a_target_is_left_out_where_one_side_was_not_measured() -> None:
    target = Target(metric="rate", subject="ours", against="theirs", backends=("asyncio", "trio"), at_least=1)
    assert compare([make_row("ours", 60), make_row("theirs", 60, backend="trio")], [target]) == []


@pytest.mark.parametrize(
    ("at_least", "at_most", "ratio", "met"),
    [
        (0.5, None, 0.5, True),
        (0.5, None, 0.49, False),
        (None, 2.2, 2.2, True),
        (None, 2.2, 2.21, False),
        (None, None, 7.0, None),
    ],
)
def test_a_bound_is_met_when_it_is_reached_exactly(
    at_least: float | None, at_most: float | None, ratio: float, met: bool | None
) -> None:
    target = Target(
        metric="rate", subject="ours", against="theirs", backends=("trio",), at_least=at_least, at_most=at_most
    )
    assert target.is_met_by(ratio) is met


def test_a_target_with_two_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="at_least or at_most, not both"):
        Target(metric="rate", subject="ours", against="theirs", backends=("trio",), at_least=1, at_most=2)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1), st.floats(0.001, 100))
def test_a_percentile_is_a_value_that_occurred_and_covers_its_share(values: list[float], percent: float) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) >= len(values) * percent / 100
    assert sum(value < found for value in values) < len(values) * percent / 100


def test_the_p50_and_p99_of_a_hundred_values_are_the_fiftieth_and_the_ninety_ninth() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert (p50(values), p99(values)) == (50, 99)


@pytest.mark.parametrize("percent", [0, -1, 100.1])
def test_a_percentile_outside_its_range_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="above 0 and at most 100"):
        percentile([1.0], percent)


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        p50([])


def test_only_the_topics_that_are_named_are_selected() -> None:
    cases = [make_case("a"), make_case("b"), make_case("a", subject="theirs")]
    assert select(cases, [], ["a"]) == [cases[0], cases[2]]
    assert select(cases, [], []) == cases


def test_the_name_of_a_metric_selects_the_topic_that_finds_it() -> None:
    cases = [make_case("ask"), make_case("rate")]
    assert select(cases, [RATE, Metric(name="p50", topic="ask", unit="µs", meaning="")], ["p50"]) == [cases[0]]


def test_an_unknown_topic_is_refused_with_the_ones_there_are() -> None:
    with pytest.raises(ValueError, match="no metric is called c: choose from a, b"):
        select([make_case("a"), make_case("b")], [], ["c"])


def test_json_holds_one_object_a_row_with_exactly_the_six_fields(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    write_json([make_row("ours", 1.5), make_row("theirs", 2)], path)
    assert json.loads(path.read_text(encoding="utf-8")) == [
        {"metric": "rate", "subject": "ours", "backend": "asyncio", "value": 1.5, "unit": "messages/s", "n": 100},
        {"metric": "rate", "subject": "theirs", "backend": "asyncio", "value": 2, "unit": "messages/s", "n": 100},
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(2_345_678.9, "2,345,679"), (1000, "1,000"), (999.4, "999"), (12.345, "12.3"), (0.5, "0.5")]
)
def test_a_figure_is_printed_with_the_digits_that_carry_meaning(value: float, text: str) -> None:
    assert format_value(value) == text


def print_to_text(rows: list[Row], targets: tuple[Target, ...], notes: tuple[str, ...] = ()) -> list[str]:
    """The lines of a report as they come out of a pipe."""
    benchmark = Benchmark(title="Title", metrics=(RATE, WAIT), cases=(), targets=targets, notes=notes)
    console = Console(file=io.StringIO(), color_system=None)
    print_report(benchmark, rows, compare(rows, targets), {"machine": "two cores"}, quick=False, console=console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_the_report_shows_measured_and_to_reach_side_by_side() -> None:
    targets = (
        Target(metric="rate", subject="ours", against="theirs", backends=("asyncio",), at_least=0.5),
        Target(metric="wait", subject="ours", against="theirs", backends=("asyncio",), at_most=2.5),
        Target(metric="wait", subject="theirs", against="ours", backends=("asyncio",)),
    )
    rows = [
        make_row("ours", 6000),
        make_row("theirs", 10000),
        make_row("ours", 30, metric="wait"),
        make_row("theirs", 10, metric="wait"),
    ]
    lines = [cells(line) for line in print_to_text(rows, targets)]
    assert ["rate", "ours", "asyncio", "6,000", "theirs on asyncio", "10,000", "0.60", ">= 0.5", "met"] in lines
    assert ["wait", "ours", "asyncio", "30", "theirs on asyncio", "10", "3.00", "<= 2.5", "MISSED"] in lines
    assert ["wait", "theirs", "asyncio", "10", "ours on asyncio", "30", "0.33", "", ""] in lines
    assert ["1 of 2 targets met"] in lines


def test_the_report_shows_each_figure_with_its_unit_and_names_a_metric_once() -> None:
    lines = [cells(line) for line in print_to_text([make_row("ours", 6000), make_row("theirs", 10000)], ())]
    assert ["rate", "ours", "asyncio", "6,000", "messages/s", "100", "handled"] in lines
    assert ["", "theirs", "asyncio", "10,000", "messages/s", "100", ""] in lines


def test_the_report_says_on_what_it_was_measured_and_what_was_left_out() -> None:
    lines = print_to_text([make_row("ours", 1)], (), notes=("uvloop is not installed: left out",))
    assert "  machine: two cores" in lines
    assert "Note: uvloop is not installed: left out" in lines
    assert "No ratios: no target had both of its sides measured." in lines


def build_small(quick: bool) -> Benchmark:
    cases = (make_case("rate", values=(1.0 if quick else 2.0,)), make_case("wait", metric="wait", values=(3.0,)))
    return Benchmark(title="Title", metrics=(RATE, WAIT), cases=cases)


def test_the_command_line_measures_what_it_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.json"
    assert main(build_small, ["--quick", "--only", "rate", "--json", str(path)]) == 0
    assert [(row["metric"], row["value"]) for row in json.loads(path.read_text(encoding="utf-8"))] == [("rate", 1.0)]
    printed = capsys.readouterr()
    assert "quick sizes" in printed.out
    assert printed.err == "rate: ours on asyncio, round 1 of 1\n"


def test_the_command_line_refuses_an_unknown_metric_with_exit_code_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(build_small, ["--only", "speed"]) == 2
    assert capsys.readouterr().err == "no metric is called speed: choose from rate, wait\n"


@given(st.integers(1, 10**7))
def test_no_burst_is_longer_than_a_default_mailbox_allows_and_all_together_are_about_n(n: int) -> None:
    bursts, size = split_bursts(n)
    assert 1 <= size <= BURST
    assert n - bursts < bursts * size <= n


def test_the_bytes_of_one_item_are_those_added_after_the_first_tenth() -> None:
    assert first_tenth(1000) == 100
    assert bytes_each(5_000_000, 5_900_000, 1000) == 1000
