"""Reaching actors from other threads: `runtime.from_thread`."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from greenroom.actors import Message, Ref
from greenroom.errors import Misuse, RuntimeNotRunning

if TYPE_CHECKING:
    from greenroom.mailbox import EventLoop

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class FromThread:
    """Blocking calls for threads that are not the event loop's. Each costs a hop to the loop and back."""

    def __init__(self, loop: EventLoop, spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]) -> None:
        self._loop = loop
        self._spawn = spawn
        self._pending: set[Future[Any]] = set()
        self._closed = False

    def tell(self, ref: Ref, message: Message[Any]) -> None:
        """As `ref.tell`: returns when the message is in the mailbox, raises what `tell` raises."""

        async def tell() -> None:
            ref.tell(message)

        self.call(tell)

    def ask(self, ref: Ref, message: Message[R], *, timeout: float | None = 5.0) -> R:
        """As `ref.ask`, blocking this thread."""

        async def ask() -> R:
            return await ref.ask(message, timeout=timeout)

        return self.call(ask)

    def call(self, function: Callable[[Unpack[Ts]], Awaitable[T]], *args: Unpack[Ts]) -> T:
        """Run an async function on the event loop, in the runtime's own nursery, and wait for what it returns or raises.

        Raises `Misuse` on the loop's own thread (it would wait for itself), `RuntimeNotRunning` when the runtime has ended or
        ends meanwhile.
        """
        if threading.get_ident() == self._loop.thread:
            raise Misuse(
                "runtime.from_thread was called on the event loop's own thread: use `await ref.ask(...)` or `ref.tell(...)`"
            )
        future: Future[T] = Future()

        async def run() -> None:
            try:
                future.set_result(await function(*args))
            except self._loop.cancelled:
                self._fail(future)
                raise
            except BaseException as error:  # noqa: BLE001
                # Belongs to the caller, whichever it is: it must not bring the runtime's nursery down.
                future.set_exception(error)
            finally:
                self._pending.discard(future)

        def begin() -> None:
            if self._closed:
                self._fail(future)
            else:
                self._pending.add(future)
                self._spawn(run)

        if self._closed:
            self._fail(future)
        else:
            try:
                self._loop.post(begin)
            except RuntimeError:  # asyncio: the loop is closed; trio.RunFinishedError is one, too
                self._fail(future)
        return future.result()

    def close(self) -> None:
        """The runtime has ended: whoever waits is told so."""
        self._closed = True
        for future in tuple(self._pending):
            self._fail(future)

    @staticmethod
    def _fail(future: Future[Any]) -> None:
        if not future.done():
            future.set_exception(RuntimeNotRunning("runtime.from_thread"))
