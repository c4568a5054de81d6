"""A daemon thread beside the event loop, for what a blocked loop cannot do: see signals through, report the block, end the process.

A loop that is blocked (a handler in `time.sleep`, a long computation) runs no rung of any ladder. So the deadline of the whole
shutdown, and the answer to an impatient second Ctrl-C, live on a thread of their own.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType

from attrs import frozen

from greenroom.actors import ActorLife, Event

logger = logging.getLogger("greenroom.runtime")

TICK = 0.1
"""Seconds between two looks at the loop."""
BLOCKED = 0.5
"""Seconds without a tick after which the loop counts as blocked."""
SIGNAL_PATIENCE = 2.0
"""Seconds that the loop may take to take up a signal."""
HARD_EXIT = 70
"""Exit status of a process that had to be ended (EX_SOFTWARE of sysexits.h)."""


@frozen(kw_only=True)
class LoopBlocked(Event):
    """The event loop has not turned for `seconds`; every actor of the process has stood still.

    `path` is the actor that held it, or "" when none of ours did; `stack` is where it was.
    """

    seconds: float
    message_type: str | None
    stack: str


class Watchdog(threading.Thread):
    """Pings the loop, counts OS signals, owns the final deadline.

    Args:
        post: run a function on the loop, thread-safe.
        loop_thread: identity of the loop's thread.
        blocked: called on the loop, once a block is over, with (path, message type, seconds, stack).
        describe: the report to write before a hard exit; called on this thread.
    """

    def __init__(
        self,
        post: Callable[[Callable[[], object]], object],
        loop_thread: int,
        blocked: Callable[[str, str | None, float, str], object],
        describe: Callable[[], str],
    ) -> None:
        super().__init__(name="greenroom-watchdog", daemon=True)
        self._post = post
        self._loop_thread = loop_thread
        self._blocked = blocked
        self._describe = describe
        self._wake = threading.Event()
        self._closed = False
        self._pinged_at: float | None = None
        self._reported = False
        self._found: tuple[str, str | None, str] = ("", None, "")
        self._deadline: float | None = None
        self._signals = 0
        self._taken = 0
        self._signal_at = 0.0
        self._last_stage_passed = False

    # -------------------------------------------------------------------------- from the loop and signal handlers

    def signal_arrived(self) -> None:
        """From an OS signal handler: the loop has been told, see that it listens."""
        if self._signals == self._taken:
            self._signal_at = time.monotonic()
        self._signals += 1
        self._wake.set()

    def signals_taken(self) -> None:
        """From the loop: all signals so far have been acted on."""
        self._taken = self._signals

    def set_deadline(self, seconds: float) -> None:
        """End the process in so many seconds, unless closed before."""
        self._deadline = time.monotonic() + seconds

    def exit_now(self) -> None:
        """The last stage is passed: end the process."""
        self._last_stage_passed = True
        self._wake.set()

    def close(self) -> None:
        """The tree has ended. Waits for the thread."""
        self._closed = True
        self._wake.set()
        self.join()

    # ------------------------------------------------------------------------------------------------- the thread

    def run(self) -> None:
        """Look around every tick."""
        while not self._closed:
            self._wake.wait(TICK)
            self._wake.clear()
            if self._closed:
                return
            now = time.monotonic()
            if self._last_stage_passed:
                self._hard_exit("it was told to stop once more after the last stage")
            if self._deadline is not None and now >= self._deadline:
                self._hard_exit("its final deadline has passed")
            if self._signals > self._taken and now - self._signal_at >= SIGNAL_PATIENCE:
                self._hard_exit(f"the event loop did not take up a signal within {SIGNAL_PATIENCE:g} s")
            self._look_at_loop(now)

    def _look_at_loop(self, now: float) -> None:
        if self._pinged_at is None:
            self._pinged_at = now
            try:
                self._post(self._pong)
            except RuntimeError:  # the loop is closed: nothing to watch any more
                self._closed = True
        elif now - self._pinged_at >= BLOCKED and not self._reported:
            self._reported = True
            path, message, stack = self._found = self._who()
            logger.warning(
                "the event loop is blocked for %.1f s by %s (message in hand: %s)\n%s",
                now - self._pinged_at,
                path or "code outside the tree",
                message,
                stack,
            )

    def _pong(self) -> None:
        """On the loop: it turns (again)."""
        started, reported = self._pinged_at, self._reported
        self._reported = False
        self._pinged_at = None
        if reported and started is not None:
            path, message, stack = self._found
            self._blocked(path, message, time.monotonic() - started, stack)

    def _who(self) -> tuple[str, str | None, str]:
        """The actor whose frame is on the loop's stack: (path, message type in hand, stack)."""
        frame: FrameType | None = sys._current_frames().get(self._loop_thread)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        while frame is not None:
            life = (
                frame.f_locals.get("self")
                if frame.f_code.co_name in ("_guarded", "_end")
                else None
            )
            if isinstance(life, ActorLife):
                return life.cell.path, life.messages.type_in_hand, stack
            frame = frame.f_back
        return "", None, stack

    def _hard_exit(self, why: str) -> None:
        try:
            report = self._describe()
        except Exception as error:  # noqa: BLE001 - the loop's thread may be changing what is described; the exit must come
            report = f"(no report: {error!r})"
        sys.stderr.write(f"greenroom: the process is ended by force: {why}\n{report}\nstacks of all threads:\n")
        sys.stderr.flush()
        faulthandler.dump_traceback(all_threads=True)
        os._exit(HARD_EXIT)
