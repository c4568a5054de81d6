"""Nothing depends on the order of sets or the seeds of hashes (K12)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_k12_branches_keep_their_own_results_under_every_hash_seed_and_loop() -> None:
    printed = set()
    for seed in ("0", "1", "4711"):
        run = subprocess.run(
            [sys.executable, "-m", "tests.replay.fan_out"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        printed.update(run.stdout.split())
    assert len(printed) == 1
