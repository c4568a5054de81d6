"""What the tests of the desk share: folders worth reviewing, and ways to have them reviewed."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import attrs

import greenroom as gr
from greenroom.demo.messages import HowFar, Progress, Read
from greenroom.demo.reader import READER_MAILBOX, IsolatedReader, Reader
from greenroom.demo.reporter import Outcome
from greenroom.demo.review_store import store_url
from greenroom.demo.text import encode_path
from greenroom.demo.tree import desk, pool_of
from greenroom.demo.values import FileRecord, Found, Status

DEEP = "[" * 100_000
"""JSON that no parser follows to its end: it crashes whoever reads it. Small enough for the pool."""


class SlowReader(Reader):
    """Takes a hundredth of a second for each file, so that its mailbox fills up."""

    @gr.handles
    async def read(self, message: Read) -> FileRecord:
        await anyio.sleep(0.01)
        return await super().read(message)


class Fragile(IsolatedReader):
    """Does with some files what a parser with a bug would do."""

    def review(self, found: Found) -> FileRecord:
        match found.path:
            case "hang.toml":
                while True:
                    pass
            case "memory.toml":
                bytearray(4 * 1024**3)
            case "killer.toml":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit.toml":
                os._exit(3)
        return super().review(found)


class Counting(SlowReader):
    """Counts in `times` how often each file was read."""

    times: Counter[str]

    def review(self, found: Found) -> FileRecord:
        self.times[found.path] += 1
        return super().review(found)


def fill(folder: Path, count: int = 30) -> Path:
    """Make a folder with something of everything, and `count` small Python files."""
    package = folder / "package"
    package.mkdir(parents=True)
    for n in range(count):
        (package / f"module_{n:05}.py").write_text(f"def function_{n}(x):\n    return x if x else {n}\n")
    (folder / "broken.py").write_text("def f(:\n")
    (folder / "README.md").write_text("# Title\n\n[there](package) and [not there](nowhere.md)\n")
    (folder / "good.json").write_text('{"a": 1}\n')
    (folder / "bad.json").write_text("{")
    (folder / "bad.toml").write_text("a = \n")
    (folder / "large.toml").write_text("# just a comment\n" * 1_000)  # 17 kB: for the isolated reader
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / ".git").mkdir()
    (folder / "link").symlink_to("README.md")
    return folder


def readers_of(
    folder: Path, count: int = 2, make: Callable[[str], Reader] = Reader, isolated: Callable[[str], Reader] = Reader
) -> list[gr.Child]:
    """A pool, and an isolated reader that for once shares the event loop."""
    root = os.path.realpath(folder)
    return [*pool_of(root, count, make), gr.Child("isolated", isolated, encode_path(root), mailbox=READER_MAILBOX)]


@attrs.define
class Reviewed:
    """A finished review: what the reporter said, and the report as it was written."""

    outcome: Outcome
    raw: bytes
    events: list[gr.Event]

    @property
    def findings(self) -> bytes:
        """The compared part, as it stands in the file."""
        whole, _, _ = self.raw.partition(b'\n "run": ')
        return whole

    @property
    def report(self) -> Any:
        return json.loads(self.raw)

    def paths(self, status: Status) -> list[str]:
        return [record.path for record in self.outcome.records if record.status is status]


def running(tree: gr.Supervisor, store: Path | None = None) -> gr.Runtime:
    """A runtime for a desk, with a store in memory unless a file is named."""
    if store is not None:
        return gr.Runtime(tree, store=store_url(store))
    return gr.Runtime(tree, store="sqlite://:memory:", volatile=True)


async def review(
    folder: Path,
    *,
    readers: Sequence[gr.Child] | None = None,
    chaos: int | None = None,
    during: Callable[[gr.Runtime], Any] | None = None,
    store: Path | None = None,
) -> Reviewed:
    """Review a folder to the end. `during` is an async function that runs beside the desk."""
    outcomes: list[Outcome] = []
    events: list[gr.Event] = []
    tree = desk(
        folder,
        readers=readers_of(folder) if readers is None else readers,
        chaos=chaos,
        written=outcomes.append,
    )
    async with running(tree, store) as runtime:
        with runtime.events(buffer=100_000) as stream:
            try:
                if during is not None:
                    await during(runtime)
                await runtime.wait()
            finally:  # the tree ends by itself, and cancels its block
                events.extend(stream.pending())
    (outcome,) = outcomes
    return Reviewed(outcome, (folder / ".greenroom" / "report.json").read_bytes(), events)


async def some_answered(runtime: gr.Runtime, least: int) -> Progress:
    """Wait until so many paths have their result on record."""
    while (progress := await runtime.ref("desk/reporter").ask(HowFar())).answered < least:
        pass
    return progress


def causes(error: BaseException | None) -> list[str]:
    """What an error says, and what each of its causes does."""
    return [] if error is None else [str(error), *causes(error.__cause__)]
