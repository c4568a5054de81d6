"""R10 and R12 with real processes: a worker that is stopped (SIGSTOP) and goes on (SIGCONT) when its lease has passed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import pytest
from attrs import frozen

import greenroom as gr
from greenroom.errors import StoreUnavailable
from greenroom.persistence import (
    AddressKind,
    ClaimAddress,
    Claimed,
    Committer,
    Delivery,
    Disposition,
    Handled,
    ListObservations,
    ObservationKind,
    ReadAddress,
    ReadOutbox,
    Receipt,
    open_store,
    start_execution,
)
from greenroom.runtime.durable.opening import StoreSource
from tests.crashes.client import note
from tests.crashes.desks import make_desk
from tests.persistence.stores import Owner, done

pytestmark = [pytest.mark.real_time, pytest.mark.backends("asyncio")]

LEASE: Final = 2.0
"""Seconds of the worker's lease."""


@frozen
class Worker:
    """The process of `stopped.py`."""

    process: subprocess.Popen[str]

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await anyio.to_thread.run_sync(self.process.stdout.readline)).strip()

    async def rest(self, said: str = "") -> list[str]:
        """All that it still writes when it has been told something."""
        out, _ = await anyio.to_thread.run_sync(self.process.communicate, said)
        return out.splitlines()

    async def stopped(self) -> None:
        """Return when it has stopped."""
        await anyio.to_thread.run_sync(os.waitid, os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def worker(url: str, place: str) -> Iterator[Worker]:
    command = (sys.executable, str(Path(__file__).with_name("stopped.py")), url, str(LEASE), place)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Worker(process)
        finally:
            process.kill()


async def accepted(store: Committer, number: int) -> None:
    receipt = await store.commit(note(number))
    assert isinstance(receipt, Receipt)
    assert receipt.disposition is Disposition.ACCEPTED


async def take_over(store: Committer, execution_id: str) -> Claimed:
    """Claim the desk as soon as its owner's lease has passed."""
    while True:
        answer = await store.commit(ClaimAddress(address="desk", kind=AddressKind.ACTOR, execution_id=execution_id))
        if isinstance(answer, Claimed):
            return answer
        assert answer.seconds is not None
        assert 0 < answer.seconds <= LEASE
        await anyio.sleep(answer.seconds)


@asynccontextmanager
async def successor(store: Committer) -> AsyncIterator[Owner]:
    """Another execution, which has taken the desk over."""
    execution = await start_execution(store, on_lost=lambda: None)
    try:
        yield Owner(store, execution.id, "desk", await take_over(store, execution.id))
    finally:
        await execution.end()


async def test_r10_a_worker_that_was_stopped_with_a_message_in_hand_writes_nothing_when_it_goes_on(url: str) -> None:
    async with open_store(url) as store:
        await make_desk(store)
        await accepted(store, 1)
        with worker(url, "between") as stopped:
            assert await stopped.line() == "ready"
            stopped.stop()
            await stopped.stopped()
            await accepted(store, 2)  # it is in nobody's way
            async with successor(store) as desk:
                assert await desk.begun(1) == Delivery(1, 2)
                assert await done(store, desk.finish(1)) == Handled()
                stopped.go_on()
                assert await stopped.rest("go on\n") == [
                    "fence closed",
                    "finish stale_generation",
                    "begin stale_generation",
                    "lost",
                ]
                assert await desk.waiting() == ["m2"]
        assert await store.read(ReadOutbox(address="desk")) == ()
        kept = await store.read(ListObservations(address="desk"))
        assert [observation.kind for observation in kept] == [ObservationKind.REFUSED] * 2


async def test_r12_postgresql_frees_what_a_worker_that_was_stopped_inside_a_transaction_had_locked(
    postgres_url: str,
) -> None:
    async with open_store(postgres_url) as store:
        await make_desk(store)
        await accepted(store, 1)
        with worker(postgres_url, "inside") as stopped:
            await stopped.stopped()
            began = time.monotonic()
            await accepted(store, 2)
            assert time.monotonic() - began < LEASE
            async with successor(store) as desk:
                assert await desk.begun(1) == Delivery(1, 2)
                stopped.go_on()
                assert await stopped.rest() == [
                    "fence closed",
                    "finish stale_generation",
                    "begin stale_generation",
                    "lost",
                ]
                assert await done(store, desk.finish(1)) == Handled()
                assert await desk.waiting() == ["m2"]
        assert await store.read(ReadOutbox(address="desk")) == ()


async def test_r12_sqlite_says_that_somebody_was_stopped_inside_a_transaction_and_works_when_he_goes_on(
    sqlite_url: str,
) -> None:
    async with open_store(sqlite_url, bound=0.5) as store:
        await make_desk(store)
        await accepted(store, 1)
        with worker(sqlite_url, "inside") as stopped:
            await stopped.stopped()
            await anyio.sleep(LEASE)
            with pytest.raises(StoreUnavailable, match="it may have been stopped") as caught:
                await store.commit(note(2))
            assert not caught.value.unknown
            record = await store.read(ReadAddress(address="desk"))  # readers do not wait for it
            assert record is not None
            assert record.ready == 1
            stopped.go_on()
            # What was decided while the lease lasted stands: nobody could have taken over before it was committed.
            assert await stopped.rest() == ["fence closed", "finish Handled", "begin lease_expired", "lost"]
        await accepted(store, 2)
        assert [row.message_id for row in await store.read(ReadOutbox(address="desk"))] == ["report"]
        async with successor(store) as desk:
            assert await desk.waiting() == ["m2"]
            assert await desk.begun(2) == Delivery(2, 1)


@frozen
class Count(gr.Message[int]):
    """Asks for one more."""


class Counter(gr.DurableActor[int]):
    """Counts, when its gate is open. Each one that is made, and each start of a handler, is noted."""

    def __init__(self, noted: list[str], begun: anyio.Event, gate: anyio.Event) -> None:
        self.state = 0
        self._noted = noted
        self._begun = begun
        self._gate = gate
        noted.append("made")

    @gr.handles
    async def count(self, message: Count) -> int:
        self._noted.append("begun")
        self._begun.set()
        await self._gate.wait()
        self.state += 1
        return self.state


@pytest.mark.backends("asyncio", "trio")
async def test_r12_a_process_that_is_stopped_inside_a_transaction_crashes_no_actor_of_another(sqlite_url: str) -> None:
    noted: list[str] = []
    begun, gate = anyio.Event(), anyio.Event()
    tree = gr.Supervisor("service", gr.Child("counter", Counter, noted, begun, gate))
    async with open_store(sqlite_url) as store:
        await make_desk(store)
        await accepted(store, 1)
    async with gr.Runtime(tree, store=StoreSource(sqlite_url, bound=0.5)) as runtime:
        ref = runtime.ref("service/counter")
        async with anyio.create_task_group() as group:
            counted: list[int] = []

            async def count() -> None:
                counted.append(await ref.ask(Count(), timeout=None))

            group.start_soon(count)
            await begun.wait()
            with worker(sqlite_url, "inside") as stopped:
                await stopped.stopped()
                gate.set()  # the handler ends, and what it did cannot be committed
                with pytest.raises(StoreUnavailable, match="it may have been stopped"):
                    await ref.send(Count())
                assert counted == []
                stopped.go_on()
                assert await stopped.line() == "fence open"  # not for long enough to lose its lease
        assert counted == [1]
        assert await ref.ask(Count()) == 2
    assert noted == ["made", "begun", "begun"]
