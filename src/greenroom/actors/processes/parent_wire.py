"""The parent's end of the wire to a worker: frames in and out of a socket, without ever waiting for the worker."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable

import anyio

from greenroom.actors.body_tasks import BodyTasks
from greenroom.actors.processes.wire import Frame, Splitter
from greenroom.logs import logger_named
from greenroom.mailbox import EventLoop

logger = logger_named("greenroom.actors")

READ = 1 << 16
"""Bytes taken at once."""
READS = 16
"""Reads in a row before others may run."""


class ParentWire:
    """Reads from its making on, until its tasks are ended.

    Args:
        take: is given each frame that comes.
        lost: called once when the stream ends, or cannot be understood.
    """

    def __init__(
        self,
        wire: socket.socket,
        loop: EventLoop,
        tasks: BodyTasks,
        take: Callable[[Frame], None],
        lost: Callable[[], None],
    ) -> None:
        self._wire = wire
        self._loop = loop
        self._tasks = tasks
        self._take = take
        self._lost = lost
        self._splitter = Splitter()
        self._outgoing: deque[memoryview] = deque()
        self._writing = False
        tasks.start(self._read)

    def write(self, data: bytes) -> None:
        """Write what the wire takes now, and the rest as soon as it does; in the order of the calls."""
        self._outgoing.append(memoryview(data))
        if not self._writing and not self._flush():
            self._writing = True
            self._tasks.start(self._write_rest)

    def drain(self) -> None:
        """Take what has come so far: the worker has ended, and nothing more will come."""
        while self._receive():
            pass

    def _flush(self) -> bool:
        """Write until everything is written (True) or the wire is full (False)."""
        while self._outgoing:
            data = self._outgoing[0]
            try:
                sent = self._wire.send(data)
            except BlockingIOError:
                return False
            except OSError:  # the worker has ended, which is found out by waiting for it
                self._outgoing.clear()
                return True
            if sent < len(data):
                self._outgoing[0] = data[sent:]
            else:
                self._outgoing.popleft()
        return True

    async def _write_rest(self) -> None:
        while not self._flush():
            await anyio.wait_writable(self._wire)
        self._writing = False

    async def _read(self) -> None:
        while True:
            for _ in range(READS):
                got = self._receive()
                if got is False:
                    self._lost()
                    return
                if got is None:
                    await anyio.wait_readable(self._wire)
            await self._loop.checkpoint()

    def _receive(self) -> bool | None:
        """One read: True when there was something, None when there is nothing yet, False at the end of the stream."""
        try:
            data = self._wire.recv(READ)
        except BlockingIOError:
            return None
        except OSError:
            return False
        try:
            for frame in self._splitter.feed(data):
                self._take(frame)
        except Exception:
            # Not what a worker of ours says. Out of here it would end the supervisor; so the worker is ended.
            logger.exception("a worker process has said what makes no sense")
            return False
        return bool(data)
