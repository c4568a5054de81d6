"""Tasks submitted and claimed, many at once, by one call of a plpgsql function each (R6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from greenroom.persistence.applying.task_rows import FIXED, IN_HAND, IN_HAND_COLUMNS
from greenroom.persistence.clock import maybe_micros
from greenroom.persistence.content import columns_of
from greenroom.persistence.postgres.arrays import Statement
from greenroom.persistence.postgres.functions import NAMES
from greenroom.persistence.postgres.hot import LEFT, Frame, Result
from greenroom.persistence.postgres.session import Connection
from greenroom.persistence.reading.task_records import TASK_ADDRESS, task_record
from greenroom.persistence.tasks import ClaimedTask, ClaimTask, Submission, SubmitTask, Submitted

_SUBMIT: Final = Statement.calling(
    NAMES["submit"],
    "text text[] bigint text[] text[] text[] bigint[] bigint[] bytea[] bigint[] text[] text[] bigint[] text[] text[] bytea[]",
    "done",
)
_CLAIM: Final = Statement.calling(NAMES["claim"], "bigint text text[] text[] text[]", "numbers")
# All of some tasks.
_RECORDS: Final = Statement.of(
    "text[]",
    "SELECT r.* FROM unnest($1) wanted(address) CROSS JOIN LATERAL ("
    f"SELECT {TASK_ADDRESS}, {IN_HAND}, {FIXED} FROM tasks t JOIN addresses a ON a.address = t.address "
    "WHERE t.address = wanted.address LIMIT 1) r",
)
_ADDRESS_COLUMNS: Final = TASK_ADDRESS.count(",") + 1


class Submit:
    """Tasks come in: all of a group at once, or all one by one, for their turns depend on their order."""

    def fits(self, item: SubmitTask) -> bool:
        return True

    def are_one_group(self, items: Sequence[SubmitTask]) -> bool:
        return len({item.task.task_id for item in items}) == len(items)

    async def call(self, connection: Connection, frame: Frame, items: Sequence[SubmitTask]) -> Result | None:
        tasks = [item.task for item in items]
        left = None if frame.batch_id is not None else Result([LEFT for _ in items])
        if any(task.not_before is not None for task in tasks):
            return left
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
        if not row["done"]:
            return left
        return Result([Submitted(Submission.ACCEPTED, 1) for _ in items], frozenset(task.pool for task in tasks), True)


class Claim:
    """Tasks are claimed. What a claimer is told is too much for a batch's row to be made of it, so that it is no whole batch."""

    def fits(self, item: ClaimTask) -> bool:
        return True

    def are_one_group(self, items: Sequence[ClaimTask]) -> bool:
        return False

    async def call(self, connection: Connection, frame: Frame, items: Sequence[ClaimTask]) -> Result | None:
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
            columns = tuple(record)
            in_hand = columns[_ADDRESS_COLUMNS : _ADDRESS_COLUMNS + IN_HAND_COLUMNS]
            fixed = columns[_ADDRESS_COLUMNS + IN_HAND_COLUMNS :]
            task = task_record(fixed, in_hand, columns[:_ADDRESS_COLUMNS], frame.now)
            answers[task.address] = ClaimedTask(task=task)
        return Result([answers.get(item.address, LEFT) for item in items])
