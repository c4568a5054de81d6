"""A TCP proxy before PostgreSQL that cuts, stalls, delays and refuses connections, also at named moments of a commit.

It reads the frontend's messages, so that it knows where a transaction is about to be committed: at a COMMIT, or at the execution
of a statement outside of a transaction that is known to commit by itself, as the store's calls of its own functions do.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from attrs import define, field

from greenroom.persistence.postgres.functions import NAMES

T = TypeVar("T")

LARGEST: Final = 1 << 30
"""Bytes of a message that is believed."""

COMMITTING: Final = tuple(name.encode() for function, name in NAMES.items() if function not in ("lock", "renew"))
"""The store's functions that are called outside of a transaction."""


class Cut(Enum):
    """Where, around a commit, a connection is cut."""

    BEFORE_COMMIT = "before"
    """The server never gets it."""
    AT_COMMIT = "at"
    """The server gets it, and the client is gone at once."""
    AFTER_COMMIT = "after"
    """The server has committed and answered, and the answer is lost."""


class LineCut(Exception):
    """One direction of a connection has ended, and so has the other."""


@define
class Message:
    """One message of the protocol."""

    kind: bytes
    """Empty for the first message of a connection."""
    raw: bytes
    """All of it."""

    @property
    def payload(self) -> bytes:
        return self.raw[len(self.kind) + 4 :]


async def read_message(reader: asyncio.StreamReader, *, first: bool = False) -> Message:
    """The next message. Raises `IncompleteReadError` at the end."""
    kind = b"" if first else await reader.readexactly(1)
    length = await reader.readexactly(4)
    rest = await reader.readexactly(min(LARGEST, int.from_bytes(length, "big") - 4))
    return Message(kind, kind + length + rest)


@define(eq=False)
class Line:
    """One client's connection through the proxy."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    statements: dict[bytes, bytes] = field(factory=dict)
    """The text of each prepared statement, by its name."""
    in_transaction: bool = False
    swallowing: bool = False
    """What the server says next is lost, up to and with the end of its answer; then the line is cut."""

    def abort(self) -> None:
        """Cut both ends."""
        for writer in (self.client, self.server):
            with suppress(RuntimeError):
                writer.transport.abort()


class PostgresProxy:
    """A proxy before a PostgreSQL server, in a thread of its own, for the length of a `with` block.

        with PostgresProxy("postgresql://...") as proxy:
            async with gr.Runtime(tree, store=proxy.url) as runtime:
                proxy.plan(Cut.AFTER_COMMIT)

    Its methods may be called from any thread, and return when they have taken effect. Time is real time. What goes through it is not
    encrypted.

    Args:
        url: of the server.
        committing: parts of the texts of statements that commit by themselves when they are executed outside of a transaction.
            The store's own are known.
        at_cut: called at each planned cut, in the proxy's thread, when the client has sent the whole of its commit, or its beginning
            for `BEFORE_COMMIT`, and before the server gets it: to kill the client just then, say.
    """

    def __init__(
        self,
        url: str,
        committing: tuple[bytes, ...] = COMMITTING,
        *,
        at_cut: Callable[[], object] = lambda: None,
    ) -> None:
        self._url = url
        self._committing = committing
        self._at_cut = at_cut
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="greenroom-postgres-proxy", daemon=True)
        self._lines: set[Line] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._cuts: list[Cut] = []
        self._flowing = asyncio.Event()
        self._refusing = False
        self._delay = 0.0
        self.port = 0
        """On 127.0.0.1."""
        self.done = 0
        """How many planned cuts were made."""
        self.connections = 0
        """How many connections were asked for."""

    def __enter__(self) -> PostgresProxy:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._runner.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # ------------------------------------------------------------------------------------------------ for other threads

    @property
    def idle(self) -> bool:
        """Nobody is connected, and nothing is under way to the server or back."""
        return not self._lines

    @property
    def url(self) -> str:
        """The server's URL by way of the proxy."""
        parts = urlsplit(self._url)
        query = [(name, value) for name, value in parse_qsl(parts.query) if name not in ("host", "sslmode")]
        query.append(("sslmode", "disable"))
        user = parts.netloc.rpartition("@")[0]
        host = f"127.0.0.1:{self.port}"
        return urlunsplit(parts._replace(netloc=f"{user}@{host}" if user else host, query=urlencode(query)))

    def plan(self, *cuts: Cut) -> None:
        """Cut at the next commits, one after another, on whichever connections they come. `done` counts them."""
        self._call(self._plan(cuts))

    async def _plan(self, cuts: tuple[Cut, ...]) -> None:
        self._cuts.extend(cuts)

    def cut(self) -> None:
        """Cut every connection now."""
        self._call(self._cut())

    async def _cut(self) -> None:
        for line in tuple(self._lines):
            line.abort()

    def refuse(self, refusing: bool = True) -> None:
        """Close new connections as they come, or let them through again."""
        self._call(self._refuse(refusing))

    async def _refuse(self, refusing: bool) -> None:
        self._refusing = refusing

    def stall(self) -> None:
        """Let nothing through, either way, and say nothing about it."""
        self._call(self._let_flow(False))

    def resume(self) -> None:
        """Let what was held back, and everything after it, through."""
        self._call(self._let_flow(True))

    async def _let_flow(self, flowing: bool) -> None:
        if flowing:
            self._flowing.set()
        else:
            self._flowing.clear()

    def delay(self, seconds: float) -> None:
        """Let each message of either side wait for so long (>= 0) before it goes on."""
        self._call(self._be_slow(seconds))

    async def _be_slow(self, seconds: float) -> None:
        self._delay = seconds

    # ------------------------------------------------------------------------------------------------ in the thread

    async def _listen(self) -> None:
        self._flowing.set()
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        if self._listener is not None:
            self._listener.close()
        await self._cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        parts = urlsplit(self._url)
        folder = dict(parse_qsl(parts.query)).get("host")
        if folder is not None and folder.startswith("/"):
            return await asyncio.open_unix_connection(Path(folder) / f".s.PGSQL.{parts.port or 5432}")
        return await asyncio.open_connection(folder or parts.hostname or "127.0.0.1", parts.port or 5432)

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # it is a callback of the listener
        self._tasks.add(task)
        self.connections += 1
        try:
            if self._refusing:
                client_out.transport.abort()
                return
            try:
                server_in, server_out = await self._connect()
            except OSError:  # the server is away
                client_out.transport.abort()
                return
            line = Line(client_out, server_out)
            self._lines.add(line)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._until_cut(self._upward(line, client_in)))
                    group.create_task(self._until_cut(self._downward(line, server_in)))
            except* (LineCut, OSError, asyncio.IncompleteReadError):
                pass  # cut by the test, by one of the two sides, or by the network: the other side is cut off below
            finally:
                self._lines.discard(line)
                line.abort()
        finally:
            self._tasks.discard(task)

    async def _until_cut(self, pump: Coroutine[Any, Any, None]) -> None:
        await pump
        raise LineCut

    async def _upward(self, line: Line, client_in: asyncio.StreamReader) -> None:
        first = True
        while True:
            message = await read_message(client_in, first=first)
            first = False
            await self._pass()
            if message.kind == b"P":
                name, text = message.payload.split(b"\0")[:2]
                line.statements[name] = text
            if self._cuts and self._commits(line, message):
                cut = self._cuts.pop(0)
                if cut is not Cut.BEFORE_COMMIT:
                    message = await self._whole(message, client_in)
                self._at_cut()
                self.done += 1
                if cut is Cut.BEFORE_COMMIT:
                    return
                line.swallowing = True
                if cut is Cut.AT_COMMIT:
                    line.server.write(message.raw)
                    await line.server.drain()
                    line.client.transport.abort()
                    await asyncio.Event().wait()  # until the server's answer has been swallowed
            line.server.write(message.raw)
            await line.server.drain()

    @staticmethod
    async def _whole(message: Message, client_in: asyncio.StreamReader) -> Message:
        """With the messages behind it, by which it is executed; they are there already, or about to be."""
        raw, last = message.raw, message.kind
        while last not in (b"Q", b"S"):
            following = await read_message(client_in)
            raw, last = raw + following.raw, following.kind
        return Message(message.kind, raw)

    async def _pass(self) -> None:
        """Return when a message may go on."""
        await asyncio.sleep(self._delay)
        await self._flowing.wait()

    def _commits(self, line: Line, message: Message) -> bool:
        if message.kind == b"Q":
            return message.payload.rstrip(b"\0").strip().upper() == b"COMMIT"
        if message.kind == b"B" and not line.in_transaction:
            text = line.statements.get(message.payload.split(b"\0")[1], b"")
            return any(part in text for part in self._committing)
        return False

    async def _downward(self, line: Line, server_in: asyncio.StreamReader) -> None:
        while True:
            message = await read_message(server_in)
            if message.kind == b"Z":
                line.in_transaction = message.payload != b"I"
            if line.swallowing:
                if message.kind == b"Z":
                    return
                continue
            await self._pass()
            line.client.write(message.raw)
            await line.client.drain()
