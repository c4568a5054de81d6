"""The store of a review: where it is, and how the review in it stands. Read by a `gr.Client`, as any other program would."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final
from urllib.parse import quote

import attrs

import greenroom as gr
from greenroom.demo.files import REPORT_FOLDER
from greenroom.demo.messages import REVIEW, Review

STORE: Final = "review.db"
"""The file, in the folder of the report."""


def store_file(folder: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Path:
    """Where the store of a folder's review is: beside the report; in `.greenroom` when that goes into the reviewed folder."""
    root, target = os.path.realpath(folder), None if out is None else os.path.realpath(out)
    return Path(os.path.join(root, REPORT_FOLDER) if target is None or target == root else target) / STORE


def store_url(file: Path) -> str:
    """The URL of a store, whatever characters are in its path."""
    return f"sqlite:///{quote(os.fsencode(file))}"


def forget(file: Path) -> None:
    """Remove a store, and what its database keeps beside it."""
    for name in (file.name, f"{file.name}-wal", f"{file.name}-shm"):
        file.with_name(name).unlink(missing_ok=True)
    shutil.rmtree(file.with_name(f"{file.name}-executions"), ignore_errors=True)


@attrs.frozen(kw_only=True)
class Standing:
    """How the review in a store stands."""

    review: gr.TaskStatus | None
    """None when the service came no further than to make the store."""
    process: int | None
    """Id of a process that is at it just now."""

    @property
    def finished(self) -> bool:
        """Its report is written."""
        return self.review is not None and self.review.outcome is gr.TaskOutcome.SUCCEEDED


async def standing(url: str) -> Standing:
    """Look at a review from outside. Raises `NoSuchStore`, `IncompatibleStore`, `StoreUnavailable`."""
    async with gr.Client(url) as client:
        try:
            review = await client.task(REVIEW).status()
        except gr.NoSuchTask:
            review = None
        alive = [execution.pid for execution in await client.executions() if execution.alive]
    return Standing(review=review, process=alive[0] if alive else None)


async def holds(url: str, request: Review) -> bool:
    """Tell whether the review in a store was asked for in these words: the same task submitted again is the same task."""
    async with gr.Client(url) as client:
        try:
            await client.submit("desk/reviewers", request, task_id=REVIEW)
        except gr.TaskConflict:
            return False
    return True
