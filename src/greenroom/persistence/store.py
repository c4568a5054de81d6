"""`open_store`: a database by its URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import parse_qsl, urlsplit

from attrs import field, frozen

from greenroom.errors import BadStoreUrl
from greenroom.mailbox.parking import EventLoop, current_loop
from greenroom.persistence.clock import StoreClock, system_clock
from greenroom.persistence.committer import Committer
from greenroom.persistence.driver import Driver, Durability, Hold, Renewer
from greenroom.persistence.transitions import Query, Refused, Transition
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


@frozen
class StoreUrl:
    """A store's URL, taken apart."""

    text: str
    scheme: str
    path: str
    """`:memory:`, or where the file is."""
    options: dict[str, str] = field(factory=dict)


def parse_url(url: str) -> StoreUrl:
    """Take a store's URL apart. Three slashes begin a relative path, four an absolute one.

    Raises:
        BadStoreUrl: it names no database that Greenroom knows.
    """
    parts = urlsplit(url)
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in options:
            raise BadStoreUrl(url, f"the option {name!r} is there twice")
        options[name] = value
    if parts.scheme == "sqlite":
        if parts.fragment:
            raise BadStoreUrl(url, "it has a fragment (#...); write %23 for that sign in a path")
        if parts.netloc == ":memory:" and not parts.path:
            return StoreUrl(url, "sqlite", ":memory:", options)
        if parts.netloc or len(parts.path) < 2:
            raise BadStoreUrl(url, "an sqlite URL has three slashes and a path, or is sqlite://:memory:")
        return StoreUrl(url, "sqlite", unquoted(parts.path[1:]), options)
    raise BadStoreUrl(url, f"there is no store of the kind {parts.scheme!r}")


def unquoted(path: str) -> str:
    from urllib.parse import unquote

    return unquote(path)


def make_driver(url: str, *, clock: StoreClock | None = None, bound: float = BOUND, **options: Any) -> Driver:
    """The driver for a URL, not opened.

    Raises:
        BadStoreUrl: the URL names no database, or has an option that its kind of database does not have.
    """
    parsed = parse_url(url)
    from greenroom.persistence.sqlite.driver import SqliteDriver

    return SqliteDriver(parsed, clock or system_clock(), bound=bound, **options)


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
            fsync at each commit.
        bound: seconds (> 0) that a request may wait for its answer.
        clock: for the testing kit.
        driver: for the testing kit: gets the driver and gives the one to use.
    Raises:
        BadStoreUrl, StoreMismatch, StoreUnavailable.
    """
    made = make_driver(url, clock=clock, bound=bound)
    store = Committer(made if driver is None else driver(made), loop or current_loop(), bound=bound)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
