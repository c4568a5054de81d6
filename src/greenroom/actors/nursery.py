"""An actor's own nursery: what it starts ends with the actor, and a crash in it is the actor's crash.

It cannot be opened in a handler's frame (a scope entered there would be left elsewhere, which breaks on both loops), so it is hosted
by a companion task in the supervisor's nursery. Most actors never use one, and a task group costs kilobytes: the companion starts
at first use.

Nothing leaves the tasks, and the companion waits for them behind a shield: so the task group's own scope, which lies inside the
guard, is never cancelled, and a task that swallows its cancellation can be left in peace like any stuck child.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVarTuple, Unpack

import anyio
from anyio.abc import TaskGroup

from greenroom.actors.exits import Verdict, classify, is_cancellation, suspended_stack
from greenroom.actors.scopes import ScopePair
from greenroom.errors import Misuse
from greenroom.mailbox import EventLoop, Slot

Ts = TypeVarTuple("Ts")


class Host(Protocol):
    """The incarnation that owns a nursery."""

    def start_companion(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None: ...
    def break_off(self, error: BaseException) -> None:
        """A task has failed; the others are being cancelled, and may take their time."""

    def companion_ended(self, verdict: Verdict | None) -> None: ...


class Nursery:
    """Starts event-loop tasks that belong to the actor. Narrower than anyio's TaskGroup on purpose."""

    __slots__ = (
        "_closed",
        "_end",
        "_errors",
        "_group",
        "_loop",
        "_path",
        "_queued",
        "_running",
        "_tasks",
        "began",
        "host",
        "scopes",
    )

    def __init__(self, host: Host, loop: EventLoop, path: str) -> None:
        self.host = host
        self._loop = loop
        self._path = path
        self._group: TaskGroup | None = None
        self._queued: list[tuple[Callable[..., Awaitable[object]], tuple[Any, ...]]] | None = None
        self._end: Slot | None = None
        self._running = 0
        self._tasks: dict[int, Awaitable[object]] | None = None
        """What runs, by identity, the oldest first."""
        self._errors: list[BaseException] = []
        self._closed = False
        self.began = False
        """Its task has had its first step."""
        self.scopes = ScopePair(loop.cancel_scope)

    def start_soon(self, func: Callable[[Unpack[Ts]], Awaitable[object]], *args: Unpack[Ts]) -> None:
        """Start a task. What it raises is the actor's crash; when the actor ends, it is cancelled and awaited.

        Raises `Misuse` when the actor is ending, `WrongThread` off the loop's thread.
        """
        self._loop.check_thread()
        if self._closed:
            raise Misuse(f"{self._path!r} is ending: its nursery starts nothing more")
        if self._group is not None:
            self._start(self._group, func, args)
        elif self._queued is not None:
            self._queued.append((func, args))
        else:
            self._queued = [(func, args)]
            self.host.start_companion(self._main)

    def open(self) -> None:
        """Start the companion now instead of at first use."""
        if self._queued is None:
            self._queued = []
            self.host.start_companion(self._main)

    @property
    def opened(self) -> bool:
        """Was it ever used?"""
        return self._queued is not None

    @property
    def closed(self) -> bool:
        """It starts nothing more."""
        return self._closed

    def stack(self) -> str:
        """Where the oldest of its tasks waits, for reports; empty when none does."""
        return suspended_stack(next(iter(self._tasks.values()))) if self._tasks else ""

    def close(self) -> None:
        """Cancel what runs; the host learns of the end by `companion_ended`."""
        self._closed = True
        self.scopes.cancel()
        self._wake()

    def _start(self, group: TaskGroup, func: Callable[..., Awaitable[object]], args: tuple[Any, ...]) -> None:
        self._running += 1
        group.start_soon(self.run_task, func, args)

    def _wake(self) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(None)

    async def run_task(self, func: Callable[..., Awaitable[object]], args: tuple[Any, ...]) -> None:
        """One of its tasks. When it fails the actor has crashed at once, though the others may take their time to clean up."""
        if self._tasks is None:
            self._tasks = {}
        work: Awaitable[object] | None = None
        try:
            work = func(*args)
            self._tasks[id(work)] = work
            await work
        except BaseException as error:  # noqa: BLE001 - what it is says the actor's verdict
            if not (is_cancellation(error, self._loop.cancelled) and self._ordered_cancellation()):
                self._errors.append(error)
                self.host.break_off(error)
                self.close()
        finally:
            self._tasks.pop(id(work), None)
            self._running -= 1
            if self._closed:
                self._wake()

    def _ordered_cancellation(self) -> bool:
        """Any other one (the task has awaited a cancelled future) is a failure, or the task would be gone without a trace."""
        return self._closed or anyio.current_effective_deadline() == float("-inf")

    async def _main(self) -> None:
        self.began = True
        verdict = None
        try:
            with self.scopes:
                async with anyio.create_task_group() as group:
                    self._group = group
                    for func, args in self._queued or ():
                        self._start(group, func, args)
                    with anyio.CancelScope(shield=True):
                        while self._running or not self._closed:
                            self._end = self._loop.slot()
                            await self._end
        except BaseException as error:  # noqa: BLE001
            # A native cancellation of the companion itself.
            self._errors.append(error)
        self._group = None
        self._closed = True
        if self._errors:
            # All of it goes to the actor, which decides; KeyboardInterrupt and SystemExit with it.
            failed = BaseExceptionGroup("tasks of the actor's nursery have failed", self._errors)
            verdict = classify(failed, self._loop.cancelled)
        self.host.companion_ended(verdict)
