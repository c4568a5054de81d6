"""Readers: they parse files for real, and are what dies when a file is too much for its parser."""

from __future__ import annotations

import os
import signal
from typing import Final

import anyio.lowlevel

import greenroom as gr
from greenroom.demo.desk_actor import DeskActor, Strike, Way
from greenroom.demo.messages import Read
from greenroom.demo.review import review_file
from greenroom.demo.text import decode_path
from greenroom.demo.values import FileRecord, Found

READER_MAILBOX: Final = gr.Mailbox(capacity=64)
"""For each reader: whoever sends it more files waits until there is room, and so at last does the walk."""


class Reader(DeskActor):
    """Reads one file for each `Read`; keeps nothing, so it may crash and start afresh at any time.

    Args:
        folder: absolute path of the reviewed folder, in transport form (`greenroom.demo.text.encode_path`).
    """

    def __init__(self, folder: str) -> None:
        self._folder = decode_path(folder)

    @gr.handles
    async def read(self, message: Read) -> FileRecord:
        """Parsing blocks the event loop, so between two files the loop takes a turn."""
        await anyio.lowlevel.checkpoint()
        record = self.review(message.found)
        self.crash_if_doomed()
        return record

    def review(self, found: Found) -> FileRecord:
        """Read and parse; raises what the parsers do not foresee (RecursionError, MemoryError)."""
        return review_file(self._folder, found)


class IsolatedReader(Reader):
    """A reader for what could hang or exhaust memory. Only as `isolation="process"`: a file that takes too long kills it.

    The limit is an alarm of the operating system, because a parser that hangs in C code holds the interpreter: no thread
    and no event loop of that process gets a turn any more, and nobody outside can know which of its files takes how long.

    Args:
        folder: as of `Reader`.
        limit: seconds that one file may take; after them the process dies by SIGALRM, and its supervisor starts another.
    """

    def __init__(self, folder: str, limit: float) -> None:
        super().__init__(folder)
        self._limit = limit

    async def on_start(self) -> None:
        if isinstance(self.context.runtime, gr.Runtime):
            raise gr.BadSpec(f"{self.context.ref.path!r} kills the process it runs in: give it isolation='process'")

    @gr.handles
    async def read(self, message: Read) -> FileRecord:
        """As any reader, against the clock."""
        signal.setitimer(signal.ITIMER_REAL, self._limit)
        try:
            return await super().read(message)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    @gr.handles
    async def strike(self, message: Strike) -> None:
        """Chaos may kill this one for real."""
        if message.way is Way.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        await super().strike(message)
