"""Operations: what may be written of them in a turn, and what is; lost ones, and what operators decide about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import define, field

from greenroom.persistence.addresses import ParkReason
from greenroom.persistence.applying.addresses import let_run
from greenroom.persistence.applying.task_rows import TaskRow
from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.content import columns_of
from greenroom.persistence.journal import CommitTurn, JournalEntry
from greenroom.persistence.lists import list_text, text_list
from greenroom.persistence.operations import (
    OPERATION_MOVES,
    Decided,
    DecideOperation,
    Decision,
    OperationEvent,
    OperationStatus,
)
from greenroom.persistence.transitions import RefusalReason, Refused

# What is known of a call: whether it has an outcome, and its row where it has an intent.
SELECT_CALL: Final = (
    "SELECT j.call, o.status, o.version, o.decision FROM (SELECT 1) one "
    "LEFT JOIN journal j ON j.kind = 'outcome' AND j.call = $4 AND j.address = $1 AND j.attempt = $2 AND j.segment = $3 "
    "LEFT JOIN operations o ON o.address = $1 AND o.attempt = $2 AND o.segment = $3 AND o.call = $4"
)
# The same of a try.
SELECT_INVOCATION: Final = (
    "SELECT 1 FROM invocations WHERE address = $1 AND attempt = $2 AND segment = $3 AND call = $4 AND invocation = $5"
)
# An operation is going to be sent.
INSERT_OPERATION: Final = (
    "INSERT INTO operations (address, attempt, segment, call, intended_at, name, effect, key, params, params_size, "
    "params_digest, status, version) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'pending', 0)"
)
# It is sent. An operator's decision to repeat it is used up by that: whether this one happens is a new question (I8). Among the
# decisions that were ever made it stays.
UPDATE_SENT: Final = (
    "UPDATE operations SET version = $1, decision = NULL, decided_by = NULL, decided_at = NULL "
    "WHERE address = $2 AND attempt = $3 AND segment = $4 AND call = $5"
)
# It has ended, or nobody knows whether it happened.
UPDATE_STATUS: Final = (
    "UPDATE operations SET status = $1 WHERE address = $2 AND attempt = $3 AND segment = $4 AND call = $5"
)
# What operators have said of it.
SELECT_DECISIONS: Final = (
    "SELECT decisions FROM operations WHERE address = $1 AND attempt = $2 AND segment = $3 AND call = $4"
)
# What an operator says of it.
UPDATE_DECIDED: Final = (
    "UPDATE operations SET status = $1, decision = $2, result = $3, result_size = $4, decided_by = $5, decided_at = $6, "
    "decisions = $7 WHERE address = $8 AND attempt = $9 AND segment = $10 AND call = $11"
)
# Operations of an attempt that has ended, which were sent.
UPDATE_LEFT: Final = (
    "UPDATE operations SET status = 'unresolved' "
    "WHERE address = $1 AND attempt = $2 AND status = 'pending' AND version > 0"
)
# An operation of an attempt that nobody has decided about.
SELECT_UNRESOLVED: Final = (
    "SELECT segment, call FROM operations WHERE address = $1 AND attempt = $2 AND status = 'unresolved' "
    "ORDER BY segment, call LIMIT 1"
)
# A physical try has begun.
INSERT_INVOCATION: Final = (
    "INSERT INTO invocations (address, attempt, segment, call, invocation, execution_id, generation, started_at) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
)
# It has ended; when nothing was said of its beginning, it is recorded now.
UPSERT_INVOCATION: Final = (
    "INSERT INTO invocations (address, attempt, segment, call, invocation, execution_id, generation, started_at, "
    "ended_at, status, error, links) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9, $10, $11) "
    "ON CONFLICT (address, attempt, segment, call, invocation) DO UPDATE SET "
    "ended_at = excluded.ended_at, status = excluded.status, error = excluded.error, links = excluded.links"
)

PENDING: Final = OperationStatus.PENDING
UNRESOLVED: Final = OperationStatus.UNRESOLVED
ANSWERS: Final = (Decision.SUCCEEDED.value, Decision.FAILED.value)


@define
class Call:
    """An operation in hand."""

    ended: bool
    """It has an outcome."""
    status: OperationStatus | None
    """None of one that has no intent."""
    version: int
    answered: bool
    """An operator has said how it ended: that is its outcome to be, and it is sent no more."""


@define
class Calls:
    """The operations that a turn is about, judged in the order in which it tells of them."""

    unit: Unit
    address: str
    task: TaskRow
    _known: dict[str, Call] = field(factory=dict)
    _sent: set[tuple[str, int, int, str, int]] = field(factory=set)

    async def look(self, call: str) -> Call:
        if call not in self._known:
            await self.unit.catch_up(self.address)
            record = await self.unit.tx.one(SELECT_CALL, self.address, self.task.attempt, self.task.segment, call)
            assert record is not None  # one row, whatever it says
            outcome, status, version, decision = record
            self._known[call] = Call(
                ended=outcome is not None,
                status=None if status is None else OperationStatus(status),
                version=version or 0,
                answered=decision in ANSWERS,
            )
        return self._known[call]

    async def end(self, entry: JournalEntry) -> Refused | None:
        """An outcome is accepted once, from the version that was sent last (R1)."""
        assert entry.call is not None  # an outcome has one
        known = await self.look(entry.call)
        if known.ended:
            return Refused(RefusalReason.CONFLICT, f"the operation {entry.call} has its outcome")
        if known.status is None and (entry.version is not None or entry.unresolved):
            return Refused(RefusalReason.CONFLICT, f"the operation {entry.call} has no intent")
        if known.status is not None and entry.version != known.version:
            detail = f"the operation {entry.call} is at version {known.version}, and this is of version {entry.version}"
            return Refused(RefusalReason.CONFLICT, detail)
        known.ended = True
        return None

    async def intend(self, call: str) -> Refused | None:
        known = await self.look(call)
        if known.ended or known.status is not None:
            what = "outcome" if known.ended else "intent"
            return Refused(RefusalReason.CONFLICT, f"the operation {call} has its {what}")
        known.status = PENDING
        return None

    async def dispatch(self, call: str, invocation: int, *, intended: bool) -> Refused | None:
        known = await self.look(call)
        if known.ended or known.answered or (known.status is PENDING) != intended:
            return Refused(RefusalReason.NOT_PENDING, f"the operation {call} is not to be sent")
        place = (self.address, self.task.attempt, self.task.segment, call, invocation)
        if place in self._sent or await self.unit.tx.one(SELECT_INVOCATION, *place):
            return Refused(RefusalReason.CONFLICT, f"the operation {call} was sent as invocation {invocation} before")
        self._sent.add(place)
        if intended:
            known.version += 1
        return None


async def judge(calls: Calls, outcomes: Sequence[JournalEntry], item: CommitTurn) -> Refused | None:
    """Why a turn may not say that of operations; None: it may."""
    for entry in outcomes:
        if (refused := await calls.end(entry)) is not None:
            return refused
    for intent in item.intents:
        if (refused := await calls.intend(intent.call)) is not None:
            return refused
    for sent in item.dispatches:
        if (refused := await calls.dispatch(sent.call, sent.invocation, intended=sent.intended)) is not None:
            return refused
    return None


async def write(calls: Calls, outcomes: Sequence[JournalEntry], item: CommitTurn) -> tuple[int, ...]:
    """Write what was judged. Returns the versions of what is sent."""
    unit, address, task = calls.unit, calls.address, calls.task
    place = (address, task.attempt, task.segment)
    owner = (item.execution_id, item.generation, unit.now)
    for entry in outcomes:
        if entry.version is not None:
            following = UNRESOLVED if entry.unresolved else OperationStatus.SETTLED
            await unit.tx.change(UPDATE_STATUS, following.value, *place, entry.call)
    for intent in item.intents:
        told = (intent.call, unit.now, intent.name, intent.effect.value, intent.key)
        task.intended = True
        await unit.tx.change(INSERT_OPERATION, *place, *told, *columns_of(intent.params), intent.params_digest)
    versions = []
    for sent in item.dispatches:
        known = await calls.look(sent.call)
        versions.append(known.version)
        if sent.intended:
            await unit.tx.change(UPDATE_SENT, known.version, *place, sent.call)
        await unit.tx.change(INSERT_INVOCATION, *place, sent.call, sent.invocation, *owner)
    for end in item.invocations:
        status = (end.status, end.error, list_text(end.links))
        await unit.tx.change(UPSERT_INVOCATION, *place, end.call, end.invocation, *owner, *status)
    return tuple(versions)


async def lose(unit: Unit, address: str, task: TaskRow, calls: Sequence[str]) -> Refused | None:
    """Nobody knows whether these operations happened (I8). Refused, and nothing is changed, when one is not pending."""
    known = Calls(unit, address, task)
    for call in calls:
        if (await known.look(call)).status not in (PENDING, UNRESOLVED):
            return Refused(RefusalReason.NOT_PENDING, f"the operation {call} of {address!r} is not pending")
    for call in calls:
        await unit.tx.change(UPDATE_STATUS, UNRESOLVED.value, address, task.attempt, task.segment, call)
    return None


async def decide(unit: Unit, item: DecideOperation) -> Decided | Refused:
    row = unit.address(item.address)
    task = await unit.task(row)
    if row is None or task is None:
        return Refused(RefusalReason.UNKNOWN_ADDRESS, f"there is no task {item.address!r}")
    await unit.catch_up(item.address)
    place: tuple[Any, ...] = (item.address, item.attempt or task.attempt, item.segment or task.segment)
    record = await unit.tx.one(SELECT_CALL, *place, item.call)
    assert record is not None  # one row, whatever it says
    outcome, status, *_ = record
    if status is None:
        return Refused(RefusalReason.UNKNOWN_OPERATION, f"{item.address!r} has no operation {item.call} with an intent")
    event = OperationEvent.DECIDE if outcome is None else OperationEvent.SETTLE
    if status != UNRESOLVED.value:
        return Refused(RefusalReason.NOT_PENDING, f"the operation {item.call} of {item.address!r} is {status}")
    following = OPERATION_MOVES[UNRESOLVED, event]
    said = await unit.tx.one(SELECT_DECISIONS, *place, item.call)
    assert said is not None  # it has a status
    decisions = list_text((*text_list(said[0]), (item.decision.value, item.by, unit.now)))
    decision = (item.decision.value, *columns_of(item.result), item.by, unit.now, decisions)
    await unit.tx.change(UPDATE_DECIDED, following.value, *decision, *place, item.call)
    released = row.parked == ParkReason.UNRESOLVED.value and (
        await unit.tx.one(SELECT_UNRESOLVED, item.address, task.attempt) is None
    )
    if released:
        await let_run(unit, row)
    return Decided(following, released)
