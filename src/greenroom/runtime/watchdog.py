"""A daemon thread beside the event loop, for what a blocked loop cannot do: see signals through, report the block, end the process.

A loop that is blocked (a handler in `time.sleep`, a long computation) runs no rung of any ladder. So the deadline of the whole
shutdown, and the answer to an impatient second Ctrl-C, live on a thread of their own.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn

from attrs import define, frozen

from greenroom.actors import Event
from greenroom.actors.frames import running_on
from greenroom.logs import logger_named
from greenroom.mailbox import EventLoop

logger = logger_named("greenroom.runtime")

TICK = 0.1
"""Seconds between two looks at the loop."""
BLOCKED = 0.5
"""Seconds without a tick after which the loop counts as blocked."""
SIGNAL_PATIENCE = 2.0
"""Seconds that the loop may take to take up a signal."""
LAST_WORDS = 5.0
"""Seconds that the last report may take to be written, before a hard exit."""
HARD_EXIT = 70
"""Exit status of a process that had to be ended (EX_SOFTWARE of sysexits.h)."""


@frozen(kw_only=True)
class LoopBlocked(Event):
    """The event loop has not turned for `seconds`; every actor on it has stood still.

    Published once it turns again (until then there is the log). `path` is the actor that held it, or "" when none of ours did;
    `stack` is where it was.
    """

    seconds: float
    message_type: str | None
    stack: str


@define(eq=False)
class Ping:
    """A question to the loop, whether it turns."""

    asked_at: float
    found: tuple[str, str | None, str] | None = None
    """Who held it, when it did not answer in time: path, message type, stack."""


@frozen(eq=False)
class Target:
    """The loop that is watched, and what to tell it."""

    loop: EventLoop
    blocked: Callable[[str, str | None, float, str], object]
    describe: Callable[[], object]


class Watchdog(threading.Thread):
    """Pings the loop, counts OS signals, owns the final deadline. `with Watchdog():` it is on duty."""

    def __init__(self) -> None:
        super().__init__(name="greenroom-watchdog", daemon=True)
        self._closed = threading.Event()
        self._target: Target | None = None
        self._ping: Ping | None = None
        self._deadline: float | None = None
        self._signals = 0
        self._taken = 0
        self._signal_at = 0.0
        self._last_stage_passed = False

    def __enter__(self) -> Watchdog:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self.join()

    # -------------------------------------------------------------------------- from the loop and signal handlers

    def watch(
        self,
        loop: EventLoop,
        *,
        blocked: Callable[[str, str | None, float, str], object],
        describe: Callable[[], object],
    ) -> None:
        """Watch a loop, until `unwatch`.

        Args:
            blocked: called on the loop, once a block is over, with (path, message type, seconds, stack).
            describe: the report to write before a hard exit; called on this thread.
        """
        self._target = Target(loop, blocked, describe)

    def unwatch(self) -> None:
        """The tree has ended. What is left of the process still has its deadline, and its signals."""
        self._target = None

    def signal_arrived(self) -> None:
        """From an OS signal handler: see that it is taken up. Takes no lock: the code it interrupts may hold that."""
        if self._signals == self._taken:
            self._signal_at = time.monotonic()
        self._signals += 1

    def signals_taken(self) -> None:
        """From the loop: all signals so far have been acted on."""
        self._taken = self._signals

    def set_deadline(self, seconds: float) -> None:
        """End the process in so many seconds, unless it is off duty before."""
        self._deadline = time.monotonic() + seconds

    def exit_now(self) -> None:
        """The last stage is passed: end the process."""
        self._last_stage_passed = True

    # ------------------------------------------------------------------------------------------------- the thread

    def run(self) -> None:
        """Look around every tick."""
        while not self._closed.wait(TICK):
            now = time.monotonic()
            if self._last_stage_passed:
                self._hard_exit("it was told to stop once more after the last stage")
            if self._deadline is not None and now >= self._deadline:
                self._hard_exit("its final deadline has passed")
            if self._signals > self._taken and now - self._signal_at >= SIGNAL_PATIENCE:
                self._hard_exit(f"a signal was not taken up within {SIGNAL_PATIENCE:g} s")
            target = self._target
            if target is not None:
                self._look_at(target, now)

    def _look_at(self, target: Target, now: float) -> None:
        ping = self._ping
        if ping is None:
            self._ping = ping = Ping(now)
            with contextlib.suppress(RuntimeError):  # the loop is closed, and will be unwatched
                target.loop.post(lambda: self._turned(target, ping))
        elif ping.found is None and now - ping.asked_at >= BLOCKED:
            path, message, stack = ping.found = _who_holds(target.loop.thread)
            logger.warning(
                "the event loop has been blocked for %.1f s by %s (message in hand: %s)\n%s",
                now - ping.asked_at,
                path or "code outside the tree",
                message,
                stack,
            )

    def _turned(self, target: Target, ping: Ping) -> None:
        """On the loop: it turns (again)."""
        self._ping = None
        if ping.found is not None and self._target is target:
            path, message, stack = ping.found
            target.blocked(path, message, time.monotonic() - ping.asked_at, stack)

    def _hard_exit(self, why: str) -> NoReturn:
        # What reads our standard error may have stopped reading; that must not keep the process either.
        last = threading.Timer(LAST_WORDS, os._exit, (HARD_EXIT,))
        last.daemon = True
        try:
            last.start()
            self._say_last_words(why)
        finally:
            os._exit(HARD_EXIT)

    def _say_last_words(self, why: str) -> None:
        target = self._target
        try:
            report = "the tree has ended" if target is None else str(target.describe())
        except Exception as error:  # noqa: BLE001 - the loop's thread may be changing what is described; the exit must come
            report = f"(no report: {error!r})"
        print(f"greenroom: the process is ended by force: {why}", report, sep="\n", file=sys.stderr)  # noqa: T201
        print("stacks of all threads:", file=sys.stderr, flush=True)  # noqa: T201
        faulthandler.dump_traceback(all_threads=True)


def _who_holds(thread: int) -> tuple[str, str | None, str]:
    """The actor whose code a thread runs: (path, message type in hand, stack); the path is "" when it is no actor's."""
    life, stack = running_on(thread)
    return ("", None, stack) if life is None else (life.cell.path, life.messages.type_in_hand, stack)
