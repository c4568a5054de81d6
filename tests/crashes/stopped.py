"""A worker process that is stopped (SIGSTOP) with a message in hand: python stopped.py URL LEASE PLACE

It owns "desk" and begins the first message. At PLACE it stops: "inside" the transaction that would mark the message as handled, by
itself, or "between" that and the one before, by whoever reads "ready" from its output. When it goes on it tries to finish, and to
begin the next one, and writes down what became of that, and of its fence.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
from contextlib import suppress
from typing import Any

import anyio
import asyncpg

from greenroom.errors import GreenroomError
from greenroom.persistence import (
    AddressKind,
    BeginDelivery,
    ClaimAddress,
    Claimed,
    Delivery,
    FinishDelivery,
    ToOutside,
    open_store,
    start_execution,
)
from greenroom.persistence.clock import system_clock
from greenroom.persistence.driver import Driver
from greenroom.persistence.postgres.driver import PostgresDriver
from greenroom.persistence.sqlite.driver import SqliteDriver
from greenroom.persistence.urls import parse_url

armed = threading.Event()
"""Stop at the next COMMIT."""


def stop_at(sql: str) -> None:
    if sql == "COMMIT" and armed.is_set():
        armed.clear()
        # By a signal to this very thread, which therefore does not go on for a while beside the others' stopping.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


class StoppingSqlite(sqlite3.Connection):
    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        stop_at(sql)
        return super().execute(sql, parameters)


def stop_postgres() -> None:
    execute = asyncpg.Connection.execute

    async def stopping(self: Any, query: str, *args: Any, **options: Any) -> str:
        stop_at(query)
        return await execute(self, query, *args, **options)

    asyncpg.Connection.execute = stopping  # type: ignore[method-assign]


def stopping_driver(url: str, lease: float) -> Driver:
    if url.startswith("sqlite"):

        def connect(path: str, **options: Any) -> sqlite3.Connection:
            return sqlite3.connect(path, factory=StoppingSqlite, **options)

        return SqliteDriver(parse_url(url), system_clock(), bound=30.0, connect=connect)
    stop_postgres()
    return PostgresDriver(url, bound=30.0, lease=lease)


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def main(url: str, lease: float, place: str) -> None:
    lost = anyio.Event()
    async with open_store(url, driver=lambda _: stopping_driver(url, lease)) as store:
        execution = await start_execution(store, on_lost=lost.set, lease=lease)
        mine: dict[str, Any] = {"address": "desk", "execution_id": execution.id}
        claimed = await store.commit(ClaimAddress(kind=AddressKind.ACTOR, **mine))
        assert isinstance(claimed, Claimed), claimed
        mine["generation"] = claimed.generation
        assert isinstance(await store.commit(BeginDelivery(seq=1, **mine)), Delivery)
        if place == "between":
            say("ready")
            await anyio.to_thread.run_sync(sys.stdin.readline)
        if place == "inside":
            armed.set()
        report = ToOutside(destination="log", message_id="report", type="Report", body=b"{}")
        finished = await store.commit(FinishDelivery(seq=1, outside=(report,), **mine))
        say("fence", "open" if execution.fence.is_open else "closed")
        say("finish", outcome(finished))
        say("begin", outcome(await store.commit(BeginDelivery(seq=2, **mine))))
        await lost.wait()
        say("lost")
        with suppress(GreenroomError):  # it has been lost already
            await execution.end()


def outcome(answer: object) -> str:
    reason = getattr(answer, "reason", None)
    return type(answer).__name__ if reason is None else reason.value


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], float(sys.argv[2]), sys.argv[3])
