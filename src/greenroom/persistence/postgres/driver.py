"""The PostgreSQL driver: an asyncio loop in the store thread, one connection that keeps the order, and R5 by the batch's id.

A connection that breaks while the server may have been committing leaves the outcome unknown. Then the session that was lost
is ended, which decides what became of its transaction, and the batch's own row is looked for. Should the session have outlived
that after all, the same call with the same `batch_id` meets its row as a unique violation: it had committed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import asyncpg
from attrs import frozen

from greenroom.errors import IncompatibleStore
from greenroom.persistence.applying.unit import Record
from greenroom.persistence.clock import StoreClock
from greenroom.persistence.driver import (
    Applied,
    Durability,
    Hold,
    News,
    NotReached,
    OutcomeUnknown,
    Renewer,
    StatementFailed,
)
from greenroom.persistence.executions import RegisterExecution
from greenroom.persistence.postgres.batch import Batch
from greenroom.persistence.postgres.failures import ERRORS, failure_of, is_taken, told
from greenroom.persistence.postgres.inbox import AsyncInbox
from greenroom.persistence.postgres.renewer import PostgresRenewer
from greenroom.persistence.postgres.segments import read_segments
from greenroom.persistence.postgres.session import Connection, check_promises, connect, prepare, set_time
from greenroom.persistence.postgres.statements import PostgresTx
from greenroom.persistence.postgres.target import Limits, parse_target
from greenroom.persistence.postgres.verdicts import BATCH, stored_answer, stored_answers
from greenroom.persistence.reading.queries import READERS
from greenroom.persistence.retention import Retention
from greenroom.persistence.segments import ReadSegment, SegmentRecord
from greenroom.persistence.transitions import Query, Transition

# Which session is this? A process's number alone may come back.
SELECT_SESSION = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
# A session of ours that was lost: end it, and wait until it has ended.
END_SESSION = (
    "SELECT pg_terminate_backend(pid, $3) AS ended FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2"
)
# Was a batch committed, and what was it answered?
SELECT_BATCH = f"SELECT {BATCH} FROM batches WHERE batch_id = $1"
# The batch that holds the answer to a transition. It reads them all: this is rarely asked, and they are kept for minutes.
FIND_ANSWER = f"SELECT {BATCH} FROM batches WHERE $1 = ANY (transition_ids) ORDER BY at DESC LIMIT 1"
# Batches that nobody will ask for any more.
TRIM_BATCHES = (
    "DELETE FROM batches WHERE batch_id = ANY (ARRAY("
    "SELECT batch_id FROM batches WHERE at < (SELECT greenroom_now()) - $1 ORDER BY at LIMIT 1024 FOR UPDATE SKIP LOCKED))"
)
# Addresses with delayed messages whose time came since the last look.
NEWLY_DUE = (
    "SELECT t.now, ARRAY(SELECT DISTINCT address FROM messages WHERE status = 'delayed' "
    "AND deliver_at > $1 AND deliver_at <= t.now LIMIT 1000) AS due FROM (SELECT greenroom_now() AS now OFFSET 0) t"
)
SELECT_NOW = "SELECT greenroom_now()"

TRIM_EVERY: Final = 256
"""Batches between trimmings of the table of batches."""

LOOK_EVERY: Final = 0.2
"""Seconds between looks for delayed messages whose time has come."""

LONGEST_PAUSE: Final = 2.0
"""Seconds between tries to reach a server that stays away."""


@frozen
class Session:
    """A session of ours, for when it is lost."""

    pid: int
    started: datetime


class PostgresDriver:
    """PostgreSQL, as the store thread uses it.

    Args:
        url: `postgresql://user:password@host/database`; `?schema=` (default greenroom), `?durability=reduced`.
        clock: for the testing kit: steers the schema's clock. Product code leaves the database's own.
        bound: seconds that a request may wait.
        lease: seconds; how long a session may hold anything follows from it (R12).
        migrate: may a schema with data in it be brought up to date? An empty one always is.
        jitter: from 0 to 1, for the pauses between tries.
    Raises:
        BadStoreUrl.
    """

    def __init__(
        self,
        url: str,
        clock: StoreClock | None = None,
        *,
        bound: float = 30.0,
        lease: float = 30.0,
        migrate: bool = False,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._target = parse_target(url)
        self._limits = Limits(lease=min(lease, 3 * bound))
        self._clock, self._migrate, self._jitter = clock, migrate, jitter
        # Whoever submits when the server is back must not find us asleep for the whole of the bound.
        self._longest_pause = min(LONGEST_PAUSE, bound / 8)
        self.name = self._target.text
        self.durability = Durability.REDUCED if self._target.reduced else Durability.FULL
        self.inbox = AsyncInbox()
        self._connection: Connection | None = None
        self._session: Session | None = None
        self._lost: Session | None = None
        """The session in which the last batch's outcome became unknown."""
        self._own: frozenset[str] = frozenset()
        self._elsewhere = False
        self._looked = 0
        """Until when, on the store's clock, delayed messages have been looked for."""
        self._looked_at = 0.0
        self._failures = 0
        """Tries in vain since the server was last reached."""
        self._batches = 0

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=_new_loop()) as runner:
            runner.run(main)

    async def pause(self, seconds: float) -> None:
        longest = max(seconds, min(self._longest_pause, seconds * 2**self._failures))
        await asyncio.sleep(seconds + (longest - seconds) * self._jitter())

    # --------------------------------------------------------------------------------------------------- connections

    async def open(self) -> None:
        await self._ready()

    async def _ready(self) -> Connection:
        """The connection, made anew where it was lost.

        Raises:
            NotReached.
            IncompatibleStore: only at the first time.
        """
        if self._connection is None or self._connection.is_closed():
            self._drop()
            try:
                self._connection = await self._connect()
            except NotReached:
                self._failures = min(self._failures + 1, 16)
                raise
            except IncompatibleStore as error:
                if self._session is None:
                    raise
                # It was right once: somebody is changing it, and whoever waits has a bound.
                self._failures = min(self._failures + 1, 16)
                raise NotReached(str(error)) from error
            self._failures = 0
        if self._clock is not None:
            try:
                await set_time(self._connection, self._clock)
            except ERRORS as error:
                self._drop()
                raise NotReached(told(error)) from error
        return self._connection

    async def _connect(self) -> Connection:
        connection = await connect(self._target, self._limits)
        try:
            self.durability = await check_promises(connection, self._target)
            await prepare(connection, self._target, migrate=self._migrate, clock=self._clock)
            row = await connection.fetchrow(SELECT_SESSION)
            self._session = None if row is None else Session(row["pid"], row["backend_start"])
            await connection.add_listener(self._target.channel, self._heard)
            if self._looked == 0:
                if self._clock is not None:
                    await set_time(connection, self._clock)
                self._looked = await connection.fetchval(SELECT_NOW)
            else:
                self._elsewhere = True  # whatever was said meanwhile was not heard
        except ERRORS as error:
            connection.terminate()
            failure = failure_of(error, at_commit=False)
            if isinstance(failure, StatementFailed):
                raise IncompatibleStore(self.name, str(failure)) from error
            raise NotReached(str(failure)) from error
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _heard(self, _connection: object, pid: int, _channel: str, _payload: object) -> None:
        if self._session is None or pid != self._session.pid:
            self._elsewhere = True

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*ERRORS):
                await connection.close(timeout=1.0)

    # ----------------------------------------------------------------------------------------------------- batches

    async def apply(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        connection = await self._ready()
        await self._trim(connection)
        started = {item.execution_id for item in items if isinstance(item, RegisterExecution)}
        self._own |= started
        batch = Batch(connection, batch_id, items, self._own)
        try:
            async with asyncio.timeout(self._limits.call):
                return await batch.apply()
        except Exception as error:
            # Whatever an item sets off, its neighbours must not pay for it, nor the thread.
            if is_taken(error, "batches_pkey"):
                await self._roll_back(connection)
                stored = await self._stored(connection, batch_id, items)
                if stored is not None:
                    return stored
            failure = error if isinstance(error, StatementFailed) else failure_of(error, at_commit=batch.at_commit)
            if isinstance(failure, OutcomeUnknown):
                self._lost = self._session
            if isinstance(failure, (OutcomeUnknown, NotReached)):
                self._drop()
            else:
                await self._roll_back(connection)
            raise failure from error

    async def _roll_back(self, connection: Connection) -> None:
        if connection.is_in_transaction():
            try:
                async with asyncio.timeout(self._limits.call):
                    await connection.execute("ROLLBACK")
            except ERRORS:
                self._drop()

    async def _trim(self, connection: Connection) -> None:
        self._batches += 1
        if self._batches % TRIM_EVERY == 0:
            with suppress(*ERRORS):  # the next time will do
                await connection.execute(TRIM_BATCHES, round(Retention().batches.total_seconds() * 1e6))

    async def _stored(self, connection: Connection, batch_id: str, items: Sequence[Transition[Any]]) -> Applied | None:
        try:
            async with asyncio.timeout(self._limits.call):
                row = await connection.fetchrow(SELECT_BATCH, batch_id)
        except ERRORS as error:
            self._drop()
            raise OutcomeUnknown(told(error)) from error
        if row is None:
            return None
        woken = frozenset(
            lock.key for item in items for lock in item.locks if lock.table in ("addresses", "task_pools")
        )
        return Applied(stored_answers(row, items), woken)

    async def recover(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied | None:
        connection = await self._ready()
        if self._lost is not None:
            lost = self._lost
            try:
                async with asyncio.timeout(self._limits.call):
                    row = await connection.fetchrow(
                        END_SESSION, lost.pid, lost.started, round(500 * self._limits.third)
                    )
            except asyncpg.InsufficientPrivilegeError:
                row = None  # the unique key of the batch's row stands in any case
            except ERRORS as error:
                self._drop()
                raise NotReached(told(error)) from error
            if row is not None and not row["ended"]:
                raise NotReached("the session that was lost has not ended yet")
            self._lost = None
        try:
            return await self._stored(connection, batch_id, items)
        except OutcomeUnknown as error:
            raise NotReached(str(error)) from error

    # ------------------------------------------------------------------------------------------------------- reading

    async def read(self, query: Query[Any]) -> Any:
        connection = await self._ready()
        try:
            async with asyncio.timeout(self._limits.call):
                return await READERS[type(query)](PostgresReader(connection), query)
        except Exception as error:  # whatever a query sets off, the store thread goes on
            failure = failure_of(error, at_commit=False)
            if isinstance(failure, StatementFailed):
                raise failure from error
            if isinstance(failure, NotReached):
                self._drop()
            raise NotReached(str(failure)) from error

    async def news(self) -> News:
        connection = await self._ready()
        due: Sequence[str] = ()
        if time.monotonic() - self._looked_at >= LOOK_EVERY:
            try:
                async with asyncio.timeout(self._limits.call):
                    row = await connection.fetchrow(NEWLY_DUE, self._looked)
            except ERRORS as error:
                self._drop()
                raise NotReached(told(error)) from error
            assert row is not None  # a SELECT without a table
            self._looked, due = max(self._looked, row["now"]), row["due"]
            self._looked_at = time.monotonic()
        elsewhere, self._elsewhere = self._elsewhere, False
        return News(elsewhere, frozenset(due))

    # ----------------------------------------------------------------------------------------------------- executions

    def renewer(self) -> Renewer:
        return PostgresRenewer(self._target, self._limits, self._clock)

    def hold(self, execution_id: str) -> Hold | None:
        """None: on PostgreSQL only a lease tells that an execution lives."""
        return None


def _new_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed: a round trip on it takes 20 µs less, and a transaction has several."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class PostgresReader:
    """Answers queries by one connection, outside of any transaction."""

    def __init__(self, connection: Connection) -> None:
        self.tx = PostgresTx(connection)
        self._connection = connection

    def seconds_left(self, execution: Record) -> float:
        """By the lease alone, on the store's time (R10)."""
        _, _, _, _, _, _, lease_until, state, now = execution
        return 0.0 if state == "ended" else max(0.0, (lease_until - now) / 1e6)

    async def answer_to(self, transition_id: str) -> Any:
        row = await self._connection.fetchrow(FIND_ANSWER, transition_id)
        return None if row is None else stored_answer(row, transition_id)

    async def segments(self, queries: Sequence[ReadSegment]) -> Sequence[SegmentRecord]:
        return await read_segments(self._connection, queries)
