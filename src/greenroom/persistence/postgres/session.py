"""A session with PostgreSQL: opened under the limits of R12, its promises checked, the schema up to date."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import asyncpg

from greenroom.errors import BadStoreUrl, IncompatibleStore
from greenroom.persistence.clock import StoreClock
from greenroom.persistence.driver import Durability, NotReached
from greenroom.persistence.postgres.failures import ERRORS, is_passing, is_refusal, told
from greenroom.persistence.postgres.functions import NAMES, STEER, TEXTS
from greenroom.persistence.postgres.target import Limits, Target
from greenroom.persistence.schema.migrations import Newer, SchemaState, missing, sql_of

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

OLDEST: Final = 14
"""The first PostgreSQL that will do."""

# What an acknowledgement of this server and session promises.
SELECT_PROMISES = (
    "SELECT current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS synchronous_commit"
)
# Is there a schema, has it our tables, or somebody else's?
SELECT_SCHEMA = (
    "SELECT to_regclass(quote_ident($1) || '.meta') IS NOT NULL AS ours, "
    "EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1) AS used"
)
# The schema's version and the oldest code that it is for.
SELECT_META = "SELECT version, oldest_code FROM meta"
# Which of our functions are there?
SELECT_FUNCTIONS = (
    "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
    "WHERE n.nspname = $1 AND p.proname = ANY ($2::text[])"
)
# One after another: of two processes the second finds nothing left to do.
LOCK_SCHEMA = "SELECT pg_advisory_xact_lock(hashtextextended('greenroom.' || $1, 0))"
CREATE_META = (
    "CREATE TABLE IF NOT EXISTS meta (one integer PRIMARY KEY CHECK (one = 1), version bigint NOT NULL, "
    "oldest_code bigint NOT NULL)"
)
# The schema has been brought to a version.
UPSERT_META = (
    "INSERT INTO meta (one, version, oldest_code) VALUES (1, $1, $2) "
    "ON CONFLICT (one) DO UPDATE SET version = excluded.version, oldest_code = excluded.oldest_code"
)
# The steered clock of the testing kit.
SET_NOW = "SELECT set_config('greenroom.now', $1, false)"


async def connect(target: Target, limits: Limits, *, application: str = "greenroom") -> Connection:
    """A session under its limits, with nothing checked.

    Raises:
        NotReached: it may work later.
        BadStoreUrl, IncompatibleStore: it will not.
    """
    settings = limits.settings() | {"search_path": '"' + target.schema.replace('"', '""') + '"'}
    if target.reduced:
        settings["synchronous_commit"] = "off"
    settings["application_name"] = application
    try:
        connection = await asyncpg.connect(target.dsn, timeout=limits.call, server_settings=settings)
    except ValueError as error:  # asyncpg's word on the URL: a port that is no number, an option that has no sense
        raise BadStoreUrl(target.text, str(error)) from error
    except ERRORS as error:
        if is_refusal(error) or not is_passing(error):
            raise IncompatibleStore(target.text, told(error)) from error
        raise NotReached(told(error)) from error
    _keep_alive(connection, limits)
    return connection


def _keep_alive(connection: Connection, limits: Limits) -> None:
    """Our own end of the line notices within a third of the lease, too, that the other has gone."""
    line = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]  # no public way to the socket
    if line is None or line.family not in (socket.AF_INET, socket.AF_INET6):
        return
    options = {
        "TCP_KEEPIDLE": limits.keepalive_idle,
        "TCP_KEEPINTVL": limits.keepalive_interval,
        "TCP_KEEPCNT": 2,
        "TCP_USER_TIMEOUT": round(800 * limits.third),
    }
    with suppress(OSError):  # a matter of the platform; the time limit of each call stands in any case
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in options.items():
            if hasattr(socket, name):
                line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def check_promises(connection: Connection, target: Target) -> Durability:
    """What an acknowledgement will mean (C18, R33).

    Raises:
        IncompatibleStore: less than was asked for, or a server that is too old.
    """
    version = connection.get_server_version().major
    if version < OLDEST:
        raise IncompatibleStore(target.text, f"it needs PostgreSQL {OLDEST} or later, and this is {version}")
    row = await connection.fetchrow(SELECT_PROMISES)
    assert row is not None  # a SELECT without FROM
    if target.reduced:
        return Durability.REDUCED
    for setting in ("fsync", "synchronous_commit"):
        if row[setting] == "off":
            raise IncompatibleStore(
                target.text,
                f"the server has {setting} = off, so that what was acknowledged can be lost: switch it on, "
                "or ask for ?durability=reduced",
            )
    return Durability.FULL


async def schema_state(connection: Connection, target: Target) -> SchemaState:
    """What the schema says of itself.

    Raises:
        IncompatibleStore: the schema is somebody else's.
    """
    row = await connection.fetchrow(SELECT_SCHEMA, target.schema)
    assert row is not None  # a SELECT without FROM
    if not row["ours"]:
        if row["used"]:
            problem = (
                f"the schema {target.schema!r} holds something else: give Greenroom one of its own, by ?schema=name"
            )
            raise IncompatibleStore(target.text, problem)
        return SchemaState(0, 0)
    meta = await connection.fetchrow(SELECT_META)
    return SchemaState(0, 0) if meta is None else SchemaState(meta["version"], meta["oldest_code"])


async def prepare(connection: Connection, target: Target, *, migrate: bool, clock: StoreClock | None) -> None:
    """Bring the schema up to date: an empty one always, one with data only when `migrate` says so.

    Raises:
        IncompatibleStore: it is for newer code, somebody else's, or older and not to be touched.
    """
    try:
        state = await schema_state(connection, target)
        if state.version and missing(state) and not migrate:
            raise IncompatibleStore(
                target.text,
                f"its schema is at version {state.version}, and this code needs {missing(state)[-1].number}: "
                "run `greenroom store migrate`",
            )
        if missing(state):
            async with connection.transaction():
                await connection.execute(LOCK_SCHEMA, target.schema)
                name = '"' + target.schema.replace('"', '""') + '"'
                await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {name}")
                for migration in missing(await schema_state(connection, target)):
                    await connection.execute(sql_of(migration, "postgres"))
                    await connection.execute(CREATE_META)
                    await connection.execute(UPSERT_META, migration.number, migration.oldest_code)
        await install_functions(connection, target)
        if clock is not None:
            await steer(connection, target)
    except Newer as error:
        raise IncompatibleStore(target.text, str(error)) from None


async def install_functions(connection: Connection, target: Target) -> None:
    """Make those of our functions that the schema has not got."""
    names = list(NAMES.values())
    if len(await connection.fetch(SELECT_FUNCTIONS, target.schema, names)) == len(names):
        return
    async with connection.transaction():
        await connection.execute(LOCK_SCHEMA, target.schema)
        there = {row["proname"] for row in await connection.fetch(SELECT_FUNCTIONS, target.schema, names)}
        for name in names:
            if name not in there:
                await connection.execute(TEXTS[name])


async def steer(connection: Connection, target: Target) -> None:
    """Let this schema's clock be steered, by the testing kit."""
    async with connection.transaction():
        await connection.execute(LOCK_SCHEMA, target.schema)
        await connection.execute(STEER)


async def set_time(connection: Connection, clock: StoreClock) -> None:
    """Set a steered clock to what the testing kit says it is."""
    await connection.execute(SET_NOW, str(clock.now()))
