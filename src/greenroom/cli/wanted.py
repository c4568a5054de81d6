"""What was asked of `greenroom demo`, and whether it may begin: a look at the folder, the report's place and the store."""

from __future__ import annotations

import os
import random
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import anyio
import attrs

import greenroom as gr
from greenroom.demo.files import REPORT_FILES, REPORT_FOLDER
from greenroom.demo.messages import Review
from greenroom.demo.report import ReportNotWritten
from greenroom.demo.review_store import Standing, forget, holds, standing, store_file, store_url
from greenroom.demo.text import encode_path
from greenroom.demo.tree import READERS, TIME_LIMIT

Say = Callable[[str], object]
"""Shows a line to whoever has given the command."""


class CannotReview(Exception):
    """There is nothing to review, or nowhere to write to; the text is one line and names the way out."""


@attrs.frozen(kw_only=True)
class Wanted:
    """A review that was asked for."""

    folder: Path
    out: Path | None = None
    """Where the report goes; None: the folder's `.greenroom`."""
    chaos: bool = False
    seed: int | None = None
    resume: bool = False
    backend: Literal["asyncio", "trio"] = "asyncio"
    readers: int = READERS
    time_limit: float = TIME_LIMIT

    @property
    def report_folder(self) -> Path:
        """Where the report goes."""
        return self.out if self.out is not None else self.folder / REPORT_FOLDER

    @property
    def store(self) -> Path:
        """The file of the store."""
        return store_file(self.folder, self.out)

    def command(self) -> list[str]:
        """The same as a command, for another process."""
        words = [
            sys.executable,
            "-m",
            "greenroom.cli",
            "demo",
            "--backend",
            self.backend,
            "--readers",
            str(self.readers),
        ]
        words += ["--time-limit", str(self.time_limit)]
        words += [] if self.out is None else ["--out", str(self.out)]
        words += ["--chaos", "--seed", str(self.seed)] if self.chaos else []
        words += ["--resume"] if self.resume else []
        return [*words, "--", str(self.folder)]


def prepare(wanted: Wanted, say: Say) -> Wanted | None:
    """Make everything ready for a review. None: it is finished already, and that has been said.

    Raises `CannotReview`.
    """
    _check_places(wanted)
    if wanted.seed is not None and not wanted.chaos:
        raise CannotReview("--seed goes with --chaos")
    if not (_check_resumed(wanted, say) if wanted.resume else _check_new(wanted, say)):
        return None
    if wanted.chaos and wanted.seed is None:
        return attrs.evolve(wanted, seed=random.randrange(100_000))
    return wanted


def _check_places(wanted: Wanted) -> None:
    """What stands against reviewing this folder, as far as it can be seen beforehand."""
    folder, shown = wanted.folder, encode_path(str(wanted.folder))
    try:
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            raise CannotReview(f"{shown} is not a folder; name the folder that holds the files")
        os.scandir(folder).close()
    except FileNotFoundError:
        raise CannotReview(f"there is no folder {shown}") from None
    except OSError as error:
        raise CannotReview(f"the folder {shown} cannot be read: {error.strerror or type(error).__name__}") from error
    there = wanted.report_folder
    shown = f"the report cannot be written to {encode_path(str(there))}"
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise CannotReview(f"{shown}: {encode_path(str(there))} is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise CannotReview(f"{shown}: no permission; name another folder with --out")


def _look_at_store(wanted: Wanted) -> Standing | None:
    """How the review stands that is in the store; None when there is no store."""
    shown = encode_path(str(wanted.store))
    try:
        there = anyio.run(standing, store_url(wanted.store))
    except gr.NoSuchStore:
        return None
    except (gr.IncompatibleStore, gr.StoreUnavailable) as error:
        raise CannotReview(f"{error}; if nobody needs it, remove {shown}, or name another folder with --out") from error
    if there.process is not None:
        raise CannotReview(f"the process {there.process} is at the review in {shown}: let it end, or stop it")
    return there


def _check_new(wanted: Wanted, say: Say) -> bool:
    there = _look_at_store(wanted)
    if there is not None and not there.finished:
        say(
            f"an unfinished review was in {encode_path(str(wanted.store))}; this one begins anew (--resume takes one up)"
        )
    try:
        forget(wanted.store)
        wanted.store.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        where = encode_path(str(wanted.report_folder))
        raise CannotReview(str(ReportNotWritten(where, error.strerror or type(error).__name__))) from error
    return True


def _check_resumed(wanted: Wanted, say: Say) -> bool:
    """Is there anything left to do?"""
    there, shown = _look_at_store(wanted), encode_path(str(wanted.store))
    if there is None:
        raise CannotReview(f"there is no review to resume, {shown} is not there: begin one without --resume")
    if there.review is None:
        return True
    if not anyio.run(holds, store_url(wanted.store), Review.of(wanted.folder, wanted.out)):
        raise CannotReview(
            f"{shown} holds another review: resume that one, or begin one of this folder without --resume"
        )
    if there.review.outcome is None:
        return True
    if not there.finished:
        raise CannotReview(f"the review in {shown} has {there.review.outcome.value}: begin anew, without --resume")
    report = wanted.report_folder / REPORT_FILES[0]
    if not report.exists():
        raise CannotReview(f"the review in {shown} is finished, and its report is gone: begin anew, without --resume")
    say(f"the review in {shown} is finished, there is nothing to resume; its report is {encode_path(str(report))}")
    return False
