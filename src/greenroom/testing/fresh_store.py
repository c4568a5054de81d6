"""Empty databases for tests, removed afterwards."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from greenroom.persistence import new_id
from greenroom.persistence.urls import parse_url

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARED_MEMORY: Final = "/dev/shm"


@contextmanager
def fresh_store(server: str | None = None) -> Iterator[str]:
    """The URL of an empty store. Not to be called on an event loop's thread: it makes and removes by blocking.

    Args:
        server: `postgresql://…`: the store is a schema of its own there. None: a SQLite file in a temporary folder, in memory where
            the system has such folders, and without the fsync at each commit: no death but the system's own could show it.
    """
    if server is None:
        memory = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="greenroom-", dir=memory, ignore_cleanup_errors=True) as folder:
            yield f"sqlite:///{Path(folder) / 'store.db'}?durability=reduced"
        return
    schema = f"test_{new_id()}"
    parts = urlsplit(server)
    options = [(name, value) for name, value in parse_qsl(parts.query) if name != "schema"]
    try:
        yield urlunsplit(parts._replace(query=urlencode([*options, ("schema", schema)])))
    finally:
        asyncio.run(_drop(urlunsplit(parts._replace(query=urlencode(options))), schema))


def clear_store(url: str) -> None:
    """Forget everything that is in a fresh store. As blocking as that."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        for entry in Path(parse_url(url).path).parent.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        return
    options = dict(parse_qsl(parts.query))
    schema = options.pop("schema")
    asyncio.run(_empty(urlunsplit(parts._replace(query=urlencode(options))), schema))


async def _empty(server: str, schema: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(server)
    try:
        tables = await connection.fetch(
            "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = $1 AND tablename <> 'meta'", schema
        )
        if tables:
            names = ", ".join(f"{schema}.{name}" for (name,) in tables)
            await connection.execute(f"TRUNCATE {names} RESTART IDENTITY")
    finally:
        await connection.close()


async def _drop(server: str, schema: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(server)
    try:
        await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    finally:
        await connection.close()
