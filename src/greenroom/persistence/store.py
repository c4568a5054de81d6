"""`open_store`: a database by its URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, TypeVar

from greenroom.errors import BadStoreUrl
from greenroom.mailbox.parking import EventLoop, current_loop
from greenroom.persistence.clock import StoreClock, system_clock
from greenroom.persistence.committer import Committer
from greenroom.persistence.driver import Driver, Durability, Hold, Renewer
from greenroom.persistence.postgres.target import NEEDS_ASYNCPG, SCHEMES
from greenroom.persistence.transitions import Query, Refused, Transition
from greenroom.persistence.urls import parse_url, split_url, without_password
from greenroom.persistence.wakeups import Subscription

T = TypeVar("T")

BOUND: Final = 30.0
"""Seconds that a commit may wait for its answer."""

LEASE: Final = 30.0
"""Seconds that an execution's lease lasts, if it is not renewed."""


class Store(Protocol):
    """Where accepted work is kept. What each method promises is said at `Committer`."""

    @property
    def name(self) -> str: ...
    @property
    def durability(self) -> Durability: ...
    async def commit(self, transition: Transition[T]) -> T | Refused: ...
    async def read(self, query: Query[T]) -> T: ...
    def wakeups(self) -> Subscription: ...
    def renewer(self) -> Renewer: ...
    def hold(self, execution_id: str) -> Hold | None: ...


def make_driver(
    url: str, *, clock: StoreClock | None = None, bound: float = BOUND, lease: float = LEASE, **options: Any
) -> Driver:
    """The driver for a URL, not opened.

    Args:
        lease: seconds of the leases that will be held through it: a PostgreSQL session may hold nothing for as long (R12).
    Raises:
        BadStoreUrl: the URL names no database, or has an option that its kind of database does not have.
    """
    if split_url(url).scheme in SCHEMES:
        try:
            from greenroom.persistence.postgres.driver import PostgresDriver
        except ImportError as error:
            raise BadStoreUrl(without_password(url), NEEDS_ASYNCPG) from error
        return PostgresDriver(url, clock, bound=bound, lease=lease, **options)
    from greenroom.persistence.sqlite.driver import SqliteDriver

    return SqliteDriver(parse_url(url), clock or system_clock(), bound=bound, **options)


@asynccontextmanager
async def open_store(
    url: str,
    *,
    loop: EventLoop | None = None,
    clock: StoreClock | None = None,
    bound: float = BOUND,
    lease: float = LEASE,
    driver: Callable[[Driver], Driver] | None = None,
) -> AsyncIterator[Committer]:
    """Open a store for the length of a block; the schema is brought up to date where that is automatic.

    Leaving the block lets what was submitted be committed first.

    Args:
        url: `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite://:memory:`; `?durability=reduced` gives up the
            fsync at each commit. `postgresql://user@host/database`, with the extra `postgres`.
        bound: seconds (> 0) that a request may wait for its answer.
        lease: seconds (> 0) of the leases that will be held through it.
        clock: for the testing kit.
        driver: for the testing kit: gets the driver and gives the one to use.
    Raises:
        BadStoreUrl, IncompatibleStore, StoreUnavailable.
    """
    made = make_driver(url, clock=clock, bound=bound, lease=lease)
    store = Committer(made if driver is None else driver(made), loop or current_loop(), bound=bound)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
