"""Schedules: known, and moved on from moment to moment."""

from __future__ import annotations

from typing import Final

from greenroom.persistence.applying.tasks import accept
from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.clock import instant, micros
from greenroom.persistence.schedules import MomentEnd, MomentPassed, PassMoment, RegisterSchedule, ScheduleAt
from greenroom.persistence.tasks import Submission
from greenroom.persistence.transitions import RefusalReason, Refused

# A schedule by its plan as it is now. How far it has come stays as it is.
UPSERT_SCHEDULE: Final = (
    "INSERT INTO schedules (schedule, passed_at, registered_at, pool, request_type, cron, time_zone, period, overlap, catch_up) "
    "VALUES ($1, $2, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (schedule) DO UPDATE SET pool = excluded.pool, "
    "request_type = excluded.request_type, cron = excluded.cron, time_zone = excluded.time_zone, period = excluded.period, "
    "overlap = excluded.overlap, catch_up = excluded.catch_up"
)
# How far one has come, while nobody else moves it on.
LOCK_SCHEDULE: Final = "SELECT passed_at, address FROM schedules WHERE schedule = $1 FOR NO KEY UPDATE"
# It has come so far.
UPDATE_SCHEDULE: Final = "UPDATE schedules SET passed_at = $1, address = $2 WHERE schedule = $3"
# A task that has not ended.
SELECT_OPEN: Final = "SELECT 1 FROM tasks WHERE address = $1 AND outcome IS NULL"


async def register(unit: Unit, item: RegisterSchedule) -> ScheduleAt:
    plan = item.plan
    period = None if plan.every is None else round(plan.every * 1e6)
    told = (plan.pool, plan.request_type, plan.cron, plan.time_zone, period, plan.overlap, round(plan.catch_up * 1e6))
    await unit.tx.change(UPSERT_SCHEDULE, item.schedule, unit.now, *told)
    passed_at, _ = await _locked(unit, item.schedule)
    return ScheduleAt(instant(passed_at))


async def _locked(unit: Unit, schedule: str) -> tuple[int, str | None]:
    record = await unit.tx.one(LOCK_SCHEDULE, schedule)
    assert record is not None  # schedules are registered for good
    passed_at, address = record
    return passed_at, address


async def pass_moment(unit: Unit, item: PassMoment) -> MomentPassed | Refused:
    passed_at, address = await _locked(unit, item.schedule)
    moment = micros(item.moment)
    if moment <= passed_at:
        return MomentPassed(MomentEnd.SETTLED, instant(passed_at))
    end = MomentEnd.MISSED
    if item.task is not None:
        if not item.overlap and address is not None and await unit.tx.one(SELECT_OPEN, address) is not None:
            end = MomentEnd.OVERLAP
        else:
            answer = await accept(unit, item.task, limited=True)
            if not isinstance(answer, Refused):
                taken = answer.disposition is Submission.CONFLICT
            elif answer.reason is RefusalReason.CONFLICT:
                taken = True
            else:
                return answer
            end = MomentEnd.CONFLICT if taken else MomentEnd.SUBMITTED
            address = item.task.address
    await unit.tx.change(UPDATE_SCHEDULE, moment, address, item.schedule)
    return MomentPassed(end, item.moment)
