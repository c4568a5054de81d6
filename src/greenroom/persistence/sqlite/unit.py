"""The unit of work on SQLite: under the database's write lock, with rows in hand that earlier batches have read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any

from greenroom.persistence.applying.rows import NONE
from greenroom.persistence.applying.unit import SELECT_EXECUTION, ExecutionView, Record, Unit
from greenroom.persistence.clock import StoreClock
from greenroom.persistence.sqlite.liveness import LockFiles
from greenroom.persistence.sqlite.rows import RowsInHand, SqliteRow
from greenroom.persistence.sqlite.statements import SqliteTx, rewritten
from greenroom.persistence.transitions import OwnerWrite, Transition


class SqliteUnit(Unit):
    """One transaction on SQLite. Nothing changes beside it, so that rows can be read when they are asked for."""

    def __init__(
        self, connection: sqlite3.Connection, clock: StoreClock, locks: LockFiles | None, in_hand: RowsInHand
    ) -> None:
        self.cursor = connection.cursor()
        super().__init__(SqliteTx(self.cursor), clock.now())
        self._boot, self._boot_id = clock.boot(), clock.boot_id
        self._locks = locks
        self._in_hand = in_hand
        in_hand.begin(self.cursor)

    def address(self, address: str) -> SqliteRow | None:
        row = self._rows[address] = self._in_hand.get(self.cursor, address)
        return row

    def new_address(self, address: str) -> SqliteRow:
        row = self._rows[address] = SqliteRow(address, None, NONE)
        self._in_hand.add(row)
        return row

    async def load(self, addresses: Iterable[str]) -> None:
        pass  # they are read when they are asked for

    async def load_tasks(self, addresses: Iterable[str], *, whole: bool = False) -> None:
        pass  # so are these

    def tell_others(self) -> None:
        pass  # they see that something was committed

    async def flush(self) -> None:
        await super().flush()
        for row in self._rows.values():
            if row is not None:
                row.state = None

    def owned(self, item: OwnerWrite[Any]) -> SqliteRow | None:
        """The address's row, if the item comes from its owner; as `fenced`, without a reason."""
        row = self.address(item.address)
        if row is None or row.generation != item.generation or row.owner != item.execution_id:
            return None
        try:
            view = self._executions[item.execution_id]
        except KeyError:
            record = self.cursor.execute(rewritten(SELECT_EXECUTION), (item.execution_id,)).fetchone()
            view = self._executions[item.execution_id] = None if record is None else self.view(record)
        return row if view is not None and view.seconds_left > 0 else None

    def disturb(self, item: Transition[Any]) -> None:
        """The item may change messages that rows in hand know something of: those of addresses that it has for itself."""
        for lock in item.exclusive:
            if lock.table == "addresses" and (row := self.address(lock.key)) is not None:
                row.begun.clear()

    # ----------------------------------------------------------------------------------------------------- executions

    def view(self, record: Record) -> ExecutionView:
        state, lease_until, boot_id, locked = record
        lasts = state != "ended" and boot_id == self._boot_id
        return ExecutionView(state, lease_until / 1e6 - self._boot if lasts else 0.0, bool(locked))

    def lease_until(self, seconds: float) -> int:
        return round((self._boot + seconds) * 1e6)

    async def seconds_alive(self, execution_id: str) -> float:
        """0 when it is dead, by its lease, its end, or its file (R11)."""
        view = await self.execution(execution_id)
        if view is None or view.seconds_left <= 0:
            return 0.0
        if view.locked and self._locks is not None and self._locks.prove_dead(execution_id):
            return 0.0
        return view.seconds_left

    async def read_time(self) -> None:
        pass  # the one lock was had before it was read

    def forget_address(self, address: str) -> None:
        self._in_hand.drop(address)

    def forget_proof(self, execution_id: str) -> None:
        if self._locks is not None:
            self._locks.forget(execution_id)
