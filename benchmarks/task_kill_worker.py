"""The workers that `benchmarks.task_kill_loop` kills: a pool of agents, whose operations write down outside of the store what they do.

Each task performs operations of all kinds, in a row and side by side, hears a signal, sleeps, hands a part to a child task, and goes on as
another segment. What it comes to is known beforehand, see `result_of`.
"""

from __future__ import annotations

import json
import logging
import os
import random
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
import anyio.to_thread
import attrs

import greenroom as gr
from benchmarks.loops import run_on

if TYPE_CHECKING:
    from greenroom.runtime.durable.opening import StoreSource

POOL: Final = "service/agents"

SEGMENTS: Final = 2
BRANCHES: Final = 3


@attrs.frozen
class Job(gr.Message[str]):
    """The request of a task. `child`: it is a part of another, and does little."""

    number: int
    segment: int = 1
    child: bool = False


@attrs.frozen
class Go(gr.Message[None]):
    """The signal that each segment of a task waits for."""

    word: str


def words_heard(number: int) -> tuple[str, ...]:
    """What a task is told, a word for each segment."""
    return tuple(f"go {number}.{segment}" for segment in range(1, SEGMENTS + 1))


def result_of(number: int) -> str:
    """What a task returns."""
    return f"done {number}"


@attrs.frozen
class Line:
    """One line of the file that operations write to, outside of the store."""

    at: float
    """By this machine's clock."""
    pid: int
    what: Literal["begin", "end"]
    key: str
    task: str
    segment: int
    call: str
    effect: str

    @property
    def operation(self) -> tuple[str, int, str]:
        return self.task, self.segment, self.call


def lines_of(path: Path) -> list[Line]:
    """What was written; a line that its writer was killed in is no line."""
    whole = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [Line(*json.loads(text)) for text in whole]


class Performer(gr.Agent[Job, str]):
    """Performs jobs."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def __del__(self) -> None:
        os.close(self._ledger)

    async def _work(self, op: gr.Operation, task_id: str, segment: int, effect: str) -> None:
        self._write("begin", op, task_id, segment, effect)
        await anyio.sleep(random.expovariate(1 / 0.01))
        self._write("end", op, task_id, segment, effect)

    def _write(self, what: str, op: gr.Operation, task_id: str, segment: int, effect: str) -> None:
        line = json.dumps([time.time(), os.getpid(), what, op.key, task_id, segment, op.id, effect])
        os.write(self._ledger, f"{line}\n".encode())  # whole, at the end of the file, whoever else writes

    @gr.operation(effect=gr.Effect.SAFE, retry=gr.RetryPolicy(invocations=5))
    async def look(self, op: gr.Operation, task_id: str, segment: int) -> str:
        await self._work(op, task_id, segment, "safe")
        if op.invocation == 1 and random.random() < 0.1:
            raise ConnectionError("once in a while")
        return op.id

    @gr.operation(effect=gr.Effect.KEYED)
    async def send(self, op: gr.Operation, task_id: str, segment: int) -> str:
        await self._work(op, task_id, segment, "keyed")
        return op.key

    @gr.operation(effect=gr.Effect.ONCE)
    async def post(self, op: gr.Operation, task_id: str, segment: int) -> str:
        await self._work(op, task_id, segment, "once")
        return op.key

    async def perform(self, task: gr.Task, request: Job) -> str:
        await task.run(self.look, task.id, request.segment)
        if request.child:
            return "a child"
        async with task.nursery() as branches:
            for _ in range(BRANCHES):
                branches.start_soon(self._branch, task, request.segment)
        heard = await task.receive(Go, timeout=None)
        if heard.word not in words_heard(request.number):
            raise gr.Failed(f"it has heard {heard.word!r}")
        await task.sleep(0.05)
        await task.run(self.post, task.id, request.segment)
        if request.segment < SEGMENTS:
            await task.continue_as(attrs.evolve(request, segment=request.segment + 1))
        child: Any = await task.submit(POOL, Job(request.number, child=True))
        if await child.result() != "a child":
            raise gr.Failed("its child came to something else")
        return result_of(request.number)

    async def _branch(self, task: gr.Task, segment: int) -> None:
        await task.run(self.look, task.id, segment)
        await task.run(self.send, task.id, segment)


def service(ledger: Path) -> gr.Supervisor:
    """The tree of a worker."""
    pool = gr.Agents("agents", Performer, ledger, max_running=4, max_resident=6, max_restarts=1000, shutdown=2.0)
    return gr.Supervisor("service", pool, intensity=1000)


def main(source: StoreSource, ledger: Path, backend: str, pipe: Connection) -> None:
    """Run a worker in this process until the pipe says so, or is closed."""
    errors = logging.StreamHandler()
    errors.setLevel(logging.ERROR)
    errors.addFilter(_is_unexpected)
    logging.basicConfig(handlers=[errors])
    run_on(backend, _serve, source, ledger, pipe)


def _is_unexpected(record: logging.LogRecord) -> bool:
    """Leases are lost by workers that are stopped, and what was in flight when one was killed is for the operator."""
    text = record.getMessage()
    return "lost its lease" not in text and "(unresolved)" not in text


async def _serve(source: StoreSource, ledger: Path, pipe: Connection) -> None:
    async with gr.Runtime(service(ledger), store=source):
        pipe.send("open")
        await anyio.to_thread.run_sync(pipe.poll, None, abandon_on_cancel=True)
