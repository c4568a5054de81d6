"""Bytes per idle item, measured in a process of its own.

Which figure is the honest one? What counts is what the kernel gives to the process: its resident set. It holds the
memory that C libraries take for themselves (uvloop's handles, the thread stacks that were touched) and the gaps that
the allocators leave, which no count of Python objects sees. It is coarse, pages and arenas, so it is read over
thousands of items, and in a fresh process, since memory that was freed before would be used again unseen. The first
tenth of the items is made before the first reading, and pays for what is there once. That is `idle_bytes`, and targets
are judged by it.

`tracemalloc` counts the Python allocator's bytes exactly and repeats to the byte, but sees nothing else, and its own
records would stand in the resident set. It is measured in a second process as `idle_traced`, to tell a change of ours
from noise.
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.harness import Figures
from benchmarks.loops import run_on

ReadMemory = Callable[[], int]
"""Bytes in use by this process, now."""

HoldIdle = Callable[[int, ReadMemory], Awaitable[float]]
"""Makes n idle items, and answers the bytes of one (see `bytes_each`)."""

_ROOT = Path(__file__).resolve().parent.parent
_STATM = Path("/proc/self/statm")


def read_resident() -> int:
    """The resident set of this process in bytes, after a collection (on systems without /proc: its peak so far)."""
    gc.collect()
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except OSError:
        # A process that only grows stands at its peak. macOS counts it in bytes; others, in kilobytes.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


def read_traced() -> int:
    """The bytes that Python's allocators have handed out and tracemalloc has seen, after a collection."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def first_tenth(n: int) -> int:
    """How many of n items are made before the first reading."""
    return max(1, n // 10)


def bytes_each(before: int, after: int, n: int) -> float:
    """Bytes of one item: what was added between the readings, over the items that were made between them."""
    return (after - before) / (n - first_tenth(n))


def measure_idle(hold: str, backend: str, n: int) -> Figures:
    """Bytes per idle item, by the resident set and by tracemalloc, each in a fresh process.

    Args:
        hold: where the `HoldIdle` function is, as `module:function`; it must be importable in the other process.
        n: items, at least 2; some thousands, or pages are all that is seen.
    Raises:
        ValueError: if n is below 2.
        subprocess.CalledProcessError: if the other process failed; its stderr has gone to ours.
    """
    if n < 2:
        raise ValueError(f"n is {n}: the bytes of one item are the difference between at least two")
    return {
        "idle_bytes": _ask_process(hold, backend, n, "resident"),
        "idle_traced": _ask_process(hold, backend, n, "traced"),
    }


def _ask_process(hold: str, backend: str, n: int, reading: str) -> float:
    command = [sys.executable, "-m", "benchmarks.memory", hold, backend, str(n), reading]
    done = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def _answer_process(hold: str, backend: str, n: int, reading: str) -> float:
    module, _, name = hold.partition(":")
    function: HoldIdle = getattr(importlib.import_module(module), name)
    if reading == "traced":
        tracemalloc.start()
        return run_on(backend, function, n, read_traced)
    return run_on(backend, function, n, read_resident)


if __name__ == "__main__":
    print(_answer_process(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
