"""The service that `benchmarks.kill_loop` kills: a persistent mailbox, a durable actor, and one that hears of all that it does.

Half of the numbered entries come to the ledger itself, half by way of the intake, which passes each on under its own identity, perhaps
twice. The ledger writes each into its state, and tells the audit in the same transaction; the audit has room for few. Both states list
what was handled, in its order: numbers that follow one another as one run, so that what is lost, double or out of order begins another.
"""

from __future__ import annotations

import logging
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
import attrs

import greenroom as gr
from benchmarks.loops import run_on

if TYPE_CHECKING:
    from greenroom.runtime.durable.opening import StoreSource

INTAKE: Final = "service/intake"
LEDGER: Final = "service/ledger"
AUDIT: Final = "service/audit"

CAPACITY: Final = 50
"""Messages that may wait at the intake and at the ledger: so far the clients run ahead."""

AUDIT_CAPACITY: Final = 10
"""Few, so that the ledger's own messages have to be held back now and then."""

DELIVERIES: Final = 10_000
"""A message may well be in hand each time that the process is killed, through no fault of its own."""


@attrs.frozen
class Run:
    """Entries of one sender that were handled one after another, all numbers from the first to the last."""

    sender: int
    first: int
    last: int


@attrs.frozen
class Record:
    """What was handled, in the order in which each sender's entries were."""

    runs: tuple[Run, ...] = ()

    def with_entry(self, sender: int, number: int) -> Record:
        """The record when one more entry has been handled."""
        for place in reversed(range(len(self.runs))):
            run = self.runs[place]
            if run.sender == sender:
                if run.last + 1 == number:
                    longer = attrs.evolve(run, last=number)
                    return Record((*self.runs[:place], longer, *self.runs[place + 1 :]))
                break
        return Record((*self.runs, Run(sender, number, number)))


@attrs.frozen
class Entry(gr.Message[None]):
    """The `number`-th entry of a sender, counted from 1."""

    sender: int
    number: int

    @property
    def message_id(self) -> str:
        """Its identity, at each address that it comes to."""
        return f"{self.sender}-{self.number}"


@attrs.frozen
class Read(gr.Message[Record]):
    """Asks for the record."""


class Intake(gr.Actor):
    """Passes entries on. What it has in hand when it dies it passes on again, under the same identity."""

    @gr.handles
    async def entry(self, entry: Entry) -> None:
        while True:
            try:
                receipt = await self.context.runtime.ref(LEDGER).send(entry, message_id=entry.message_id)
            except gr.MailboxFull:
                await anyio.sleep(0.005)
            else:
                assert receipt is not None
                assert receipt.disposition in ("accepted", "duplicate"), receipt
                return


class Ledger(gr.DurableActor[Record]):
    """Lists what it has handled, and tells the audit."""

    def __init__(self, up: Connection) -> None:
        self.state = Record()
        self._up: Connection | None = up

    @gr.handles
    async def entry(self, entry: Entry) -> None:
        self.state = self.state.with_entry(entry.sender, entry.number)
        await self.context.runtime.ref(AUDIT).send(entry)
        if self._up is not None:
            up, self._up = self._up, None
            up.send("up")

    @gr.handles
    async def read(self, message: Read) -> Record:
        return self.state


class Audit(gr.DurableActor[Record]):
    """Lists what it was told."""

    def __init__(self) -> None:
        self.state = Record()

    @gr.handles
    async def entry(self, entry: Entry) -> None:
        self.state = self.state.with_entry(entry.sender, entry.number)

    @gr.handles
    async def read(self, message: Read) -> Record:
        return self.state


def service(up: Connection) -> gr.Supervisor:
    """The tree. `up` is told when the first entry is handled in this process."""

    def mailbox(capacity: int) -> gr.PersistentMailbox:
        return gr.PersistentMailbox(capacity=capacity, max_deliveries=DELIVERIES)

    return gr.Supervisor(
        "service",
        gr.Child("audit", Audit, mailbox=mailbox(AUDIT_CAPACITY)),
        gr.Child("ledger", Ledger, up, mailbox=mailbox(CAPACITY)),
        gr.Child("intake", Intake, mailbox=mailbox(CAPACITY)),
        intensity=1000,  # on a busy machine a lease may be lost that nobody took
    )


def main(source: StoreSource, backend: str, pipe: Connection) -> None:
    """Run the service in this process until the pipe says so, or is closed."""
    errors = logging.StreamHandler()
    errors.setLevel(logging.ERROR)
    errors.addFilter(lambda record: "lost its lease" not in record.getMessage())  # as it should, when it was stopped
    logging.basicConfig(handlers=[errors])
    run_on(backend, _serve, source, pipe)


async def _serve(source: StoreSource, pipe: Connection) -> None:
    async with gr.Runtime(service(pipe), store=source):
        pipe.send("open")
        await anyio.to_thread.run_sync(pipe.poll, None, abandon_on_cancel=True)
