"""Tasks submitted, woken and claimed, many at once, by one call of a plpgsql function each (R6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from greenroom.persistence.applying.task_rows import IN_HAND_COLUMNS
from greenroom.persistence.applying.unit import Record
from greenroom.persistence.clock import maybe_micros
from greenroom.persistence.content import columns_of
from greenroom.persistence.postgres.arrays import Statement
from greenroom.persistence.postgres.functions import NAMES, TASK_COLUMNS, value_of
from greenroom.persistence.postgres.hot import LEFT, Frame, Result
from greenroom.persistence.postgres.session import Connection
from greenroom.persistence.reading.task_records import TASK_ADDRESS, task_record
from greenroom.persistence.tasks import ClaimedTask, ClaimTask, Submission, SubmitTask, Submitted, WakeTask, Woken

_SUBMIT: Final = Statement.calling(
    NAMES["submit"],
    "text text[] bigint text[] text[] text[] bigint[] bigint[] bytea[] bigint[] text[] text[] bigint[] text[] text[] bytea[]",
    "done",
)
_SUBMIT_ONE: Final = value_of("submit_one", 16)
_CLAIM_ONE: Final = value_of("claim_one", 5)
_WAKE: Final = Statement.calling(NAMES["wake"], "bigint text[] text[]", "done")
_CLAIM: Final = Statement.calling(NAMES["claim"], "bigint text text[] text[] text[]", "numbers")
# All of some tasks.
_RECORDS: Final = Statement.of(
    "text[]",
    "SELECT r.* FROM unnest($1) wanted(address) CROSS JOIN LATERAL ("
    f"SELECT {TASK_COLUMNS} FROM tasks t JOIN addresses a ON a.address = t.address "
    "WHERE t.address = wanted.address LIMIT 1) r",
)
_ACCEPTED: Final = Submitted(Submission.ACCEPTED, 1)
_ADDRESS_COLUMNS: Final = TASK_ADDRESS.count(",") + 1


class Submit:
    """Tasks come in: all of a group at once, or all one by one, for their turns depend on their order."""

    def fits(self, item: SubmitTask) -> bool:
        return True

    def are_one_group(self, items: Sequence[SubmitTask]) -> bool:
        return len({item.task.task_id for item in items}) == len(items)

    async def call(self, connection: Connection, frame: Frame, items: Sequence[SubmitTask]) -> Result | None:
        tasks = [item.task for item in items]
        if any(task.not_before is not None for task in tasks):
            done = None
        elif len(items) == 1:
            done = await self._one(connection, frame, items[0])
        else:
            done = await self._many(connection, frame, items)
        if done:
            return Result([_ACCEPTED for _ in items], frozenset(task.pool for task in tasks), True)
        return None if frame.batch_id is not None else Result([LEFT for _ in items])

    async def _one(self, connection: Connection, frame: Frame, item: SubmitTask) -> bool | None:
        task = item.task
        done: bool | None = await connection.fetchval(
            _SUBMIT_ONE,
            frame.batch_id,
            item.transition_id,
            frame.now,
            task.address,
            task.pool,
            task.group,
            task.priority,
            task.capacity,
            *columns_of(task.request),
            task.request_type,
            task.request_digest,
            maybe_micros(task.deadline),
            task.parent,
            task.parent_policy.value,
            task.seed,
        )
        return done

    async def _many(self, connection: Connection, frame: Frame, items: Sequence[SubmitTask]) -> bool | None:
        tasks = [item.task for item in items]
        requests = [columns_of(task.request) for task in tasks]
        row = await connection.fetchrow(
            *_SUBMIT.given(
                frame.batch_id,
                [item.transition_id for item in items],
                frame.now,
                [task.address for task in tasks],
                [task.pool for task in tasks],
                [task.group for task in tasks],
                [task.priority for task in tasks],
                [task.capacity for task in tasks],
                *([request[n] for request in requests] for n in (0, 1)),
                [task.request_type for task in tasks],
                [task.request_digest for task in tasks],
                [maybe_micros(task.deadline) for task in tasks],
                [task.parent for task in tasks],
                [task.parent_policy.value for task in tasks],
                [task.seed for task in tasks],
            )
        )
        assert row is not None  # a function with OUT arguments gives one
        done: bool | None = row["done"]
        return done


class Wake:
    """Tasks are put into their pools' queues. Nobody waits for one alone, so that it is no whole batch."""

    def fits(self, item: WakeTask) -> bool:
        return True

    def are_one_group(self, items: Sequence[WakeTask]) -> bool:
        return False

    async def call(self, connection: Connection, frame: Frame, items: Sequence[WakeTask]) -> Result:
        addresses, pools = [item.address for item in items], [item.pool for item in items]
        row = await connection.fetchrow(*_WAKE.given(frame.now, addresses, pools))
        assert row is not None  # a function with OUT arguments gives one
        done: Sequence[bool] = row["done"]
        woken = frozenset(pool for pool, ordinary in zip(pools, done, strict=True) if ordinary)
        return Result([Woken() if ordinary else LEFT for ordinary in done], woken, bool(woken))


class Claim:
    """Tasks are claimed. What a claimer is told is too much for a batch's row to be made of it, so that it is no whole batch."""

    def fits(self, item: ClaimTask) -> bool:
        return True

    def are_one_group(self, items: Sequence[ClaimTask]) -> bool:
        return False

    async def call(self, connection: Connection, frame: Frame, items: Sequence[ClaimTask]) -> Result:
        if len(items) == 1:
            return Result([await self.one(connection, frame.now, items[0]) or LEFT])
        return await self._many(connection, frame, items)

    async def one(self, connection: Connection, now: int | None, item: ClaimTask) -> ClaimedTask | None:
        """Claim a runnable task that nobody owns; None, and nothing is done, for any other. Without the time it locks, too."""
        row = await connection.fetchval(_CLAIM_ONE, now, item.execution_id, item.address, item.pool, item.version)
        return None if row is None else _claimed(row[1:], row[0])

    async def _many(self, connection: Connection, frame: Frame, items: Sequence[ClaimTask]) -> Result:
        execution_id = items[0].execution_id
        mine = [item for item in items if item.execution_id == execution_id]
        assert frame.now is not None  # a part of a larger batch
        row = await connection.fetchrow(
            *_CLAIM.given(
                frame.now,
                execution_id,
                [item.address for item in mine],
                [item.pool for item in mine],
                [item.version for item in mine],
            )
        )
        assert row is not None  # a function with OUT arguments gives one
        claimed = [item.address for item, number in zip(mine, row["numbers"], strict=True) if number is not None]
        answers: dict[str, ClaimedTask] = {}
        for record in await connection.fetch(*_RECORDS.given(claimed)) if claimed else ():
            answer = _claimed(tuple(record), frame.now)
            answers[answer.task.address] = answer
        return Result([answers.get(item.address, LEFT) for item in items])


def _claimed(columns: Record, now: int) -> ClaimedTask:
    """What a claimer is told, of all columns of its task."""
    in_hand = columns[_ADDRESS_COLUMNS : _ADDRESS_COLUMNS + IN_HAND_COLUMNS]
    fixed = columns[_ADDRESS_COLUMNS + IN_HAND_COLUMNS :]
    return ClaimedTask(task=task_record(fixed, in_hand, columns[:_ADDRESS_COLUMNS], now))
