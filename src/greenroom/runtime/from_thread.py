"""Reaching actors from other threads: `runtime.from_thread`."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from greenroom.actors import Message, Ref, current_actor
from greenroom.errors import Misuse, RuntimeNotRunning

if TYPE_CHECKING:
    from datetime import datetime

    from greenroom.mailbox import EventLoop, Receipt

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class FromThread:
    """Blocking calls for threads that are not the event loop's. Each costs a hop to the loop and back.

    From a thread that belongs to an actor (`isolation="thread"`) they are made in that actor's name: it is the sender, and an ask
    to itself raises `WouldDeadlock`.
    """

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

    def send(
        self, ref: Ref, message: Message[Any], *, message_id: str | None = None, deliver_at: datetime | None = None
    ) -> Receipt | None:
        """As `ref.send`, blocking this thread."""

        async def send() -> Receipt | None:
            return await ref.send(message, message_id=message_id, deliver_at=deliver_at)

        return self.call(send)

    def ask(self, ref: Ref, message: Message[R], *, timeout: float | None = 5.0, message_id: str | None = None) -> R:
        """As `ref.ask`, blocking this thread."""

        async def ask() -> R:
            return await ref.ask(message, timeout=timeout, message_id=message_id)

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
        # An actor's thread goes on being that actor: its calls are made in its name, and it must not wait for itself.
        actor, thread = current_actor.get(), threading.get_ident()

        async def run() -> None:
            current_actor.set(actor)
            try:
                with nullcontext() if actor is None else actor.calling_from(thread):
                    result = await function(*args)
                if not future.done():  # it is done when the runtime has ended meanwhile
                    future.set_result(result)
            except self._loop.cancelled:
                self._fail(future)
                raise
            except BaseException as error:  # noqa: BLE001
                # Belongs to the caller, whichever it is: it must not bring the runtime's nursery down.
                if not future.done():
                    future.set_exception(error)

        def begin() -> None:
            try:
                if not future.done():
                    self._spawn(run)
            except (RuntimeError, RuntimeNotRunning):  # the runtime's nursery is not open yet, or has just been closed
                self._fail(future)

        # Noted before the flag is looked at: a call that `close` does not find then finds the flag.
        self._pending.add(future)
        try:
            if self._closed:
                self._fail(future)
            else:
                self._loop.post(begin)
        except RuntimeError:  # asyncio: the loop is closed; trio.RunFinishedError is one, too
            self._fail(future)
        try:
            return future.result()
        finally:
            self._pending.discard(future)

    def close(self) -> None:
        """The runtime has ended: whoever waits is told so."""
        self._closed = True
        for future in self._pending.copy():
            self._fail(future)

    @staticmethod
    def _fail(future: Future[Any]) -> None:
        with suppress(InvalidStateError):  # it is done: two threads may come to say so
            future.set_exception(RuntimeNotRunning("runtime.from_thread"))
