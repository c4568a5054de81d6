"""Rows of tasks, their journals and operations as records. Each takes its columns in the order of its list here."""

from __future__ import annotations

from sys import intern
from typing import Final

from greenroom.persistence.addresses import ParkReason
from greenroom.persistence.applying.unit import Record
from greenroom.persistence.clock import instant, maybe_instant
from greenroom.persistence.content import body_of, payload_of
from greenroom.persistence.journal import EntryKind, JournalEntry, OutcomeKind, WrittenEntry
from greenroom.persistence.lists import text_list
from greenroom.persistence.operations import (
    Decision,
    DecisionRecord,
    EffectKind,
    InvocationRecord,
    OperationRecord,
    OperationStatus,
)
from greenroom.persistence.tasks import (
    AttemptRecord,
    ParentPolicy,
    TaskOutcome,
    TaskRecord,
    condition_of,
    task_id_of,
)

TASK_ADDRESS: Final = (
    "a.generation, a.owner, a.handled_seq, a.last_seq, a.parked, a.parked_detail, a.due_at, a.closed_at"
)
ATTEMPT: Final = "attempt, started_at, ended_at, outcome, reason, result, result_size, error, error_size"
ENTRY: Final = (
    "seq, at, kind, call, name, status, version, effect_possible, unresolved, params, params_size, body, body_size, "
    "admitted, basis, digest, marks, message_id, type, answers, failed, handed_over"
)
OPERATION: Final = (
    "attempt, segment, call, name, effect, key, params, params_size, params_digest, status, version, decision, result, "
    "result_size, decided_by, decided_at, decisions"
)
INVOCATION: Final = (
    "attempt, segment, call, invocation, execution_id, generation, started_at, ended_at, status, error, links"
)


def task_record(fixed: Record, in_hand: Record, address_row: Record, now: int) -> TaskRecord:
    """A task of its columns of `FIXED`, `IN_HAND` and `TASK_ADDRESS`, and the store's time."""
    address, group, priority, request, request_size, request_type, request_digest, submitted_at, *fixed = fixed
    deadline, parent, parent_policy, seed, outcome, result, result_size, error, error_size, *fixed = fixed
    end_reason, ended_at = fixed
    pool, _, runnable, attempt, segment, segment_at, version, state_version, next_due, phase, *in_hand = in_hand
    waits, contact_at, restarts, suspicions, _, journal_seq, last_at, _ = in_hand
    generation, owner, handled_seq, last_seq, parked, parked_detail, due_at, closed_at = address_row
    contacts = [moment for moment in (contact_at, last_at) if moment is not None]
    # Runtimes keep records by the thousand: what is the same in all of them, or twice in one, is one object.
    moments = {moment: instant(moment) for moment in {segment_at, now, *contacts}}
    return TaskRecord(
        address=address,
        task_id=task_id_of(address),
        pool=intern(pool),
        group=intern(group),
        priority=priority,
        request=body_of(request, request_size),
        request_type=intern(request_type),
        request_digest=request_digest,
        seed=seed,
        submitted_at=instant(submitted_at),
        deadline=maybe_instant(deadline),
        parent=parent,
        parent_policy=ParentPolicy(parent_policy),
        condition=condition_of(
            closed=closed_at is not None,
            parked=parked is not None,
            owned=owner is not None,
            runnable=bool(runnable) or (due_at is not None and due_at <= now),
        ),
        parked=None if parked is None else ParkReason(parked),
        parked_detail=parked_detail,
        outcome=None if outcome is None else TaskOutcome(outcome),
        attempt=attempt,
        segment=segment,
        journal_seq=journal_seq or 0,
        state_version=state_version,
        version=version and intern(version),
        segment_started_at=moments[segment_at],
        last_at=moments[segment_at if last_at is None else last_at],
        next_due=maybe_instant(next_due),
        due_at=maybe_instant(due_at),
        handled_seq=handled_seq,
        last_seq=last_seq,
        restarts=tuple(map(instant, text_list(restarts))),
        suspicions=suspicions,
        result=payload_of(result, result_size),
        error=payload_of(error, error_size),
        reason=end_reason,
        ended_at=maybe_instant(ended_at),
        owner=owner,
        generation=generation,
        phase=phase,
        waits=tuple(text_list(waits)),
        last_contact_at=moments[max(contacts)] if contacts else None,
        read_at=moments[now],
    )


def attempt_record(row: Record) -> AttemptRecord:
    attempt, started_at, ended_at, outcome, reason, result, result_size, error, error_size = row
    return AttemptRecord(
        attempt=attempt,
        started_at=instant(started_at),
        ended_at=maybe_instant(ended_at),
        outcome=None if outcome is None else TaskOutcome(outcome),
        reason=reason,
        result=payload_of(result, result_size),
        error=payload_of(error, error_size),
    )


def entry_record(row: Record) -> JournalEntry:
    (seq, at, kind, call, name, status, version, effect_possible, unresolved, *rest) = row
    params, params_size, body, body_size, admitted, basis, digest, marks, *rest = rest
    message_id, type_name, answers, failed, handed_over = rest
    return JournalEntry(
        seq=seq,
        at=instant(at),
        kind=EntryKind(kind),
        call=call,
        name=name,
        status=None if status is None else OutcomeKind(status),
        version=version,
        effect_possible=bool(effect_possible),
        unresolved=bool(unresolved),
        params=payload_of(params, params_size),
        body=payload_of(body, body_size),
        admitted=admitted,
        basis=basis,
        digest=digest,
        marks=() if marks is None else tuple(text_list(marks)),
        message_id=message_id,
        type=type_name,
        answers=answers,
        failed=bool(failed),
        handed_over=bool(handed_over),
    )


def written_entry(row: Record) -> WrittenEntry:
    attempt, segment, execution_id, generation, decisions, *entry = row
    return WrittenEntry(
        attempt=attempt,
        segment=segment,
        execution_id=execution_id,
        generation=generation,
        entry=entry_record(entry),
        decisions=() if decisions is None else decision_records(decisions),
    )


def operation_record(row: Record) -> OperationRecord:
    attempt, segment, call, name, effect, key, params, params_size, params_digest, status, version, *rest = row
    decision, result, result_size, decided_by, decided_at, decisions = rest
    return OperationRecord(
        attempt=attempt,
        segment=segment,
        call=call,
        name=name,
        effect=EffectKind(effect),
        key=key,
        params=body_of(params, params_size),
        params_digest=params_digest,
        status=OperationStatus(status),
        version=version,
        decision=None if decision is None else Decision(decision),
        result=payload_of(result, result_size),
        decided_by=decided_by,
        decided_at=maybe_instant(decided_at),
        decisions=decision_records(decisions),
    )


def decision_records(text: str) -> tuple[DecisionRecord, ...]:
    return tuple(DecisionRecord(Decision(decision), by, instant(at)) for decision, by, at in text_list(text))


def invocation_record(row: Record) -> InvocationRecord:
    attempt, segment, call, invocation, execution_id, generation, started_at, ended_at, status, error, links = row
    return InvocationRecord(
        attempt=attempt,
        segment=segment,
        call=call,
        invocation=invocation,
        execution_id=execution_id,
        generation=generation,
        started_at=instant(started_at),
        ended_at=maybe_instant(ended_at),
        status=status,
        error=error,
        links=tuple((kind, value) for kind, value in text_list(links)),
    )
