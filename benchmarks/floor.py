"""The floor: the least that a durable runtime must do. `python -m benchmarks.floor [--quick] [--json FILE]`

A workflow records ten steps, one after another. To record one is to encode its result and give the row (workflow, seq, name, body) to
the one thread that writes; it commits all that is pending in one transaction, by one set-based insert, and then wakes all who wait for it
by one call into their event loop. A step is done when its row is durable. There is no owner, no fence, no message, no duplicate to be
found: whatever a real runtime promises, it costs more than this. Nothing here uses Greenroom.

What is counted are steps per second, when one workflow runs after another and when 200 run at once.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
import attrs
import msgspec
import sniffio

from benchmarks.databases import KINDS, Databases, Kind, missing_for_postgres
from benchmarks.harness import Benchmark, Case, Figures, Metric, main, p50
from benchmarks.loops import run_on
from benchmarks.raw import open_sqlite

if TYPE_CHECKING:
    import outcome
    import trio

STEPS: Final = 10
"""Steps of a workflow."""

AT_ONCE: Final = 200
"""Workflows that run at once."""

LARGEST: Final = 1000
"""Rows of one insert."""

Row = tuple[int, int, str, bytes]
"""Workflow, seq, name, body."""


@attrs.frozen
class Result:
    """What a step comes to."""

    number: int
    text: str = "the words of a small result"


# ------------------------------------------------------------------------------------------------ waiting on a loop


class Waiting(Protocol):
    """How a step waits on the event loop: each loop's own cheapest."""

    def ticket(self) -> Any:
        """What to wake."""

    async def wait(self, ticket: Any) -> None: ...

    def wake_soon(self, tickets: Sequence[Any]) -> None:
        """From the writer's thread."""


class AsyncioWaiting:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def ticket(self) -> asyncio.Future[None]:
        return self._loop.create_future()

    async def wait(self, ticket: asyncio.Future[None]) -> None:
        await ticket

    def wake_soon(self, tickets: Sequence[asyncio.Future[None]]) -> None:
        self._loop.call_soon_threadsafe(self._wake, tickets)

    def _wake(self, tickets: Sequence[asyncio.Future[None]]) -> None:
        for ticket in tickets:
            ticket.set_result(None)


class TrioWaiting:
    def __init__(self) -> None:
        import trio

        self._lowlevel = trio.lowlevel
        self._token = trio.lowlevel.current_trio_token()

    def ticket(self) -> trio.lowlevel.Task:
        return self._lowlevel.current_task()

    async def wait(self, ticket: trio.lowlevel.Task) -> None:
        await self._lowlevel.wait_task_rescheduled(self._refuse_abort)

    def wake_soon(self, tickets: Sequence[trio.lowlevel.Task]) -> None:
        self._token.run_sync_soon(self._wake, tickets)

    def _wake(self, tickets: Sequence[trio.lowlevel.Task]) -> None:
        for ticket in tickets:
            self._lowlevel.reschedule(ticket)

    def _refuse_abort(self, _: Callable[[], outcome.Outcome[object]]) -> trio.lowlevel.Abort:
        # A row that was given to the writer will be durable: its step waits for that.
        return self._lowlevel.Abort.FAILED


# ------------------------------------------------------------------------------------------------------ the journals


class Journal(Protocol):
    """One thread that writes. `put` and `end` may be called from any thread; what was put before `end` is written."""

    def start(self, wake: Callable[[Sequence[Any]], None]) -> None: ...
    def put(self, row: Row, ticket: Any) -> None: ...
    def end(self) -> None: ...


class SqliteJournal:
    """A journal in a SQLite file that is not there yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: queue.SimpleQueue[tuple[Row, Any] | None] = queue.SimpleQueue()

    def start(self, wake: Callable[[Sequence[Any]], None]) -> None:
        self._thread = threading.Thread(target=self._write, args=(wake,), name="journal", daemon=True)
        self._thread.start()

    def put(self, row: Row, ticket: Any) -> None:
        self._pending.put((row, ticket))

    def end(self) -> None:
        self._pending.put(None)
        self._thread.join()

    def _write(self, wake: Callable[[Sequence[Any]], None]) -> None:
        with closing(open_sqlite(self._path)) as connection:
            connection.execute(
                "CREATE TABLE journal (workflow INTEGER, seq INTEGER, name TEXT, body BLOB, PRIMARY KEY (workflow, seq))"
            )
            while taken := self._take():
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany("INSERT INTO journal VALUES (?, ?, ?, ?)", [row for row, _ in taken])
                connection.execute("COMMIT")
                wake([ticket for _, ticket in taken])

    def _take(self) -> list[tuple[Row, Any]]:
        """All that is pending, once something is; nothing at the end."""
        first = self._pending.get()
        if first is None:
            return []
        taken = [first]
        while len(taken) < LARGEST:
            try:
                item = self._pending.get_nowait()
            except queue.Empty:
                break
            if item is None:
                self._pending.put(None)
                break
            taken.append(item)
        return taken


class PostgresJournal:
    """A journal in a table of a PostgreSQL database, made anew, on one connection of asyncpg in an asyncio loop of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pending: deque[tuple[Row, Any]] = deque()
        self._loop = asyncio.new_event_loop()
        self._wanted = asyncio.Event()
        self._parked = False
        self._ended = False

    def start(self, wake: Callable[[Sequence[Any]], None]) -> None:
        self._thread = threading.Thread(target=self._run, args=(wake,), name="journal", daemon=True)
        self._thread.start()

    def put(self, row: Row, ticket: Any) -> None:
        self._pending.append((row, ticket))
        if self._parked:  # said before the writer looks for the last time: one of the two sees the other
            self._parked = False
            self._loop.call_soon_threadsafe(self._wanted.set)

    def end(self) -> None:
        self._ended = True
        self._loop.call_soon_threadsafe(self._wanted.set)
        self._thread.join()

    def _run(self, wake: Callable[[Sequence[Any]], None]) -> None:
        with closing(self._loop):
            self._loop.run_until_complete(self._write(wake))

    async def _write(self, wake: Callable[[Sequence[Any]], None]) -> None:
        import asyncpg

        connection = await asyncpg.connect(self._url)
        try:
            await connection.execute("DROP TABLE IF EXISTS journal")
            await connection.execute(
                "CREATE TABLE journal (workflow bigint, seq bigint, name text, body bytea, PRIMARY KEY (workflow, seq))"
            )
            insert = await connection.prepare(
                "INSERT INTO journal SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bytea[])"
            )
            while taken := await self._take():
                await insert.fetch(*map(list, zip(*(row for row, _ in taken), strict=True)))
                wake([ticket for _, ticket in taken])
        finally:
            await connection.close()

    async def _take(self) -> list[tuple[Row, Any]]:
        while not self._pending:
            self._wanted.clear()
            self._parked = True
            if self._pending:
                break
            if self._ended:
                return []
            await self._wanted.wait()
        self._parked = False
        return [self._pending.popleft() for _ in range(min(len(self._pending), LARGEST))]


# ---------------------------------------------------------------------------------------------------- what is measured


async def steps(journal: Journal, at_once: int, n: int) -> Figures:
    """About n steps, of so many workflows at once: steps per second, and how long one workflow took (ms)."""
    waiting: Waiting = TrioWaiting() if sniffio.current_async_library() == "trio" else AsyncioWaiting()
    encode = msgspec.json.Encoder().encode
    latencies: list[float] = []

    async def workflow(number: int) -> None:
        begin = perf_counter()
        for seq in range(STEPS):
            ticket = waiting.ticket()
            journal.put((number, seq, "step", encode(Result(seq))), ticket)
            await waiting.wait(ticket)
        latencies.append((perf_counter() - begin) * 1000)

    async def one_after_another(numbers: range) -> None:
        for number in numbers:
            await workflow(number)

    rounds = max(1, n // STEPS // at_once)
    journal.start(waiting.wake_soon)
    try:
        await workflow(-1)  # when it is done, the table is there
        latencies.clear()
        begin = perf_counter()
        async with anyio.create_task_group() as group:
            for lane in range(at_once):
                group.start_soon(one_after_another, range(lane * rounds, (lane + 1) * rounds))
        elapsed = perf_counter() - begin
    finally:
        journal.end()
    return {f"steps_{at_once}": at_once * rounds * STEPS / elapsed, f"steps_{at_once}_p50": p50(latencies)}


def measure(databases: Databases, kind: Kind, backend: str, at_once: int, n: int) -> Figures:
    """Measure the floor on a database and an event loop."""
    if kind == "postgres":
        return run_on(backend, steps, PostgresJournal(databases.server), at_once, n)
    with databases.fresh_file() as path:
        return run_on(backend, steps, SqliteJournal(path), at_once, n)


METRICS: Final = (
    Metric(name="steps_1", unit="steps/s", meaning="one workflow after another"),
    Metric(name="steps_1_p50", topic="steps_1", unit="ms", meaning="one workflow of ten steps, median"),
    Metric(name="steps_200", unit="steps/s", meaning="200 workflows at once"),
    Metric(name="steps_200_p50", topic="steps_200", unit="ms", meaning="one workflow of ten steps of 200, median"),
)

SIZES: Final = {1: (20_000, 3_000), AT_ONCE: (200_000, 20_000)}
"""Steps in full and under `--quick`, by workflows at once."""


def build(databases: Databases, quick: bool) -> Benchmark:
    """The floor by itself."""
    absent = missing_for_postgres()
    kinds = KINDS if absent is None else KINDS[:1]
    return Benchmark(
        title="The floor of a durable runtime",
        metrics=METRICS,
        cases=tuple(
            Case(
                topic=f"steps_{at_once}",
                subject="floor",
                backend=f"{kind} {backend}",
                measure=partial(measure, databases, kind, backend, at_once),
                n=few if quick else full,
                rounds=2 if quick else 5,
                warm=1_000,
            )
            for at_once, (full, few) in SIZES.items()
            for kind in kinds
            for backend in ("asyncio", "trio")
        ),
        notes=() if absent is None else (f"{absent} is not installed: PostgreSQL is left out",),
    )


if __name__ == "__main__":
    with Databases() as databases:
        sys.exit(main(partial(build, databases)))
