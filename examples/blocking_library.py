"""Use a library that blocks (here `sqlite3`) from an async service, without blocking it.

    python examples/blocking_library.py

What there is to see:

* **The library lives on a thread of its own.** `Journal` has plain `def` handlers and `isolation="thread"`. It owns its
  connection: opened in `on_start`, closed in `on_stop`, touched by one thread, one message at a time. No locks.
* **Back-pressure.** Its mailbox holds 16 entries. Whoever `send`s more waits for room, and so works at the pace of the disk.
* **Nothing accepted is left behind by a stop.** With `drain=True` it writes what is queued before it ends.
* **A refusal is no crash.** A query that makes no sense is told to whoever asked. Anything else that goes wrong with the
  database crashes the actor, which opens it anew. (The entry in hand is lost then: Greenroom keeps messages in memory.)
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

import anyio
import attrs

import greenroom as gr

SENSORS = 4
READINGS = 50
"""Of each sensor."""


@attrs.frozen
class Entry(gr.Message[None]):
    sensor: int
    value: float


@attrs.frozen
class Query(gr.Message[list[tuple[float, ...]]]):
    sql: str


class Journal(gr.Actor):
    """Writes entries into a database, and answers queries."""

    def __init__(self, file: Path) -> None:
        self.file = file

    async def on_start(self) -> None:  # nothing to await in here: there is no event loop on this thread
        self.database = sqlite3.connect(self.file)
        self.database.execute("create table if not exists entries (sensor integer, value real)")

    async def on_stop(self, exit: gr.Exit) -> None:
        self.database.close()

    @gr.handles
    def write(self, message: Entry) -> None:
        with self.database:
            self.database.execute("insert into entries values (?, ?)", (message.sensor, message.value))

    @gr.handles
    def query(self, message: Query) -> list[tuple[float, ...]]:
        try:
            return self.database.execute(message.sql).fetchall()
        except sqlite3.OperationalError as error:
            raise gr.Rejected(str(error)) from error


class Sensor(gr.Actor):
    """Sends its readings to the journal, then ends."""

    def __init__(self, number: int) -> None:
        self.number = number

    async def on_start(self) -> None:
        self.context.nursery.start_soon(self.measure)

    async def measure(self) -> None:
        journal = self.context.runtime.ref("station/journal")
        for reading in range(READINGS):
            await journal.send(Entry(self.number, reading / 2))
        self.context.stop()


def tree(file: Path) -> gr.Supervisor:
    journal = gr.Child(
        "journal", Journal, file, isolation="thread", mailbox=gr.Mailbox(capacity=16), drain=True, shutdown=30.0
    )
    sensors = (gr.Child(f"sensor-{n}", Sensor, n, restart="transient", significant=True) for n in range(SENSORS))
    return gr.Supervisor(
        "station", journal, gr.Parallel(*sensors), strategy="rest_for_one", auto_shutdown="all_significant"
    )


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "entries.sqlite"
        async with gr.Runtime(tree(file)) as runtime:
            try:
                await runtime.ref("station/journal").ask(Query("select everything"))
            except gr.Rejected as refusal:
                print("refused:", refusal)
            await runtime.wait()  # until all sensors have ended, and with them the tree
        database = sqlite3.connect(file)
        print("written:", database.execute("select count(*), sum(value) from entries").fetchone())
        database.close()


if __name__ == "__main__":
    anyio.run(main)
