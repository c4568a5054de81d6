"""The reporter: writes the report when everything has its result, and by its end ends the desk."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio.to_thread
import attrs

import greenroom as gr
from greenroom.demo import report
from greenroom.demo.chaos import HowOften
from greenroom.demo.desk_actor import DeskActor
from greenroom.demo.files import REPORT_FOLDER
from greenroom.demo.messages import Everything, WriteReport
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
    """Writes `report.json` and `report.md` once, then ends normally; as a significant child it takes the desk with it.

    Args:
        folder: the reviewed folder.
        out: where the report goes, if not to the folder's `.greenroom`.
        written: called when the report is written, or could not be, before the desk ends.
        began: when the review began, by `time.monotonic`; None: when this incarnation was made.
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

    @gr.handles
    async def write_report(self, message: WriteReport) -> None:
        """Write in a worker thread. Raises `Rejected` while the index is down: the intake asks again."""
        try:
            records = await self.neighbour("index").ask(Everything(), timeout=None)
            run = await self._run()
        except (gr.ActorCrashed, gr.ActorStopped) as error:
            raise gr.Rejected("a neighbour is down") from error
        self.crash_if_doomed()
        files: tuple[Path, ...] = ()
        failure = None
        try:
            files = await anyio.to_thread.run_sync(report.write, self._out, records, run)
        except ReportNotWritten as error:
            failure = error  # trying again would not help: the desk ends, and says so
        self._written(Outcome(files=files, failure=failure, records=records, run=run))
        self.context.stop()

    async def _run(self) -> dict[str, Json]:
        """About this run: what is not compared between runs."""
        tree = self.context.runtime.tree()
        told: dict[str, Json] = {
            "folder": encode_path(self._folder),
            "seconds": round(time.monotonic() - self._began, 3),
            "restarts": {node.path: node.restarts for node in tree.walk() if node.restarts},
            "mailbox_high_water": {node.path: node.mailbox_high_water for node in tree.walk() if node.kind == "worker"},
        }
        with contextlib.suppress(gr.NoSuchActor):  # a calm desk
            told["strikes"] = await self.neighbour("chaos").ask(HowOften(), timeout=None)
        return told
