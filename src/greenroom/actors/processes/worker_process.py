"""The operating system's side of a process child: an interpreter with a process group of its own, and how it ended.

Nothing here waits on the event loop. A daemon thread waits for the process; when it has ended, that thread kills what is left of
its group while the process is still a zombie (its number cannot have been given to another), and only then takes it off the
system. So the group goes with the worker even while the loop is blocked.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import attrs
from attrs import frozen

from greenroom.actors.processes.oom import OutOfMemory
from greenroom.actors.processes.references import main_program
from greenroom.logs import logger_named

logger = logger_named("greenroom.actors")

BOOT = Path(__file__).with_name("boot.py")


@frozen
class WorkerEnd:
    """How a worker ended."""

    status: int | None
    """Its exit status; below 0, the number of the OS signal that killed it; None when somebody else took it off the system."""
    out_of_memory: bool = False
    """Its control group counted a kill for want of memory."""

    @property
    def by_signal(self) -> bool:
        return self.status is not None and self.status < 0

    def __str__(self) -> str:
        if self.status is None:
            return "ended, and something else in this program took its exit status"
        if self.status >= 0:
            return f"ended by itself with exit status {self.status}"
        killed = f"was killed by {signal_name(-self.status)}"
        if self.out_of_memory:
            return f"{killed}: out of memory (its control group counted an oom_kill)"
        return killed


def signal_name(number: int) -> str:
    """`SIGKILL` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"OS signal {number}"


class WorkerProcess:
    """A running worker. All methods are for the event loop's thread, and return at once.

    Args:
        name: shown in the list of processes.
        ended: called on a thread of ours, once, when the worker has ended and been waited for.

    Raises `OSError` when no process can be started, `RuntimeError` when no thread can.
    """

    def __init__(self, name: str, ended: Callable[[WorkerEnd], None]) -> None:
        self._ended = ended
        self._lock = threading.Lock()
        self._reaped = False
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        # Nobody ever writes to the lifeline: that its other end is closed tells the worker that this process has gone.
        reading, self._lifeline = os.pipe()
        try:
            # On this thread, not through anyio: trio starts processes from a worker thread, whose end would count as that of
            # the parent for PR_SET_PDEATHSIG.
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]  # as multiprocessing does
                    str(BOOT),
                    *map(str, (theirs.fileno(), reading, os.getpid())),
                    name,
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), reading),
                start_new_session=True,
            )
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()
            os.close(reading)
        self.pid = self._process.pid
        self._out_of_memory = OutOfMemory(self.pid)
        try:
            threading.Thread(target=self._wait, name=f"greenroom waits for {name}", daemon=True).start()
        except RuntimeError:  # the system has no thread left
            self.signal_group(signal.SIGKILL)
            self._process.wait()
            self.close()
            raise

    def look_at_memory(self) -> None:
        """Forget kills for want of memory that others have met so far."""
        self._out_of_memory.rose()

    def signal_group(self, number: int) -> None:
        """Send an OS signal to the worker and to all that it has started, sessions of their own apart."""
        with self._lock:
            if not self._reaped:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, number)

    def close(self) -> None:
        """Give the descriptors back. A worker that still runs ends then."""
        self.socket.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _wait(self) -> None:
        try:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:  # somebody else in this program waits for any child, and has had this one
            known = False
        else:
            known = True
        with self._lock:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            status = self._process.wait()
            self._reaped = True
        out_of_memory = status == -signal.SIGKILL and self._out_of_memory.rose()
        self._ended(WorkerEnd(status if known else None, out_of_memory))


def preamble() -> bytes:
    """What a worker needs before it can import Greenroom: where this interpreter imports from, and its arguments."""
    path = [os.getcwd() if entry == "" else entry for entry in sys.path if isinstance(entry, str)]
    main = main_program()
    told = {"path": path, "argv": sys.argv, "main": None if main is None else attrs.asdict(main)}
    text = json.dumps(told).encode("utf-8", "surrogatepass")
    return len(text).to_bytes(4, "big") + text
