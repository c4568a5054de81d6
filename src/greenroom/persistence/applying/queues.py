"""The queues of pools: rows in hand under their locks, counted in Python, written back once a batch.

Fairness is start-time fair queueing: a submitted task gets the turn after the last of its group, or after the pool's when the
group was not busy; the pool's turn is that of the latest claimed. So groups advance side by side, however much one submits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from greenroom.persistence.applying.unit import Tx

# One pool of tasks, to be decided about.
SELECT_POOL: Final = (
    "SELECT queue_limit, per_group, rate_count, rate_period, runnable, turn, begun FROM task_pools WHERE pool = $1"
)
# The last turn of a group.
SELECT_GROUP: Final = "SELECT turn FROM task_groups WHERE pool = $1 AND group_key = $2"
# A pool's numbers.
UPDATE_POOL: Final = "UPDATE task_pools SET runnable = $1, turn = $2, begun = $3 WHERE pool = $4"
# A group's number.
UPSERT_GROUP: Final = (
    "INSERT INTO task_groups (pool, group_key, turn) VALUES ($1, $2, $3) "
    "ON CONFLICT (pool, group_key) DO UPDATE SET turn = excluded.turn"
)


class PoolRow:
    """A pool's row."""

    __slots__ = ("begun", "limit", "name", "per_group", "rate", "runnable", "stored", "turn")

    def __init__(
        self,
        name: str,
        limit: int | None,
        per_group: int | None,
        rate_count: int | None,
        rate_period: int | None,
        runnable: int,
        turn: int,
        begun: int,
    ) -> None:
        self.name = name
        self.limit = limit
        self.per_group = per_group
        """Tasks of one group that may have a place at once."""
        self.rate = None if rate_count is None or rate_period is None else (rate_count, rate_period)
        """How many attempts may begin in how many microseconds."""
        self.runnable = runnable
        """Tasks that stand in its queue."""
        self.turn = turn
        """Of the latest claimed task."""
        self.begun = begun
        """Attempts that have begun."""
        self.stored = self.values()

    def values(self) -> tuple[int, int, int]:
        """What is counted, as it is to be."""
        return (self.runnable, self.turn, self.begun)

    @property
    def full(self) -> bool:
        return self.limit is not None and self.runnable >= self.limit

    def pass_turn(self, turn: int) -> None:
        """A task of that turn leaves the queue to run."""
        self.turn = max(self.turn, turn)


class Queues:
    """The pools that a batch has in hand."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._pools: dict[str, PoolRow | None] = {}
        self._groups: dict[tuple[str, str], int] = {}
        self._changed: dict[tuple[str, str], int] = {}

    async def pool(self, name: str) -> PoolRow | None:
        """A locked pool; None when it was never registered."""
        if name not in self._pools:
            record = await self._tx.one(SELECT_POOL, name)
            self._pools[name] = None if record is None else PoolRow(name, *record)
        return self._pools[name]

    async def next_turn(self, pool: PoolRow, group: str) -> int:
        """The turn of a task that a group submits now."""
        key = (pool.name, group)
        if key not in self._groups:
            record = await self._tx.one(SELECT_GROUP, *key)
            self._groups[key] = 0 if record is None else record[0]
        turn = max(pool.turn, self._groups[key]) + 1
        self._groups[key] = self._changed[key] = turn
        return turn

    async def flush(self) -> None:
        """Write back what has changed. Rows stay in hand."""
        pools = []
        for row in self._pools.values():
            if row is not None and row.stored != row.values():
                row.stored = row.values()
                pools.append((*row.stored, row.name))
        if pools:
            await self._tx.many(UPDATE_POOL, pools)
        if self._changed:
            await self._tx.many(UPSERT_GROUP, [(*key, turn) for key, turn in self._changed.items()])
            self._changed.clear()

    def forget(self) -> None:
        """Have none in hand any more: others change them past this batch. They must have been flushed."""
        self._pools.clear()
        self._groups.clear()
