"""Trees with a process child, and how a test sees that processes have ended: by the pipes they hold open."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs

import greenroom as gr
from tests.isolation.workers import Puppet, Witness

WORKER = "service/worker"
WITNESS = "service/witness"


@attrs.define(eq=False)
class Service:
    """A running tree of a worker and a witness."""

    runtime: gr.Runtime
    worker: gr.Ref
    witness: gr.Ref
    heard: list[Any]
    events: Any
    _changed: list[anyio.Event]

    async def hears(self, what: Any) -> None:
        """Wait until the witness has heard this."""
        while what not in self.heard:
            event = anyio.Event()
            self._changed.append(event)
            await event.wait()
            self._changed.remove(event)

    async def ended(self) -> gr.Exit:
        """Wait until an incarnation of the worker has ended; its exit."""
        async for event in self.events:
            if isinstance(event, gr.ActorEnded) and event.path == WORKER:
                return event.exit
        raise AssertionError("the runtime has ended without a word of the worker's end")


@asynccontextmanager
async def serving(
    factory: Any = Puppet, *args: Any, kill_time: float = 2.0, witness_mailbox: object = None, **options: Any
) -> AsyncIterator[Service]:
    """Run a tree whose worker is a process child that is not restarted, unless `restart` says so."""
    heard: list[Any] = []
    changed: list[anyio.Event] = []
    options.setdefault("restart", "temporary")
    tree = gr.Supervisor(
        "service",
        gr.Child("witness", Witness, heard, changed, mailbox=witness_mailbox),
        gr.Child("worker", factory, *args, isolation="process", **options),
        intensity=5,
    )
    runtime = gr.Runtime(tree, kill_time=kill_time)
    async with runtime:
        yield Service(runtime, runtime.ref(WORKER), runtime.ref(WITNESS), heard, runtime.events(), changed)


class Grip:
    """A pipe that processes hold open. When the last of them has ended it is released: nobody can fake that."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "grip")
        os.mkfifo(self.path)
        self._reader = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)

    async def held(self) -> None:
        """Wait until one more process holds it."""
        await anyio.wait_readable(self._reader)
        assert os.read(self._reader, 1) == b"!"

    async def released(self) -> None:
        """Wait until nobody holds it."""
        while True:
            await anyio.wait_readable(self._reader)
            if not os.read(self._reader, 100):
                os.close(self._reader)
                return
