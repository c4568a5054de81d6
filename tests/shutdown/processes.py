"""Processes that run a service of `services`, watched from outside: what they say, and how they end."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
PATIENCE = 50.0
"""Real seconds that anything may take before the test fails: a limit, not a wait."""


class Process:
    """A running service."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.said: list[str] = []
        """Lines of both streams, as read so far, in order of arrival for each stream."""
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (process.stdout, process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def hears(self, text: str) -> None:
        """Wait for a line that holds this text."""
        while True:
            line = self._lines.get(timeout=PATIENCE)
            if line is None:
                raise AssertionError(f"it has ended without saying {text!r}; it said:\n" + "\n".join(self.said))
            self.said.append(line)
            if text in line:
                return

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send an OS signal."""
        self._process.send_signal(number)

    def status(self) -> int:
        """Wait for the end; the exit status."""
        status = self._process.wait(timeout=PATIENCE)
        for reader in self._readers:
            reader.join(timeout=PATIENCE)
        while not self._lines.empty():
            line = self._lines.get()
            if line is not None:
                self.said.append(line)
        return status

    @property
    def words(self) -> list[str]:
        """What it said of its end, without its log."""
        return [line for line in self.said if line.startswith(("on_stop", "body left", "interrupted", "a has"))]

    @property
    def text(self) -> str:
        """Everything it said."""
        return "\n".join(self.said)


@contextmanager
def running(name: str, loop: str) -> Iterator[Process]:
    """Run a service of `tests.shutdown.services`; killed at the end if it still runs."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.shutdown.services", name, loop],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield Process(process)
        finally:
            process.kill()
