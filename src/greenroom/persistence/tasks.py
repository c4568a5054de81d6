"""Tasks: requested work whose identity outlives every process. A task is an address: its mailbox takes what is said to it.

Its condition follows from its address and its row, see `condition_of`. A runnable task stands in its pool's queue once it has been
submitted, or woken; then nothing but a claim takes it out, so that its address is due no more.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Final

from attrs import field, frozen, validators

from greenroom.persistence.addresses import AddressRecord, ParkAddress, Parked, ParkReason
from greenroom.persistence.clock import aware
from greenroom.persistence.content import Payload, fits_inline
from greenroom.persistence.deliveries import Outgoing
from greenroom.persistence.states import Moves
from greenroom.persistence.transitions import AddressWrite, OwnerWrite, Query, Row, T_co, Transition


def task_address(task_id: str) -> str:
    """The address of a task."""
    return f"task:{task_id}"


def task_id_of(address: str) -> str:
    """The identity of the task at an address."""
    return address.removeprefix("task:")


CAPACITY: Final[int | None] = 10_000
"""Messages that may wait for a task."""


class Condition(Enum):
    """May it run?"""

    RUNNABLE = "runnable"
    RUNNING = "running"
    WAITING = "waiting"
    TERMINAL = "terminal"


def condition_of(*, closed: bool, parked: bool, owned: bool, runnable: bool) -> Condition:
    """What a task's address and row say. `runnable`: it stands in its pool's queue, or its address is due."""
    if closed:
        return Condition.TERMINAL
    if parked:
        return Condition.WAITING
    if owned:
        return Condition.RUNNING
    return Condition.RUNNABLE if runnable else Condition.WAITING


class TaskEvent(Enum):
    CLAIM = "claim"
    WAIT = "wait"
    """Its owner has let it go: it waits for a time or a message."""
    WAKE = "wake"
    """A message, its time, an operator, or the loss of its owner."""
    PARK = "park"
    END = "end"
    AGAIN = "again"
    """A new attempt."""


TASK_MOVES: Final[Moves[Condition, TaskEvent]] = {
    (Condition.RUNNABLE, TaskEvent.CLAIM): Condition.RUNNING,
    (Condition.RUNNABLE, TaskEvent.PARK): Condition.WAITING,
    (Condition.RUNNING, TaskEvent.CLAIM): Condition.RUNNING,
    (Condition.RUNNING, TaskEvent.WAIT): Condition.WAITING,
    (Condition.RUNNING, TaskEvent.WAKE): Condition.RUNNABLE,
    (Condition.RUNNING, TaskEvent.PARK): Condition.WAITING,
    (Condition.WAITING, TaskEvent.WAKE): Condition.RUNNABLE,
    (Condition.RUNNABLE, TaskEvent.END): Condition.TERMINAL,
    (Condition.RUNNING, TaskEvent.END): Condition.TERMINAL,
    (Condition.WAITING, TaskEvent.END): Condition.TERMINAL,
    (Condition.TERMINAL, TaskEvent.AGAIN): Condition.RUNNABLE,
}


class TaskOutcome(Enum):
    """How did it end?"""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNRESOLVED = "unresolved"


class ParentPolicy(Enum):
    """What becomes of a child when its parent ends before it."""

    STOP = "stop"
    DETACH = "detach"


@frozen(kw_only=True)
class NewTask:
    """A task to be.

    Args:
        group: whose it is, for fairness between submitters.
        priority: higher first.
        seed: where the attempt's random numbers come from; at most 64 bytes.
        not_before: when it may run first; None: at once.
        capacity: messages (int > 0) that may wait in its mailbox; None is unbounded.
        parent: address of the task that submits it.
    """

    task_id: str = field(validator=validators.min_len(1))
    pool: str = field(validator=validators.min_len(1))
    request: Payload = field(validator=fits_inline)
    request_type: str
    request_digest: str
    seed: bytes
    group: str = ""
    priority: int = 0
    deadline: datetime | None = field(default=None, validator=aware)
    not_before: datetime | None = field(default=None, validator=aware)
    capacity: int | None = field(default=CAPACITY, validator=validators.optional(validators.ge(1)))
    parent: str | None = None
    parent_policy: ParentPolicy = ParentPolicy.STOP

    @property
    def address(self) -> str:
        return task_address(self.task_id)


class Submission(Enum):
    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """The same request was submitted under this id before."""
    CONFLICT = "conflict"
    """Another request has this id."""


@frozen(kw_only=True)
class SubmitTask(Transition["Submitted"]):
    """Accept a task. Its pool is woken, under its own name.

    Refused: `UNKNOWN_POOL` for a pool that was never registered; `FULL`, with seconds, beyond the pool's queue limit.
    """

    task: NewTask

    @property
    def locks(self) -> tuple[Row, ...]:
        return (Row("task_pools", self.task.pool), Row("addresses", self.task.address))

    @property
    def exclusive(self) -> tuple[Row, ...]:
        return (Row("addresses", self.task.address),)


@frozen
class Submitted:
    disposition: Submission
    attempt: int


@frozen(kw_only=True)
class QueueWrite(AddressWrite[T_co]):
    """A change of a task that may stand in its pool's queue. `CONFLICT` when it is another pool's."""

    pool: str

    @property
    def locks(self) -> tuple[Row, ...]:
        return (Row("task_pools", self.pool), Row("addresses", self.address))


@frozen(kw_only=True)
class ClaimTask(QueueWrite["ClaimedTask"]):
    """Become the owner of a runnable task; the generation grows by one, also for who owns it already. Never makes an address.

    Refused: `NOT_OWNER` while another execution that is alive owns it (with the seconds its lease lasts); `NOT_PENDING` when it is
    terminal, or waits; `PARKED`; `FULL` when its group has all its places taken, and when too many have begun (with the seconds until
    another may); `DRAINING`, `LEASE_EXPIRED`, `UNKNOWN_EXECUTION` for an execution that may claim nothing.

    Args:
        version: of the agent's code. The first claim of an attempt records it.
    """

    execution_id: str
    version: str


@frozen(kw_only=True)
class WakeTask(QueueWrite["Woken"]):
    """Put a waiting task whose time has come into its pool's queue; the pool is woken, under its own name.

    Waking one that stands there already changes nothing. Refused: `NOT_PENDING` when it is owned or terminal, or its time has not come
    (with the seconds until then, where it waits for a time); `PARKED`.
    """


@frozen(kw_only=True)
class QuarantineTask(QueueWrite[Parked]):
    """Park a task that nobody owns as `undecodable`, and take it out of its pool's queue: its row cannot be read, so that nobody can claim
    it. `NOT_PENDING` when it is owned, parked or terminal.
    """

    detail: str


@frozen
class Woken:
    """It is runnable."""


@frozen(kw_only=True)
class TaskRecord:
    """A task, as it was when it was read."""

    address: str
    task_id: str
    pool: str
    group: str
    priority: int
    request: Payload
    """Of the segment: it is the submitted one, or that of the last `ContinueAs`."""
    request_type: str
    request_digest: str
    """Of the submitted one."""
    seed: bytes
    """Of the attempt."""
    submitted_at: datetime
    deadline: datetime | None
    parent: str | None
    parent_policy: ParentPolicy
    condition: Condition
    parked: ParkReason | None
    parked_detail: str | None
    outcome: TaskOutcome | None
    attempt: int
    segment: int
    journal_seq: int
    """Number of the segment's last row."""
    state_version: int
    """Grows with commands, ends and beginnings, never with the result of an operation (R1)."""
    version: str | None
    """Of the agent's code, when the attempt began; None before its first claim."""
    segment_started_at: datetime
    last_at: datetime
    """Of the segment's last row, or when it began."""
    next_due: datetime | None
    """Of its earliest timer."""
    due_at: datetime | None
    """When it is to be put into its pool's queue; None while it stands there, and when it waits for a message only."""
    handled_seq: int
    """Messages of its mailbox up to here have rows in the journal."""
    last_seq: int
    restarts: tuple[datetime, ...]
    """Its latest restarts after exceptions, oldest first."""
    suspicions: int
    """Owners that were lost with it in a row, without a newly accepted operation in between (R22)."""
    result: Payload | None
    error: Payload | None
    reason: str | None
    """Why it was terminated."""
    ended_at: datetime | None
    owner: str | None
    generation: int
    phase: str | None
    waits: tuple[str, ...]
    """What it waits for, as the owner said that last released it."""
    last_contact_at: datetime | None
    """When an owner last wrote; None before the first claim."""
    read_at: datetime
    """The store's time at the reading."""


@frozen(kw_only=True)
class ClaimedTask:
    """The task is the claimer's, under its record's generation."""

    task: TaskRecord


@frozen(kw_only=True)
class Ending:
    """How an attempt ends. Messages that come now are late.

    Args:
        callbacks: identities of its open callbacks, which are cancelled.
        to_parent: what its parent is told, where it has one.
    """

    outcome: TaskOutcome
    result: Payload | None = field(default=None, validator=fits_inline)
    error: Payload | None = field(default=None, validator=fits_inline)
    callbacks: tuple[str, ...] = ()
    to_parent: Outgoing | None = None

    def __attrs_post_init__(self) -> None:
        if self.result is not None and self.outcome is not TaskOutcome.SUCCEEDED:
            raise ValueError(f"an attempt that has {self.outcome.value} has no result")


@frozen(kw_only=True)
class ReleaseTask(OwnerWrite["TaskReleased"]):
    """Let a task go that is to go on later: evicted, drained, or crashed.

    It is due at once when messages wait that have no rows yet (R20), else at `due_at`.

    Args:
        due_at: when it is to be claimed again; None: by a message only.
        next_due: of its earliest timer, for people; None when it has none.
        waits: what it waits for, for people, and for whoever judges whether anything can wake it.
        restarts: its latest restarts, oldest first, when it was let go by an exception; None leaves them.
        unsuspect: no suspicion is left: this activation's process lives (R22).
    """

    due_at: datetime | None = field(default=None, validator=aware)
    next_due: datetime | None = field(default=None, validator=aware)
    waits: tuple[str, ...] = ()
    restarts: tuple[datetime, ...] | None = None
    unsuspect: bool = True


@frozen(kw_only=True)
class TaskReleased:
    """Nobody owns it."""

    due_at: datetime | None


@frozen(kw_only=True)
class ParkTask(ParkAddress):
    """As `ParkAddress`, with operations of which nobody knows whether they happened: they are for an operator to decide (I8).

    `NOT_PENDING` when one of them is not pending.

    Args:
        unresolved: their calls, in the current segment.
    """

    unresolved: tuple[str, ...] = ()


@frozen(kw_only=True)
class TerminateTask(QueueWrite["Terminated"]):
    """End a task by the store alone, as cancelled, whoever owns it and whatever code it has (R24). `NOT_PENDING` when it is terminal.

    Operations that were sent, and whose end is not known, are unresolved then.

    Args:
        callbacks: identities of its open callbacks, which are cancelled.
        to_parent: what its parent is told, where it has one.
    """

    reason: str
    error: Payload = field(validator=fits_inline)
    callbacks: tuple[str, ...] = ()
    to_parent: Outgoing | None = None

    @property
    def locks(self) -> tuple[Row, ...]:
        told = () if self.to_parent is None else (Row("addresses", self.to_parent.recipient),)
        return (*super().locks, *told, *(Row("callbacks", callback) for callback in self.callbacks))


@frozen(kw_only=True)
class Terminated:
    """It is terminal."""

    children: tuple[str, ...]
    """Addresses of its children that have not ended and do not outlive it: they are the caller's to end."""


@frozen(kw_only=True)
class NewAttempt(AddressWrite["AttemptBegun"]):
    """Pursue a terminal task once more, deliberately (R19). `NOT_PENDING` while it is not terminal; `CONFLICT` while an operation of the
    last attempt is unresolved, or when it has not got so many rows.

    Operations that an operator has decided about are carried over, with their keys, where the new attempt begins in their segment.
    Messages that had come too late for the last attempt are dead letters then.

    Args:
        seed: at most 64 bytes; with `rows` or `in_segment`, that of the last attempt.
        reason: why there is another attempt.
        rows: of the last segment, those that it keeps, from the first on.
        in_segment: it begins in the last segment, also when it keeps no rows; else without rows from the beginning, with the submitted
            request.
    """

    seed: bytes
    reason: str
    rows: int = field(default=0, validator=validators.ge(0))
    in_segment: bool = False


@frozen
class AttemptBegun:
    """It is runnable once more, in this attempt."""

    attempt: int


@frozen(kw_only=True)
class AttemptRecord:
    """One attempt, as it was when it was read."""

    attempt: int
    started_at: datetime
    ended_at: datetime | None
    outcome: TaskOutcome | None
    reason: str | None
    """Why it was begun; None of the first."""
    result: Payload | None
    error: Payload | None


@frozen(kw_only=True)
class ReadTask(Query["TaskRecord | None"]):
    """One task; None when there is none of that id."""

    address: str


@frozen(kw_only=True)
class ReadAttempts(Query[tuple[AttemptRecord, ...]]):
    """All attempts of a task, in order."""

    address: str


@frozen(kw_only=True)
class ListTasks(Query[tuple[TaskRecord, ...]]):
    """Tasks in the order of their ids, a page at a time; `after` is the last id seen.

    Args:
        parked: only those that wait for an operator.
    """

    pool: str | None = None
    condition: Condition | None = None
    parked: bool = False
    after: str = ""
    limit: int = field(default=100, validator=validators.ge(1))


@frozen(kw_only=True)
class RunnableTasks(Query[tuple[str, ...]]):
    """Addresses of runnable tasks of a pool: by priority, then fairly between groups.

    Costs what is asked for; with `per_group` also what stands before that and is left out.

    Args:
        per_group: places that a group has: leave those out that would find none. None: no matter.
        begun: only those whose attempt has begun.
    """

    pool: str
    limit: int = field(default=100, validator=validators.ge(1))
    per_group: int | None = None
    begun: bool = False


@frozen
class DueTask:
    """A waiting task whose time has come."""

    address: str
    pool: str


@frozen(kw_only=True)
class DueTasks(Query[tuple[DueTask, ...]]):
    """Waiting tasks whose time has come, longest due first: for the sweep, which wakes them. Costs what is due."""

    limit: int = field(default=100, validator=validators.ge(1))


@frozen(kw_only=True)
class NextTaskDue(Query["datetime | None"]):
    """When the next waiting task is due; None when none waits for a time."""


@frozen(kw_only=True)
class OwnedTasks(Query[tuple[str, ...]]):
    """Addresses of tasks that an execution owns, in order, a page at a time. Costs what it owns."""

    execution_id: str
    after: str = ""
    limit: int = field(default=1000, validator=validators.ge(1))


@frozen
class IdleTask:
    """A task that waits for no time, and in whose mailbox nothing waits."""

    address: str
    waits: tuple[str, ...]
    """What it waits for, as the owner said that released it. Nothing: nothing will ever move it."""


@frozen
class Orphan:
    """A task that has not ended, though it should have ended with its parent, which has."""

    address: str
    pool: str


@frozen(kw_only=True)
class Watched:
    """What was found among some tasks; `after` is where to go on, None when those were the last."""

    idle: tuple[IdleTask, ...]
    orphans: tuple[Orphan, ...]
    after: str | None


@frozen(kw_only=True)
class WatchTasks(Query[Watched]):
    """Look at up to `limit` tasks that have not ended, in order of address, for those that somebody should look after (R21)."""

    after: str = ""
    limit: int = field(default=1000, validator=validators.ge(1))


@frozen(kw_only=True)
class ChildrenOf(Query[tuple[AddressRecord, ...]]):
    """The children of a task that have not ended, in order of address, a page at a time; `after` is the last address seen.

    Args:
        stopping: only those that do not outlive it.
    """

    address: str
    stopping: bool = False
    after: str = ""
    limit: int = field(default=100, validator=validators.ge(1))
