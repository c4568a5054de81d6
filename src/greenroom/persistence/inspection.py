"""Looking at a store's schema from outside, and bringing it up to date in the open: for operators and the command line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from attrs import frozen

from greenroom.errors import BadStoreUrl
from greenroom.persistence.beside import beside
from greenroom.persistence.postgres.target import NEEDS_ASYNCPG, SCHEMES
from greenroom.persistence.urls import StoreUrl, parse_url, split_url, without_password

if TYPE_CHECKING:
    from greenroom.persistence.schema.migrations import SchemaState


@frozen(kw_only=True)
class SchemaReport:
    """What a database says of its schema, and whether that is true."""

    state: SchemaState
    code: int
    """What this code counts as."""
    missing: tuple[int, ...]
    """Migrations that have not been applied."""
    differences: tuple[str, ...]
    """What is not as the migrations that were applied have made it, one line each."""

    @property
    def is_good(self) -> bool:
        """Can this code work with it as it is?"""
        return not self.missing and not self.differences and self.state.oldest_code <= self.code


def place_of(url: str) -> str:
    """Where a store is: the file of a SQLite database, whole; for PostgreSQL the URL, without its password.

    Raises:
        BadStoreUrl: it is none that can be looked at from outside (one in memory, for example).
    """
    if split_url(url).scheme in SCHEMES:
        return without_password(url)
    return str(Path(_on_disk(url).path).absolute())


async def check_store(url: str) -> SchemaReport:
    """Look at a database without changing it.

    Raises:
        BadStoreUrl: it is none that can be looked at from outside (one in memory, for example).
        StoreUnavailable: there is no such database, or it cannot be reached.
        IncompatibleStore: it is a database of something else.
    """
    return await beside(_calls(url).inspect)


async def find_store(url: str) -> None:
    """Make sure that there is a store, whatever its version, without changing anything.

    Raises:
        NoSuchStore: there is none.
        BadStoreUrl, StoreUnavailable, IncompatibleStore: as `check_store`.
    """
    await beside(_calls(url).find)


async def migrate_store(url: str) -> SchemaReport:
    """Bring a database up to date, or make it. On SQLite opening a store does the same.

    Raises:
        As `check_store`; IncompatibleStore also for a schema that is only for newer code.
    """
    calls = _calls(url)
    with anyio.CancelScope(shield=True):  # a migration is not left to itself
        await beside(calls.bring_up_to_date)
    return await beside(calls.inspect)


@frozen
class _Calls:
    """What can be done with one database from outside. The calls block."""

    find: Callable[[], None]
    inspect: Callable[[], SchemaReport]
    bring_up_to_date: Callable[[], None]


def _calls(url: str) -> _Calls:
    if split_url(url).scheme in SCHEMES:
        try:
            from greenroom.persistence.postgres import inspection as postgres
        except ImportError as error:
            raise BadStoreUrl(without_password(url), NEEDS_ASYNCPG) from error
        return _Calls(
            partial(postgres.find, url), partial(postgres.inspect, url), partial(postgres.bring_up_to_date, url)
        )
    from greenroom.persistence.sqlite import inspection as sqlite

    parsed = _on_disk(url)
    return _Calls(
        partial(sqlite.find, parsed), partial(sqlite.inspect, parsed), partial(sqlite.bring_up_to_date, parsed)
    )


def _on_disk(url: str) -> StoreUrl:
    from greenroom.persistence.sqlite.connection import durability_of

    parsed = parse_url(url)
    durability_of(parsed)  # which says what is wrong with its options
    if parsed.path == ":memory:":
        raise BadStoreUrl(url, "a database in memory exists only inside its own store")
    return parsed
