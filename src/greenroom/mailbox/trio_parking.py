"""Parking on trio: a slot over `wait_task_rescheduled`, and the description of a running trio loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import outcome
import trio

from greenroom.mailbox.parking import EventLoop, Nursery


class TrioSlot:
    """A slot on trio. Trap: a trio task can be rescheduled only once it is parked, so an outcome that comes first waits here."""

    __slots__ = ("_done", "_outcome", "_task")

    _outcome: outcome.Value[Any] | outcome.Error

    def __init__(self) -> None:
        self._done = False
        self._task: trio.lowlevel.Task | None = None

    def done(self) -> bool:
        return self._done

    def set_result(self, value: Any, /) -> None:
        self._finish(outcome.Value(value))

    def set_exception(self, error: BaseException, /) -> None:
        self._finish(outcome.Error(error))

    def _finish(self, result: outcome.Value[Any] | outcome.Error) -> None:
        self._done = True
        task = self._task
        if task is None:
            self._outcome = result
        else:
            self._task = None
            trio.lowlevel.reschedule(task, result)

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        self._done = True
        return trio.lowlevel.Abort.SUCCEEDED

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._done:
            return self._at_once()
        self._task = trio.lowlevel.current_task()
        # Trio's own awaitable, not a generator around it: every wake-up would pass through that.
        return trio.lowlevel.wait_task_rescheduled(self._abort).__await__()  # noqa: ASYNC105 - awaited by our caller

    def _at_once(self) -> Generator[Any, Any, Any]:
        return self._outcome.unwrap()
        yield


def _open_nursery() -> AbstractAsyncContextManager[Nursery]:
    # trio's own type says more than ours asks for (start_soon takes arguments, and any name).
    return cast("AbstractAsyncContextManager[Nursery]", trio.open_nursery())


def current_trio_loop() -> EventLoop:
    """Describe the running trio loop. Raises `RuntimeError` when none is running."""
    clock = trio.lowlevel.current_clock()
    virtual = getattr(clock, "virtual_clock", None)
    return EventLoop(
        backend="trio",
        cancelled=trio.Cancelled,
        slot=TrioSlot,
        now=clock.current_time,
        stopwatch=time.monotonic if virtual is None else clock.current_time,
        cancel_scope=trio.CancelScope,
        effective_deadline=trio.current_effective_deadline,
        open_nursery=_open_nursery,
        post=trio.lowlevel.current_trio_token().run_sync_soon,
        checkpoint=trio.lowlevel.checkpoint,
        current_task=trio.lowlevel.current_task,
        virtual_clock=virtual,
        thread=threading.get_ident(),
    )
