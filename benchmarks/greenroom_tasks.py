"""Greenroom's durable tasks, used as anybody would: a pool of agents in a tree, tasks submitted to it, their results waited for."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import anyio
import attrs

import greenroom as gr
from benchmarks.floor import STEPS, Result
from benchmarks.harness import Figures, p50, p99
from benchmarks.loops import run_on
from benchmarks.memory import ReadMemory, bytes_each, first_tenth, read_resident
from benchmarks.meters import Bell, Countdown
from greenroom.runtime.durable.opening import StoreSource

POOL: Final = "bench/workers"

LEASE: Final = 5.0
"""Seconds, where a worker is killed."""

ROOM: Final = 1_000
"""Tasks in memory at once, where a hundred thousand sleep."""

NAP: Final = 30.0
"""Seconds that those sleep which fall due; they are stopped and started again in between."""

DUE: Final = 1_000
"""Sleeping tasks that fall due at one moment."""

FAR: Final = datetime(2100, 1, 1, tzinfo=UTC)

_ROOT: Final = Path(__file__).resolve().parent.parent


@attrs.frozen
class Job(gr.Message[int]):
    """Do so many steps."""

    steps: int = STEPS


@attrs.frozen
class Nap(gr.Message[None]):
    """Sleep until then."""

    until: datetime


@attrs.frozen
class GoOn(gr.Message[None]):
    """Nobody sends it."""


@attrs.frozen
class Nudge(gr.Message[None]):
    """Nobody waits for it."""


@gr.operation(effect=gr.Effect.SAFE)
async def step(number: int) -> Result:
    return Result(number)


class Worker(gr.Agent[Job, int]):
    """Does its steps one after another."""

    async def perform(self, task: gr.Task, request: Job) -> int:
        for number in range(request.steps):
            await task.run(step, number)
        return request.steps


@asynccontextmanager
async def running(
    url: str | StoreSource, agents: gr.Agents[Job, int] | gr.Agents[Nap, None]
) -> AsyncIterator[gr.Runtime]:
    async with gr.Runtime(gr.Supervisor("bench", agents), store=url) as runtime:
        yield runtime


async def _submit_all(runtime: gr.Runtime, first: int, last: int, request: object) -> None:
    """Submit tasks of these numbers (`last` excluded), from 200 submitters."""

    async def submit(submitter: int) -> None:
        for number in range(first + submitter, last, 200):
            await runtime.submit(POOL, request, task_id=f"t{number}")

    async with anyio.create_task_group() as group:
        for submitter in range(200):
            group.start_soon(submit, submitter)


# ------------------------------------------------------------------------------------------------------------- steps


async def steps(url: str, at_once: int, n: int) -> Figures:
    """About n operations, of tasks of ten, so many tasks at once: operations per second, and how long one task took (ms), from its
    submission to its result."""
    latencies: list[float] = []
    rounds = max(1, n // STEPS // at_once)
    async with running(url, gr.Agents("workers", Worker, max_running=at_once)) as runtime:

        async def one_after_another() -> None:
            for _ in range(rounds):
                begin = perf_counter()
                handle = await runtime.submit(POOL, Job())
                assert await handle.result() == STEPS
                latencies.append((perf_counter() - begin) * 1000)

        begin = perf_counter()
        async with anyio.create_task_group() as group:
            for _ in range(at_once):
                group.start_soon(one_after_another)
        elapsed = perf_counter() - begin
    return {
        f"steps_{at_once}": at_once * rounds * STEPS / elapsed,
        f"steps_{at_once}_p50": p50(latencies),
        f"steps_{at_once}_p99": p99(latencies),
    }


# ------------------------------------------------------------------------------------------------------------ waiting


class Waiter(gr.Agent[Job, int]):
    """Does its steps, and waits for what nobody sends."""

    def __init__(self, waits: Countdown) -> None:
        self._waits = waits

    async def perform(self, task: gr.Task, request: Job) -> int:
        for number in range(request.steps):
            await task.run(step, number)
        self._waits.hit()
        await task.receive(GoOn, timeout=None)
        return request.steps


async def hold_waiting(n: int, read: ReadMemory) -> float:
    """Bytes of memory of a resident task that has done ten operations and waits (see `benchmarks.memory`)."""
    waits = Countdown()
    with tempfile.TemporaryDirectory(prefix="greenroom-bench-") as folder:
        agents = gr.Agents("workers", Waiter, waits, max_running=200, max_resident=n)
        async with running(f"sqlite:///{folder}/bench.db", agents) as runtime:

            async def fill(first: int, last: int) -> int:
                waits.set(last - first)
                await _submit_all(runtime, first, last, Job())
                await waits.bell.wait()
                await anyio.sleep(1)  # what the last of them have to say is durable then
                return read()

            before = await fill(0, first_tenth(n))
            after = await fill(first_tenth(n), n)
    return bytes_each(before, after, n)


# ----------------------------------------------------------------------------------------------------------- recovery


class Found:
    """What a fresh worker saw of the tasks that another had left."""

    def __init__(self, tasks: int) -> None:
        self.claimed: list[float] = []
        self.invoked = 0
        self.all_claimed = Countdown(tasks)


class Survivor(gr.Agent[Job, int]):
    """Half of its steps, a gate, the other half. Where the gate is shut its task is killed before it."""

    def __init__(self, found: Found, gate: anyio.Event) -> None:
        self._found = found
        self._gate = gate

    async def perform(self, task: gr.Task, request: Job) -> int:
        self._found.claimed.append(perf_counter())
        for number in range(request.steps // 2):
            await task.run(self.step, number)
        await task.run(self.pass_the_gate)
        for number in range(request.steps // 2, request.steps):
            await task.run(self.step, number)
        return request.steps

    @gr.operation(effect=gr.Effect.SAFE)
    async def step(self, number: int) -> Result:
        self._found.invoked += 1
        return Result(number)

    @gr.operation(effect=gr.Effect.SAFE)
    async def pass_the_gate(self) -> None:
        self._found.all_claimed.hit()
        await self._gate.wait()


def recovery(url: str, backend: str, n: int) -> Figures:
    """n tasks midway, their worker is killed (`kill -9`), a fresh one takes them: seconds from the kill until all are claimed, and until all
    have ended; operations that were invoked again, and that were kept."""
    command = [sys.executable, "-m", "benchmarks.tasks_process", "leave", url, backend, str(n)]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        if worker.stdout.readline() != "midway\n":
            raise RuntimeError(f"the worker that was to be killed ended by itself: {worker.wait()}")
        worker.kill()
        worker.wait()
        return run_on(backend, _take_over, url, n, perf_counter())


async def leave(url: str, n: int) -> None:
    """Bring n tasks midway, say so, and wait to be killed."""
    found = Found(n)
    agents = gr.Agents("workers", Survivor, found, anyio.Event(), max_running=n)
    async with running(StoreSource(url, lease=LEASE), agents) as runtime:
        await _submit_all(runtime, 0, n, Job())
        await found.all_claimed.bell.wait()
        await anyio.sleep(1)  # what the last of them have to say is durable then
        print("midway", flush=True)
        await anyio.sleep_forever()


async def _take_over(url: str, n: int, killed: float) -> Figures:
    found = Found(n)
    gate = anyio.Event()
    gate.set()
    agents = gr.Agents("workers", Survivor, found, gate, max_running=n)
    async with running(StoreSource(url, lease=LEASE), agents) as runtime:
        for number in range(n):
            assert await runtime.task(f"t{number}").result() == STEPS
        ended = perf_counter()
    once_more = found.invoked - n * (STEPS - STEPS // 2)
    return {
        "recovery_claimed": max(found.claimed) - killed,
        "recovery_ended": ended - killed,
        "recovery_again": n + once_more,  # the gates were under way
        "recovery_kept": n * (STEPS // 2) - once_more,
    }


# ------------------------------------------------------------------------------------------------------------- asleep


class Sleeper(gr.Agent[Nap, None]):
    """Sleeps."""

    def __init__(self, asleep: Countdown, awake: Countdown) -> None:
        self._asleep = asleep
        self._awake = awake

    async def perform(self, task: gr.Task, request: Nap) -> None:
        if task.now() < request.until:
            self._asleep.hit()
        await task.sleep(request.until)
        self._awake.hit()


def asleep(url: str, backend: str, n: int) -> Figures:
    """n tasks sleep, and `DUE` of them for a few seconds only: bytes of memory and of the database for each, and how long it took from
    the moment when those fell due until all of them ran; each in a fresh process."""
    grown, stored, _ = _ask_process("sleep", url, backend, n)
    _, _, due = _ask_process("wake", url, backend, n)
    return {"asleep_memory": grown, "asleep_stored": stored, "asleep_due": due}


def _ask_process(what: str, url: str, backend: str, n: int) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.tasks_process", what, url, backend, str(n)]
    done = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True)
    readings: list[float] = json.loads(done.stdout)
    return readings


async def sleep(url: str, n: int) -> list[float]:
    """Have n tasks sleep. Returns the bytes of memory and of the database by which each of the later nine in ten grew them."""
    asleep, awake = Countdown(), Countdown(n)
    agents = gr.Agents("workers", Sleeper, asleep, awake, max_running=200, max_resident=ROOM)
    async with running(url, agents) as runtime:

        async def fill(first: int, last: int) -> tuple[int, int]:
            asleep.set(last - first)
            await _submit_all(runtime, first, last, Nap(FAR))
            await asleep.bell.wait()
            await anyio.sleep(1)  # what the last of them have to say is durable then
            return read_resident(), await size_of(url)

        memory, stored = await fill(0, first_tenth(n))
        more_memory, more_stored = await fill(first_tenth(n), n)
    return [bytes_each(memory, more_memory, n), bytes_each(stored, more_stored, n), 0.0]


async def wake(url: str, n: int) -> list[float]:
    """Beside n that sleep on have `DUE` fall due. Returns how many seconds later the last of them ran."""
    asleep, awake = Countdown(DUE), Countdown(DUE)
    agents = gr.Agents("workers", Sleeper, asleep, awake, max_running=200, max_resident=ROOM)
    until = datetime.now(UTC) + timedelta(seconds=NAP)
    async with running(url, agents) as runtime:
        await _submit_all(runtime, n, n + DUE, Nap(until))
        await asleep.bell.wait()
        if datetime.now(UTC) >= until:
            raise RuntimeError(f"this machine is too slow: {DUE} tasks were not asleep within {NAP} seconds")
    async with running(url, agents):
        started = datetime.now(UTC)
        await awake.bell.wait()
        return [0.0, 0.0, (datetime.now(UTC) - max(started, until)).total_seconds()]


async def size_of(url: str) -> int:
    """Bytes of a store: of its file and log, or of the tables and indexes of its schema."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return sum(
            file.stat().st_size
            for file in Path(parts.path[1:]).parent.glob(f"{Path(parts.path).name}*")
            if file.is_file()
        )
    schema = dict(parse_qsl(parts.query))["schema"]
    return await anyio.to_thread.run_sync(
        lambda: asyncio.run(_size_of_schema(url.rpartition("schema=")[0].rstrip("&?"), schema))
    )


async def _size_of_schema(server: str, schema: str) -> int:
    import asyncpg

    connection = await asyncpg.connect(server)
    try:
        size: int = await connection.fetchval(
            "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relkind = 'r' AND relnamespace = $1::regnamespace",
            schema,
        )
    finally:
        await connection.close()
    return size


# ------------------------------------------------------------------------------------------------------------- replay


class Reader(gr.Agent[Job, int]):
    """Does its steps, tells how long that took, and waits for what nobody sends."""

    def __init__(self, took: list[float], bell: Bell) -> None:
        self._took = took
        self._bell = bell

    async def perform(self, task: gr.Task, request: Job) -> int:
        begin = perf_counter()
        for number in range(request.steps):
            await task.run(step, number)
        self._took.append(perf_counter() - begin)
        self._bell.ring()
        await task.receive(GoOn, timeout=None)
        return request.steps


async def replay(url: str, n: int) -> Figures:
    """Operations per second by which control code comes back over a journal of n."""
    took: list[float] = []
    bell = Bell()
    agents = gr.Agents("workers", Reader, took, bell)
    async with running(url, agents) as runtime:
        handle = await runtime.submit(POOL, Job(n), task_id="long")
        await bell.wait()
    async with running(url, agents) as runtime:
        await runtime.task(handle.id).signal(Nudge())  # so that it is brought back to memory
        await bell.wait()
    return {"replay": n / took[1]}
