"""The SQLite driver: one connection, one transaction a batch, errors told apart by where they struck."""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from greenroom.persistence.answers import decode_answer, decode_answers, encode_answers
from greenroom.persistence.applying.appliers import APPLIERS
from greenroom.persistence.applying.unit import Record
from greenroom.persistence.clock import StoreClock
from greenroom.persistence.driver import Applied, Contended, News, NotReached, OutcomeUnknown, Renewer, StatementFailed
from greenroom.persistence.reading.queries import READERS
from greenroom.persistence.reading.segments import read_segment
from greenroom.persistence.retention import Retention
from greenroom.persistence.segments import ReadSegment, SegmentRecord
from greenroom.persistence.sqlite.blocking import BlockingInbox, run_blocking
from greenroom.persistence.sqlite.connection import Connect, code_of, connect, durability_of, not_reached, path_of
from greenroom.persistence.sqlite.hot import HOT
from greenroom.persistence.sqlite.liveness import FileHold, LockFiles
from greenroom.persistence.sqlite.renewer import UPDATE_LEASE, MemoryRenewer, Renewal, SqliteRenewer
from greenroom.persistence.sqlite.rows import RowsInHand
from greenroom.persistence.sqlite.statements import SqliteTx
from greenroom.persistence.sqlite.unit import SqliteUnit
from greenroom.persistence.transitions import Query, Transition
from greenroom.persistence.urls import StoreUrl

# A batch's own row: its answers, and the proof that it was committed.
INSERT_BATCH = "INSERT INTO batches (batch_id, at, answers) VALUES (?, ?, ?)"
# Was a batch committed?
SELECT_BATCH = "SELECT answers FROM batches WHERE batch_id = ?"
# Brings everything from the log into the database, synced, and empties the log: was somebody in the way?
SETTLE_LOG = "PRAGMA wal_checkpoint(TRUNCATE)"
# Makes a commit, which syncs the log.
TOUCH_BATCH = "UPDATE batches SET at = at WHERE batch_id = ?"
# Batches that nobody will ask for any more.
TRIM_BATCHES = (
    "DELETE FROM batches WHERE batch_id IN (SELECT batch_id FROM batches WHERE at < ? ORDER BY at LIMIT 1024)"
)
# Addresses with delayed messages whose time came since the last look.
NEWLY_DUE = (
    "SELECT DISTINCT address FROM messages WHERE status = 'delayed' AND deliver_at > ? AND deliver_at <= ? LIMIT 1000"
)

# Batches that may hold the answer to a transition, newest first.
FIND_ANSWER = "SELECT answers FROM batches WHERE instr(answers, ?) > 0 ORDER BY at DESC"

TRIM_EVERY: Final = 256
"""Batches between trimmings of the table of batches."""

SLICE: Final = 1.0
"""Seconds that one try waits for another process's lock, at most. The store thread tries again, and keeps the bound."""


class SqliteDriver:
    """SQLite, as the store thread uses it.

    Args:
        bound: seconds that a request may wait.
        connect: opens a connection, as `sqlite3.connect`; the testing kit gives one that fails.
    """

    def __init__(self, url: StoreUrl, clock: StoreClock, *, bound: float, connect: Connect = sqlite3.connect) -> None:
        self.name = url.text
        self.durability = durability_of(url)
        self.inbox = BlockingInbox()
        self._url, self._clock, self._connect = url, clock, connect
        self._patience = min(SLICE, bound / 4)
        path = path_of(url)
        self._locks = None if path is None else LockFiles(path)
        self._connection: sqlite3.Connection | None = None
        self._data_version = 0
        self._looked = 0
        """Until when delayed messages have been looked for."""
        self._batches = 0
        self._renewals: deque[Renewal] = deque()
        self._rows = RowsInHand()

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        run_blocking(main)

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - the store thread is this driver's own, and blocks

    async def open(self) -> None:
        self._open()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self._url, self._clock, patience=self._patience, factory=self._connect)
            self._rows.let_go()  # another connection counts the database's versions anew
            self._data_version = self._version(self._connection)
            self._looked = self._clock.now()
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None and self._url.path != ":memory:":  # which would be lost with all it holds
            connection, self._connection = self._connection, None
            with suppress(sqlite3.Error):
                connection.close()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    # ----------------------------------------------------------------------------------------------------- batches

    async def apply(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        connection = self._open()
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self._give_up(error)
        try:
            self._fold_renewals(connection)
            unit = SqliteUnit(connection, self._clock, self._locks, self._rows)
            answers = []
            for item in items:
                hot = HOT.get(type(item))
                answer = None if hot is None else hot(unit, item)
                if answer is None:
                    unit.disturb(item)
                    answer = await APPLIERS[type(item)](unit, item)
                answers.append(answer)
            await unit.finish()
            unit.cursor.execute(INSERT_BATCH, (batch_id, unit.now, encode_answers(items, answers)))
            self._batches += 1
            if self._batches % TRIM_EVERY == 0:
                unit.cursor.execute(TRIM_BATCHES, (unit.now - round(Retention().batches.total_seconds() * 1e6),))
        except Exception as error:  # whatever an item sets off, its neighbours must not pay for it
            self._rows.let_go()
            self._roll_back(connection)
            if isinstance(error, sqlite3.Error) and (passing := not_reached(error)) is not None:
                self._drop()
                raise passing from error
            raise StatementFailed(str(error)) from error
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._rows.let_go()
            self._commit_failed(connection, error)
        return Applied(answers, frozenset(unit.woken))

    def _commit_failed(self, connection: sqlite3.Connection, error: sqlite3.Error) -> NoReturn:
        if connection.in_transaction and code_of(error) == sqlite3.SQLITE_BUSY:
            self._roll_back(connection)
            raise Contended(str(error)) from error
        self._drop()
        raise OutcomeUnknown(f"COMMIT failed: {error}") from error

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._drop()

    def _give_up(self, error: sqlite3.Error) -> NoReturn:
        """An error about the database as a whole: it may pass, or it is the store thread's end."""
        passing = not_reached(error)
        if code_of(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            self._drop()
        if passing is None:
            raise error
        raise passing from error

    async def recover(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied | None:
        connection = self._open()
        try:
            row = connection.execute(SELECT_BATCH, (batch_id,)).fetchone()
            if row is not None:
                # After an fsync that failed the kernel takes the pages for clean: no later fsync of the log brings them to the
                # disk, though it succeeds. So they are written again, to another place, and what may be torn is thrown away.
                (in_the_way, _, _) = connection.execute(SETTLE_LOG).fetchone()
                if in_the_way:
                    raise NotReached(
                        "another process reads in it, and the log that an fsync failed for cannot be settled"
                    )
                connection.execute(TOUCH_BATCH, (batch_id,))
        except sqlite3.Error as error:
            self._give_up(error)
        if row is None:
            return None
        woken = frozenset(row.key for item in items for row in item.locks if row.table in ("addresses", "task_pools"))
        return Applied(decode_answers(row[0], items), woken)

    # ------------------------------------------------------------------------------------------------------- reading

    async def read(self, query: Query[Any]) -> Any:
        try:
            connection = self._open()
            self._fold_renewals(connection)
            return await READERS[type(query)](SqliteReader(connection, self._clock, self._locks), query)
        except NotReached:
            raise
        except Exception as error:  # whatever a query sets off, the store thread goes on
            if isinstance(error, sqlite3.Error) and not_reached(error) is not None:
                self._give_up(error)
            raise StatementFailed(str(error)) from error

    async def news(self) -> News:
        connection = self._open()
        try:
            version, before = self._version(connection), self._data_version
            now, looked = self._clock.now(), self._looked
            due = connection.execute(NEWLY_DUE, (looked, now)).fetchall() if now > looked else ()
        except sqlite3.Error as error:
            self._give_up(error)
        self._data_version, self._looked = version, now
        return News(version != before, frozenset(address for (address,) in due))

    @staticmethod
    def _version(connection: sqlite3.Connection) -> int:
        """Changes when another connection has committed something, and not by what this one does."""
        version: int = connection.execute("PRAGMA data_version").fetchone()[0]
        return version

    # ----------------------------------------------------------------------------------------------------- executions

    def renewer(self) -> Renewer:
        if self._url.path == ":memory:":
            return MemoryRenewer(self._clock, self._renewals)
        return SqliteRenewer(self._url, self._clock, patience=self._patience, connect=self._connect)

    def _fold_renewals(self, connection: sqlite3.Connection) -> None:
        """A database in memory has one connection: what its renewers want is done before anything else is."""
        while self._renewals:
            connection.execute(UPDATE_LEASE, self._renewals.popleft())

    def hold(self, execution_id: str) -> FileHold | None:
        return None if self._locks is None else self._locks.hold(execution_id)


class SqliteReader:
    """Answers queries by one connection, outside of any transaction."""

    def __init__(self, connection: sqlite3.Connection, clock: StoreClock, locks: LockFiles | None) -> None:
        self.tx = SqliteTx(connection.cursor())
        self._connection, self._clock, self._locks = connection, clock, locks

    def seconds_left(self, execution: Record) -> float:
        """By the lease's own clock, and by the execution's file (R11)."""
        execution_id, _, _, boot_id, locked, _, lease_until, state, _ = execution
        if state == "ended" or boot_id != self._clock.boot_id:
            return 0.0
        if locked and self._locks is not None and self._locks.prove_dead(execution_id):
            return 0.0
        seconds: float = lease_until / 1e6 - self._clock.boot()
        return max(0.0, seconds)

    async def answer_to(self, transition_id: str) -> Any:
        for (answers,) in self._connection.execute(FIND_ANSWER, (transition_id.encode(),)):
            answer = decode_answer(answers, transition_id)
            if answer is not None:
                return answer
        return None

    async def segments(self, queries: Sequence[ReadSegment]) -> Sequence[SegmentRecord]:
        return [await read_segment(self, query) for query in queries]
