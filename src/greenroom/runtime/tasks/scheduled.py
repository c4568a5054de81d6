"""`ScheduleInfo`: what a schedule does and how far it has come, seen from outside."""

from __future__ import annotations

from datetime import datetime

import attrs
from attrs import frozen

from greenroom.errors import BadSpec
from greenroom.persistence.schedules import SchedulePlan, ScheduleRecord
from greenroom.runtime.tasks.moments import rule


@frozen(kw_only=True)
class ScheduleInfo:
    """A schedule, as it was when it was read.

    What it does is what the process says that has started it last. All of that is None while none has since an older release, which
    did not say it.
    """

    path: str
    pool: str | None = None
    """Where it submits to."""
    request_type: str | None = None
    """What the store calls the class of its request; None also when the request is made of the moment."""
    cron: str | None = None
    time_zone: str | None = None
    """None: UTC."""
    every: float | None = None
    """Seconds."""
    overlap: bool | None = None
    """A moment has its task also while the last task has not ended."""
    catch_up: float | None = None
    """Seconds for which a moment is made up for."""
    registered_at: datetime
    """When it was first started."""
    settled_to: datetime
    """Moments up to here are settled: they have their tasks, or were let pass."""
    last_task: str | None
    """The task that it has submitted last; its id names the moment. Retention may have forgotten it."""
    next_moment: datetime | None
    """The first one that is not settled: it may be past, while nothing runs the schedule or its pool's queue is full. None: there is
    none, or it cannot be told here, for want of the extra `schedules` or of the time zone."""
    at: datetime
    """When it was read, by the store's clock."""

    @property
    def overdue(self) -> float:
        """Seconds for which the next moment has been past; 0 when it is not."""
        return 0.0 if self.next_moment is None else max(0.0, (self.at - self.next_moment).total_seconds())


def schedule_info(record: ScheduleRecord) -> ScheduleInfo:
    plan = record.plan
    return ScheduleInfo(
        path=record.schedule,
        registered_at=record.registered_at,
        settled_to=record.passed_at,
        last_task=record.last_task,
        next_moment=None if plan is None else _next_moment(plan, record.passed_at),
        at=record.at,
        **({} if plan is None else attrs.asdict(plan)),
    )


def _next_moment(plan: SchedulePlan, passed_at: datetime) -> datetime | None:
    try:
        return rule("", cron=plan.cron, every=plan.every, time_zone=plan.time_zone).after(passed_at)
    except BadSpec:  # the rule was good where the schedule runs: what it takes is not installed here
        return None
