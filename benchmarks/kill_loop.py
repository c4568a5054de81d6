"""Kills a service again and again: `python -m benchmarks.kill_loop [--kills 1000] [--quick] [--seed N] [--store URL]`.

Clients send numbered messages, each under its identity, and go on when one is acknowledged; the process of the service that handles them
is killed (`kill -9`) at random moments, in its start too, and started again, on asyncio or on trio. Now and then a client sends a message
once more, as one does that has lost its acknowledgement, and a service is not killed but stopped (SIGSTOP) until another has taken over, and
goes on beside it for a while. In the end every acknowledged message must have been handled exactly once for
the record, in the order of its sender, by the durable actor and by the one that it told of it. Several stores are done at a time, as each
waits most of the time: on PostgreSQL the lease of a service that was killed has to pass before the next one takes over.

Exit status: 0 when nothing was lost, double or out of order; 1 when something was, and it is told; 2 when it could not be run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from time import perf_counter
from typing import Final

import anyio
import anyio.to_thread
import attrs

import greenroom as gr
from benchmarks import kill_worker
from benchmarks.databases import Databases, Kind
from benchmarks.kill_worker import AUDIT, INTAKE, LEDGER, Entry, Read, Record
from benchmarks.victims import PATIENCE, Stalled, Victim, kinds
from greenroom.runtime.durable.opening import StoreSource

SENDERS: Final = 6
"""Of each store. The odd ones send by way of the intake."""

AGAIN: Final = 0.05
"""How often a message that was acknowledged is sent once more."""

STOPPED: Final = 1 / 12
"""How often a service is stopped for longer than its lease, before it is killed."""

LEASE: Final = 2.0
"""Seconds of a service's lease: what others wait for when it was stopped, on PostgreSQL also when it was killed."""

LANES: Final[Mapping[Kind, int]] = {"sqlite": 3, "postgres": 12}
"""Stores that are done at a time."""


@attrs.define
class Tally:
    """What was done, and what was wrong with it."""

    kills: int = 0
    stopped: int = 0
    """Of those that were killed."""
    acknowledged: int = 0
    duplicates: int = 0
    violations: list[str] = attrs.field(factory=list)


class Lane:
    """One store, its clients, and the service that is killed.

    Args:
        source: a store with nothing in it.
    """

    def __init__(self, source: StoreSource, kills: int, seed: int) -> None:
        self._source = source
        self._wanted = kills
        self._choice = random.Random(seed)
        self._services: set[Victim] = set()
        """Those whose process may run."""
        self._ending = False
        self._acknowledged = dict.fromkeys(range(SENDERS), 0)
        """By sender, the last number."""
        self.tally = Tally()

    async def run(self) -> None:
        """Kill as often as was asked for, then let everything be handled, and judge it.

        Raises:
            Stalled, gr.StoreUnavailable.
        """
        try:
            service = self._start()
            await self._news(service, "open")
            async with gr.Client(self._source) as client:
                async with anyio.create_task_group() as group:
                    for sender in range(SENDERS):
                        group.start_soon(self._send, client, sender)
                    while self.tally.kills < self._wanted:
                        await self._wait_for_the_moment(service)
                        service = await self._replace(service)
                        self.tally.kills += 1
                    self._ending = True
                await self._judge(client)
            if (code := await anyio.to_thread.run_sync(service.stop)) != 0:
                self.tally.violations.append(f"the last service ended with {code}")
        finally:
            for left in self._services:
                left.kill()

    async def _replace(self, service: Victim) -> Victim:
        """Kill it, and start the next one; or let that one take over from it first, and then see both run."""
        if self._choice.random() >= STOPPED:
            await self._kill(service)
            return self._start()
        service.pause()
        successor = self._start()
        # No longer: on SQLite it may hold the write lock, and nobody gets on then.
        await anyio.sleep(1.5 * LEASE)
        service.resume()
        await anyio.sleep(self._choice.uniform(0, 0.3))
        await self._kill(service)
        self.tally.stopped += 1
        return successor

    def _start(self) -> Victim:
        service = Victim(kill_worker.main, self._source, self._choice.choice(("asyncio", "trio")))
        self._services.add(service)
        return service

    async def _kill(self, service: Victim) -> None:
        await anyio.to_thread.run_sync(service.kill)
        self._services.discard(service)

    async def _news(self, service: Victim, wanted: str) -> None:
        await anyio.to_thread.run_sync(service.await_news, wanted)

    async def _wait_for_the_moment(self, service: Victim) -> None:
        """Mostly some time after it has begun to handle entries; now and then while it starts."""
        if self._choice.random() < 0.25:
            await anyio.sleep(self._choice.uniform(0, 0.1))
            return
        await self._news(service, "up")
        await anyio.sleep(self._choice.expovariate(1 / 0.03))

    # ------------------------------------------------------------------------------------------------------ the clients

    async def _send(self, client: gr.Client, sender: int) -> None:
        address = INTAKE if sender % 2 else LEDGER
        number = 1
        while not self._ending:
            entry = Entry(sender, number)
            try:
                receipt = await client.send(address, entry, message_id=entry.message_id)
            except gr.MailboxFull:
                await anyio.sleep(0.01)
                continue
            self._expect(entry, receipt, "accepted")
            self._acknowledged[sender] = number
            self.tally.acknowledged += 1
            number += 1
            if self._choice.random() < AGAIN:
                self._expect(entry, await client.send(address, entry, message_id=entry.message_id), "duplicate")
                self.tally.duplicates += 1

    def _expect(self, entry: Entry, receipt: gr.Receipt, wanted: str) -> None:
        if receipt.disposition != wanted:
            self.tally.violations.append(f"{entry} was {receipt.disposition}, not {wanted}")

    # ---------------------------------------------------------------------------------------------------------- the end

    async def _judge(self, client: gr.Client) -> None:
        with anyio.move_on_after(PATIENCE) as scope:
            for address in (INTAKE, LEDGER, AUDIT):  # as entries go
                await self._empty(client, address)
        if scope.cancelled_caught:
            raise Stalled(f"not all was handled {PATIENCE:g} s after the last kill")
        for address in (LEDGER, AUDIT):
            record = await client.ask(address, Read(), timeout=PATIENCE)
            self.tally.violations += [f"{address}: {what}" for what in violations(self._acknowledged, record)]
        async for letter in client.dead_letters():
            self.tally.violations.append(f"a dead letter: {letter}")

    @staticmethod
    async def _empty(client: gr.Client, address: str) -> None:
        """Return when nothing waits there, nor for room elsewhere."""
        while True:
            info = await client.address(address)
            if info is not None and not info.queued and not info.held:
                return
            await anyio.sleep(0.02)


def violations(acknowledged: Mapping[int, int], record: Record) -> list[str]:
    """What is wrong with a record, given the last number of each sender that was acknowledged.

    All of a sender's entries must be one run from the first to the last: an entry that was lost ends it too early or breaks it,
    one that was handled twice or out of order begins another.
    """
    found: dict[int, list[tuple[int, int]]] = {sender: [] for sender in acknowledged}
    for run in record.runs:
        found.setdefault(run.sender, []).append((run.first, run.last))
    wrong = []
    for sender, runs in found.items():
        last = acknowledged.get(sender, 0)
        if runs != ([(1, last)] if last else []):
            wrong.append(f"sender {sender} was acknowledged up to {last}, and handled were {runs}")
    return wrong


# --------------------------------------------------------------------------------------------------------------- running


async def run_lanes(title: str, sources: Sequence[StoreSource], kills: int, seed: int) -> Tally:
    """Share the kills out among the stores, and tell how it went."""
    begin = perf_counter()
    lanes = [Lane(source, len(range(n, kills, len(sources))), seed + n) for n, source in enumerate(sources)]

    async def run(lane: Lane) -> None:
        try:
            await lane.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the other lanes go on, and it counts
            traceback.print_exception(error)
            lane.tally.violations.append(f"{type(error).__name__}: {error}")

    async with anyio.create_task_group() as group:
        for lane in lanes:
            group.start_soon(run, lane)
    total = Tally(
        kills=sum(lane.tally.kills for lane in lanes),
        stopped=sum(lane.tally.stopped for lane in lanes),
        acknowledged=sum(lane.tally.acknowledged for lane in lanes),
        duplicates=sum(lane.tally.duplicates for lane in lanes),
        violations=[what for lane in lanes for what in lane.tally.violations],
    )
    print(
        f"{title}: {total.kills} kills in {perf_counter() - begin:.0f} s, {total.stopped} of them after a stop, "
        f"{total.acknowledged:,} messages acknowledged, {total.duplicates:,} of them sent once more: "
        + (f"{len(total.violations)} VIOLATIONS" if total.violations else "none lost, none double, all in order"),
        flush=True,
    )
    for what in total.violations:
        print(f"  {what}")
    return total


def main(argv: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Kill a service again and again, and count what is lost or double.")
    parser.add_argument("--kills", type=int, default=1000, help="on each database (default: 1000)")
    parser.add_argument("--quick", action="store_true", help="30 kills, all done in under a minute")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000), help="of the moments")
    parser.add_argument("--store", metavar="URL", help="only this store, which must have nothing in it")
    options = parser.parse_args(argv)
    kills = 30 if options.quick else options.kills
    print(f"seed {options.seed}", flush=True)
    multiprocessing.set_forkserver_preload(["benchmarks.kill_worker"])

    def run(title: str, urls: Sequence[str]) -> Tally:
        sources = [StoreSource(url, lease=LEASE) for url in urls]
        return anyio.run(run_lanes, title, sources, kills, options.seed)

    if options.store is not None:
        return min(1, len(run("the store", [options.store]).violations))
    found = 0
    with Databases() as databases:
        for kind in kinds():
            with ExitStack() as stack:
                found += len(
                    run(kind, [stack.enter_context(databases.fresh_store(kind)) for _ in range(LANES[kind])]).violations
                )
    return min(1, found)


if __name__ == "__main__":
    sys.exit(main())
