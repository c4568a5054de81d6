"""`SavedJournal`: the journal of a task outside of a store, as a file that says what it is. Its format is described in docs/testing.md."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from attrs import asdict, field, frozen

from greenroom.errors import BadJournal
from greenroom.persistence import INLINE_LIMIT, Content, Payload, digest_of, fetch
from greenroom.persistence.journal import EntryKind, JournalEntry, OutcomeKind, ReadJournal
from greenroom.persistence.operations import ReadOperations
from greenroom.runtime.replay import CallId, Intent, JournalRow
from greenroom.runtime.tasks.journal import rows_of_entries

if TYPE_CHECKING:
    from greenroom.persistence import Store
    from greenroom.persistence.tasks import TaskRecord

FORMAT: Final = "greenroom.journal"
VERSION: Final = 1
PAGE: Final = 1000

NONE: Final = msgspec.Raw()
"""Contents that are not there, and are left out of the file."""


@frozen(kw_only=True)
class SavedRow:
    """A row of the journal. Fields that its kind does not have are left out of the file."""

    seq: int
    at: datetime
    kind: str
    call: str | None = None
    name: str | None = None
    status: str | None = None
    effect_possible: bool = False
    unresolved: bool = False
    admitted: int | None = None
    basis: int | None = None
    digest: bytes | None = None
    marks: tuple[str, ...] = ()
    message_id: str | None = None
    type: str | None = None
    answers: str | None = None
    failed: bool = False
    params: msgspec.Raw = field(default=NONE, repr=False)
    body: msgspec.Raw = field(default=NONE, repr=False)


@frozen(kw_only=True)
class SavedOperation:
    """An operation that was sent, and had no outcome."""

    call: str
    name: str
    params: msgspec.Raw = field(repr=False)


@frozen(kw_only=True)
class SavedJournal:
    """The last segment of a task's last attempt, with all contents. Got from `TaskHandle.export()`, or a file that has it.

    It is for `greenroom.testing.replay`. Contents are private, and not in its `repr`.
    """

    format: str = FORMAT
    format_version: int = VERSION
    exported_at: datetime
    task_id: str
    pool: str
    attempt: int
    segment: int
    version: str | None
    """Of the agent's code, when the attempt began."""
    deadline: datetime | None
    started_at: datetime
    """When the segment began."""
    seed: bytes = field(repr=False)
    request: msgspec.Raw = field(repr=False)
    outcome: str | None
    """How the attempt ended; None while it had not."""
    result: msgspec.Raw = field(default=NONE, repr=False)
    rows: tuple[SavedRow, ...]
    operations: tuple[SavedOperation, ...] = ()

    def to_json(self) -> bytes:
        """As a file has it: JSON, in lines for people."""
        values = asdict(self, recurse=False, filter=lambda _, each: each is not NONE)
        values["rows"] = [_sparse(row) for row in self.rows]
        values["operations"] = [_sparse(operation) for operation in self.operations]
        return msgspec.json.format(msgspec.json.encode(values), indent=1) + b"\n"

    @classmethod
    def from_json(cls, data: bytes | str) -> SavedJournal:
        """Read it again. Raises `BadJournal` naming what is wrong with it."""
        try:
            head = msgspec.json.decode(data, type=dict[str, Any])
            if head.get("format") != FORMAT:
                raise BadJournal(f"its format is {head.get('format')!r}, and not {FORMAT!r}")
            if head.get("format_version") != VERSION:
                raise BadJournal(
                    f"it is of version {head.get('format_version')!r} of the format, and this code reads version {VERSION}"
                )
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise BadJournal(str(error)) from error


async def rows_of(journal: SavedJournal) -> tuple[JournalRow, ...]:
    """The rows as the replay engine takes them. Raises `BadJournal`."""

    large: dict[Payload, bytes] = {}

    def payload(raw: msgspec.Raw) -> Payload | None:
        data = content_of(raw)
        if data is None or len(data) <= INLINE_LIMIT:
            return data
        content = Content(digest_of(data), len(data))
        large[content] = data
        return content

    async def fetched(payload: Payload) -> bytes:
        return payload if isinstance(payload, bytes) else large[payload]

    try:
        return await rows_of_entries([_entry(row, payload) for row in journal.rows], fetched)
    except ValueError as error:
        raise BadJournal(str(error)) from error


def intents_of(journal: SavedJournal) -> tuple[Intent, ...]:
    """What was sent, and had no outcome."""
    return tuple(
        Intent(call=CallId.read(operation.call), name=operation.name, params=content_of(operation.params) or b"")
        for operation in journal.operations
    )


def _sparse(value: SavedRow | SavedOperation) -> dict[str, Any]:
    return asdict(value, recurse=False, filter=lambda attribute, each: each is not NONE and each != attribute.default)


def _entry(row: SavedRow, payload: Callable[[msgspec.Raw], Payload | None]) -> JournalEntry:
    return JournalEntry(
        seq=row.seq,
        at=row.at,
        kind=EntryKind(row.kind),
        call=row.call,
        name=row.name,
        status=None if row.status is None else OutcomeKind(row.status),
        effect_possible=row.effect_possible,
        unresolved=row.unresolved,
        admitted=row.admitted,
        basis=row.basis,
        digest=row.digest,
        marks=row.marks,
        message_id=row.message_id,
        type=row.type,
        answers=row.answers,
        failed=row.failed,
        params=payload(row.params),
        body=payload(row.body),
    )


def content_of(raw: msgspec.Raw) -> bytes | None:
    """Contents as they were stored, however the file is laid out. None: they are not there."""
    data = bytes(raw)
    return msgspec.json.format(data, indent=-1) if data else None


async def saved_of(store: Store, task: TaskRecord) -> SavedJournal:
    """Read what the store has of a task's current segment."""
    rows: list[SavedRow] = []
    while len(rows) < task.journal_seq:
        query = ReadJournal(
            address=task.address, attempt=task.attempt, segment=task.segment, after=len(rows), limit=PAGE
        )
        page = await store.read(query)
        if not page:
            break
        rows += [await _saved_row(store, entry) for entry in page]
    unsettled = await store.read(ReadOperations(address=task.address, attempt=task.attempt, unsettled=True))
    ended = {row.call for row in rows if row.kind == EntryKind.OUTCOME.value}  # one in doubt may have its outcome (T13)
    return SavedJournal(
        exported_at=task.read_at,
        task_id=task.task_id,
        pool=task.pool,
        attempt=task.attempt,
        segment=task.segment,
        version=task.version,
        deadline=task.deadline,
        started_at=task.segment_started_at,
        seed=task.seed,
        request=msgspec.Raw(await fetch(store, task.request)),
        outcome=None if task.outcome is None else task.outcome.value,
        result=await _raw(store, task.result),
        rows=tuple(rows),
        operations=tuple(
            [
                SavedOperation(call=each.call, name=each.name, params=msgspec.Raw(await fetch(store, each.params)))
                for each in unsettled
                if each.segment == task.segment and each.call not in ended and each.decision is None
            ]
        ),
    )


async def _saved_row(store: Store, entry: JournalEntry) -> SavedRow:
    return SavedRow(
        seq=entry.seq,
        at=entry.at,
        kind=entry.kind.value,
        call=entry.call,
        name=entry.name,
        status=None if entry.status is None else entry.status.value,
        effect_possible=entry.effect_possible,
        unresolved=entry.unresolved,
        admitted=entry.admitted,
        basis=entry.basis,
        digest=entry.digest,
        marks=entry.marks,
        message_id=entry.message_id,
        type=entry.type,
        answers=entry.answers,
        failed=entry.failed,
        params=await _raw(store, entry.params),
        body=await _raw(store, entry.body),
    )


async def _raw(store: Store, payload: Payload | None) -> msgspec.Raw:
    data = b"" if payload is None else await fetch(store, payload)
    return msgspec.Raw(data) if data else NONE
