"""How a task stands, for people, and why it does not move. Rules over records."""

from __future__ import annotations

from datetime import datetime

from attrs import frozen

from greenroom.persistence import ParkReason
from greenroom.persistence.operations import OperationRecord
from greenroom.persistence.task_pools import TaskPoolRecord
from greenroom.persistence.tasks import Condition, TaskOutcome, TaskRecord


@frozen(kw_only=True)
class TaskStatus:
    """A task, as it was at the moment `at`."""

    task_id: str
    pool: str
    group: str
    priority: int
    condition: Condition
    outcome: TaskOutcome | None
    """How it has ended; None while it has not."""
    attempt: int
    segment: int
    """Of the attempt: how often it was continued, counted from 1."""
    journal_rows: int
    """Of the segment."""
    execution: str | None
    """The execution that performs it just now."""
    version: str | None
    """Of the agent's code, when the attempt began; None while it has not."""
    phase: str | None
    """What it is at, as its control code said last (`task.phase`)."""
    waits: tuple[str, ...]
    """What it depends on, a line for each branch, and what its operations tell. It is written when it has stood for a second."""
    next_due: datetime | None
    """When its earliest timer is due."""
    due_at: datetime | None
    """When it is to be put into its pool's queue."""
    parked: ParkReason | None
    """Why it waits for an operator."""
    parked_detail: str | None
    restarts: int
    """Times that it was begun again after an exception, of late."""
    reason: str | None
    """Why it was terminated."""
    state_version: int
    submitted_at: datetime
    deadline: datetime | None
    ended_at: datetime | None
    last_contact_at: datetime | None
    """When an owner last wrote."""
    at: datetime
    """The store's time of this observation."""


def status_of(record: TaskRecord) -> TaskStatus:
    """What a record says of a task, for people."""
    return TaskStatus(
        task_id=record.task_id,
        pool=record.pool,
        group=record.group,
        priority=record.priority,
        condition=record.condition,
        outcome=record.outcome,
        attempt=record.attempt,
        segment=record.segment,
        journal_rows=record.journal_seq,
        execution=record.owner,
        version=record.version,
        phase=record.phase,
        waits=record.waits,
        next_due=record.next_due,
        due_at=record.due_at,
        parked=record.parked,
        parked_detail=record.parked_detail,
        restarts=len(record.restarts),
        reason=record.reason,
        state_version=record.state_version,
        submitted_at=record.submitted_at,
        deadline=record.deadline,
        ended_at=record.ended_at,
        last_contact_at=record.last_contact_at,
        at=record.read_at,
    )


def explain(
    task: TaskStatus, pool: TaskPoolRecord | None, *, alive: bool, unresolved: tuple[OperationRecord, ...]
) -> str:
    """Why a task does not move, or that it does: one line.

    Args:
        pool: its pool.
        alive: the execution that performs it is.
        unresolved: operations of which nobody knows whether they happened.
    """
    if task.outcome is not None:
        why = "" if task.reason is None else f": {task.reason}"
        return f"it has ended: {task.outcome.value}{why}"
    if task.parked is not None:
        return _parked(task, unresolved)
    if task.execution is not None and not alive:
        return f"its execution {task.execution} is dead: another takes over when its lease has passed"
    served = pool is not None and bool(pool.served_by)
    nobody = "" if served else f", and nobody serves the pool {task.pool!r}: run a service that has it"
    if task.condition is Condition.RUNNABLE:
        return (
            f"it stands in the queue of {task.pool!r}, which holds {0 if pool is None else pool.runnable} tasks{nobody}"
        )
    waits = "; ".join(task.waits)
    if task.condition is Condition.RUNNING:
        return f"it waits for {waits}" if waits else "it is being performed"
    if not waits and task.restarts and task.due_at is not None:
        return f"it crashed {task.restarts} times, and is run again at {task.due_at.isoformat()}{nobody}"
    if not waits and task.due_at is not None:
        return f"it is to begin at {task.due_at.isoformat()}{nobody}"
    return f"it waits for {waits or 'nothing: only a signal will move it'}{nobody}"


def _parked(task: TaskStatus, unresolved: tuple[OperationRecord, ...]) -> str:
    assert task.parked is not None
    told = f"it waits for an operator ({task.parked.value}): {task.parked_detail or 'nothing is said of why'}"
    if unresolved:
        names = ", ".join(f"{operation.name!r} ({operation.call})" for operation in unresolved)
        return f"{told}; decide about {names} and release it"
    return f"{told}; mend the cause and release it"
