"""`greenroom demo FOLDER`: the review desk, watched."""

from __future__ import annotations

import logging
import os
import random
import stat
import sys
from collections import Counter, deque
from pathlib import Path
from typing import Final, Literal

import anyio
from rich.console import Console

import greenroom as gr
from greenroom.cli import live
from greenroom.cli.service import View, until_the_end
from greenroom.demo.files import REPORT_FOLDER
from greenroom.demo.messages import HowFar, Progress
from greenroom.demo.reporter import Outcome
from greenroom.demo.text import encode_path, printable
from greenroom.demo.tree import READERS, TIME_LIMIT, desk, isolated_reader, pool_of
from greenroom.demo.values import Status
from greenroom.runtime.process import CLEAN, FAILED, FORCED

WRONG: Final = 2
"""Exit status when the folder cannot be reviewed or the report not be written."""

STOPPED: Final = 130
"""Exit status after Ctrl-C, as shells say it; for SIGTERM as well, since nothing is written in either case."""

EVERY: Final = 2.0
"""Seconds between two lines of progress, where no tree is drawn."""

LATELY: Final = 6
"""Crashes and restarts shown below the tree."""


def review(
    folder: Path,
    *,
    out: Path | None = None,
    chaos: bool = False,
    seed: int | None = None,
    backend: Literal["asyncio", "trio"] = "asyncio",
    readers: int = READERS,
    time_limit: float = TIME_LIMIT,
) -> int:
    """Review a folder and say how it went; returns the exit status."""
    wrong = _what_is_wrong(folder, out)
    if wrong is None and seed is not None and not chaos:
        wrong = "--seed goes with --chaos"
    if wrong is not None:
        return _refuse(wrong)
    console = Console()
    if chaos and seed is None:
        seed = random.randrange(100_000)
    root = os.path.realpath(folder)
    outcomes: list[Outcome] = []
    tree = desk(
        folder,
        out=out,
        readers=[*pool_of(root, readers), isolated_reader(root, time_limit)],
        chaos=seed,
        written=outcomes.append,
    )
    watch = Watch(console)
    watch.say(f"reviewing {encode_path(root)} with {readers} readers and one in a process of its own")
    if chaos:
        watch.say(f"chaos has the seed {seed}; the same one strikes the same: --chaos --seed {seed}")
    last_words = LastWords()
    logger = logging.getLogger("greenroom")
    propagate, logger.propagate = logger.propagate, False  # what the log says is said here, in fewer words
    logger.addHandler(last_words)
    try:
        status = gr.run(tree, backend=backend, body=watch.body)
    finally:
        logger.removeHandler(last_words)
        logger.propagate = propagate
    return _conclude(status, outcomes, console, last_words)


def _what_is_wrong(folder: Path, out: Path | None) -> str | None:
    """What stands against reviewing this folder, in one line, as far as it can be seen beforehand."""
    shown = encode_path(str(folder))
    try:
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            return f"{shown} is not a folder; name the folder that holds the files"
        os.scandir(folder).close()
    except FileNotFoundError:
        return f"there is no folder {shown}"
    except OSError as error:
        return f"the folder {shown} cannot be read: {error.strerror or type(error).__name__}"
    target = out if out is not None else folder / REPORT_FOLDER
    there = target
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return f"the report cannot be written to {encode_path(str(target))}: {encode_path(str(there))} is not a folder"
    if not os.access(there, os.W_OK | os.X_OK):
        return (
            f"the report cannot be written to {encode_path(str(target))}: no permission; name another folder with --out"
        )
    return None


def _refuse(why: str) -> int:
    print(f"greenroom demo: {why}", file=sys.stderr)  # noqa: T201 - the command's own voice
    return WRONG


def _conclude(status: int, outcomes: list[Outcome], console: Console, last_words: LastWords) -> int:
    if not outcomes:
        if status == FAILED:
            print(f"greenroom demo: no report was written: {last_words.text}", file=sys.stderr)  # noqa: T201
            return status
        print("greenroom demo: stopped before the end, no report was written", file=sys.stderr)  # noqa: T201
        return STOPPED
    outcome = outcomes[-1]
    if outcome.failure is not None:
        return _refuse(str(outcome.failure))
    for line in summary(outcome):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    # the report is there; that a reader was still busy at the end, and had to be killed, is no failure of the review
    return CLEAN if status == FORCED else status


def summary(outcome: Outcome) -> list[str]:
    """Say in a few lines how a review came out."""
    statuses = ", ".join(f"{outcome.count(status):,} {status.replace('_', ' ')}" for status in Status)
    codes = Counter(finding.code for record in outcome.records for finding in record.review.findings)
    named = ", ".join(f"{count:,} {code}" for code, count in sorted(codes.items()))
    restarts = outcome.run["restarts"]
    count = sum(each for each in restarts.values() if isinstance(each, int)) if isinstance(restarts, dict) else 0
    struck = f", {outcome.run['strikes']} strikes by chaos" if "strikes" in outcome.run else ""
    return [
        f"{len(outcome.records):,} seen: {statuses}",
        f"{codes.total():,} findings{': ' if named else ''}{named}",
        f"{outcome.run['seconds']} seconds, {count} restarts{struck}",
        *(f"wrote {encode_path(str(file))}" for file in outcome.files),
    ]


class LastWords(logging.Handler):
    """Keeps the last error that the runtime logged: why the tree gave up."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.text = "the tree gave up"

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record's first line."""
        if record.name == "greenroom.runtime":
            self.text = printable(record.getMessage().partition("\n")[0])


class Watch:
    """Shows the desk at work: as a drawn tree in a terminal, else as lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lately: deque[str] = deque(maxlen=LATELY)

    def say(self, line: str) -> None:
        """Print a line."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    async def body(self, runtime: gr.Runtime) -> None:
        """Watch until the tree has ended."""
        drawn = self._console.is_terminal
        tell = self._lately.append if drawn else self.say
        stopping = False
        with runtime.events() as stream:

            def note(event: gr.Event) -> None:
                nonlocal stopping
                stopping = stopping or isinstance(event, gr.StopRequested)
                line = event_line(event, stopping)
                if line:
                    tell(line)

            async def crashes() -> None:
                async for event in stream:
                    note(event)

            async def tree() -> None:
                await live.draw(runtime, self._console, header=lambda: _header(runtime), lines=self._lately)

            async def progress() -> None:
                while True:
                    await anyio.sleep(EVERY)
                    self.say(await _header(runtime))

            views: tuple[View, ...] = (crashes, tree if drawn else progress)
            try:
                await until_the_end(runtime, *views)
            finally:
                for event in stream.pending():
                    note(event)


async def _header(runtime: gr.Runtime) -> str:
    try:
        return progress_line(await runtime.ref("desk/intake").ask(HowFar(), timeout=1.0))
    except gr.GreenroomError:
        return "the intake is being restarted"


def progress_line(progress: Progress) -> str:
    """Say how far a review is."""
    found = f"{progress.found:,} found" if progress.walked else f"{progress.found:,} found so far"
    return f"{found}, {progress.answered:,} answered, {progress.crashes:,} crashes by files"


def event_line(event: gr.Event, stopping: bool = False) -> str:
    """One line about an event that somebody who watches wants to see, or an empty one.

    Args:
        stopping: the desk has begun to stop, so it is no news that it kills a worker.
    """
    match event:
        case gr.ActorEnded(exit=gr.Exit(kind="killed")) if stopping:
            return ""
        case gr.ActorEnded(exit=gr.Exit(kind="error" | "killed" | "abandoned") as exit):
            return f"crash: {event.path} (life {event.incarnation}), {printable(str(exit).partition(chr(10))[0])}"
        case gr.ActorStarted(incarnation=incarnation) if incarnation > 1:
            return f"again: {event.path} (life {incarnation})"
        case gr.LoopBlocked():
            return f"block: {event.path or 'something'} held the event loop for {event.seconds:.1f} s"
        case gr.StopRequested(stage=stage) if stage > gr.Stage.REQUESTED:
            return f"stop: {stage.name.lower()}, {event.why}"
        case gr.ActorStuck():
            return f"stuck: {event.path} swallows its cancellation"
        case _:
            return ""
