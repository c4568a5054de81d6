"""Seeded simulation of tasks: `python -m benchmarks.simulate [--seeds 10000] [--first N] [--postgres]`.

Each seed is one run of real code in virtual time, on one of the event loops: workers, a client and an operator whose processes die at the
points that the seed chooses, over a store that fails, answers late or not at all, and a clock that jumps. For ten virtual minutes; then
all tasks must come to the results that their plans say, with no accepted operation repeated. A seed that fails is printed, with what to
run to see it alone; the same seed is the same run.

Exit status: 0 when all seeds came through; 1 when some did not.
"""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from time import process_time

from benchmarks.databases import Databases
from benchmarks.simulated import tasks_by_random_plans
from greenroom.testing import fresh_store
from greenroom.testing.simulation import SimulationFailed, simulate

EVERY = 100
"""Seeds between two lines of progress."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Simulate tasks under seeded trouble.")
    parser.add_argument("--seeds", type=int, default=10_000, help="how many (default: 10000)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the first one (default: 0)")
    parser.add_argument("--postgres", action="store_true", help="on PostgreSQL, in the place of SQLite")
    options = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)  # what goes wrong is told at length, and is meant to
    failed: list[int] = []
    deaths = faults = jumps = refused = 0
    began = process_time()
    with ExitStack() as stack:
        server = stack.enter_context(Databases()).server if options.postgres else None
        url = stack.enter_context(fresh_store(server))
        for done, seed in enumerate(range(options.first, options.first + options.seeds), 1):
            try:
                run = simulate(tasks_by_random_plans, seed, url=url)
            except SimulationFailed as error:
                failed.append(seed)
                traceback.print_exception(error)
            else:
                deaths, faults = deaths + len(run.deaths), faults + len(run.faults)
                jumps, refused = jumps + run.jumps, refused + run.refused
            if done % EVERY == 0 or done == options.seeds:
                print(
                    f"{done:,} seeds in {process_time() - began:.0f} s of CPU: {deaths:,} deaths, {faults:,} faults of the store, "
                    f"{jumps:,} jumps of the clock, {refused:,} stale writes refused; {len(failed)} failed",
                    flush=True,
                )
    if failed:
        print(f"failed: {', '.join(map(str, failed))}; run one alone by --first N --seeds 1")
    return min(1, len(failed))


if __name__ == "__main__":
    sys.exit(main())
