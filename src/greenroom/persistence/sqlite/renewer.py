"""Renewing leases on SQLite, beside the store thread and its batches (R10)."""

from __future__ import annotations

import sqlite3
from collections import deque

from greenroom.persistence.clock import StoreClock
from greenroom.persistence.sqlite.connection import Connect, connect, not_reached
from greenroom.persistence.urls import StoreUrl

# A lease that lasts is made longer; one that has passed stays so (R3).
UPDATE_LEASE = "UPDATE executions SET lease_until = ? WHERE execution_id = ? AND state <> 'ended' AND boot_id = ? AND lease_until > ?"


Renewal = tuple[int, str, str, int]
"""The parameters of `UPDATE_LEASE`."""


def renewal(clock: StoreClock, execution_id: str, lease: float) -> Renewal:
    boot = clock.boot()
    return round((boot + lease) * 1e6), execution_id, clock.boot_id, round(boot * 1e6)


class SqliteRenewer:
    """A connection for one thread, opened at the first renewal and again after trouble."""

    def __init__(self, url: StoreUrl, clock: StoreClock, *, patience: float, connect: Connect) -> None:
        self._url, self._clock, self._patience, self._connect = url, clock, patience, connect
        self._connection: sqlite3.Connection | None = None

    def renew(self, execution_id: str, lease: float) -> bool:
        if self._connection is None:
            self._connection = connect(self._url, self._clock, patience=self._patience, factory=self._connect)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            # The clock is read after the wait for the lock.
            changed = self._connection.execute(UPDATE_LEASE, renewal(self._clock, execution_id, lease)).rowcount
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self.close()
            raise not_reached(error) or error from error
        return changed == 1

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class MemoryRenewer:
    """For a database in memory, which no second connection reaches: it asks the driver, which renews before its next batch."""

    def __init__(self, clock: StoreClock, renewals: deque[Renewal]) -> None:
        self._clock, self._renewals = clock, renewals

    def renew(self, execution_id: str, lease: float) -> bool:
        self._renewals.append(renewal(self._clock, execution_id, lease))
        return True

    def close(self) -> None:
        pass
