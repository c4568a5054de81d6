"""I1 and I5 of the whole runtime: a service is killed again and again while clients send, and nothing is lost or double."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.real_time
def test_i1_i5_a_service_that_is_killed_again_and_again_handles_everything_once_and_in_order(url: str) -> None:
    command = (sys.executable, "-m", "benchmarks.kill_loop", "--store", url, "--kills", "8", "--seed", "5")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=55, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 kills" in done.stdout
