"""Schedules: how far each has come, so that a moment has its task once, however many processes look at the clock."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import ClassVar

from attrs import field, frozen, validators

from greenroom.persistence.clock import aware
from greenroom.persistence.tasks import NewTask
from greenroom.persistence.transitions import Query, Row, Transition


@frozen(kw_only=True)
class SchedulePlan:
    """What a schedule does, as those that run it say: for people. The store itself goes by none of it."""

    pool: str
    request_type: str | None = None
    """None: the request is made of the moment."""
    cron: str | None = None
    time_zone: str | None = None
    every: float | None = None
    overlap: bool = False
    catch_up: float
    """Seconds, as `every`."""


@frozen(kw_only=True)
class RegisterSchedule(Transition["ScheduleAt"]):
    """Know a schedule from now on: moments before that are none of its. One that is known goes on from where it is, by this plan."""

    alone: ClassVar[bool] = True

    schedule: str = field(validator=validators.min_len(1))
    plan: SchedulePlan


@frozen
class ScheduleAt:
    """How far a schedule has come."""

    passed_at: datetime
    """Its moments up to here are settled."""


class MomentEnd(Enum):
    """What became of a moment."""

    SUBMITTED = "submitted"
    SETTLED = "settled"
    """Somebody else had settled it before."""
    OVERLAP = "overlap"
    """The task of an earlier one has not ended."""
    MISSED = "missed"
    """It was let pass."""
    CONFLICT = "conflict"
    """Another request has its task's identity."""


@frozen(kw_only=True)
class PassMoment(Transition["MomentPassed"]):
    """Settle one moment of a schedule that is known, and all before it, once.

    Refused: `UNKNOWN_POOL`, and `FULL` with seconds, as for a `SubmitTask`; the moment is open then.

    Args:
        task: to be submitted for it; None: it is let pass.
        overlap: also while the last task that this schedule has submitted has not ended.
    """

    alone: ClassVar[bool] = True

    schedule: str
    moment: datetime = field(validator=aware)
    task: NewTask | None = None
    overlap: bool = False

    @property
    def locks(self) -> tuple[Row, ...]:
        return () if self.task is None else (Row("task_pools", self.task.pool), Row("addresses", self.task.address))

    @property
    def exclusive(self) -> tuple[Row, ...]:
        return () if self.task is None else (Row("addresses", self.task.address),)


@frozen
class MomentPassed:
    """The moment is settled."""

    end: MomentEnd
    passed_at: datetime
    """So are all up to here."""


@frozen(kw_only=True)
class ScheduleRecord:
    """A schedule, as it was when it was read."""

    schedule: str
    plan: SchedulePlan | None
    """Of those that have started it last; None: nobody has, since the store knows plans."""
    passed_at: datetime
    """Its moments up to here are settled."""
    last_task: str | None
    """The task that it has submitted last."""
    registered_at: datetime
    """For the first time."""
    at: datetime


@frozen(kw_only=True)
class ListSchedules(Query[tuple[ScheduleRecord, ...]]):
    """All schedules that were ever registered, by name, a page at a time; `after` is the last name seen."""

    after: str = ""
    limit: int = field(default=1000, validator=validators.ge(1))
