"""What the tests of the durable half are made with: a database that runtimes share, its time, and their deaths."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from datetime import timedelta
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from attrs import define, field, frozen

import greenroom as gr
from greenroom.mailbox import current_loop
from greenroom.persistence import Committer
from greenroom.persistence.postgres.session import connect
from greenroom.persistence.postgres.target import Limits, parse_target
from greenroom.persistence.urls import parse_url
from greenroom.testing import CrashPoints, StoreSource, StoreTime, VirtualClock

E = TypeVar("E", bound=gr.Event)

LEASE = 3600.0
"""Seconds, of the store's time. Renewals come in real time, so no lease is renewed while a test runs."""


@define(eq=False)
class Shared:
    """An empty database. Its time is the virtual clock's, and what `time.pass_time` adds."""

    url: str
    clock: VirtualClock
    time: StoreTime = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.time = StoreTime()
        self.time.follow(self.clock.now)

    @property
    def lease(self) -> timedelta:
        """That of its runtimes."""
        return timedelta(seconds=LEASE)

    def source(self, **options: Any) -> StoreSource:
        """For a runtime, as if it were in a process of its own."""
        return StoreSource(self.url, **{"clock": self.time.store_clock, "lease": LEASE, **options})

    def lagging(self) -> StoreSource:
        """For a runtime whose clock does not see the time that `time.pass_time` adds: it takes its lease to last when it has passed."""
        own = StoreTime()
        own.follow(self.clock.now)
        return self.source(clock=own.store_clock)

    def open(self) -> AbstractAsyncContextManager[Committer]:
        """The bare store."""
        return self.source().open(current_loop())

    def client(self) -> gr.Client:
        return gr.Client(self.source())

    def runtime(
        self, *children: Any, intensity: int = 1000, source: StoreSource | None = None, **options: Any
    ) -> gr.Runtime:
        """A runtime whose top supervisor, `service`, puts up with many restarts."""
        tree = gr.Supervisor("service", *children, intensity=intensity, period=5.0)
        return gr.Runtime(tree, store=source or self.source(), **options)

    async def change(self, statement: str) -> None:
        """Change the database by SQL, as nobody should. Virtual time stands meanwhile."""
        await anyio.to_thread.run_sync(changed, self.url, statement)

    def pass_lease(self) -> None:
        """Let the leases pass of all who are registered now."""
        self.time.pass_time(LEASE + 1)

    @asynccontextmanager
    async def death_at(self, *points: str) -> AsyncIterator[StoreSource]:
        """Around an execution that dies at the first of these points (see `CrashPoints`), and whose lease passes then."""
        async with CrashPoints(points) as crash:
            yield self.source(driver=crash.wrap)
        assert crash.died_at is not None, f"it passed only {list(crash.passed)}"
        self.pass_lease()

    @asynccontextmanager
    async def doomed(self, point: str, *children: Any) -> AsyncIterator[gr.Runtime]:
        """A runtime that dies at this point."""
        async with self.death_at(point) as source, self.runtime(*children, source=source) as runtime:
            yield runtime


def changed(url: str, statement: str) -> None:
    """Carry a statement out beside whoever has the database open. Blocks."""
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(parse_url(url).path)) as connection, connection:
            connection.execute(statement)
        return

    async def main() -> None:
        connection = await connect(parse_target(url), Limits(), application="test")
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(main())


async def settled() -> None:
    """Return when everything waits for something. Virtual time goes on only then, and no store has anything to do."""
    await anyio.sleep(0.001)


async def until(reached: Callable[[], bool]) -> None:
    """Wait for what comes by way of the database from another store, or from a thread: in real time, while virtual time stands."""
    while not reached():
        await anyio.to_thread.run_sync(time.sleep, 0.005)


async def eventually(reached: Callable[[], bool], within: float = 600.0) -> None:
    """Wait, in virtual time, for what needs time to pass. Fails when so many seconds were not enough."""
    for _ in range(round(within / 0.05)):
        if reached():
            return
        await anyio.sleep(0.05)
    raise AssertionError(f"it has not come within {within:g} s")


async def raised(awaitable: Awaitable[object]) -> BaseException:
    """The exception that something raises."""
    try:
        result = await awaitable
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what was asked for
        return error
    raise AssertionError(f"nothing was raised, but {result!r} returned")


def events_of(kind: type[E], events: Any) -> list[E]:
    """The events of one kind among those that have come so far."""
    return [event for event in events.pending() if isinstance(event, kind)]


class Boom(Exception):
    """A crash that a test made."""


@frozen
class Note(gr.Message[None]):
    """Write this down."""

    text: str


@frozen
class Add(gr.Message[int]):
    """The reply is the sum of all that were added."""

    number: int
