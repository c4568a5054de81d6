"""`JournalEvent`: what is on record of a task, one thing after another, from a cursor on; then what is added, as it is added.

A cursor is a place: of a row of the journal, or of the beginning or the end of an attempt. Places follow each other, with gaps, and
stay what they are, so a reader goes on where it was, whatever has happened to it meanwhile. Retention forgets from the front. A row
that a reader has seen, and that is not there any more, is how it notices that others may be missing, and says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from attrs import field, frozen

from greenroom.errors import BadCursor, NoSuchTask
from greenroom.persistence.journal import EntryKind, ReadHistory, WrittenEntry
from greenroom.persistence.tasks import AttemptRecord, ReadAttempts, TaskOutcome, task_address
from greenroom.runtime.replay import Fault
from greenroom.runtime.stored import Shown
from greenroom.runtime.tasks.operator import OperatorDecision, decision_of

if TYPE_CHECKING:
    from greenroom.runtime.tasks.handle import Door

EventKind: TypeAlias = Literal["begun", "operation", "signal", "time", "command", "ended", "gap"]
Place: TypeAlias = tuple[int, int, int]
"""Attempt, segment, row. A row 0 stands before the first one; segment 0 for the beginning of the attempt."""

SEGMENT_BITS: Final = 24
ROW_BITS: Final = 20
LAST_SEGMENT: Final = (1 << SEGMENT_BITS) - 1
LAST_ROW: Final = (1 << ROW_BITS) - 1

PAGE: Final = 200

KINDS: Final[dict[EntryKind, EventKind]] = {
    EntryKind.OUTCOME: "operation",
    EntryKind.SIGNAL: "signal",
    EntryKind.TIME: "time",
    EntryKind.CONTROL: "command",
}


@frozen(kw_only=True)
class JournalEvent:
    """Something that is on record of a task. Contents are private, and not in its `repr`."""

    cursor: int
    """Its place: `handle.events(after=cursor)` goes on behind it. Cursors of a task grow."""
    kind: EventKind
    """`begun`, `ended`: an attempt. `operation`: one has its outcome. `signal`: one has come, or the answer to a wait. `time`: a timer
    was due. `command`: the task was told to stop. `gap`: what stood here has been forgotten by retention."""
    at: datetime | None
    """When; None for a gap."""
    attempt: int
    segment: int | None = None
    execution: str | None = None
    """Which wrote it."""
    call: str | None = None
    """The place of the operation, or of the timer, in the control code."""
    name: str | None = None
    """Of the operation."""
    status: str | None = None
    """How the operation, or the attempt, ended."""
    message_id: str | None = None
    type: str | None = None
    """What the store calls the class of the signal; the kind of the command."""
    detail: str | None = None
    """For people: how it failed, why it was begun, what is missing."""
    decisions: tuple[OperatorDecision, ...] = ()
    """What operators have said of the operation, in order."""
    value: Any = field(default=None, repr=False)
    """What the operation or the attempt came to, or the signal."""


def cursor_of(place: Place) -> int:
    attempt, segment, row = place
    return (attempt << SEGMENT_BITS | segment) << ROW_BITS | row


def place_of(cursor: int) -> Place:
    rest, row = divmod(cursor, 1 << ROW_BITS)
    attempt, segment = divmod(rest, 1 << SEGMENT_BITS)
    return attempt, segment, row


class Events(AsyncIterator[JournalEvent]):
    """The events of a task behind a cursor. It ends with the task's last attempt; without `follow`, with what is on record.

    No generator: one that is left early would have to be closed. Raises `NoSuchTask`, also when the task is forgotten meanwhile.
    """

    def __init__(self, door: Door, task_id: str, after: int, *, follow: bool) -> None:
        if not isinstance(after, int) or isinstance(after, bool) or after < 0:
            raise BadCursor(task_id, after)
        self._door, self._task_id, self._follow = door, task_id, follow
        self._address = task_address(task_id)
        self._shown = Shown(door.store, door.codec.payloads)
        self._place = place_of(after)
        """Of the last event."""
        self._ready: deque[JournalEvent] = deque()
        self._over = False

    async def __anext__(self) -> JournalEvent:
        while not self._ready and not self._over:
            with self._door.watch(self._address, rows=True) as watch:
                while not await self._look():
                    await watch.news()
        if not self._ready:
            raise StopAsyncIteration
        event = self._ready.popleft()
        self._place = place_of(event.cursor)
        return event

    async def _look(self) -> bool:
        """Read what follows. False: nothing does yet."""
        # In this order: when an attempt was seen to have ended, all its rows are there.
        attempts = await self._door.store.read(ReadAttempts(address=self._address))
        if not attempts:
            raise NoSuchTask(self._task_id)
        query = ReadHistory(address=self._address, since=self._place, limit=PAGE)
        page = deque(await self._door.store.read(query))
        complete = len(page) < PAGE
        last = self._place if complete else page[-1].place
        await self._skip(page, attempts)
        for attempt in attempts[max(0, self._place[0] - 1) :]:
            await self._show_attempt(attempt, page, complete=complete)
            if not (page or complete):
                break
        else:
            self._over = attempts[-1].ended_at is not None or not self._follow
        if not self._ready:  # a whole page was handed over
            self._place = last
        return bool(self._ready) or self._over or not complete

    async def _skip(self, page: deque[WrittenEntry], attempts: Sequence[AttemptRecord]) -> None:
        """Pass the row of the last event; one that is gone, or never was, is noticed."""
        if page and page[0].place == self._place:
            page.popleft()
            return
        attempt, segment, row = self._place
        is_row = 0 < row < LAST_ROW and 0 < segment < LAST_SEGMENT
        first = await self._door.store.read(ReadHistory(address=self._address, limit=1)) if is_row else ()
        if attempt > attempts[-1].attempt or (first and first[0].place < self._place):
            raise BadCursor(self._task_id, cursor_of(self._place))
        if is_row:
            here = page and page[0].attempt == attempt
            self._missing(page[0].place if here else (attempt, LAST_SEGMENT, LAST_ROW))

    def _missing(self, following: Place) -> None:
        """What stood before that place is not there."""
        attempt, segment, row = following
        detail = f"what was between the cursors {cursor_of(self._place)} and {cursor_of(following)} has been forgotten by retention"
        cursor = cursor_of((attempt, segment, row - 1))
        self._ready.append(JournalEvent(cursor=cursor, kind="gap", at=None, attempt=attempt, detail=detail))

    async def _show_attempt(self, record: AttemptRecord, page: deque[WrittenEntry], *, complete: bool) -> None:
        number = record.attempt
        if self._place < (number, 0, 0):
            self._ready.append(
                JournalEvent(
                    cursor=cursor_of((number, 0, 0)),
                    kind="begun",
                    at=record.started_at,
                    attempt=number,
                    detail=record.reason,
                )
            )
        begins = self._place <= (number, 0, 0)
        if begins and page and page[0].attempt == number and page[0].entry.seq > 1:
            self._missing(page[0].place)
        while page and page[0].attempt == number:
            written = page.popleft()
            if not written.entry.handed_over:  # the segment before has told of it
                self._ready.append(await self._event(written))
        end = (number, LAST_SEGMENT, LAST_ROW)
        if record.ended_at is not None and (page or complete) and self._place < end:
            self._ready.append(await self._end(record, cursor_of(end)))

    async def _event(self, written: WrittenEntry) -> JournalEvent:
        entry = written.entry
        source = f"row {entry.seq} of the journal of task {self._task_id!r}"
        value = await self._shown.value(entry.body, source)
        failed = entry.failed or (entry.status is not None and entry.status.value != "succeeded")
        return JournalEvent(
            cursor=cursor_of(written.place),
            kind=KINDS[entry.kind],
            at=entry.at,
            attempt=written.attempt,
            segment=written.segment,
            execution=written.execution_id,
            call=entry.call,
            name=entry.name,
            status=None if entry.status is None else entry.status.value,
            message_id=entry.message_id,
            type=entry.type,
            detail=fault_text(value) if failed else None,
            decisions=tuple(map(decision_of, written.decisions)),
            value=None if failed else value,
        )

    async def _end(self, record: AttemptRecord, cursor: int) -> JournalEvent:
        source = f"the end of task {self._task_id!r}"
        succeeded = record.outcome is TaskOutcome.SUCCEEDED
        value = await self._shown.value(record.result if succeeded else record.error, source)
        return JournalEvent(
            cursor=cursor,
            kind="ended",
            at=record.ended_at,
            attempt=record.attempt,
            status=None if record.outcome is None else record.outcome.value,
            detail=None if succeeded else fault_text(value),
            value=value if succeeded else None,
        )


def fault_text(value: object) -> str | None:
    """A recorded failure, for people."""
    if not isinstance(value, Fault):
        return None
    return f"{value.type}: {value.message}" if value.message else value.type
