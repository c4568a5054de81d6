"""What is on record of a review: its journal, read event by event. The journal is the index; nothing else is kept."""

from __future__ import annotations

from collections import Counter

import attrs

import greenroom as gr
from greenroom.demo.messages import Progress, Section
from greenroom.demo.values import FileRecord, Found, Skipped, SkipReason, Status


@attrs.define
class Record:
    """Grows with each event that is added, in their order."""

    cursor: int = 0
    """Of the last event that was added."""
    walked: bool = False
    seen: dict[str, Found | Skipped] = attrs.field(factory=dict)
    answers: dict[str, FileRecord] = attrs.field(factory=dict)
    times: Counter[str] = attrs.field(factory=Counter)
    """How often a file has its result on record."""
    operations: Counter[str] = attrs.field(factory=Counter)
    """Operations by the execution that put their outcome on record."""
    invoked_again: int = 0
    """Operations that were in hand when the process that had begun them died."""
    _skipped: int = 0
    _given_up: int = 0
    _latest: str | None = None
    """The execution that wrote the event before."""
    _writers: dict[tuple[int | None, str], str | None] = attrs.field(factory=dict)
    """By segment and branch, the execution that wrote its last event."""

    def add(self, event: gr.JournalEvent) -> None:
        """Take note of an event; one that was added before changes nothing."""
        if event.cursor <= self.cursor:
            return
        self.cursor = event.cursor
        match event.value:
            case Section(items, is_last):
                self.seen |= {item.path: item for item in items}
                self._skipped += sum(isinstance(item, Skipped) for item in items)
                self.walked = is_last
            case FileRecord() as record:
                self.answers[record.path] = record
                self.times[record.path] += 1
                self._given_up += record.status is Status.CRASHED
        if event.call is not None and event.execution is not None:
            self._note_writer(event, event.call.rpartition("#")[0], event.execution)

    def _note_writer(self, event: gr.JournalEvent, branch: str, writer: str) -> None:
        """A branch has one call at a time, so whoever wrote what came before has sent this one, or had it sent."""
        if event.kind == "operation":
            sender = self._latest if branch == "root" else self._writer_before(event.segment, branch)
            self.operations[writer] += 1
            self.invoked_again += sender not in (None, writer)
        self._writers[event.segment, branch] = self._latest = writer

    def _writer_before(self, segment: int | None, branch: str) -> str | None:
        """Of what the branch was told last; when it is new, of what the root was told, which opened it."""
        return self._writers.get((segment, branch)) or self._writers.get((segment, "root"))

    def kept(self, execution: str | None) -> int:
        """Operations that an execution found on record, and did not invoke."""
        return self.operations.total() - self.operations[execution or ""]

    @property
    def progress(self) -> Progress:
        """How far the review is."""
        answered = self._skipped + len(self.answers)
        return Progress(found=len(self.seen), answered=answered, walked=self.walked, given_up=self._given_up)

    def results(self) -> tuple[FileRecord, ...]:
        """One for each path, when all that was wanted has been read."""
        return tuple(self.answers.get(path) or _unread(item) for path, item in self.seen.items())


def _unread(item: Found | Skipped) -> FileRecord:
    if isinstance(item, Found):
        item = Skipped(path=item.path, reason=SkipReason.NOT_WANTED)
    return FileRecord.skipped(item)
