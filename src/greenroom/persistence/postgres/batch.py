"""One batch on one connection: one call for a hot kind, or an exchange; else a transaction of groups (R5, R6, R7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import evolve

from greenroom.persistence.addresses import ClaimAddress, OpenAddress
from greenroom.persistence.answers import encode_answers
from greenroom.persistence.applying.appliers import APPLIERS
from greenroom.persistence.clock import micros
from greenroom.persistence.deliveries import FinishDelivery
from greenroom.persistence.driver import Applied, StatementFailed
from greenroom.persistence.journal import CommitTurn
from greenroom.persistence.packing import Group, locks_of, pack
from greenroom.persistence.postgres.arrays import Statement
from greenroom.persistence.postgres.exchange import EXCHANGE, EXCHANGED
from greenroom.persistence.postgres.functions import NAMES
from greenroom.persistence.postgres.hot import LEFT, Frame, Hot, send
from greenroom.persistence.postgres.kinds import CLAIM, HOT
from greenroom.persistence.postgres.session import Connection
from greenroom.persistence.postgres.unit import PostgresUnit
from greenroom.persistence.schedules import PassMoment
from greenroom.persistence.tasks import ClaimTask, SubmitTask
from greenroom.persistence.transitions import LOCK_RANKS, Transition

# The pools of a batch, which are locked before everything else.
LOCK_POOLS = "SELECT 1 FROM task_pools WHERE pool = ANY ($1) ORDER BY pool FOR NO KEY UPDATE"
# All other row locks of a batch, and the addresses that are decided about in Python.
LOCK: Final = Statement.calling(NAMES["lock"], "text[] text[] text[] text[] text[] text[]")
# A batch's own row: its answers, and the proof that it was committed. Other processes are told, when there is something for them.
INSERT_BATCH: Final = Statement.of(
    "text bigint text[] bytea boolean",
    "INSERT INTO batches (batch_id, at, transition_ids, answers) VALUES ($1, $2, $3, $4) "
    "RETURNING CASE WHEN $5 THEN pg_notify('greenroom.' || current_schema(), '')::text END",
)


class Batch:
    """A sealed batch on its way.

    Args:
        own: executions of this process.
    """

    def __init__(
        self, connection: Connection, batch_id: str, items: Sequence[Transition[Any]], own: frozenset[str]
    ) -> None:
        self._connection = connection
        self._batch_id = batch_id
        self._items = items
        self._own = own
        self.at_commit = False
        """The server may have begun to commit."""

    async def apply(self) -> Applied:
        """Apply it, durably. Whatever is raised leaves the connection to the caller, perhaps inside a transaction."""
        hot = _at_once(self._items)
        if hot is not None:
            self.at_commit = True
            frame = Frame(batch_id=self._batch_id, own=list(self._own))
            result = await hot.call(self._connection, frame, self._items)
            self.at_commit = False
            if result is not None:
                return Applied(result.answers, result.woken)
        await self._connection.execute("BEGIN")
        unit, ordered = await self._claim() or await self._apply_groups()
        await self._connection.execute(
            *INSERT_BATCH.given(
                self._batch_id,
                unit.now,
                [item.transition_id for item in self._items],
                encode_answers(self._items, ordered),
                unit.news,
            )
        )
        self.at_commit = True
        tag = await self._connection.execute("COMMIT")
        if tag != "COMMIT":
            raise StatementFailed(f"COMMIT came to {tag}")
        return Applied(ordered, frozenset(unit.woken))

    async def _claim(self) -> tuple[PostgresUnit, list[Any]] | None:
        """A lone claim, unless it is one that does not go its ordinary way."""
        item = self._items[0]
        if len(self._items) > 1 or not isinstance(item, ClaimTask):
            return None
        answer = await CLAIM.one(self._connection, None, item)
        if answer is None:
            return None
        return PostgresUnit(self._connection, micros(answer.task.read_at), self._own), [answer]

    async def _apply_groups(self) -> tuple[PostgresUnit, list[Any]]:
        groups = pack(self._items)
        unit = await self._lock(groups)
        answers: dict[int, Any] = {}
        for group in groups:
            await self._apply_group(unit, group, answers)
        await unit.finish()
        return unit, [answers[id(item)] for item in self._items]

    async def _lock(self, groups: Sequence[Group]) -> PostgresUnit:
        """Take all row locks, and what is decided about in Python in hand."""
        rows: dict[str, list[str]] = {table: [] for table in LOCK_RANKS}
        for row in locks_of(self._items):
            rows[row.table].append(row.key)
        if rows["task_pools"]:
            await self._connection.execute(LOCK_POOLS, rows["task_pools"])
        single = [item for group in groups for item in _one_by_one(group)]
        load = [row.key for row in locks_of(single) if row.table == "addresses"]
        records = await self._connection.fetch(
            *LOCK.given(
                [address for item in self._items for address in _made(item)],
                [item.execution_id for item in self._items if isinstance(item, (ClaimAddress, ClaimTask))],
                rows["executions"],
                rows["addresses"],
                rows["callbacks"],
                load,
            )
        )
        unit = PostgresUnit(self._connection, records[0]["now"], self._own)
        unit.take(load, (record for record in records if record["address"] is not None))
        return unit

    async def _apply_group(self, unit: PostgresUnit, group: Group, answers: dict[int, Any]) -> None:
        single = _one_by_one(group)
        if len(single) < len(group.items):
            hot = HOT[group.kind]
            items = [item for item in group.items if hot.fits(item)]
            await unit.flush()
            unit.drop(row.key for row in locks_of(items) if row.table == "addresses")
            result = await hot.call(self._connection, Frame(now=unit.now, own=list(self._own)), items)
            assert result is not None  # only a whole batch can be left as a whole
            unit.woken |= result.woken
            unit.news |= result.news
            for item, answer in zip(items, result.answers, strict=True):
                if answer is LEFT:
                    single.append(item)
                else:
                    answers[id(item)] = answer
        senders = [item for item in single if isinstance(item, FinishDelivery) and _only_sends(item)]
        if len(senders) > 1 and await self._finish_senders(unit, senders, answers):
            single = [item for item in single if id(item) not in answers]
        await unit.load(row.key for row in locks_of(single) if row.table == "addresses")
        await unit.load_tasks(_own_addresses(single), whole=group.kind is ClaimTask)
        for item in single:
            answers[id(item)] = await APPLIERS[group.kind](unit, item)

    async def _finish_senders(
        self, unit: PostgresUnit, items: Sequence[FinishDelivery], answers: dict[int, Any]
    ) -> bool:
        """Handled messages that sent others, set by set. False when not all of it goes its ordinary way: nothing is done then.

        Within a group, what they handle is theirs alone, so that it does not matter whose messages are sent when.
        """
        await unit.flush()
        unit.drop(row.key for row in locks_of(items) if row.table == "addresses")
        frame = Frame(now=unit.now, own=list(self._own))
        await self._connection.execute("SAVEPOINT senders")
        handled = await HOT[FinishDelivery].call(self._connection, frame, items)
        assert handled is not None  # only a whole batch can be left as a whole
        sent = None if LEFT in handled.answers else await send(self._connection, frame, items)
        if sent is None:
            await self._connection.execute("ROLLBACK TO SAVEPOINT senders")
            return False
        unit.woken |= sent.woken
        unit.news |= sent.news
        for item, answer, dispositions in zip(items, handled.answers, sent.answers, strict=True):
            answers[id(item)] = evolve(answer, outgoing=dispositions)
        return True


def _at_once(items: Sequence[Transition[Any]]) -> Hot | None:
    """What applies a whole batch by one call; None: nothing does."""
    kinds = set(map(type, items))
    hot = HOT.get(type(items[0])) if len(kinds) == 1 else EXCHANGE if kinds <= EXCHANGED else None
    return hot if hot is not None and all(map(hot.fits, items)) and hot.are_one_group(items) else None


def _made(item: Transition[Any]) -> list[str]:
    """Addresses that may come into being by it."""
    match item:
        case ClaimAddress() | OpenAddress():
            return [item.address]
        case SubmitTask():
            return [item.task.address]
        case PassMoment() if item.task is not None:
            return [item.task.address]
        case CommitTurn():
            return [task.address for task in item.submits]
        case _:
            return []


def _own_addresses(items: Sequence[Transition[Any]]) -> list[str]:
    """Addresses that items have for themselves."""
    return [row.key for item in items for row in item.exclusive if row.table == "addresses"]


def _only_sends(item: FinishDelivery) -> bool:
    """It sends messages within the store, and does nothing else that is decided one by one."""
    return bool(item.outgoing) and not item.timers and not item.outside


def _one_by_one(group: Group) -> list[Transition[Any]]:
    """The items of a group that no function is asked about."""
    hot = HOT.get(group.kind)
    return [item for item in group.items if hot is None or not hot.fits(item)]
