"""The worker's end of the wire: a thread that reads, requests for the actor, and asks of the actor that wait for their answers.

The reading thread is also the watcher: when the parent has gone, it ends the whole process group at once, whatever the actor's code
is doing.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from greenroom.actors.processes.parcels import Parcels
from greenroom.actors.processes.wire import Frame, Kind, Splitter
from greenroom.actors.ref import Ref
from greenroom.mailbox import EventLoop, Slot


class Link:
    """Usable from any thread, `receive` and `ask` apart, which are the event loop's."""

    def __init__(self, wire: socket.socket, splitter: Splitter, loop: EventLoop, parcels: Parcels) -> None:
        self._wire = wire
        self._splitter = splitter
        self._loop = loop
        self._parcels = parcels
        self._lock = threading.Lock()
        self._asks: dict[int, Callable[[Frame], None]] = {}
        self._numbers: dict[Slot, int] = {}
        self._last = 0
        self._shields = 0
        self._deferred: BaseException | None = None
        self._requests: deque[Frame] = deque()
        self._slot: Slot | None = None
        threading.Thread(target=self._read, name="greenroom reads", daemon=True).start()

    # ------------------------------------------------------------------------------------------------------- sending

    def send(self, kind: Kind, number: int = 0, payload: bytes = b"") -> None:
        """Write a frame; waits while the parent does not read. When the parent has gone, nothing more is to be said."""
        data = Frame(kind, number, payload).pack()
        with self._unbroken():
            try:
                with self._lock:
                    self._wire.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the reading thread is about to end this process

    def tell(self, ref: Ref, message: object) -> None:
        """Raises `NotEncodable`."""
        self.send(Kind.TELL, 0, self._parcels.encode_for(ref, message))

    def ask(self, reply: Slot, kind: Kind, payload: bytes) -> None:
        """Have `reply` filled by the answer to this request."""
        loop = self._loop

        def answered(frame: Frame) -> None:
            loop.post(lambda: self._fill(reply, frame))

        self._numbers[reply] = self._request(kind, payload, answered)

    def request_blocking(self, kind: Kind, payload: bytes) -> Any:
        """Request something and block this thread. Raises what the answer is. The parent keeps the time."""
        future: Future[Frame] = Future()
        number = self._request(kind, payload, future.set_result)
        try:
            frame = future.result()
        except BaseException:  # this process was told to end
            self._forget(number)
            raise
        return self._opened(frame)

    def forget(self, reply: Slot) -> None:
        """Nobody waits for `reply` any longer."""
        number = self._numbers.pop(reply, None)
        if number is not None:
            self._forget(number)

    def _request(self, kind: Kind, payload: bytes, answered: Callable[[Frame], None]) -> int:
        with self._unbroken():
            with self._lock:
                self._last += 1
                number = self._last
                self._asks[number] = answered
            self.send(kind, number, payload)
        return number

    def break_off(self, error: BaseException) -> None:
        """On the main thread, from a signal handler: raise `error` there, if not at once then when a frame is whole."""
        if not self._shields:
            raise error
        self._deferred = error

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        """Half a frame would spoil the wire, and a lock that is never released would end all talk."""
        main = threading.get_ident() == self._loop.thread
        self._shields += main
        try:
            yield
        finally:
            self._shields -= main
        if main and not self._shields and self._deferred is not None:
            error, self._deferred = self._deferred, None
            raise error

    def _forget(self, number: int) -> None:
        if self._asks.pop(number, None) is not None:
            self.send(Kind.FORGET, number)

    def _fill(self, reply: Slot, frame: Frame) -> None:
        self._numbers.pop(reply, None)
        if reply.done():
            return
        try:
            value = self._opened(frame)
        except BaseException as error:  # noqa: BLE001 - it is the asker's, whatever it is
            reply.set_exception(error)
        else:
            reply.set_result(value)

    def _opened(self, frame: Frame) -> Any:
        if frame.kind is Kind.REFUSAL:
            raise self._parcels.unpack_error(frame.payload)
        return self._parcels.decode(frame.payload)

    # ----------------------------------------------------------------------------------------------------- receiving

    async def receive(self) -> Frame:
        """The next request of the parent."""
        while not self._requests:
            self._slot = self._loop.slot()
            await self._slot
        return self._requests.popleft()

    def _read(self) -> None:
        try:
            self._take_all(b"")
            while data := self._wire.recv(1 << 16):
                self._take_all(data)
        except ConnectionResetError:
            pass
        except BaseException as error:  # noqa: BLE001 - deaf, the worker is no good: as likely as not it has no memory left
            os.write(2, f"greenroom: a worker process cannot read from its parent: {error!r}\n".encode())
            os._exit(1)
        end_group()

    def _take_all(self, data: bytes) -> None:
        for frame in self._splitter.feed(data):
            if frame.kind in (Kind.ANSWER, Kind.REFUSAL):
                answered = self._asks.pop(frame.number, None)
                if answered is not None:
                    answered(frame)
            else:
                try:
                    self._loop.post(lambda frame=frame: self._queue(frame))  # type: ignore[misc]
                except RuntimeError:
                    return  # the loop is closed: this process is about to end

    def _queue(self, frame: Frame) -> None:
        self._requests.append(frame)
        if self._slot is not None and not self._slot.done():
            self._slot.set_result(None)


def end_group() -> None:
    """Kill this process and all it has started, sessions of their own apart."""
    os.killpg(os.getpgrp(), signal.SIGKILL)
