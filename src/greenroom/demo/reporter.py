"""The reporter: reads the journal of the review as it grows, and writes the report when the review asks for it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import anyio.to_thread
import attrs

import greenroom as gr
from greenroom.demo import report
from greenroom.demo.chaos import HowOften
from greenroom.demo.desk_actor import PAUSE, DeskActor
from greenroom.demo.files import REPORT_FOLDER
from greenroom.demo.messages import REVIEW, HowFar, Progress, WriteReport
from greenroom.demo.record import Record
from greenroom.demo.report import Json, ReportNotWritten
from greenroom.demo.text import encode_path
from greenroom.demo.values import FileRecord, Status


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
        written: called when the report is written, or could not be.
        began: when this life of the service began, by `time.monotonic`; None: when this incarnation was made.
    """

    def __init__(
        self,
        folder: str,
        out: str | None = None,
        written: Callable[[Outcome], object] = lambda outcome: None,
        began: float | None = None,
    ) -> None:
        self._folder = folder
        self._out = out if out is not None else f"{folder.rstrip('/')}/{REPORT_FOLDER}"
        self._written = written
        self._began = time.monotonic() if began is None else began
        self._record = Record()

    async def on_start(self) -> None:
        self.context.nursery.start_soon(self._follow)

    async def _follow(self) -> None:
        while True:
            try:
                return await self._read_on(follow=True)
            except gr.NoSuchTask:  # it is just being submitted
                await anyio.sleep(PAUSE)

    async def _read_on(self, *, follow: bool) -> None:
        review = self.context.runtime.task(REVIEW)
        async for event in review.events(after=self._record.cursor, follow=follow):
            self._record.add(event)

    @gr.handles
    async def how_far(self, message: HowFar) -> Progress:
        """Answer at once, whatever goes on."""
        return self._record.progress

    @gr.handles(concurrency=2)  # beside the message loop, which goes on to answer
    async def write_report(self, message: WriteReport) -> bool:
        """Write in a worker thread."""
        await self._read_on(follow=False)  # whatever the review knew when it asked
        records, run = report.merge(self._record.results()), await self._run()
        self.crash_if_doomed()
        files: tuple[Path, ...] = ()
        failure = None
        try:
            files = await anyio.to_thread.run_sync(report.write, self._out, records, run)
        except ReportNotWritten as error:
            failure = error
        self._written(Outcome(files=files, failure=failure, records=records, run=run))
        if failure is not None:
            # Trying again would not help just now: the desk stops with the review as it is, to be taken up again.
            self.context.runtime.request_stop("the report could not be written")
        return failure is None

    async def _run(self) -> dict[str, Json]:
        """About this run: what is not compared between runs."""
        runtime, record = self.context.runtime, self._record
        tree, execution = runtime.tree(), (await runtime.task(REVIEW).status()).execution
        told: dict[str, Json] = {
            "folder": encode_path(self._folder),
            "seconds": round(time.monotonic() - self._began, 3),
            "restarts": {node.path: node.restarts for node in tree.walk() if node.restarts},
            "mailbox_high_water": {
                node.path: node.mailbox_high_water for node in tree.walk() if node.path.startswith("desk/readers/")
            },
            "processes": len({*record.operations, execution}),
            "operations": record.operations.total(),
            "operations_kept": record.kept(execution),
            "operations_invoked_again": record.invoked_again,
            "recorded_twice": sum(count > 1 for count in record.times.values()),
        }
        with contextlib.suppress(gr.NoSuchActor):  # a calm desk
            told["strikes"] = await self.neighbour("chaos").ask(HowOften(), timeout=None)
        return told
