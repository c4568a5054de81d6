"""The intake: finds the files, has each of them read, and does not let go of one before the index has its result."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

import greenroom as gr
from greenroom.demo.chaos import Answered
from greenroom.demo.crashes import Blame, blame, crash_text
from greenroom.demo.desk_actor import PAUSE, DeskActor
from greenroom.demo.files import walk
from greenroom.demo.messages import HowFar, Keep, Known, Progress, Read, WriteReport
from greenroom.demo.reader import READER_MAILBOX
from greenroom.demo.review import needs_isolation
from greenroom.demo.values import FileRecord, Found, Skipped

PORTION: Final = 200
"""Entries of the folder that one visit to a worker thread brings. Walking blocks, on some disks for long."""

LANES: Final = (READER_MAILBOX.capacity or 0) + 8
"""Files that may be on their way to one reader: enough to fill its mailbox, and then to wait for room in it."""

BACKLOG: Final = 1_000
"""Large files that may wait for the isolated reader before the walk does."""

LAST_CRASH: Final = 2
"""A file that has crashed so many readers is given up."""

ISOLATED: Final = "readers/isolated"


class Intake(DeskActor):
    """Takes a folder in, then has the report written. All of it happens in its nursery, so it can always be asked how far it is.

    Each reader has a number of lanes, which draw from one stream of found files: a reader that is quick draws more. A lane
    stays with its file until there is an answer. A crash by the file itself counts, and the second try goes to the isolated
    reader; after the second crash the crash is the result. A crash by chaos, or a stop, does not count.

    After a restart it walks again and asks the index what need not be read again.

    Args:
        folder: the folder to review.
        out: where the report goes, if not to the folder's `.greenroom`; it is left out of the review.
    """

    def __init__(self, folder: str, out: str | None = None) -> None:
        self._folder = folder
        self._out = out
        self._found = self._answered = self._crashes = 0
        self._walked = False
        self._chaos: gr.Ref | None = None

    async def on_start(self) -> None:
        self.context.nursery.start_soon(self._take_in)

    @gr.handles
    async def how_far(self, message: HowFar) -> Progress:
        """Answer at once, whatever goes on."""
        return Progress(
            found=self._found,
            answered=self._answered,
            walked=self._walked,
            crashes=self._crashes,
        )

    async def _take_in(self) -> None:
        try:
            self._chaos = self.neighbour("chaos")
        except gr.NoSuchActor:
            self._chaos = None  # a calm desk
        known = await self.insist("index", Known())
        pool = [f"readers/{child.name}" for child in reversed(await self.neighbour("readers").which_children())]
        pool.remove(ISOLATED)
        small = anyio.create_memory_object_stream[Found](0)
        large = anyio.create_memory_object_stream[Found](BACKLOG)
        async with small[1], large[1], anyio.create_task_group() as lanes:
            for _ in range(LANES):
                for reader in pool:
                    lanes.start_soon(self._lane, small[1], reader)
                lanes.start_soon(self._lane, large[1], ISOLATED)
            async with small[0], large[0]:
                await self._walk(known, small[0], large[0])
        await self.insist("reporter", WriteReport())

    async def _walk(
        self, known: frozenset[str], small: MemoryObjectSendStream[Found], large: MemoryObjectSendStream[Found]
    ) -> None:
        walker = await anyio.to_thread.run_sync(walk, self._folder, self._out)
        while portion := await anyio.to_thread.run_sync(_next_portion, walker):
            self._found += len(portion)
            new = [item for item in portion if item.path not in known]
            self._answered += len(portion) - len(new)
            skipped = tuple(FileRecord.skipped(item) for item in new if isinstance(item, Skipped))
            if skipped:
                await self.insist("index", Keep(skipped))
                self._answered += len(skipped)
            for item in new:
                if isinstance(item, Found):
                    await (large if needs_isolation(item) else small).send(item)
        self._walked = True

    async def _lane(self, files: MemoryObjectReceiveStream[Found], reader: str) -> None:
        async for found in files:
            record = await self._review(found, reader)
            await self.insist("index", Keep((record,)))
            self._answered += 1
            if self._chaos is not None:
                self._chaos.tell(Answered())

    async def _review(self, found: Found, reader: str) -> FileRecord:
        """Send a file until it is answered, or has crashed its last reader."""
        crashes = 0
        while True:
            try:
                return await self.neighbour(reader).ask(Read(found), timeout=None)
            except gr.ActorCrashed as crash:
                if blame(crash) is not Blame.FILE:
                    continue
                crashes += 1
                self._crashes += 1
                if crashes == LAST_CRASH:
                    return FileRecord.crashed(found, crash_text(crash, self._folder))
                reader = ISOLATED
            except (gr.ActorStopped, gr.NoSuchActor):  # all readers are being restarted
                await anyio.sleep(PAUSE)


def _next_portion(walker: Iterator[Found | Skipped]) -> list[Found | Skipped]:
    return list(itertools.islice(walker, PORTION))
