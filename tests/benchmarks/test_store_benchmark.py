"""That the store's benchmark is complete, and that the floor does what it is said to do."""

from __future__ import annotations

import importlib.util
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.databases import Databases
from benchmarks.floor import STEPS, SqliteJournal, steps
from benchmarks.harness import select
from benchmarks.loops import run_on
from benchmarks.raw import sqlite_rows
from benchmarks.store import METRICS, build


def test_every_target_names_two_sides_that_are_measured() -> None:
    with Databases() as databases:
        benchmark = build(databases, quick=True)
    topics = {metric.name: metric.topic or metric.name for metric in benchmark.metrics}
    measured = {(case.topic, case.subject, case.backend) for case in benchmark.cases}
    for target in benchmark.targets:
        if target.against == "dbos" and importlib.util.find_spec("dbos") is None:  # of the extra `bench`
            continue
        topic = topics[target.metric]
        for backend in target.backends:
            assert (topic, target.subject, backend) in measured
            assert (topic, target.against, target.against_backend or backend) in measured


def test_every_metric_can_be_chosen_by_its_name() -> None:
    with Databases() as databases:
        benchmark = build(databases, quick=True)
    for metric in METRICS:
        assert {case.topic for case in select(benchmark.cases, benchmark.metrics, [metric.name])} == {
            metric.topic or metric.name
        }


@pytest.mark.real_time
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_the_floor_has_written_every_step_when_it_ends(tmp_path: Path, loop: str) -> None:
    path = tmp_path / "floor.db"
    figures = run_on(loop, steps, SqliteJournal(path), 20, 3 * 20 * STEPS)
    assert min(figures.values()) > 0
    with closing(sqlite3.connect(path)) as connection:
        of_each = [count for (count,) in connection.execute("SELECT count(*) FROM journal GROUP BY workflow")]
    assert of_each == [STEPS] * (1 + 3 * 20)  # one by which the table is known to be there


@pytest.mark.real_time
@pytest.mark.parametrize("group", [1, 100])
def test_the_raw_limits_write_every_row(tmp_path: Path, group: int) -> None:
    path = tmp_path / "raw.db"
    assert sqlite_rows(path, group, 250) > 0
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT name) FROM raw").fetchone() == (250, 250)
