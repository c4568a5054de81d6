"""Renewing leases on PostgreSQL, on a connection and an asyncio loop of its own, in the thread that calls (R10)."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import asyncpg

from greenroom.persistence.clock import StoreClock
from greenroom.persistence.driver import NotReached
from greenroom.persistence.postgres.functions import NAMES
from greenroom.persistence.postgres.session import Connection, connect, set_time
from greenroom.persistence.postgres.target import Limits, Target

# A lease that lasts is made longer; one that has passed stays so (R3).
RENEW = f"SELECT {NAMES['renew']}($1, $2)"


class PostgresRenewer:
    """A connection for one thread, opened at the first renewal and again after trouble."""

    def __init__(self, target: Target, limits: Limits, clock: StoreClock | None) -> None:
        self._target, self._limits, self._clock = target, limits, clock
        self._runner: asyncio.Runner | None = None
        self._connection: Connection | None = None

    def renew(self, execution_id: str, lease: float) -> bool:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(self._renew(execution_id, round(lease * 1e6)))

    async def _renew(self, execution_id: str, lease: int) -> bool:
        try:
            async with asyncio.timeout(self._limits.call):
                if self._connection is None or self._connection.is_closed():
                    self._connection = await connect(self._target, self._limits, application="greenroom lease")
                if self._clock is not None:
                    await set_time(self._connection, self._clock)
                renewed: bool = await self._connection.fetchval(RENEW, execution_id, lease)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            # Also what is no fault of the way there: a lease that cannot be renewed must not end the thread that renews it.
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.terminate()
            raise NotReached(f"{type(error).__name__}: {error}") from error
        return renewed

    def close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            connection, self._connection = self._connection, None
            if connection is not None:
                with suppress(OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    runner.run(connection.close(timeout=1.0))
            runner.close()
