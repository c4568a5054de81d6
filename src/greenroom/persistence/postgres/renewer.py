"""Renewing leases on PostgreSQL, on a connection, a thread and an asyncio loop of its own (R10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from greenroom.errors import IncompatibleStore
from greenroom.persistence.clock import StoreClock
from greenroom.persistence.driver import NotReached
from greenroom.persistence.postgres.failures import ERRORS, told
from greenroom.persistence.postgres.functions import NAMES
from greenroom.persistence.postgres.session import Connection, connect, set_time
from greenroom.persistence.postgres.target import Limits, Target

T = TypeVar("T")

# A lease that lasts is made longer; one that has passed stays so (R3).
RENEW = f"SELECT {NAMES['renew']}($1, $2)"


class AsyncThread:
    """A thread with an asyncio loop, for callers that block. They may have a loop of their own running."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._runner = asyncio.Runner()

    def run(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine to its end in the thread, and wait for it."""
        return self._executor.submit(lambda: self._runner.run(function())).result()

    def close(self) -> None:
        # An interpreter that is ending takes no more work, and ends the connection with the process.
        with suppress(RuntimeError):
            self._executor.submit(self._runner.close).result()
        self._executor.shutdown()


class PostgresRenewer:
    """A connection for one caller, opened at the first renewal and again after trouble."""

    def __init__(self, target: Target, limits: Limits, clock: StoreClock | None) -> None:
        self._target, self._limits, self._clock = target, limits, clock
        self._thread: AsyncThread | None = None
        self._connection: Connection | None = None

    def renew(self, execution_id: str, lease: float) -> bool:
        if self._thread is None:
            self._thread = AsyncThread("greenroom-lease")
        return self._thread.run(lambda: self._renew(execution_id, round(lease * 1e6)))

    async def _renew(self, execution_id: str, lease: int) -> bool:
        try:
            async with asyncio.timeout(self._limits.call):
                if self._connection is None or self._connection.is_closed():
                    self._connection = await connect(self._target, self._limits, application="greenroom lease")
                if self._clock is not None:
                    await set_time(self._connection, self._clock)
                renewed: bool = await self._connection.fetchval(RENEW, execution_id, lease)
        except (*ERRORS, IncompatibleStore) as error:
            # Also what is no fault of the way there: a lease that cannot be renewed must not end the thread that renews it.
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.terminate()
            raise NotReached(told(error)) from error
        return renewed

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.run(self._close)
            thread.close()

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*ERRORS):
                await connection.close(timeout=1.0)
