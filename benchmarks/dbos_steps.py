"""DBOS: workflows of ten steps, on SQLite and on the same PostgreSQL. In a process of its own, as DBOS is one for the whole process.

Of its ways to run many at once, threads are measured: coroutines were slower on both databases.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from benchmarks.databases import Databases, Kind
from benchmarks.floor import STEPS, Result
from benchmarks.harness import Figures, p50, p99

_ROOT: Final = Path(__file__).resolve().parent.parent


def measure(databases: Databases, kind: Kind, at_once: int, n: int) -> Figures:
    """Steps per second, of about n in workflows of ten, and how long a workflow took (ms).

    Raises:
        subprocess.CalledProcessError: if the other process failed; its stderr has gone to ours.
    """
    if kind == "postgres":
        return _ask_process(urlunsplit(urlsplit(databases.server)._replace(path="/dbos_bench")), at_once, n)
    with databases.fresh_file() as path:
        return _ask_process(f"sqlite:///{path}", at_once, n)


def _ask_process(url: str, at_once: int, n: int) -> Figures:
    command = [sys.executable, "-m", "benchmarks.dbos_steps", url, str(at_once), str(n)]
    done = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def _main(url: str, at_once: int, n: int) -> Figures:
    from dbos import DBOS

    logging.disable(logging.WARNING)
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})

    @DBOS.step()
    def step(number: int) -> Any:
        return Result(number)

    @DBOS.workflow()
    def work() -> int:
        for number in range(STEPS):
            step(number)
        return STEPS

    DBOS.launch()

    def run(rounds: int, lanes: int) -> Figures:
        latencies = []
        begin = perf_counter()
        for _ in range(rounds):
            started = perf_counter()
            for handle in [DBOS.start_workflow(work) for _ in range(lanes)]:
                handle.get_result()
                latencies.append((perf_counter() - started) * 1000)
        rate = rounds * lanes * STEPS / (perf_counter() - begin)
        stem = f"steps_{at_once}"
        return {stem: rate, f"{stem}_p50": p50(latencies), f"{stem}_p99": p99(latencies)}

    try:
        run(1, 3)
        return run(max(1, n // STEPS // at_once), at_once)
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    print(json.dumps(_main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
