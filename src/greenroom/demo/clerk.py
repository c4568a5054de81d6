"""Clerks: each works off a list of portions, its mailbox, which is in the store and outlives every crash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import anyio

import greenroom as gr
from greenroom.demo.chaos import Answered
from greenroom.demo.crashes import Blame, blame, crash_text
from greenroom.demo.desk_actor import PAUSE, DeskActor
from greenroom.demo.messages import Keep, Portion, Read
from greenroom.demo.values import FileRecord, Found, Skipped

WORK_LIST: Final = gr.PersistentMailbox(max_deliveries=1_000)
"""No portion is to blame for a crash of its clerk: that is chaos, or the end of the process, which may come as often as it likes."""

IN_HAND: Final = 8
"""Portions that a clerk has in hand at once: enough to fill the readers' mailboxes, and no more than is gladly read again."""

LAST_CRASH: Final = 2
"""A file that has crashed so many readers is given up."""

ISOLATED: Final = "readers/isolated"


class Clerk(DeskActor):
    """Has portions read and their results kept.

    A file stays with its clerk until there is an answer. A crash by the file itself counts, and the second try goes to the
    isolated reader; after the second crash the crash is the result. A crash by chaos, or a stop, does not count.

    A portion is done when the index has accepted its results. When the clerk or its process dies before that, the portion
    is delivered again, its files are read again, and what comes of it is put on record once: under the portion's own id.

    Args:
        folder: the reviewed folder, as `os` functions take it.
        readers: names below `readers`; each file goes to the one that has the fewest.
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

    @gr.handles(concurrency=IN_HAND)
    async def portion(self, message: Portion) -> int:
        """Have a portion read, and pass on what came of it."""
        records = [FileRecord.skipped(item) for item in message.items if isinstance(item, Skipped)]
        crashes = Counter[str]()

        async def have_read(found: Found) -> None:
            records.append(await self._review(found, crashes))
            if self._chaos is not None:
                self._chaos.tell(Answered(message.key))

        async with anyio.create_task_group() as files:
            for item in message.items:
                if isinstance(item, Found):
                    files.start_soon(have_read, item)
        self.crash_if_doomed()
        results = Keep(tuple(sorted(records, key=lambda record: record.path)))
        await self.neighbour(f"index/{message.key}").send(results, message_id=message.key)
        return crashes.total()

    async def _review(self, found: Found, crashes: Counter[str]) -> FileRecord:
        """Send a file until it is answered, or has crashed its last reader."""
        reader = min(self._readers, key=self._on_their_way.__getitem__)
        while True:
            self._on_their_way[reader] += 1
            try:
                return await self.neighbour(reader).ask(Read(found), timeout=None)
            except gr.ActorCrashed as crash:
                if blame(crash) is not Blame.FILE:
                    continue
                crashes[found.path] += 1
                if crashes[found.path] == LAST_CRASH:
                    return FileRecord.crashed(found, crash_text(crash, self._folder))
            except (gr.ActorStopped, gr.NoSuchActor):  # all readers are being restarted
                await anyio.sleep(PAUSE)
            finally:
                self._on_their_way[reader] -= 1
            if crashes[found.path]:
                reader = ISOLATED
