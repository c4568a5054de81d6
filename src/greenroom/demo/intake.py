"""The intake: finds the files, puts them on the work list, and has the report written when everything has its result."""

from __future__ import annotations

from typing import Any, Final

import anyio
import anyio.to_thread
import attrs

import greenroom as gr
from greenroom.demo.desk_actor import DeskActor
from greenroom.demo.files import walk
from greenroom.demo.messages import Portion, Progress, TakeIn, WriteReport
from greenroom.demo.portions import in_portions

REVIEW: Final = "the review"
"""Identity of the one message that the whole review is."""

AHEAD: Final = 200
"""Portions on the work lists at most; beyond that the walk waits."""


class Intake(DeskActor):
    """Takes the folder in once, for good: the request is in its mailbox, in the store, until the report is written.

    Made again, in this process or another, it walks again and asks for the same portions under the same ids. Those that
    are done give the reply that they gave before; nothing of them is read again.

    Args:
        folder: absolute path of the folder to review.
        out: where the report goes, if not to the folder's `.greenroom`; it is left out of the review.
    """

    def __init__(self, folder: str, out: str | None = None) -> None:
        self._folder = folder
        self._out = out
        self._progress = Progress()

    async def on_start(self) -> None:
        self.context.nursery.start_soon(self._see_it_through)

    async def _see_it_through(self) -> None:
        """Ask for the review, whoever has asked before, and end when it is done; as a significant child it ends the desk."""
        await self.context.ref.ask(TakeIn.of(self._folder, self._out), timeout=None, message_id=REVIEW)
        self.context.stop()

    @gr.handles(concurrency=2)  # beside the message loop, where chaos may strike
    async def take_in(self, message: TakeIn) -> None:
        """Review the folder."""
        self._progress = Progress()
        keys: list[str] = []
        room = anyio.Semaphore(AHEAD)
        portions = in_portions(await anyio.to_thread.run_sync(walk, self._folder, self._out))
        async with anyio.create_task_group() as asked:
            # walking blocks, on some disks for long
            while (portion := await anyio.to_thread.run_sync(next, portions, None)) is not None:
                await room.acquire()
                keys.append(portion.key)
                self._tell(found=self._progress.found + len(portion.items))
                asked.start_soon(self._have_done, portion, room)
            self._tell(walked=True)
        if not await self.insist("reporter", WriteReport(portions=tuple(keys), progress=self._progress)):
            # Trying again would not help just now: the desk stops with the review as it is, to be taken up again.
            self.context.runtime.request_stop("the report could not be written")
            await anyio.sleep_forever()

    async def _have_done(self, portion: Portion, room: anyio.Semaphore) -> None:
        clerk = self.neighbour("clerk-large" if portion.is_large else "clerk")
        crashes = await clerk.ask(portion, timeout=None, message_id=portion.key)
        room.release()
        self._tell(answered=self._progress.answered + len(portion.items), crashes=self._progress.crashes + crashes)
        self.crash_if_doomed()

    def _tell(self, **news: Any) -> None:
        self._progress = attrs.evolve(self._progress, **news)
        self.neighbour("reporter").tell(self._progress)
