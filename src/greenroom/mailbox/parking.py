"""Parking on the event loop's own primitives: one thin shim for each backend.

Everything above waits through `Slot`, a one-shot that one event-loop task awaits. A slot costs a fraction of an `anyio.Event`
(measured: asks are 1.3 to 2.6 times faster), and both loops' cancel scopes reach a task that is parked on one, which is all that
structured concurrency asks of a primitive. On asyncio a slot is the loop's own future; on trio it is `TrioSlot` (`trio_parking`, which
is imported only where trio runs: it is a quarter of what Greenroom takes to import).

`EventLoop` is the only place in the core that knows which loop is running.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Literal, Protocol, TypeVar

import anyio
import sniffio
from attrs import frozen

from greenroom.errors import WrongThread

T = TypeVar("T")

Backend = Literal["asyncio", "trio"]


class Slot(Protocol):
    """One value, or one exception, for the one event-loop task that awaits it.

    A waiter that is cancelled leaves the slot `done`; whoever fills slots therefore asks `done()` first.
    """

    def done(self) -> bool: ...
    def set_result(self, value: Any, /) -> None: ...
    def set_exception(self, error: Any, /) -> None: ...
    def __await__(self) -> Generator[Any, Any, Any]: ...


class CancelScope(Protocol):
    """What we need of a cancel scope, whosever it is."""

    shield: bool

    def __enter__(self) -> Any: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None: ...
    def cancel(self) -> Any: ...


class Nursery(Protocol):
    """A structured-concurrency nursery: leaving its block waits for all that was started in it."""

    def start_soon(self, main: Callable[[], Coroutine[Any, Any, None]], /, *, name: str | None = None) -> None: ...


class AsyncioNursery(asyncio.TaskGroup):
    """asyncio's own task group. anyio's scopes work in its tasks; starting one costs a third of anyio's `start_soon`."""

    def start_soon(self, main: Callable[[], Coroutine[Any, Any, None]], /, *, name: str | None = None) -> None:
        work = main()
        try:
            _ = self.create_task(work, name=name)  # the group keeps it, and its block waits for it
        except RuntimeError:  # the group is being torn down
            work.close()
            raise


@frozen(eq=False)
class EventLoop:
    """The running event loop, as the core needs it. Made by `current_loop()`, on the loop's own thread."""

    backend: Backend
    cancelled: type[BaseException]
    """What cancellation raises on this loop."""
    slot: Callable[[], Slot]
    """A fresh one-shot."""
    now: Callable[[], float]
    """Seconds on the loop's clock: the one that its deadlines use, virtual under a virtual clock."""
    stopwatch: Callable[[], float]
    """Seconds for measuring how long something takes; as `now` under a virtual clock, else the cheapest there is."""
    cancel_scope: Callable[[], CancelScope]
    """A fresh cancel scope of this loop's own: anyio's on asyncio, trio's on trio. Finding out which costs as much as making one."""
    effective_deadline: Callable[[], float]
    """By when the running event-loop task is cancelled by the scopes around it: `anyio.current_effective_deadline`, in one step."""
    open_nursery: Callable[[], AbstractAsyncContextManager[Nursery]]
    """A nursery of this loop's own. Its body must not leave it by an exception while children run: see to their end first."""
    post: Callable[[Callable[[], object]], object]
    """Run a function on the loop soon. The only member that may be called from any thread, and from an OS signal handler."""
    checkpoint: Callable[[], Awaitable[object]]
    """Let others run, and let a cancellation arrive."""
    current_task: Callable[[], object]
    """Identity of the running event-loop task."""
    virtual_clock: Any
    """The virtual clock that drives the loop, or None."""
    thread: int
    """Identity of the loop's thread, as by `threading.get_ident()`."""

    def check_thread(self) -> None:
        """Raise `WrongThread` unless called on the loop's thread."""
        if threading.get_ident() != self.thread:
            raise WrongThread


def current_loop() -> EventLoop:
    """Describe the running loop. Raises `RuntimeError` when none is running."""
    backend = sniffio.current_async_library()
    if backend == "trio":
        from greenroom.mailbox.trio_parking import current_trio_loop

        return current_trio_loop()
    loop = asyncio.get_running_loop()
    virtual = getattr(loop, "virtual_clock", None)
    scope = type(anyio.CancelScope())
    return EventLoop(
        backend="asyncio",
        cancelled=asyncio.CancelledError,
        slot=loop.create_future,
        now=loop.time,
        stopwatch=time.monotonic if virtual is None else loop.time,
        cancel_scope=scope,
        # The backend's own, where it can be found: anyio's asks first which loop is running, which costs more than the answer.
        effective_deadline=getattr(sys.modules[scope.__module__], "backend_class", anyio).current_effective_deadline,
        open_nursery=AsyncioNursery,
        # In a context of the loop's own thread: in the poster's, anyio would not know which loop runs the function.
        post=partial(loop.call_soon_threadsafe, context=contextvars.copy_context()),
        # A bare yield is enough: anyio delivers by Task.cancel(), which reaches the next resumption.
        checkpoint=partial(asyncio.sleep, 0),
        current_task=partial(asyncio.current_task, loop),
        virtual_clock=virtual,
        thread=threading.get_ident(),
    )
