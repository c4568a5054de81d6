"""The other side of a process child: one actor in an interpreter of its own. Entered from `boot`.

The parent sends one message at a time and the final `FINISH`; `Worker` performs them on the main thread, in an event loop of the same
kind as the parent's. Plain `def` handlers are called in that loop, too: nothing else needs it meanwhile, and the main thread is where
an OS signal can interrupt them.

SIGTERM (and SIGINT) interrupt what the actor is doing: an `async def` is cancelled, in a plain `def` `Interrupted` is raised. After
that only `on_stop` is run.
"""

from __future__ import annotations

import contextlib
import fcntl
import inspect
import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, cast

import anyio

from greenroom.actors.actor import Actor, attach
from greenroom.actors.current import current_actor
from greenroom.actors.exits import classify
from greenroom.actors.handlers import Handler
from greenroom.actors.messages import Exit, Rejected, Stop
from greenroom.actors.processes.parcels import Assignment, Parcels
from greenroom.actors.processes.references import Main, check_handlers, located, resolver
from greenroom.actors.processes.wire import Frame, Kind, Splitter
from greenroom.actors.processes.worker_context import WorkerContext
from greenroom.actors.processes.worker_link import Link, end_group
from greenroom.actors.processes.worker_refs import Neighbours, Nursling, WorkerRef
from greenroom.errors import Misuse, NotEncodable, RemoteError
from greenroom.mailbox import EventLoop, current_loop

_PR_SET_PDEATHSIG = 1
_F_SETSIG = 10
_HANDLED = (signal.SIGTERM, signal.SIGINT)


class Interrupted(BaseException):
    """Raised in a plain `def` of an actor whose process was told to end. Not an `Exception`: let it pass."""


class Worker:
    """Runs one actor, from its assignment to its end."""

    def __init__(self, wire: socket.socket, main: Main | None) -> None:
        self._wire = wire
        self._splitter = Splitter()
        self._resolve = resolver(main)
        self._main = main
        self._loop: EventLoop | None = None
        self._actor: Any = None
        self._handlers: dict[type, Handler] = {}
        self._blocking = False
        self._number = 0
        """Of the request in hand."""
        self._crash: BaseException | None = None
        self._signal: str | None = None
        """The OS signal that told this process to end."""
        self._announced = False
        self._absorb = 0
        """How many SIGTERMs are still to come that were meant for a message which is in hand no longer."""
        self._interruptible = False
        self._frame: FrameType | None = None
        """That of `_run`, below which the actor's code runs."""
        self._finishing = False
        self._scope: anyio.CancelScope | None = None
        self._link: Link | None = None

    # -------------------------------------------------------------------------------------------------------- signals

    def take_signals(self) -> None:
        """Handle the OS signals that tell this process to end. On the main thread."""
        for number in _HANDLED:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._absorb:
            self._absorb -= 1
            return
        if self._loop is None:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self._signal = signal.Signals(number).name
        if self._interruptible and self._is_running(frame):
            self._interruptible = False
            assert self._link is not None
            self._link.break_off(Interrupted(self._signal))
            return
        scope = self._scope
        with contextlib.suppress(RuntimeError):  # the loop is closed: this process is about to end
            self._loop.post(lambda: self._interrupt(scope))

    def _is_running(self, frame: FrameType | None) -> bool:
        """Has the signal met the actor's own code, and not the event loop while that code waits?"""
        while frame is not None and frame is not self._frame:
            frame = frame.f_back
        return frame is not None

    def _interrupt(self, scope: anyio.CancelScope | None) -> None:
        """End what was under way when the signal came. What comes after it, `on_stop`, is not meant."""
        if scope is None and not self._finishing:
            scope = self._scope
        if scope is not None:
            scope.cancel()
        elif not self._finishing:
            self._announce(0)

    def _announce(self, number: int) -> None:
        """Tell the parent, once, that this process was told to end."""
        if not self._announced and self._signal is not None:
            self._announced = True
            self._send(Kind.SIGNALLED, number, self._signal.encode())

    # ------------------------------------------------------------------------------------------------------- the whole

    def read_assignment(self) -> tuple[int, Assignment]:
        """Wait for the parent's first request."""
        while True:
            data = self._wire.recv(1 << 16)
            if not data:
                end_group()
            frames = self._splitter.feed(data)
            for frame in frames:
                frames.close()  # what came behind it is the link's
                assignment = Parcels(_no_refs).decode(frame.payload)
                assert isinstance(assignment, Assignment)
                return frame.number, assignment

    async def run(self, number: int, assignment: Assignment) -> None:
        """The event loop's main task."""
        self._number = number
        self._loop = loop = current_loop()
        neighbours = Neighbours(loop, assignment.path)
        self._parcels = neighbours.parcels = Parcels(neighbours.find, self._resolve, WorkerRef)
        self._link = neighbours.link = Link(self._wire, self._splitter, loop, self._parcels)
        if not await self._start(number, assignment, neighbours):
            return
        while True:
            frame = await self._link.receive()
            self._number = frame.number
            if frame.kind is Kind.FINISH:
                await self._finish(frame)
                return
            if self._signal is None and self._crash is None:
                await self._handle(frame)
                self._announce(0)

    def last_words(self, error: BaseException) -> None:
        """Something has ended the event loop itself: SystemExit out of a task that the actor started, no memory for its start."""
        try:
            told = Parcels(_no_refs).pack_error(error)
            self._wire.sendall(Frame(Kind.RAISED, self._number, told).pack())
        except OSError:
            pass  # the parent has gone

    def _send(self, kind: Kind, number: int, payload: bytes = b"") -> None:
        assert self._link is not None
        self._link.send(kind, number, payload)

    # -------------------------------------------------------------------------------------------------------- requests

    async def _start(self, number: int, assignment: Assignment, neighbours: Neighbours) -> bool:
        self._nursling = Nursling(assignment.path)
        current_actor.set(cast("Any", self._nursling))
        own = neighbours.find(assignment.path, assignment.incarnation)
        context = WorkerContext(own, assignment.incarnation, neighbours, lambda: self._interruptible)
        try:
            self._actor = await self._run(lambda: self._construct(assignment, context), interruptible=True)
            info = await self._run(self._actor.on_start, interruptible=self._blocking)
            names = tuple(sorted(message_type_name(message) for message in self._handlers))
            payload = self._parcels.encode((info, names))
        except Interrupted:
            self._announce(number)
        except BaseException as error:  # noqa: BLE001 - it is the parent's to judge
            self._raised(number, error)
        else:
            self._send(Kind.REPLIED, number, payload)
            return True
        return False

    def _construct(self, assignment: Assignment, context: WorkerContext) -> Actor:
        if assignment.memory_limit is not None:
            # Not before everything of ours runs: what was too little even for that could not be told.
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (assignment.memory_limit, assignment.memory_limit))
        call = self._parcels.decode(assignment.call)
        factory = located(call.reference, self._main)
        self._parcels.teach(factory)
        self._nursling.offer_context(context)
        try:
            actor = factory(*call.arguments, **call.keywords)
        finally:
            self._nursling.offer_context(None)
        if not isinstance(actor, Actor):
            raise TypeError(f"{call.reference} made a {type(actor).__qualname__}; it has to make a gr.Actor")
        check_handlers(type(actor))
        attach(actor, context)
        self._handlers = dict(type(actor).__handlers__)
        self._blocking = type(actor).__blocking__ is True
        self._parcels.teach(type(actor))
        return actor

    async def _handle(self, frame: Frame) -> None:
        number = frame.number
        try:
            message = self._parcels.decode(frame.payload)
        except MemoryError as error:
            self._raised(number, error)
            return
        except Exception as error:  # noqa: BLE001 - Undecodable, or what importing the message's module raises
            self._send(Kind.UNDELIVERABLE, number, self._parcels.pack_error(error))
            return
        handler = self._handler(type(message))
        if handler is None:
            self._send(Kind.UNHANDLED, number)
            return
        try:
            result = await self._run(lambda: handler.function(self._actor, message), interruptible=self._blocking)
        except Interrupted:
            self._announce(number)
        except BaseException as error:  # noqa: BLE001 - it is the parent's to judge
            self._raised(number, error)
        else:
            self._reply(frame, result)

    def _reply(self, frame: Frame, result: object) -> None:
        try:
            payload = self._parcels.encode(result) if frame.kind is Kind.ASKED else b""
            self._send(Kind.REPLIED, frame.number, payload)
        except (NotEncodable, OverflowError) as error:
            self._send(Kind.UNDELIVERABLE, frame.number, self._parcels.pack_error(error))

    async def _finish(self, frame: Frame) -> None:
        self._finishing = True
        exit, signal_follows = self._parcels.decode(frame.payload)
        if signal_follows and self._signal is None:
            self._absorb += 1
        if self._crash is not None and exit.kind == "error":
            exit = Exit("error", self._crash)
        try:
            if type(self._actor).on_stop is not Actor.on_stop:
                await self._run(lambda: self._actor.on_stop(exit), interruptible=self._blocking)
        except Interrupted:
            self._send(Kind.SIGNALLED, frame.number)
        except BaseException as error:  # noqa: BLE001 - it is the parent's to judge
            self._raised(frame.number, error)
        else:
            self._send(Kind.REPLIED, frame.number)

    def _raised(self, number: int, error: BaseException) -> None:
        if isinstance(error, BaseExceptionGroup):
            # As for a task child: one exception is unwrapped, several are one failure.
            assert self._loop is not None
            error = classify(error, self._loop.cancelled).exit.cause or error
        if not isinstance(error, (Rejected, Stop)):
            self._crash = error
        self._send(Kind.RAISED, number, self._told(error))

    def _told(self, error: BaseException) -> bytes:
        sys.stdout.flush()
        sys.stderr.flush()
        if isinstance(error, MemoryError):
            traceback.clear_frames(error.__traceback__)  # what filled the memory is most likely held by them
        try:
            return self._parcels.pack_error(error)
        except MemoryError:
            return self._parcels.encode((None, (), {}, RemoteError("MemoryError", "")))

    def _handler(self, message: type) -> Handler | None:
        for base in message.__mro__:
            handler = self._handlers.get(base)
            if handler is not None:
                self._handlers[message] = handler
                return handler
        return None

    # ------------------------------------------------------------------------------------------------- the actor's code

    async def _run(self, call: Callable[[], Any], *, interruptible: bool) -> Any:
        """Call the actor's code, and await what it returns if that can be awaited.

        Raises `Interrupted` when an OS signal ended it; `interruptible`: by an exception out of nowhere, not only at an await.
        """
        assert self._loop is not None
        with self._loop.cancel_scope() as scope:
            self._scope, self._frame = scope, sys._getframe()
            try:
                self._interruptible = interruptible
                result = call()
                if inspect.isawaitable(result):
                    result = await result
                return result
            finally:
                self._interruptible = False
                self._scope = self._frame = None
        raise Interrupted(self._signal or "")


def message_type_name(message: type) -> str:
    """A message class by its short name, as errors have it."""
    return message.__qualname__.rpartition("<locals>.")[2]


def guard(lifeline: int, parent: int) -> None:
    """See to it that this process group ends with the parent, however that ends and whatever the actor's code is doing.

    Three nets. The reading thread (`Link`) needs the interpreter, which code in C may hold for ever. So Linux is asked to send SIGKILL
    to the group when the lifeline's other end is closed; another process that the parent has forked may hold that open, so this one
    is also sent a signal when the parent's thread that started it has ended. That must not kill it on the spot: it may come before
    the lifeline closes (with the last thread of the parent), and what this process has started would be left behind.
    """
    os.set_inheritable(lifeline, False)
    if sys.platform == "linux":
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
        import ctypes

        signal.signal(signal.SIGRTMAX, lambda _number, _frame: end_group())
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGRTMAX)
    if os.getppid() != parent:  # it has gone before it could be noticed
        end_group()


def main(control: int, lifeline: int, parent: int, main_program: dict[str, str | None] | None) -> None:
    """The whole life of a worker process."""
    guard(lifeline, parent)
    wire = socket.socket(fileno=control)
    wire.set_inheritable(False)
    worker = Worker(wire, Main(**main_program) if main_program is not None else None)
    number, assignment = worker.read_assignment()
    path = assignment.path.replace("%", "%%")
    logging.basicConfig(level=assignment.log_level, format=f"%(asctime)s %(levelname)s [{path}] %(name)s: %(message)s")
    worker.take_signals()
    try:
        anyio.run(worker.run, number, assignment, backend=assignment.backend)
    except BaseException as error:  # noqa: BLE001 - told to the parent; printed here it would be told twice
        worker.last_words(error)
        sys.exit(1)


def _no_refs(path: str, incarnation: int) -> Any:
    raise Misuse(f"an assignment holds no refs, but it has that of {path!r}")
