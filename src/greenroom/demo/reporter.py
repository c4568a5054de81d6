"""The reporter: knows how far the review is, and writes the report when everything has its result."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import attrs

import greenroom as gr
from greenroom.demo import report
from greenroom.demo.chaos import HowOften
from greenroom.demo.desk_actor import DeskActor
from greenroom.demo.files import REPORT_FOLDER
from greenroom.demo.messages import HowFar, Kept, Progress, ShowKept, WriteReport
from greenroom.demo.report import Json, ReportNotWritten
from greenroom.demo.review_store import second_thoughts
from greenroom.demo.text import encode_path
from greenroom.demo.values import FileRecord, Status

SHELVES_AT_ONCE: Final = 16
"""Shelves that are asked for what they hold at once."""


@attrs.frozen(kw_only=True)
class Outcome:
    """How a review came out."""

    files: tuple[Path, ...]
    """Of the report; empty when it could not be written."""
    failure: ReportNotWritten | None = None
    records: tuple[FileRecord, ...]
    run: Mapping[str, Json]

    def count(self, status: Status) -> int:
        """How many paths came out so."""
        return sum(record.status is status for record in self.records)


class Reporter(DeskActor):
    """Writes `report.json` and `report.md`.

    Args:
        folder: the reviewed folder.
        out: where the report goes, if not to the folder's `.greenroom`.
        store: URL of the service's store, which the report tells about; None: it tells nothing.
        written: called when the report is written, or could not be.
        began: when this life of the service began, by `time.monotonic`; None: when this incarnation was made.
    """

    def __init__(
        self,
        folder: str,
        out: str | None = None,
        store: str | None = None,
        written: Callable[[Outcome], object] = lambda outcome: None,
        began: float | None = None,
    ) -> None:
        self._folder = folder
        self._out = out if out is not None else f"{folder.rstrip('/')}/{REPORT_FOLDER}"
        self._store = store
        self._written = written
        self._began = time.monotonic() if began is None else began
        self._progress = Progress()

    @gr.handles
    async def progress(self, message: Progress) -> None:
        """The intake has come further."""
        self._progress = message

    @gr.handles
    async def how_far(self, message: HowFar) -> Progress:
        """Answer at once, whatever goes on."""
        return self._progress

    @gr.handles(concurrency=2)  # beside the message loop, which goes on to answer
    async def write_report(self, message: WriteReport) -> bool:
        """Write in a worker thread. Raises `Rejected` while a neighbour is down: the intake asks again."""
        self._progress = message.progress
        try:
            kept = await self._everything(message.portions)
            run = await self._run(kept)
        except (gr.ActorCrashed, gr.ActorStopped) as error:
            raise gr.Rejected("a neighbour is down") from error
        self.crash_if_doomed()
        records = tuple(record for shelf in kept for record in shelf.records)
        files: tuple[Path, ...] = ()
        failure = None
        try:
            files = await anyio.to_thread.run_sync(report.write, self._out, records, run)
        except ReportNotWritten as error:
            failure = error
        self._written(Outcome(files=files, failure=failure, records=report.merge(records), run=run))
        return failure is None

    async def _everything(self, portions: tuple[str, ...]) -> list[Kept]:
        kept: list[Kept] = []
        at_once = anyio.Semaphore(SHELVES_AT_ONCE)

        async def look(key: str) -> None:
            async with at_once:
                kept.append(await self.neighbour(f"index/{key}").ask(ShowKept(), timeout=None))

        async with anyio.create_task_group() as shelves:
            for key in portions:
                shelves.start_soon(look, key)
        return kept

    async def _run(self, kept: list[Kept]) -> dict[str, Json]:
        """About this run: what is not compared between runs."""
        tree = self.context.runtime.tree()
        times = Counter[str]()
        for shelf in kept:
            times.update({record.path: shelf.times for record in shelf.records})
        told: dict[str, Json] = {
            "folder": encode_path(self._folder),
            "seconds": round(time.monotonic() - self._began, 3),
            "restarts": {node.path: node.restarts for node in tree.walk() if node.restarts},
            "mailbox_high_water": {
                node.path: node.mailbox_high_water for node in tree.walk() if node.path.startswith("desk/readers/")
            },
            "portions": len(kept),
            "recorded_once": sum(count == 1 for count in times.values()),
            "recorded_twice": sum(count > 1 for count in times.values()),
        }
        if self._store is not None:
            told |= await second_thoughts(self._store)
        with contextlib.suppress(gr.NoSuchActor):  # a calm desk
            told["strikes"] = await self.neighbour("chaos").ask(HowOften(), timeout=None)
        return told
