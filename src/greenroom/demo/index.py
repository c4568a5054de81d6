"""The index: what is known so far, for whoever asks."""

from __future__ import annotations

import greenroom as gr
from greenroom.demo.desk_actor import DeskActor
from greenroom.demo.messages import Everything, Keep, Known, Lookup
from greenroom.demo.report import merge
from greenroom.demo.values import FileRecord


class Index(DeskActor):
    """Keeps one result for each path, in memory: what it knew goes with a crash, and the intake brings it again."""

    def __init__(self) -> None:
        self._records: dict[str, FileRecord] = {}

    @gr.handles
    async def keep(self, message: Keep) -> None:
        """Take results in; a file may be answered twice."""
        self.crash_if_doomed()
        for record in message.records:
            rival = self._records.get(record.path)
            self._records[record.path] = record if rival is None else merge((rival, record))[0]

    @gr.handles
    async def known(self, message: Known) -> frozenset[str]:
        """The paths that have a result."""
        return frozenset(self._records)

    @gr.handles
    async def lookup(self, message: Lookup) -> FileRecord | None:
        """The result for one path."""
        return self._records.get(message.path)

    @gr.handles
    async def everything(self, message: Everything) -> tuple[FileRecord, ...]:
        """All results."""
        return merge(self._records.values())
