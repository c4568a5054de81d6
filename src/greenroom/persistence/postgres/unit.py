"""The unit of work on PostgreSQL: its addresses were locked and read by the batch's first call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import asyncpg

from greenroom.persistence.applying.rows import PLAIN, STATE, TASK, AddressRow
from greenroom.persistence.applying.task_rows import FIXED, IN_HAND, IN_HAND_COLUMNS, TaskRow
from greenroom.persistence.applying.unit import ExecutionView, Record, Unit
from greenroom.persistence.postgres.session import Connection
from greenroom.persistence.postgres.statements import PostgresTx

# Addresses that are locked already, as they are now.
SELECT_ADDRESSES: Final = (
    "SELECT a.* FROM unnest($1::text[]) wanted(address) CROSS JOIN LATERAL ("
    f"SELECT address, {', '.join((*PLAIN, *STATE))} FROM addresses x WHERE x.address = wanted.address LIMIT 1) a"
)
SELECT_NOW: Final = "SELECT greenroom_now()"


class PostgresUnit(Unit):
    """One transaction on PostgreSQL.

    Args:
        own: executions of this process, whose work needs no call to other processes.
    """

    def __init__(self, connection: Connection, now: int, own: frozenset[str]) -> None:
        super().__init__(PostgresTx(connection), now)
        self.connection = connection
        self.own = own
        self.news = False
        """Something of it concerns other processes."""

    def take(self, addresses: Iterable[str], records: Iterable[asyncpg.Record]) -> None:
        """Take locked addresses in hand as they were read."""
        for address in addresses:
            self._rows[address] = None
        for record in records:
            address = record["address"]
            plain = tuple([record[name] for name in PLAIN])
            self._rows[address] = AddressRow(address, plain, tuple(record[name] for name in STATE))

    async def load(self, addresses: Iterable[str]) -> None:
        absent = [address for address in dict.fromkeys(addresses) if address not in self._rows]
        if absent:
            self.take(absent, await self.connection.fetch(SELECT_ADDRESSES, absent))

    async def load_tasks(self, addresses: Iterable[str], *, whole: bool = False) -> None:
        tasks = {
            address: row
            for address in addresses
            if (row := self._rows[address]) is not None and row.kind == TASK and row.stored is not None
        }
        if not tasks:
            return
        columns = f"{IN_HAND}, {FIXED}" if whole else IN_HAND
        sql = (
            f"SELECT t.* FROM unnest($1::text[]) wanted(address) CROSS JOIN LATERAL (SELECT t.address, {columns} "
            "FROM tasks t WHERE t.address = wanted.address LIMIT 1) t"
        )
        for address, *record in await self.tx.all(sql, list(tasks)):
            row = tasks[address]
            if row.task is None:
                row.task = TaskRow(record[:IN_HAND_COLUMNS])
            if whole:
                self._fixed[address] = record[IN_HAND_COLUMNS:]

    def drop(self, addresses: Iterable[str]) -> None:
        """Have addresses in hand no more: others change them past this unit. They must have been flushed."""
        for address in addresses:
            self._rows.pop(address, None)
        self.queues.forget()

    def wake(self, address: str) -> None:
        super().wake(address)
        row = self._rows.get(address)
        if row is None or row.owner is None or row.owner not in self.own:
            self.news = True

    def tell_others(self) -> None:
        self.news = True

    # ----------------------------------------------------------------------------------------------------- executions

    def view(self, record: Record) -> ExecutionView:
        state, lease_until, _, locked = record
        return ExecutionView(state, (lease_until - self.now) / 1e6 if state != "ended" else 0.0, locked)

    def lease_until(self, seconds: float) -> int:
        return self.now + round(seconds * 1e6)

    async def seconds_alive(self, execution_id: str) -> float:
        """0 when its lease has passed or it has ended: nothing else tells (R10)."""
        view = await self.execution(execution_id)
        return 0.0 if view is None else max(0.0, view.seconds_left)

    async def read_time(self) -> None:
        row = await self.tx.one(SELECT_NOW)
        assert row is not None  # a SELECT without a table
        (self.now,) = row

    def forget_address(self, address: str) -> None:
        self._rows[address] = None

    def forget_proof(self, execution_id: str) -> None:
        pass  # there are none
