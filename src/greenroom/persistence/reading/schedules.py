"""How queries about schedules are answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from greenroom.persistence.applying.unit import Record
from greenroom.persistence.clock import instant
from greenroom.persistence.schedules import ListSchedules, SchedulePlan, ScheduleRecord
from greenroom.persistence.tasks import task_id_of
from greenroom.persistence.transitions import Query

if TYPE_CHECKING:
    from greenroom.persistence.reading.queries import Reader

# A page of all schedules.
LIST_SCHEDULES: Final = (
    "SELECT schedule, passed_at, address, registered_at, (SELECT greenroom_now()), "
    "pool, request_type, cron, time_zone, period, overlap, catch_up "
    "FROM schedules WHERE schedule > $1 ORDER BY schedule LIMIT $2"
)


async def list_schedules(reader: Reader, query: ListSchedules) -> tuple[ScheduleRecord, ...]:
    return tuple(map(_schedule, await reader.tx.all(LIST_SCHEDULES, query.after, query.limit)))


def _schedule(row: Record) -> ScheduleRecord:
    schedule, passed_at, address, registered_at, now, *plan = row
    return ScheduleRecord(
        schedule=schedule,
        plan=_plan(*plan),
        passed_at=instant(passed_at),
        last_task=None if address is None else task_id_of(address),
        registered_at=instant(registered_at),
        at=instant(now),
    )


def _plan(
    pool: str | None,
    request_type: str | None,
    cron: str | None,
    time_zone: str | None,
    period: int | None,
    overlap: int | None,
    catch_up: int | None,
) -> SchedulePlan | None:
    if pool is None or catch_up is None:
        return None
    return SchedulePlan(
        pool=pool,
        request_type=request_type,
        cron=cron,
        time_zone=time_zone,
        every=None if period is None else period / 1e6,
        overlap=bool(overlap),
        catch_up=catch_up / 1e6,
    )


READERS: Final[dict[type[Query[Any]], Callable[[Reader, Any], Awaitable[Any]]]] = {ListSchedules: list_schedules}
