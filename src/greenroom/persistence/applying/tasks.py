"""Tasks: submitted, woken, claimed, released, parked."""

from __future__ import annotations

from typing import Final

from greenroom.persistence.addresses import Parked, ParkReason
from greenroom.persistence.applying.addresses import refuse_claim, stop_for_operator
from greenroom.persistence.applying.limits import begin, leave_place, refuse_begin, refuse_place
from greenroom.persistence.applying.mail import next_due
from greenroom.persistence.applying.operations import lose
from greenroom.persistence.applying.queues import PoolRow
from greenroom.persistence.applying.rows import TASK, AddressRow
from greenroom.persistence.applying.task_rows import TaskRow
from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.clock import maybe_instant, maybe_micros, micros
from greenroom.persistence.content import columns_of
from greenroom.persistence.lists import EMPTY, list_text
from greenroom.persistence.observations import ObservationKind
from greenroom.persistence.reading.task_records import task_record
from greenroom.persistence.tasks import (
    ClaimedTask,
    ClaimTask,
    NewTask,
    ParkTask,
    QuarantineTask,
    QueueWrite,
    ReleaseTask,
    Submission,
    SubmitTask,
    Submitted,
    TaskReleased,
    WakeTask,
    Woken,
)
from greenroom.persistence.transitions import RefusalReason, Refused

RETRY: Final = 1.0
"""Seconds after which whoever found a queue full may try again."""

# The task that has an identity.
SELECT_SUBMITTED: Final = "SELECT pool, request_digest, attempt FROM tasks WHERE address = $1"
# A new task.
INSERT_TASK: Final = (
    "INSERT INTO tasks (address, pool, group_key, priority, turn, runnable, request, request_size, request_type, "
    "request_digest, submitted_at, deadline, parent, parent_policy, attempt_at, seed, segment_at) "
    "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $11, $15, $11)"
)


async def submit(unit: Unit, item: SubmitTask) -> Submitted | Refused:
    return await accept(unit, item.task, limited=True)


async def accept(unit: Unit, task: NewTask, *, limited: bool) -> Submitted | Refused:
    """Accept a task, once. `limited`: not beyond the limit of its pool's queue."""
    row = unit.address(task.address)
    if row is not None:
        return await _known(unit, row, task)
    pool = await unit.queues.pool(task.pool)
    if pool is None:
        return Refused(RefusalReason.UNKNOWN_POOL, f"no pool of tasks {task.pool!r} was ever registered")
    not_before = maybe_micros(task.not_before)
    runnable = not_before is None or not_before <= unit.now
    if limited and runnable and pool.full:
        return Refused(RefusalReason.FULL, f"the queue of {task.pool!r} holds its {pool.limit} tasks", RETRY)
    row = unit.new_address(task.address)
    row.kind, row.capacity = TASK, task.capacity
    if runnable:
        pool.runnable += 1
    else:
        row.due_at = not_before
    new = (
        task.address,
        task.pool,
        task.group,
        task.priority,
        await unit.queues.next_turn(pool, task.group),
        runnable,
        *columns_of(task.request),
        task.request_type,
        task.request_digest,
        unit.now,
        maybe_micros(task.deadline),
        task.parent,
        task.parent_policy.value,
        task.seed,
    )
    unit.write_later(INSERT_TASK, [new])
    unit.wake(task.pool)
    return Submitted(Submission.ACCEPTED, 1)


async def _known(unit: Unit, row: AddressRow, task: NewTask) -> Submitted | Refused:
    """The identity is taken: by the same task, or by another."""
    await unit.catch_up(row.address)
    known = await unit.tx.one(SELECT_SUBMITTED, row.address) if row.kind == TASK else None
    if known is None:
        return Refused(RefusalReason.CONFLICT, f"{row.address!r} is an address, and no task")
    pool, digest, attempt = known
    if (pool, digest) == (task.pool, task.request_digest):
        return Submitted(Submission.DUPLICATE, attempt)
    unit.observe(
        ObservationKind.CONFLICT,
        task.request_type,
        row.address,
        sender=task.parent,
        detail="another request was submitted under that identity",
        body=task.request,
    )
    return Submitted(Submission.CONFLICT, attempt)


async def queued(unit: Unit, item: QueueWrite[object]) -> tuple[AddressRow, TaskRow, PoolRow] | Refused:
    """The task that an item is about, with its pool."""
    row = unit.address(item.address)
    task = await unit.task(row)
    if row is None or task is None:
        return Refused(RefusalReason.UNKNOWN_ADDRESS, f"there is no task {item.address!r}")
    if task.pool != item.pool:
        return Refused(RefusalReason.CONFLICT, f"{item.address!r} is a task of the pool {task.pool!r}")
    pool = await unit.queues.pool(item.pool)
    assert pool is not None  # a task is submitted to a pool that is there, for good
    return row, task, pool


async def wake(unit: Unit, item: WakeTask) -> Woken | Refused:
    found = await queued(unit, item)
    if isinstance(found, Refused):
        return found
    row, task, pool = found
    if row.closed_at is not None or row.owner is not None:
        why = "has ended" if row.owner is None else f"is owned by {row.owner}"
        return Refused(RefusalReason.NOT_PENDING, f"{item.address!r} {why}")
    if row.parked is not None:
        return Refused(RefusalReason.PARKED, f"{item.address!r} is parked ({row.parked}): {row.parked_detail}")
    if not task.runnable:
        if row.due_at is None or row.due_at > unit.now:
            seconds = None if row.due_at is None else (row.due_at - unit.now) / 1e6
            return Refused(RefusalReason.NOT_PENDING, f"the time of {item.address!r} has not come", seconds)
        pool.runnable += 1
        task.runnable = True
    row.due_at = None
    unit.wake(item.pool)
    return Woken()


async def claim(unit: Unit, item: ClaimTask) -> ClaimedTask | Refused:
    found = await queued(unit, item)
    if isinstance(found, Refused):
        return found
    row, task, pool = found
    refused = await refuse_claim(unit, row, item.execution_id)
    if refused is not None:
        return refused
    if row.closed_at is not None:
        return Refused(RefusalReason.NOT_PENDING, f"{item.address!r} has ended")
    if row.owner is None and not task.runnable and (row.due_at is None or row.due_at > unit.now):
        return Refused(RefusalReason.NOT_PENDING, f"{item.address!r} waits: it is not runnable")
    refused = await refuse_place(unit, item.address, task, pool) or await refuse_begin(unit, task, pool)
    if refused is not None:
        return refused
    if row.owner is not None and row.owner != item.execution_id:
        task.suspicions += 1
    await begin(unit, task, pool)
    task.placed = pool.per_group is not None
    if task.runnable:
        pool.runnable -= 1
        pool.pass_turn(task.turn)
        task.runnable = False
    row.generation += 1
    row.owner = item.execution_id
    row.due_at = None
    if task.version is None and task.seq == 0:  # its time begins when it does, however long it stood in the queue
        task.segment_at = task.last_at = unit.now
    task.version = task.version or item.version
    task.contact_at = unit.now
    task.waits = EMPTY
    fixed = await unit.fixed(item.address)
    last_at = task.last_at if task.seq else None
    changing = (task.pool, task.turn, *task.values(), task.seq, last_at, task.intended)
    owned = (row.generation, row.owner, row.handled_seq, row.last_seq, None, None, None, None)
    return ClaimedTask(task=task_record(fixed, changing, owned, unit.now))


async def release(unit: Unit, item: ReleaseTask) -> TaskReleased | Refused:
    row = await unit.fenced(item)
    if isinstance(row, Refused):
        return row
    task = await unit.task(row)
    if task is None:
        return unit.refuse(item, RefusalReason.CONFLICT, f"{item.address!r} is no task")
    task.next_due = maybe_micros(item.next_due)
    task.waits = list_text(item.waits)
    task.contact_at = unit.now
    if item.restarts is not None:
        task.restarts = list_text(map(micros, item.restarts))
    if item.unsuspect:
        task.suspicions = 0
    row.owner = None
    leave_place(unit, task)
    moments = [moment for moment in (maybe_micros(item.due_at), await next_due(unit, row)) if moment is not None]
    row.due_at = unit.now if row.ready else min(moments, default=None)
    if row.due_at is not None and row.due_at <= unit.now:
        unit.wake(row.address)
    return TaskReleased(due_at=maybe_instant(row.due_at))


async def park(unit: Unit, item: ParkTask) -> Parked | Refused:
    row = await unit.fenced(item)
    if isinstance(row, Refused):
        return row
    task = await unit.task(row)
    if task is None:
        return unit.refuse(item, RefusalReason.CONFLICT, f"{item.address!r} is no task")
    refused = await lose(unit, row.address, task, item.unresolved)
    if refused is not None:
        return unit.refuse(item, refused.reason, refused.detail)
    await stop_for_operator(unit, row, item)
    return Parked()


async def quarantine(unit: Unit, item: QuarantineTask) -> Parked | Refused:
    found = await queued(unit, item)
    if isinstance(found, Refused):
        return found
    row, task, pool = found
    if row.owner is not None or row.closed_at is not None or row.parked is not None:
        return Refused(RefusalReason.NOT_PENDING, f"{item.address!r} is owned, parked or ended")
    if task.runnable:
        pool.runnable -= 1
        task.runnable = False
    row.parked, row.parked_detail, row.due_at = ParkReason.UNDECODABLE.value, item.detail, None
    return Parked()
