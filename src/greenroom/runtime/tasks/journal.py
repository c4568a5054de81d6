"""The journal between its two forms: rows as the replay engine takes them, and entries as the store keeps them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Final, TypeVar

from greenroom.errors import Undecodable
from greenroom.persistence import INLINE_LIMIT, MessageRecord, Payload
from greenroom.persistence.callbacks import ANSWER
from greenroom.persistence.journal import EntryKind, JournalEntry, OutcomeKind
from greenroom.runtime.replay import (
    CallId,
    ControlKind,
    ControlRow,
    EffectKnown,
    JournalRow,
    OutcomeRow,
    OutcomeStatus,
    SignalRow,
    Stamp,
    TimeRow,
    callback_key,
    child_key,
)
from greenroom.runtime.tasks.codec import CancelTask, ChildEnded, TaskCodec

CANCEL: Final = "greenroom:Cancel"
CHILD_ENDED: Final = "greenroom:ChildEnded"

OUTCOMES: Final = {status: OutcomeKind(status.value) for status in OutcomeStatus}
"""What the store calls how an operation has ended."""

_STATUSES: Final[Mapping[OutcomeKind | None, OutcomeStatus]] = {kind: status for status, kind in OUTCOMES.items()}

T = TypeVar("T")
Stow = Callable[..., Awaitable[Payload]]
Fetch = Callable[[Payload], Awaitable[bytes]]


async def entry_of(row: JournalRow, stow: Stow, version: int | None = None) -> JournalEntry:
    """A row for the store, large parts of it brought to the content store.

    Args:
        version: of an outcome, of the operation that has an intent: the one that was sent last.
    """
    if isinstance(row, OutcomeRow):
        params = await stowed(row.params, stow, f"the arguments of operation {row.name!r}")
        body = await stowed(row.body, stow, f"the result of operation {row.name!r}")
        return outcome_entry(row, params, body, version)
    if isinstance(row, TimeRow):
        stamp = row.stamp
        return JournalEntry(
            seq=row.seq,
            at=row.at,
            kind=EntryKind.TIME,
            call=str(row.timer),
            basis=stamp.basis,
            digest=stamp.digest,
            marks=stamp.marks,
        )
    if isinstance(row, SignalRow):
        return JournalEntry(
            seq=row.seq,
            at=row.at,
            kind=EntryKind.SIGNAL,
            body=await stowed(row.body, stow, f"the signal {row.message_id!r}"),
            message_id=row.message_id,
            type=row.type,
            answers=row.answers,
            failed=row.failed,
        )
    assert isinstance(row, ControlRow)
    return JournalEntry(
        seq=row.seq,
        at=row.at,
        kind=EntryKind.CONTROL,
        message_id=row.command_id,
        type=row.kind.value,
        body=await stowed(row.reason.encode(), stow, "the reason of a command"),
    )


def outcome_entry(row: OutcomeRow, params: Payload, body: Payload, version: int | None) -> JournalEntry:
    """The row of an outcome for the store, its large parts brought to the content store; as `entry_of`."""
    stamp = row.stamp
    return JournalEntry(
        seq=row.seq,
        at=row.at,
        kind=EntryKind.OUTCOME,
        call=str(row.call),
        name=row.name,
        status=OUTCOMES[row.status],
        version=version,
        effect_possible=row.status is OutcomeStatus.CANCELLED and row.effect is EffectKnown.POSSIBLE,
        unresolved=row.unresolved,
        params=params,
        body=body,
        admitted=row.admitted,
        basis=stamp.basis,
        digest=stamp.digest,
        marks=stamp.marks,
    )


async def stowed(data: bytes, stow: Stow, name: str) -> Payload:
    """Bytes as a payload: brought to the content store, under a name for people, when they are large."""
    return data if len(data) <= INLINE_LIMIT else await stow(data, name=name)


async def rows_of_entries(entries: Iterable[JournalEntry], fetch: Fetch) -> tuple[JournalRow, ...]:
    """Rows of the store, their large parts brought from there."""
    rows = []
    for entry in entries:
        params = b"" if entry.params is None else entry.params
        body = b"" if entry.body is None else entry.body
        if not (isinstance(params, bytes) and isinstance(body, bytes)):
            params, body = await fetch(params), await fetch(body)
        rows.append(_row_of(entry, params, body))
    return tuple(rows)


def _row_of(entry: JournalEntry, params: bytes, body: bytes) -> JournalRow:
    if entry.kind is EntryKind.SIGNAL:
        return SignalRow(
            seq=entry.seq,
            at=entry.at,
            message_id=entry.message_id or "",
            type=entry.type or "",
            body=body,
            answers=entry.answers,
            failed=entry.failed,
        )
    if entry.kind is EntryKind.CONTROL:
        kind, reason = ControlKind(entry.type), body.decode()
        return ControlRow(seq=entry.seq, at=entry.at, command_id=entry.message_id or "", kind=kind, reason=reason)
    call = CallId.read(entry.call or "")
    stamp = Stamp(basis=entry.basis or 0, digest=entry.digest or b"", marks=entry.marks)
    if entry.kind is EntryKind.TIME:
        return TimeRow(seq=entry.seq, at=entry.at, stamp=stamp, timer=call)
    return OutcomeRow(
        seq=entry.seq,
        at=entry.at,
        stamp=stamp,
        call=call,
        name=entry.name or "",
        params=params,
        status=_STATUSES[entry.status],
        body=body,
        effect=EffectKnown.POSSIBLE if entry.effect_possible else EffectKnown.NONE,
        unresolved=entry.unresolved,
        admitted=entry.admitted or 0,
    )


async def row_of_message(
    message: MessageRecord, seq: int, at: datetime, codec: TaskCodec, fetch: Fetch
) -> SignalRow | ControlRow:
    """The row by which a message of the task's mailbox comes to its control code. Raises `Undecodable`."""
    body = await fetch(message.body)
    source = f"message {message.message_id!r} of {message.address!r}"
    if message.type == CANCEL:
        reason = _expect(codec.decode(body, source=source), CancelTask, source).reason
        return ControlRow(seq=seq, at=at, command_id=message.message_id, kind=ControlKind.CANCEL, reason=reason)
    answers, failed = None, False
    if message.type == CHILD_ENDED:
        ended = _expect(codec.decode(body, source=source), ChildEnded, source)
        answers, failed, body = child_key(ended.task_id), ended.failed, ended.body
    elif message.type == ANSWER:
        answers = callback_key(message.message_id)
    return SignalRow(
        seq=seq, at=at, message_id=message.message_id, type=message.type, body=body, answers=answers, failed=failed
    )


def _expect(value: object, kind: type[T], source: str) -> T:
    if not isinstance(value, kind):
        raise Undecodable(kind.__name__, "", f"it is a {type(value).__name__}", source)
    return value
