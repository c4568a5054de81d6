"""Greenroom's persistent mailboxes and durable actors, used as anybody would: under a supervisor, in a runtime, by `ref.send`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

import anyio
import attrs

import greenroom as gr
from benchmarks.harness import Figures, p50, p99
from benchmarks.loops import run_on
from benchmarks.memory import read_resident
from benchmarks.meters import Bell, Countdown

MEBIBYTE: Final = 1024 * 1024

FEW: Final = 1_000
"""Waiting messages whose memory is not counted: what there is of buffers has been used by then."""

MAILBOXES: Final = 100
"""How many the messages are in that a restarted runtime finds."""

_ROOT: Final = Path(__file__).resolve().parent.parent


@attrs.frozen
class Note(gr.Message[None]):
    """A message of ordinary size."""

    number: int
    text: str = "the words of a small message"


@attrs.frozen
class Total:
    """The state of a durable actor."""

    count: int = 0


class Busy(gr.Actor):
    """Never ends with its first message, so that all others wait; rings when it has begun."""

    def __init__(self, begun: Bell) -> None:
        self._begun = begun

    @gr.handles
    async def note(self, message: Note) -> None:
        self._begun.ring()
        await anyio.sleep_forever()


class Ready(gr.Actor):
    """Does nothing with a message."""

    @gr.handles
    async def note(self, message: Note) -> None:
        pass


class Counter(gr.DurableActor[Total]):
    """Has another state after each message."""

    def __init__(self) -> None:
        self.state = Total()

    @gr.handles
    async def note(self, message: Note) -> None:
        self.state = Total(self.state.count + 1)


class Recovering(gr.Actor):
    """Tells of its first message, and counts all in a count that it shares with others."""

    def __init__(self, first: Bell, left: Countdown) -> None:
        self._first = first
        self._left = left

    @gr.handles
    async def note(self, message: Note) -> None:
        self._first.ring()
        self._left.hit()


def unbounded() -> gr.PersistentMailbox:
    return gr.PersistentMailbox(capacity=None)


def busy(begun: Bell | None = None) -> gr.Supervisor:
    """A tree of one actor whose messages wait."""
    return gr.Supervisor("bench", gr.Child("busy", Busy, begun or Bell(), mailbox=unbounded(), shutdown="kill"))


async def accepted(url: str, senders: int, n: int) -> Figures:
    """Messages per second into one mailbox, and how long one `send` took (ms)."""
    latencies: list[float] = []
    async with gr.Runtime(busy(), store=url) as runtime:
        ref = runtime.ref("bench/busy")

        async def send(sender: int) -> None:
            for number in range(sender, n, senders):
                begin = perf_counter()
                await ref.send(Note(number))
                latencies.append((perf_counter() - begin) * 1000)

        begin = perf_counter()
        async with anyio.create_task_group() as group:
            for sender in range(senders):
                group.start_soon(send, sender)
        elapsed = perf_counter() - begin
    return {
        f"accepted_{senders}": n / elapsed,
        f"accepted_{senders}_p50": p50(latencies),
        f"accepted_{senders}_p99": p99(latencies),
    }


async def handled(url: str, pairs: int, n: int) -> Figures:
    """Messages per second from senders to actors, a sender for each."""
    return {f"handled_{pairs}": await _through(url, Ready, pairs, n)}


async def transitions(url: str, pairs: int, n: int) -> Figures:
    """The same, to durable actors."""
    return {f"transitions_{pairs}": await _through(url, Counter, pairs, n)}


async def _through(url: str, actor: type[gr.Actor], pairs: int, n: int) -> float:
    """Messages per second that have been handled for the record. The last one of each actor is asked: its reply comes after its commit."""
    each = max(1, n // pairs)
    children = [gr.Child(f"a{pair}", actor, mailbox=unbounded()) for pair in range(pairs)]
    async with gr.Runtime(gr.Supervisor("bench", *children), store=url) as runtime:

        async def send(ref: gr.Ref) -> None:
            for number in range(each - 1):
                await ref.send(Note(number))
            await ref.ask(Note(each), timeout=None)

        begin = perf_counter()
        async with anyio.create_task_group() as group:
            for pair in range(pairs):
                group.start_soon(send, runtime.ref(f"bench/a{pair}"))
        return each * pairs / (perf_counter() - begin)


# ------------------------------------------------------------------------------------------------------------ recovery


def _queues(actor: type[gr.Actor], *args: object) -> gr.Supervisor:
    children = [
        gr.Child(f"q{number}", actor, *args, mailbox=unbounded(), shutdown="kill") for number in range(MAILBOXES)
    ]
    return gr.Supervisor("bench", *children)


async def _fill(refs: Sequence[gr.Ref], first: int, last: int) -> None:
    """Send messages of these numbers (`last` excluded), in turn to each, from 200 senders."""

    async def send(sender: int) -> None:
        for number in range(first + sender, last, 200):
            await refs[number % len(refs)].send(Note(number))

    async with anyio.create_task_group() as group:
        for sender in range(200):
            group.start_soon(send, sender)


async def recovery(url: str, n: int) -> Figures:
    """Seconds from the start of a runtime that finds n waiting messages until the first is handled, and until all are."""
    async with gr.Runtime(_queues(Busy, Bell()), store=url) as runtime:
        await _fill([runtime.ref(f"bench/q{number}") for number in range(MAILBOXES)], 0, n)
    first, left = Bell(), Countdown(n)
    begin = perf_counter()
    async with gr.Runtime(_queues(Recovering, first, left), store=url):
        await first.wait()
        started = perf_counter()
        await left.bell.wait()
        end = perf_counter()
    return {"recovery_first": started - begin, "recovery": end - begin}


# ------------------------------------------------------------------------------------------------------------- waiting


def waiting(url: str, backend: str, n: int) -> Figures:
    """MiB that a process grows by when n messages come to wait, and that one holds more which finds them; each a fresh process.

    Raises:
        subprocess.CalledProcessError: if the other process failed; its stderr has gone to ours.
    """
    few, sent = _ask_process(url, backend, n)
    (found,) = _ask_process(url, backend, 0)
    return {"waiting_sent": (sent - few) / MEBIBYTE, "waiting_found": (found - few) / MEBIBYTE}


def _ask_process(url: str, backend: str, n: int) -> list[int]:
    command = [sys.executable, "-m", "benchmarks.greenroom_store", url, backend, str(n)]
    done = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True)
    readings: list[int] = json.loads(done.stdout)
    return readings


async def _read_waiting(url: str, n: int) -> list[int]:
    """Bytes of this process when the first thousand messages wait and when all do; with none to send, when it has found them."""
    begun = Bell()
    async with gr.Runtime(busy(begun), store=url) as runtime:
        if n == 0:
            await begun.wait()
            return [read_resident()]
        ref = runtime.ref("bench/busy")
        await _fill([ref], 0, FEW)
        few = read_resident()
        await _fill([ref], FEW, n)
        return [few, read_resident()]


if __name__ == "__main__":
    print(json.dumps(run_on(sys.argv[2], _read_waiting, sys.argv[1], int(sys.argv[3]))))
