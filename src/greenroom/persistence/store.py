"""`open_store`: a database by its URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit

from greenroom.errors import BadStoreUrl
from greenroom.mailbox.parking import EventLoop, current_loop
from greenroom.persistence.clock import StoreClock, system_clock
from greenroom.persistence.committer import Committer
from greenroom.persistence.driver import Driver, Durability, Hold, Renewer
from greenroom.persistence.postgres.target import NEEDS_ASYNCPG, SCHEMES, without_password
from greenroom.persistence.transitions import Query, Refused, Transition
from greenroom.persistence.urls import parse_url
from greenroom.persistence.wakeups import Subscription

T = TypeVar("T")

BOUND: Final = 30.0
"""Seconds that a commit may wait for its answer."""


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


def make_driver(url: str, *, clock: StoreClock | None = None, bound: float = BOUND, **options: Any) -> Driver:
    """The driver for a URL, not opened.

    Raises:
        BadStoreUrl: the URL names no database, or has an option that its kind of database does not have.
    """
    if urlsplit(url).scheme in SCHEMES:
        try:
            from greenroom.persistence.postgres.driver import PostgresDriver
        except ImportError as error:
            raise BadStoreUrl(without_password(url), NEEDS_ASYNCPG) from error
        return PostgresDriver(url, clock, bound=bound, **options)
    from greenroom.persistence.sqlite.driver import SqliteDriver

    return SqliteDriver(parse_url(url), clock or system_clock(), bound=bound, **options)


@asynccontextmanager
async def open_store(
    url: str,
    *,
    loop: EventLoop | None = None,
    clock: StoreClock | None = None,
    bound: float = BOUND,
    driver: Callable[[Driver], Driver] | None = None,
) -> AsyncIterator[Committer]:
    """Open a store for the length of a block; the schema is brought up to date where that is automatic.

    Leaving the block lets what was submitted be committed first.

    Args:
        url: `sqlite:///relative.db`, `sqlite:////absolute.db`, `sqlite://:memory:`; `?durability=reduced` gives up the
            fsync at each commit. `postgresql://user@host/database`, with the extra `postgres`.
        bound: seconds (> 0) that a request may wait for its answer.
        clock: for the testing kit.
        driver: for the testing kit: gets the driver and gives the one to use.
    Raises:
        BadStoreUrl, IncompatibleStore, StoreUnavailable.
    """
    made = make_driver(url, clock=clock, bound=bound)
    store = Committer(made if driver is None else driver(made), loop or current_loop(), bound=bound)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
