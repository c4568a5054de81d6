"""The desk as a tree: who is there, in which order, and what is kept where."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Final

import greenroom as gr
from greenroom.demo.chaos import STRIKES, Chaos
from greenroom.demo.clerk import Clerk
from greenroom.demo.desk_actor import Way
from greenroom.demo.intake import Intake
from greenroom.demo.reader import READER_MAILBOX, IsolatedReader, Reader
from greenroom.demo.reporter import Outcome, Reporter
from greenroom.demo.reviewer import Reviewer
from greenroom.demo.text import encode_path

READERS: Final = 4
"""Readers of the pool, unless another number is asked for."""

TIME_LIMIT: Final = 20.0
"""Seconds that one file may keep the isolated reader, unless another number is asked for."""

MEMORY_LIMIT: Final = 2 * 1024**3
"""Bytes of address space of the isolated reader; a file that needs more crashes it by a MemoryError."""

BACKOFF: Final = gr.Backoff(0.05, maximum=1.0)
"""Between restarts of readers. Even one that crashes at every file comes back less than 25 times a second."""

PATIENCE: Final = 5.0
"""Seconds over which restarts are counted."""

FUTILE: Final = (3, 60.0)
"""Restarts, in so many seconds, of an intake whose review has failed or is stuck: it would meet the same each time."""

PARTING: Final = 0.2
"""Seconds that the clerk gets at a stop: what it has in hand is asked for again when the review is taken up."""


def pool_of(folder: str, readers: int, make: Callable[[str], Reader] = Reader) -> list[gr.Child]:
    """The readers of the pool, "reader-1" and so on. `folder` is an absolute path; `make` takes its transport form."""
    where = encode_path(folder)
    return [gr.Child(f"reader-{n + 1}", make, where, mailbox=READER_MAILBOX) for n in range(readers)]


def isolated_reader(
    folder: str, limit: float = TIME_LIMIT, make: Callable[[str, float], IsolatedReader] = IsolatedReader
) -> gr.Child:
    """The reader with a process of its own. `limit`: seconds (above 0) that one file may take."""
    return gr.Child(
        "isolated",
        make,
        encode_path(folder),
        limit,
        isolation="process",
        mailbox=READER_MAILBOX,
        memory_limit=MEMORY_LIMIT,
        start_timeout=30.0,
        shutdown="kill",  # it keeps nothing, and when it is stopped nobody needs its file any more
    )


def desk(
    folder: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    readers: Sequence[gr.Child] | None = None,
    chaos: int | None = None,
    written: Callable[[Outcome], object] = lambda outcome: None,
) -> gr.Supervisor:
    """Make the tree that reviews a folder once, writes its report, and then ends in good order. Run it with a store.

    The review is a task of the reviewers, so all that must not be lost is in its journal, in the store. The actors keep nothing
    that could not be asked for again: the crash of any of them concerns nobody else, and neither does the end of the process.
    Run again with the same store, the tree takes the review up where it was. The readers may restart as often as their backoff
    allows, so that no number of bad files takes the service down. The others have no business crashing: ten times in a row
    are enough.

    Args:
        folder: the folder to review.
        out: where the report goes, if not to the folder's `.greenroom`.
        readers: any number of `Reader`s, one of them named "isolated"; None: a pool of `READERS` and one with a process of
            its own.
        chaos: the seed of its plan; None: no chaos.
        written: called with the outcome when the report is written, or could not be.
    """
    root = os.path.realpath(folder)
    target = None if out is None else os.path.realpath(out)
    most, seconds = FUTILE
    strikes = 0 if chaos is None else STRIKES
    staff = [*pool_of(root, READERS), isolated_reader(root)] if readers is None else list(readers)
    pool = tuple(child.name for child in staff if child.name != "isolated")
    children: list[gr.Child | gr.SupervisorSpec] = [
        gr.Supervisor("readers", gr.Parallel(*staff), intensity=100 * len(staff), period=PATIENCE, backoff=BACKOFF),
        gr.Child("clerk", Clerk, root, pool, shutdown=PARTING),
        gr.Child("reporter", Reporter, root, target, written, time.monotonic()),
        gr.Agents("reviewers", Reviewer),
        gr.Child(
            "intake",
            Intake,
            root,
            target,
            restart="transient",
            significant=True,
            intensity=(most + strikes, seconds),
        ),
    ]
    if chaos is not None:
        # Before everybody, so that it is there when they look; temporary, since after a crash it would begin again.
        children.insert(0, gr.Child("chaos", Chaos, chaos, victims(staff), restart="temporary"))
    return gr.Supervisor(
        "desk",
        *children,
        auto_shutdown="any_significant",
        intensity=10 + strikes,
        period=PATIENCE,
    )


def victims(readers: Sequence[gr.Child]) -> dict[str, tuple[Way, ...]]:
    """Whom chaos may strike, and how: all actors of the desk but itself. The intake only waits, and has no work to be struck in."""
    crash = (Way.AT_ONCE, Way.IN_WORK)
    ways = {f"readers/{child.name}": (*crash, Way.KILL) if child.isolation == "process" else crash for child in readers}
    return {**ways, "clerk": crash, "reporter": crash, "intake": (Way.AT_ONCE,)}
