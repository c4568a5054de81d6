"""I1, I2, I4 and I8 of tasks and their workers, with real processes: workers are killed, stopped and started twice, and all tasks end.

What is checked is told in `benchmarks.task_kill_loop`: each operation was accepted once, and never invoked after that.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.real_time


def run_loop(*options: str) -> str:
    """Run the loop to its end. Returns what it says."""
    command = (sys.executable, "-m", "benchmarks.task_kill_loop", *options)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_three_workers_that_are_killed_and_stopped_perform_every_task_and_accept_each_operation_once(url: str) -> None:
    told = run_loop("--store", url, "--kills", "3", "--seed", "3")
    assert "all ended, each accepted once" in told


@pytest.mark.full
def test_many_kills_stops_and_second_starts_on_sqlite() -> None:
    assert "all ended, each accepted once" in run_loop("--only", "sqlite", "--kills", "30", "--seed", "11")


@pytest.mark.full
def test_many_kills_stops_and_second_starts_and_restarts_of_the_server_on_postgresql() -> None:
    told = run_loop("--only", "postgres", "--kills", "20", "--seed", "12")
    assert "all ended, each accepted once" in told
    assert ", 0 restarts" not in told
