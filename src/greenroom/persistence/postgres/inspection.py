"""Looking at a PostgreSQL schema from outside. The calls block, and need no event loop: they are made in a worker thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import asyncpg

from greenroom.errors import IncompatibleStore, NoSuchStore, StoreUnavailable
from greenroom.persistence.driver import NotReached
from greenroom.persistence.inspection import SchemaReport
from greenroom.persistence.postgres.failures import CONNECTION_ERRORS, told
from greenroom.persistence.postgres.session import Connection, connect, prepare, schema_state
from greenroom.persistence.postgres.target import Limits, Target, parse_target
from greenroom.persistence.schema.migrations import CODE, MIGRATIONS, sql_of

T = TypeVar("T")

SAMPLE: Final = "greenroom_sample"
"""A schema that is made to be compared with, and rolled back."""

# All that a migration makes, each with the text that tells it, but for the functions of single releases.
SELECT_MADE = """
SELECT 'column' AS kind, c.relname || '.' || a.attname AS name,
    format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
    || coalesce(' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), '') || coalesce(' COLLATE ' || l.collname, '') AS text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
LEFT JOIN pg_collation l ON l.oid = a.attcollation AND l.collname <> 'default'
WHERE n.nspname = $1 AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND c.relname <> 'meta'
UNION ALL
SELECT 'constraint', c.relname || '.' || k.conname, pg_get_constraintdef(k.oid)
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname <> 'meta' AND k.contype <> 'n'
UNION ALL
SELECT 'index', indexname, replace(indexdef, $1 || '.', '') FROM pg_indexes
WHERE schemaname = $1 AND tablename <> 'meta'
UNION ALL
SELECT 'trigger', t.tgname, replace(pg_get_triggerdef(t.oid), $1 || '.', '')
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND NOT t.tgisinternal
UNION ALL
SELECT 'function', p.proname, '' FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = $1 AND p.proname IN ('greenroom_now', 'greenroom_no_such_move', 'greenroom_owned_task')
"""


def find(url: str) -> None:
    """Make sure that there is a schema of ours.

    Raises:
        NoSuchStore, BadStoreUrl, StoreUnavailable, IncompatibleStore.
    """
    asyncio.run(_with(parse_target(url), _find))


def inspect(url: str) -> SchemaReport:
    """Look at a schema without changing it.

    Raises:
        BadStoreUrl, StoreUnavailable, IncompatibleStore.
    """
    return asyncio.run(_with(parse_target(url), _inspect))


def bring_up_to_date(url: str) -> None:
    """Bring a schema up to date, or make it.

    Raises:
        BadStoreUrl, StoreUnavailable, IncompatibleStore.
    """
    asyncio.run(_with(parse_target(url), _prepare))


async def _with(target: Target, work: Callable[[Connection, Target], Awaitable[T]]) -> T:
    """Do something on a connection for it, and say what its failure means."""
    try:
        connection = await connect(target, Limits())
        try:
            return await work(connection, target)
        finally:
            await connection.close(timeout=1.0)
    except NotReached as error:
        raise StoreUnavailable(target.text, str(error)) from error
    except CONNECTION_ERRORS as error:
        raise StoreUnavailable(target.text, told(error)) from error
    except asyncpg.PostgresError as error:
        raise IncompatibleStore(target.text, told(error)) from error


async def _prepare(connection: Connection, target: Target) -> None:
    await prepare(connection, target, migrate=True, clock=None)


async def _find(connection: Connection, target: Target) -> None:
    if (await schema_state(connection, target)).version == 0:
        raise NoSuchStore(target.text)


async def _inspect(connection: Connection, target: Target) -> SchemaReport:
    state = await schema_state(connection, target)
    if state.version == 0:
        raise IncompatibleStore(
            target.text, f"the schema {target.schema!r} is not there: make it by `greenroom store migrate`"
        )
    missing = tuple(migration.number for migration in MIGRATIONS if migration.number > state.version)
    differences: tuple[str, ...] = ()
    if state.version == CODE:
        differences = await _differences(connection, target)
    return SchemaReport(state=state, code=CODE, missing=missing, differences=differences)


async def _differences(connection: Connection, target: Target) -> tuple[str, ...]:
    """What the schema lacks, or has otherwise, of what the migrations make."""
    found = await _made(connection, target.schema)
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(f"CREATE SCHEMA {SAMPLE}")
        await connection.execute(f"SET LOCAL search_path = {SAMPLE}")
        for migration in MIGRATIONS:
            await connection.execute(sql_of(migration, "postgres"))
        wanted = await _made(connection, SAMPLE)
    finally:
        await transaction.rollback()
    lines = []
    for (kind, name), text in sorted(wanted.items()):
        if (kind, name) not in found:
            lines.append(f"the {kind} {name} is missing")
        elif found[kind, name] != text:
            lines.append(f"the {kind} {name} is another than it should be")
    return tuple(lines)


async def _made(connection: Connection, schema: str) -> dict[tuple[str, str], str]:
    """What there is, by kind and name."""
    rows = await connection.fetch(SELECT_MADE, schema)
    # Texts name the schema as it must be written, in quotes where it has odd letters.
    quoted = await connection.fetchval("SELECT quote_ident($1)", schema)
    return {(kind, name): text.replace(f"{quoted}.", "") for kind, name, text in rows}
