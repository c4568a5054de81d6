"""Kills workers of tasks again and again: `python -m benchmarks.task_kill_loop [--kills 200] [--quick] [--seed N] [--only KIND] [--store URL]`.

Three workers share a store, and clients submit tasks to them. At random moments a worker is killed (`kill -9`) and followed by another; or
stopped (SIGSTOP) until its lease has passed, and goes on; or stopped and replaced, and then both run for a while; or a second one is started
under its name, and it is told to stop, in order. On PostgreSQL the server, too, is restarted now and then. In the end every task must
have ended with the right result; every operation must have been accepted once, and never invoked after that; and what must not be
repeated must have happened once. What is in doubt because its worker was killed is decided by an operator, who looks at the file that
operations write to outside of the store. Writes that came too late are counted as they are listed.

Exit status: 0 when all that holds; 1 when something does not, and it is told; 2 when it could not be run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Final

import anyio
import anyio.to_thread
import attrs

import greenroom as gr
from benchmarks import task_kill_worker
from benchmarks.databases import KINDS, Databases, Kind
from benchmarks.task_kill_worker import POOL, Go, Job, Line, lines_of, result_of, words_heard
from benchmarks.victims import PATIENCE, Stalled, Victim, kinds
from greenroom.mailbox import current_loop
from greenroom.persistence import Committer, ListObservations, ObservationKind
from greenroom.persistence.journal import EntryKind, ReadJournal
from greenroom.persistence.tasks import Condition, ListTasks, TaskOutcome, TaskRecord
from greenroom.runtime.durable.opening import StoreSource

WORKERS: Final = 3
"""Of each store."""

CLIENTS: Final = 4
"""Of each store, each with one task at a time."""

AGAIN: Final = 0.2
"""How often a task or a signal that was acknowledged is sent once more."""

LEASE: Final = 2.0
"""Seconds of a worker's lease."""

IN_HAND: Final = 0.25
"""Seconds after which a worker that was stopped, and goes on, has noticed that its lease has passed. It may have been stopped right
between the last look at it and the beginning of an effect, which nothing but the receiver can refuse."""

LANES: Final[Mapping[Kind, int]] = {"sqlite": 2, "postgres": 2}
"""Stores that are done at a time."""

PAGE: Final = 1000

Operation = tuple[str, int, str]
"""A task, a segment of it, and a call in that."""


@attrs.define
class Tally:
    """What was done, and what was wrong with it."""

    kills: int = 0
    stops: int = 0
    """Workers that were stopped for longer than their lease."""
    twins: int = 0
    """Workers that were started while another ran under their name."""
    restarts: int = 0
    """Of the server."""
    tasks: int = 0
    operations: int = 0
    invocations: int = 0
    decided: int = 0
    """Operations that were in doubt."""
    refused: int = 0
    """Writes that came too late, and are listed."""
    violations: list[str] = attrs.field(factory=list)

    def add(self, other: Tally) -> None:
        for name in attrs.fields_dict(Tally):
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Lane:
    """One store, its clients, and its workers.

    Args:
        source: a store with nothing in it.
        ledger: the file that operations write to; not there yet.
    """

    def __init__(self, source: StoreSource, ledger: Path, kills: int, seed: int) -> None:
        self._source = source
        self._ledger = ledger
        self._wanted = kills
        self._choice = random.Random(seed)
        self._workers: list[Victim] = []
        """Those whose process may run."""
        self._numbers = iter(range(1, sys.maxsize))
        self._doubtful: list[int] = []
        """Tasks that wait for the operator."""
        self._went_on: list[tuple[int, float]] = []
        """Processes that were stopped, and when they went on."""
        self._ending = False
        self.tally = Tally()

    async def run(self) -> None:
        """Trouble the workers as often as was asked for, let every task end, and judge what is on record.

        Raises:
            Stalled, gr.StoreUnavailable.
        """
        try:
            for _ in range(WORKERS):
                self._start()
            await self._await_open(self._workers[0])
            async with gr.Client(self._source) as client:
                async with anyio.create_task_group() as group:
                    for _ in range(CLIENTS):
                        group.start_soon(self._use, client)
                    while self.tally.kills + self.tally.stops + self.tally.twins < self._wanted:
                        await anyio.sleep(self._choice.expovariate(1 / 0.3))
                        await self._trouble()
                    self._ending = True
                await self._decide(client)
            for worker in [*self._workers]:
                await self._stop(worker)
            async with self._source.open(current_loop()) as store:
                await self._judge(store)
        finally:
            for worker in self._workers:
                worker.kill()

    # -------------------------------------------------------------------------------------------------------- the workers

    async def _trouble(self) -> None:
        """Let something happen to one of the workers."""
        worker, chance = self._choice.choice(self._workers), self._choice.random()
        if chance < 0.65:
            await self._kill(worker)
            self._start()
            self.tally.kills += 1
        elif chance < 0.8:
            await self._pause(worker)
            self.tally.stops += 1
        elif chance < 0.9:
            twin = self._start()
            await self._pause(worker)
            await anyio.sleep(self._choice.uniform(0, 0.5))
            await self._kill(worker)
            await self._await_open(twin)
            self.tally.stops += 1
        else:
            await self._await_open(self._start())
            await anyio.sleep(self._choice.uniform(0, 0.5))
            await self._stop(worker)
            self.tally.twins += 1

    def _start(self) -> Victim:
        backend = self._choice.choice(("asyncio", "trio"))
        worker = Victim(task_kill_worker.main, self._source, self._ledger, backend)
        self._workers.append(worker)
        return worker

    async def _await_open(self, worker: Victim) -> None:
        await anyio.to_thread.run_sync(worker.await_news, "open")

    async def _pause(self, worker: Victim) -> None:
        worker.pause()
        # No longer: on SQLite it may hold the write lock, and nobody gets on then.
        await anyio.sleep(1.5 * LEASE)
        self._went_on.append((worker.pid, time.time()))
        worker.resume()

    async def _kill(self, worker: Victim) -> None:
        self._workers.remove(worker)
        await anyio.to_thread.run_sync(worker.kill)

    async def _stop(self, worker: Victim) -> None:
        if (code := await anyio.to_thread.run_sync(worker.stop)) != 0:
            self.tally.violations.append(f"a worker that was told to stop ended with {code}")
        await self._kill(worker)

    # -------------------------------------------------------------------------------------------------------- the clients

    async def _use(self, client: gr.Client) -> None:
        """Have one task after another performed."""
        while not self._ending:
            number = next(self._numbers)
            self.tally.tasks += 1
            while True:
                try:
                    handle = await client.submit(POOL, Job(number), task_id=_task_id(number))
                except gr.NoSuchPool:  # the first worker has not come so far
                    await anyio.sleep(0.1)
                    continue
                if self._choice.random() >= AGAIN:
                    break
            for word in words_heard(number):
                for _ in range(2 if self._choice.random() < AGAIN else 1):
                    await handle.signal(Go(word), message_id=word)
            await self._see_through(handle, number)

    async def _see_through(self, handle: gr.TaskHandle[str], number: int) -> None:
        """Wait for a task's end, or until it waits for the operator."""
        with anyio.move_on_after(PATIENCE):
            while True:
                try:
                    result = await handle.result(timeout=1.0)
                except gr.WaitTimeout:
                    if (await handle.status()).parked is not None:
                        self._doubtful.append(number)
                        return
                else:
                    if result != result_of(number):
                        self.tally.violations.append(f"{handle.id} came to {result!r}")
                    return
        raise Stalled(f"{handle.id} has not ended in {PATIENCE:g} s: {await handle.explain()}")

    async def _decide(self, client: gr.Client) -> None:
        """The operator: nothing of what is in doubt runs any more. What the file says has happened."""
        while self._doubtful:
            number = self._doubtful.pop()
            handle = client.task(_task_id(number))
            happened = {line.key for line in lines_of(self._ledger) if line.what == "end"}
            for operation in await handle.unresolved():
                self.tally.decided += 1
                if operation.key in happened:
                    await handle.decide(operation.call, "succeeded", by="the operator", result=operation.key)
                else:
                    await handle.decide(operation.call, "repeat", by="the operator")
            await self._see_through(handle, number)

    # ---------------------------------------------------------------------------------------------------------- the end

    async def _judge(self, store: Committer) -> None:
        tally, lines = self.tally, lines_of(self._ledger)
        accepted: list[tuple[Operation, float]] = []
        async for task in _tasks(store):
            if task.condition is not Condition.TERMINAL or task.outcome is not TaskOutcome.SUCCEEDED:
                tally.violations.append(
                    f"{task.task_id} is {task.condition.value}, {task.outcome}, parked: {task.parked}"
                )
            for segment in range(1, task.segment + 1):
                rows = await store.read(ReadJournal(address=task.address, attempt=1, segment=segment, limit=PAGE))
                accepted += [
                    ((task.task_id, segment, row.call or ""), row.at.timestamp())
                    for row in rows
                    if row.kind is EntryKind.OUTCOME and row.name != POOL
                ]
        tally.operations, tally.invocations = len(accepted), sum(line.what == "begin" for line in lines)
        tally.violations += violations(accepted, [line for line in lines if not self._in_hand(line)])
        query = ListObservations(kind=ObservationKind.REFUSED, limit=PAGE)
        tally.refused = len(await store.read(query))

    def _in_hand(self, line: Line) -> bool:
        """Was it begun by a worker that had just been stopped?"""
        return line.what == "begin" and any(
            line.pid == pid and at <= line.at <= at + IN_HAND for pid, at in self._went_on
        )


async def _tasks(store: Committer) -> AsyncIterator[TaskRecord]:
    after = ""
    while page := await store.read(ListTasks(after=after, limit=PAGE)):
        for task in page:
            yield task
        after = page[-1].task_id


def _task_id(number: int) -> str:
    return f"T{number:06}"


def violations(accepted: Sequence[tuple[Operation, float]], lines: Sequence[Line]) -> list[str]:
    """What is wrong with what was accepted, and when, given what operations have written down."""
    wrong = [f"{operation} was accepted {count} times" for operation, count in _repeated(each for each, _ in accepted)]
    at = dict(accepted)
    keys: dict[str, Operation] = {}
    for line in lines:
        if line.what == "begin" and line.operation in at and line.at > at[line.operation]:
            late = line.at - at[line.operation]
            wrong.append(f"{line.operation} was invoked {late:.3f} s after it was accepted, by process {line.pid}")
        if keys.setdefault(line.key, line.operation) != line.operation:
            wrong.append(f"{line.operation} and {keys[line.key]} have one key")
    once = [line.operation for line in lines if line.effect == "once" and line.what == "end"]
    wrong += [f"{operation} must not be repeated, and happened {count} times" for operation, count in _repeated(once)]
    wrong += [f"{operation} was accepted, and never happened" for operation in at.keys() - set(keys.values())]
    return wrong


def _repeated(operations: Iterable[Operation]) -> list[tuple[Operation, int]]:
    return [(operation, count) for operation, count in Counter(operations).items() if count > 1]


# --------------------------------------------------------------------------------------------------------------- running


async def run_lanes(
    title: str, sources: Sequence[StoreSource], kills: int, seed: int, restart: Callable[[], object] | None = None
) -> Tally:
    """Share the kills out among the stores, and tell how it went.

    Args:
        restart: restarts the database's server, which is done now and then.
    """
    begin = perf_counter()
    total = Tally()

    async def run(lane: Lane) -> None:
        try:
            await lane.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the other lanes go on, and it counts
            traceback.print_exception(error)
            lane.tally.violations.append(f"{type(error).__name__}: {error}")

    async def restart_now_and_then() -> None:
        choice = random.Random(seed)
        while restart is not None:
            await anyio.sleep(choice.uniform(3.0, 10.0))
            await anyio.to_thread.run_sync(restart)
            total.restarts += 1

    with tempfile.TemporaryDirectory(prefix="greenroom-kills-") as folder:
        lanes = [
            Lane(source, Path(folder) / f"{n}.jsonl", len(range(n, kills, len(sources))), seed + n)
            for n, source in enumerate(sources)
        ]
        async with anyio.create_task_group() as beside:
            beside.start_soon(restart_now_and_then)
            async with anyio.create_task_group() as group:
                for lane in lanes:
                    group.start_soon(run, lane)
            beside.cancel_scope.cancel()
    for lane in lanes:
        total.add(lane.tally)
    print(
        f"{title}: {total.kills} kills, {total.stops} stops, {total.twins} second starts and {total.restarts} restarts of the server in "
        f"{perf_counter() - begin:.0f} s; {total.tasks:,} tasks with {total.operations:,} operations, invoked {total.invocations:,} "
        f"times; {total.decided} were in doubt, {total.refused} stale writes were refused and are listed: "
        + (f"{len(total.violations)} VIOLATIONS" if total.violations else "all ended, each accepted once"),
        flush=True,
    )
    for what in total.violations:
        print(f"  {what}")
    return total


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Kill workers of tasks again and again, and count what is lost or double."
    )
    parser.add_argument("--kills", type=int, default=200, help="and stops, on each database (default: 200)")
    parser.add_argument("--quick", action="store_true", help="12 kills")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000), help="of the moments")
    parser.add_argument("--only", choices=KINDS, help="one kind of database")
    parser.add_argument("--store", metavar="URL", help="only this store, which must have nothing in it")
    options = parser.parse_args(argv)
    kills = 12 if options.quick else options.kills
    print(f"seed {options.seed}", flush=True)
    multiprocessing.set_forkserver_preload(["benchmarks.task_kill_worker"])

    def run(title: str, urls: Sequence[str], restart: Callable[[], object] | None = None) -> int:
        sources = [StoreSource(url, lease=LEASE) for url in urls]
        return len(anyio.run(run_lanes, title, sources, kills, options.seed, restart).violations)

    if options.store is not None:
        return min(1, run("the store", [options.store]))
    found = 0
    with Databases() as databases:
        for kind in kinds(options.only):
            with ExitStack() as stack:
                urls = [stack.enter_context(databases.fresh_store(kind)) for _ in range(LANES[kind])]
                found += run(kind, urls, databases.restarter if kind == "postgres" else None)
    return min(1, found)


if __name__ == "__main__":
    sys.exit(main())
