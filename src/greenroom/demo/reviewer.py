"""The reviewer: an agent, and the review of a folder is its task. What it was told is in the store; so it goes on wherever it died.

`perform` below is the whole review. Everything that it learns of the world it learns by an operation: what is to be found (`find`), what
is in a file (the clerk is asked), whether the report could be written (the reporter is). An operation whose outcome is on record is not
performed again; the others are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeVar

import anyio.to_thread
import attrs

import greenroom as gr
from greenroom.demo.desk_actor import PAUSE
from greenroom.demo.files import walk
from greenroom.demo.messages import Narrow, Read, Review, Section, WriteReport
from greenroom.demo.review import needs_isolation
from greenroom.demo.text import decode_path
from greenroom.demo.values import Found

R = TypeVar("R")

SECTION: Final = 500
"""Paths that are found at a time. They are in memory, and one row of the journal."""

SECTIONS: Final = 10
"""Sections after which the review goes on with an empty journal: whoever takes it up has so much to go through, and no more."""

IN_HAND: Final = 32
"""Files that are asked for at once: enough for the readers to be busy, and no more than is gladly read again after a crash."""

LARGE_IN_HAND: Final = 2
"""The same of those that go to the isolated reader, one after the other."""

DOWN: Final = ("ActorCrashed", "ActorStopped", "NoSuchActor")
"""What a question fails by when nobody is there to answer it just now."""


@gr.operation(effect=gr.Effect.SAFE)
async def find(folder: str, out: str | None, after: str) -> Section:
    """Find what comes next below a folder. In a thread: walking blocks, on some disks for long."""

    def look() -> Section:
        items = tuple(islice(walk(decode_path(folder), out and decode_path(out), after), SECTION))
        return Section(items, is_last=len(items) < SECTION)

    return await anyio.to_thread.run_sync(look)


class Reviewer(gr.Agent[Review, int]):
    """Reviews a folder, many files at a time, and has the report written."""

    async def perform(self, task: gr.Task, request: Review) -> int:
        self._kinds = request.kinds
        after, seen, is_last = request.after, request.seen, False
        async with task.nursery() as branches:
            branches.start_soon(self._listen, task)
            for _ in range(SECTIONS):
                section = await task.run(find, request.folder, request.out, after)
                await self._have_all_read(task, (item for item in section.items if isinstance(item, Found)))
                seen, is_last = seen + len(section.items), section.is_last
                task.phase(f"{seen:,} paths are done")
                if is_last:
                    break
                after = section.items[-1].path
            branches.cancel()  # nobody listens any more
        if not is_last:
            await task.continue_as(attrs.evolve(request, after=after, seen=seen, kinds=self._kinds))
        while not await self._insist(task, "desk/reporter", WriteReport()):
            # Trying again helps when there is room again. The reporter has asked for the service's end.
            await task.sleep(PAUSE)
        return seen

    async def _listen(self, task: gr.Task) -> None:
        while True:
            self._kinds = (await task.receive(Narrow, timeout=None)).kinds

    async def _have_all_read(self, task: gr.Task, files: Iterable[Found]) -> None:
        """Have files read: so many branches take one after the other. Large ones have branches of their own, to hold up no others."""
        usual, large = deque[Found](), deque[Found]()
        for found in files:
            (large if needs_isolation(found) else usual).append(found)
        async with task.nursery() as branches:
            for _ in range(min(IN_HAND, len(usual))):
                branches.start_soon(self._have_read, task, usual)
            for _ in range(min(LARGE_IN_HAND, len(large))):
                branches.start_soon(self._have_read, task, large)

    async def _have_read(self, task: gr.Task, files: deque[Found]) -> None:
        while files:
            found = files.popleft()
            if found.kind in self._kinds:
                await self._insist(task, "desk/clerk", Read(found))

    async def _insist(self, task: gr.Task, path: str, message: gr.Message[R]) -> R:
        """Ask an actor until it answers: it may be crashing, or just being restarted."""
        while True:
            try:
                return await task.ask(path, message, timeout=None)
            except gr.OperationFailed as failure:
                if failure.type not in DOWN:
                    raise
                await task.sleep(PAUSE)
