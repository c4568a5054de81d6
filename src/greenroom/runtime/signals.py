"""SIGINT and SIGTERM as stop requests.

A handler installed by `signal.signal` runs between two bytecodes of the main thread, whatever that does just then: it may only count
and post. The watchdog sees to it that the event loop takes the signal up.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from greenroom.errors import Misuse
from greenroom.mailbox import EventLoop
from greenroom.runtime.watchdog import Watchdog

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """`with Signals(watchdog):` these signals are ours. They wait while no event loop takes them."""

    def __init__(self, watchdog: Watchdog) -> None:
        self._watchdog = watchdog
        self._before: dict[int, Any] = {}
        self._waiting: list[int] = []
        self._deliver: Callable[[int], None] | None = None

    def __enter__(self) -> Signals:
        """Install the handlers. Raises `Misuse` off the main thread."""
        if threading.current_thread() is not threading.main_thread():
            raise Misuse("OS signals are delivered to the main thread: run there, or leave `signals=True` out")
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put the handlers back that were there before."""
        for number, handler in self._before.items():
            # None: it had been installed by other means than Python's, which cannot be told apart or put back.
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._before.clear()

    def deliver_to(self, loop: EventLoop, take: Callable[[signal.Signals], object]) -> None:
        """Call `take` on the event loop for each signal that has come and for each that will."""

        def take_up(number: int) -> None:
            self._watchdog.signals_taken()
            take(signal.Signals(number))

        def deliver(number: int) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the watchdog sees that nobody takes it
                loop.post(lambda: take_up(number))

        self._deliver = deliver
        while self._waiting:
            deliver(self._waiting.pop(0))

    def hold(self) -> None:
        """Deliver no more. When one comes now, the process has the watchdog's patience to end by itself."""
        self._deliver = None

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        self._watchdog.signal_arrived()
        if self._deliver is None:
            self._waiting.append(number)
        else:
            self._deliver(number)
