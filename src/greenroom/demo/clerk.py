"""The clerk: knows the readers, and what to do when one of them dies of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import anyio

import greenroom as gr
from greenroom.demo.chaos import Answered
from greenroom.demo.crashes import Blame, blame, crash_text
from greenroom.demo.desk_actor import PAUSE, DeskActor
from greenroom.demo.messages import Read
from greenroom.demo.review import needs_isolation
from greenroom.demo.values import FileRecord, Found

AT_ONCE: Final = 64
"""Files that a clerk has in hand at once, at most."""

LAST_CRASH: Final = 2
"""A file that has crashed so many readers is given up."""

ISOLATED: Final = "readers/isolated"


class Clerk(DeskActor):
    """Has files read.

    A crash by the file itself counts, and the second try goes to the isolated reader; after the second crash the crash is the
    result. A crash by chaos, or a stop, does not count. The clerk keeps nothing: whoever asked it before a crash asks again.

    Args:
        folder: the reviewed folder, as `os` functions take it.
        readers: names below `readers`; each file goes to the one that has the fewest, a large one to the isolated one.
    """

    def __init__(self, folder: str, readers: Sequence[str]) -> None:
        self._folder = folder
        self._readers = [f"readers/{name}" for name in readers]
        self._on_their_way = Counter[str]()
        self._chaos: gr.Ref | None = None

    async def on_start(self) -> None:
        try:
            self._chaos = self.neighbour("chaos")
        except gr.NoSuchActor:
            self._chaos = None  # a calm desk

    @gr.handles(concurrency=AT_ONCE)
    async def read(self, message: Read) -> FileRecord:
        """Have a file read, and say what came of it."""
        record = await self._review(message.found)
        if self._chaos is not None:
            self._chaos.tell(Answered())
        self.crash_if_doomed()
        return record

    async def _review(self, found: Found) -> FileRecord:
        """Send a file until it is answered, or has crashed its last reader."""
        crashes = 0
        while True:
            isolated = needs_isolation(found) or crashes
            reader = ISOLATED if isolated else min(self._readers, key=self._on_their_way.__getitem__)
            self._on_their_way[reader] += 1
            try:
                return await self.neighbour(reader).ask(Read(found), timeout=None)
            except gr.ActorCrashed as crash:
                if blame(crash) is Blame.FILE:
                    crashes += 1
                    if crashes == LAST_CRASH:
                        return FileRecord.crashed(found, crash_text(crash, self._folder))
            except (gr.ActorStopped, gr.NoSuchActor):  # all readers are being restarted
                await anyio.sleep(PAUSE)
            finally:
                self._on_their_way[reader] -= 1
