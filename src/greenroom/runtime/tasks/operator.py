"""What an operator decides about: operations of which nobody knows whether they happened, and from where a task is pursued anew."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import frozen

from greenroom.errors import StoreRefused
from greenroom.persistence.journal import EntryKind, JournalEntry, ReadJournal
from greenroom.persistence.operations import DecisionRecord, OperationRecord, ReadOperations

if TYPE_CHECKING:
    from greenroom.persistence import Store
    from greenroom.persistence.tasks import TaskRecord

DecisionWord: TypeAlias = Literal["repeat", "succeeded", "failed"]

PAGE: Final = 1000


@frozen(kw_only=True)
class OperatorDecision:
    """What an operator has said of an operation of which nobody knew whether it had happened."""

    decision: DecisionWord
    by: str
    at: datetime

    def __str__(self) -> str:
        return f"{self.decision} by {self.by}"


@frozen(kw_only=True)
class OperationInfo:
    """An operation with an intent on record, as it was when it was read."""

    call: str
    """Its place in the control code."""
    segment: int
    name: str
    effect: str
    key: str
    """What its receiver may know it by."""
    status: str
    sent: int
    """How often it was sent."""
    decisions: tuple[OperatorDecision, ...]
    """What operators have said of it, in order: it was repeated, and nobody knows again."""


def decision_of(record: DecisionRecord) -> OperatorDecision:
    return OperatorDecision(decision=record.decision.value, by=record.by, at=record.at)


def info_of(record: OperationRecord) -> OperationInfo:
    return OperationInfo(
        call=record.call,
        segment=record.segment,
        name=record.name,
        effect=record.effect.value,
        key=record.key,
        status=record.status.value,
        sent=record.version,
        decisions=tuple(map(decision_of, record.decisions)),
    )


async def rows_before(store: Store, task: TaskRecord, operation: str) -> int:
    """How many rows of the last segment there were when an operation was called (T25).

    Args:
        operation: its place, or its name.
    Raises:
        StoreRefused: there is none in the last segment, or several have that name.
    """
    outcomes = [entry for entry in await _entries(store, task) if entry.kind is EntryKind.OUTCOME]
    found = [entry for entry in outcomes if operation in (entry.call, entry.name)]
    if len(found) > 1:
        places = ", ".join(str(entry.call) for entry in found)
        raise StoreRefused(
            "conflict", f"task {task.task_id!r} has several operations {operation!r}: give one of {places}"
        )
    if found:
        return found[0].admitted or 0
    unsettled = await store.read(ReadOperations(address=task.address, attempt=task.attempt, unsettled=True))
    if any(operation in (each.call, each.name) for each in unsettled if each.segment == task.segment):
        return task.journal_seq  # it has no outcome: all that is on record came before that
    known = ", ".join(f"{entry.call} ({entry.name})" for entry in outcomes[-5:]) or "none"
    raise StoreRefused(
        "unknown_operation",
        f"the last segment of task {task.task_id!r} has no operation {operation!r} on record; its latest: {known}",
    )


async def _entries(store: Store, task: TaskRecord) -> list[JournalEntry]:
    entries: list[JournalEntry] = []
    while len(entries) < task.journal_seq:
        query = ReadJournal(
            address=task.address, attempt=task.attempt, segment=task.segment, after=len(entries), limit=PAGE
        )
        page = await store.read(query)
        entries.extend(page)
        if len(page) < PAGE:
            break
    return entries
