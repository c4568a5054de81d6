"""Limits of a pool that hold for all processes: places for tasks of one group, and how many attempts begin in a time.

They are judged under the pool's lock, which every claim has: so nobody else takes a place, or begins, in between. Places are left
without that lock, so that a claim may be refused for the sake of one that has just been left; it is tried again.
"""

from __future__ import annotations

from typing import Final

from greenroom.persistence.applying.queues import PoolRow
from greenroom.persistence.applying.task_rows import TaskRow
from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.transitions import RefusalReason, Refused

# Places that the group of a task has taken.
COUNT_PLACED: Final = (
    "SELECT count(*) FROM tasks t JOIN tasks x ON x.pool = t.pool AND x.group_key = t.group_key AND x.placed "
    "WHERE t.address = $1"
)
# When an attempt has begun, by its number in the pool.
SELECT_BEGIN: Final = "SELECT at FROM task_begins WHERE pool = $1 AND number = $2"
# An attempt begins.
INSERT_BEGIN: Final = "INSERT INTO task_begins (pool, number, at) VALUES ($1, $2, $3)"
# Begins that hold back nothing more.
DELETE_BEGINS: Final = "DELETE FROM task_begins WHERE pool = $1 AND number <= $2"


async def refuse_place(unit: Unit, address: str, task: TaskRow, pool: PoolRow) -> Refused | None:
    """Why a task gets no place now; None when it does. One that is taken over has its place."""
    if pool.per_group is None or task.placed:
        return None
    await unit.flush()  # places that were taken and left before in this batch count
    record = await unit.tx.one(COUNT_PLACED, address)
    assert record is not None  # a count is one row
    if record[0] < pool.per_group:
        return None
    return Refused(RefusalReason.FULL, f"the group of {address!r} has its {pool.per_group} tasks in {pool.name!r}")


async def refuse_begin(unit: Unit, task: TaskRow, pool: PoolRow) -> Refused | None:
    """Why an attempt must not begin now; None when it may, or has: so many seconds lie between a begin and the one `count` before."""
    if pool.rate is None or task.version is not None:
        return None
    count, period = pool.rate
    record = await unit.tx.one(SELECT_BEGIN, pool.name, pool.begun + 1 - count)
    wait = 0 if record is None else record[0] + period - unit.now
    if wait <= 0:
        return None
    detail = f"{count} tasks have begun in {pool.name!r} within {period / 1e6:g} s"
    return Refused(RefusalReason.FULL, detail, wait / 1e6)


async def begin(unit: Unit, task: TaskRow, pool: PoolRow) -> None:
    """An attempt begins, if it has not: the pool keeps count where it has to."""
    if pool.rate is None or task.version is not None:
        return
    pool.begun += 1
    await unit.tx.change(INSERT_BEGIN, pool.name, pool.begun, unit.now)
    await unit.tx.change(DELETE_BEGINS, pool.name, pool.begun - pool.rate[0])


def leave_place(unit: Unit, task: TaskRow) -> None:
    """It is owned no more: others may wait for its place."""
    if task.placed:
        task.placed = False
        unit.wake(task.pool)
