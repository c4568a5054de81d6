"""A process that is there to be killed, as the kill loops start it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from typing import Any, Final

from benchmarks.databases import KINDS, Kind, missing_for_postgres

PATIENCE: Final = 90.0
"""Seconds in which a victim must have said what is waited for, and in which it must end when it is let."""


class Stalled(Exception):
    """The victims do not get on."""


class Victim:
    """One life of a process.

    Args:
        main: called there with `args`, and with the end of a pipe on which it says how far it is; what it gets there ends it in order.
    """

    def __init__(self, main: Callable[..., None], *args: Any) -> None:
        context = multiprocessing.get_context("forkserver")
        self._pipe, theirs = context.Pipe()
        self._process: ForkServerProcess = context.Process(target=main, args=(*args, theirs), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None  # it was started
        return self._process.pid

    def await_news(self, wanted: str) -> None:
        """Wait until it says so.

        Raises:
            Stalled: it has ended, or said nothing in time.
        """
        while True:
            if not wait([self._pipe, self._process.sentinel], PATIENCE):
                raise Stalled(f"the process {self.pid} has not come to {wanted!r} in {PATIENCE:g} s")
            try:
                if self._pipe.recv() == wanted:
                    return
            except EOFError:
                self._process.join()
                raise Stalled(f"the process {self.pid} has ended by itself, with {self._process.exitcode}") from None

    def pause(self) -> None:
        """SIGSTOP: it goes on at `resume` with whatever it was doing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def stop(self) -> int | None:
        """Let it end in order. Returns its exit code; None when it does not end."""
        self._pipe.send("stop")
        self._process.join(PATIENCE)
        return self._process.exitcode


def kinds(only: Kind | None = None) -> tuple[Kind, ...]:
    """The databases that there are here."""
    absent = missing_for_postgres()
    if absent is not None:
        print(f"{absent} is not installed: PostgreSQL is left out")
    return tuple(kind for kind in KINDS if (only is None or kind == only) and (kind != "postgres" or absent is None))
