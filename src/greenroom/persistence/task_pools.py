"""Pools of tasks: where they are submitted to, and where those that may run stand in a queue."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from attrs import field, frozen, validators

from greenroom.persistence.transitions import Query, Transition


@frozen(kw_only=True)
class RegisterTaskPool(Transition["TaskPoolRegistered"]):
    """Let tasks be submitted to a pool, for good, and say that an execution serves it. Registering again replaces the limits.

    Args:
        queue_limit: submitted tasks (int > 0) that may stand in its queue; None is unbounded. Tasks that were woken, and children of
            accepted work, come in addition.
        per_group: tasks (int > 0) of one group that may be owned at once; None is unbounded.
        rate: (count, seconds): attempts (int > 0) that may begin within any so many seconds; None is unbounded.
        execution_id: who serves it, until that execution has ended; None: nobody is named.
    """

    alone: ClassVar[bool] = True

    pool: str = field(validator=validators.min_len(1))
    queue_limit: int | None = field(default=None, validator=validators.optional(validators.ge(1)))
    per_group: int | None = field(default=None, validator=validators.optional(validators.ge(1)))
    rate: tuple[int, float] | None = None
    execution_id: str | None = None


@frozen
class TaskPoolRegistered:
    """The pool is known."""


@frozen(kw_only=True)
class TaskPoolRecord:
    """A pool of tasks, as it was when it was read."""

    pool: str
    queue_limit: int | None
    runnable: int
    """Tasks that stand in its queue."""
    registered_at: datetime
    """For the last time."""
    served_by: tuple[str, ...]
    """Executions that serve it and are alive."""
    per_group: int | None = None
    rate: tuple[int, float] | None = None


@frozen(kw_only=True)
class ReadTaskPool(Query["TaskPoolRecord | None"]):
    """One pool of tasks; None when it is unknown."""

    pool: str


@frozen(kw_only=True)
class ListTaskPools(Query[tuple[TaskPoolRecord, ...]]):
    """All pools of tasks, by name. One with runnable tasks that nobody serves is why they do not run (R21)."""
