"""`greenroom demo FOLDER`: the review desk, watched."""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from typing import Final

import anyio
import attrs
from rich.console import Console

import greenroom as gr
from greenroom.cli import live
from greenroom.cli.killing import begin_and_kill
from greenroom.cli.output import complain
from greenroom.cli.service import View, until_the_end
from greenroom.cli.wanted import CannotReview, Wanted, prepare
from greenroom.demo.messages import HowFar, Progress
from greenroom.demo.reporter import Outcome
from greenroom.demo.review_store import store_url
from greenroom.demo.text import encode_path, printable
from greenroom.demo.tree import desk, isolated_reader, pool_of
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


def review(wanted: Wanted, *, kill: bool = False) -> int:
    """Review a folder and say how it went; returns the exit status.

    Args:
        kill: begin in a process of its own, which is killed midway, and go on in this one.
    """
    console = Console()
    watch = Watch(console)
    try:
        prepared = prepare(wanted, watch.say)
    except CannotReview as error:
        return _refuse(str(error))
    if prepared is None:
        return CLEAN
    if not kill:
        return _review(prepared, watch)
    status = begin_and_kill(prepared, watch.say)
    return review(attrs.evolve(prepared, resume=True)) if status is None else status


def _review(wanted: Wanted, watch: Watch) -> int:
    root = os.path.realpath(wanted.folder)
    url = store_url(wanted.store)
    outcomes: list[Outcome] = []
    tree = desk(
        wanted.folder,
        out=wanted.out,
        readers=[*pool_of(root, wanted.readers), isolated_reader(root, wanted.time_limit)],
        chaos=wanted.seed,
        written=outcomes.append,
    )
    again = "going on with the review of" if wanted.resume else "reviewing"
    watch.say(f"{again} {encode_path(root)} with {wanted.readers} readers and one in a process of its own")
    if wanted.chaos:
        watch.say(f"chaos has the seed {wanted.seed}; the same one strikes the same: --chaos --seed {wanted.seed}")
    last_words = LastWords()
    logger = logging.getLogger("greenroom")
    propagate, logger.propagate = logger.propagate, False  # what the log says is said here, in fewer words
    logger.addHandler(last_words)
    try:
        status = gr.run(tree, backend=wanted.backend, store=url, body=watch.body)
    except (gr.IncompatibleStore, gr.StoreUnavailable) as error:
        return _refuse(str(error))
    finally:
        logger.removeHandler(last_words)
        logger.propagate = propagate
    return _conclude(status, outcomes, watch, last_words)


def _refuse(why: str) -> int:
    complain("demo", why)
    return WRONG


def _conclude(status: int, outcomes: list[Outcome], watch: Watch, last_words: LastWords) -> int:
    if not outcomes:
        if status == FAILED:
            complain("demo", f"no report was written: {last_words.text}")
            return status
        complain("demo", "stopped before the end, no report was written; --resume goes on from here")
        return STOPPED
    outcome = outcomes[-1]
    if outcome.failure is not None:
        return _refuse(str(outcome.failure))
    for line in summary(outcome):
        watch.say(line)
    if outcome.run["recorded_twice"]:  # the one thing that must not be, whatever crashed
        complain("demo", f"{outcome.run['recorded_twice']} files are on record twice: please report this")
        return FAILED
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
    processes, all_of_them, kept, again = (
        outcome.run.get(name) for name in ("processes", "operations", "operations_kept", "operations_invoked_again")
    )
    lives = (
        f"the work of {processes} processes: of {all_of_them} operations the last one kept {kept}; "
        f"{again} were in hand at a crash, and were invoked again"
    )
    return [
        f"{len(outcome.records):,} seen: {statuses}",
        f"{codes.total():,} findings{': ' if named else ''}{named}",
        f"{outcome.run['seconds']} seconds, {count} restarts{struck}",
        *([lives] if processes not in (None, 1) else ()),
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
        return progress_line(await runtime.ref("desk/reporter").ask(HowFar(), timeout=1.0))
    except gr.GreenroomError:
        return "the reporter does not answer just now"


def progress_line(progress: Progress) -> str:
    """Say how far a review is."""
    found = f"{progress.found:,} found" if progress.walked else f"{progress.found:,} found so far"
    return f"{found}, {progress.answered:,} answered, {progress.given_up:,} given up"


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
