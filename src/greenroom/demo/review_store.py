"""The store of a review: where it is, how the review in it stands, and what it tells of crashes afterwards.

All of it is read by a `gr.Client`, as any other program would, whether the service runs or not.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final
from urllib.parse import quote

import attrs

import greenroom as gr
from greenroom.demo.files import REPORT_FOLDER
from greenroom.demo.intake import REVIEW
from greenroom.demo.messages import Portion, TakeIn
from greenroom.demo.report import Json
from greenroom.demo.values import Found

STORE: Final = "review.db"
"""The file, in the folder of the report."""

CLERKS: Final = ("desk/clerk", "desk/clerk-large")
"""Addresses of those whose mailboxes are the work lists: of usual files, and of large ones."""


def clerk_of(portion: Portion) -> str:
    """Address of the clerk that has a portion read."""
    return CLERKS[portion.is_large]


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

    request: TakeIn | None
    """What is reviewed; None when the service came no further than to make the store."""
    finished: bool
    """Its report is written."""
    process: int | None
    """Id of a process that is at it just now."""


async def standing(url: str) -> Standing:
    """Look at a review from outside. Raises `NoSuchStore`, `IncompatibleStore`, `StoreUnavailable`."""
    async with gr.Client(url) as client:
        message = await client.message("desk/intake", REVIEW)
        alive = [execution.pid for execution in await client.executions() if execution.alive]
    request = message.body if message is not None and isinstance(message.body, TakeIn) else None
    finished = message is not None and message.status == "handled"
    return Standing(request=request, finished=finished, process=alive[0] if alive else None)


async def second_thoughts(url: str) -> dict[str, Json]:
    """What the store knows of crashes: how many processes have worked on the review, and what they had in hand when they died."""
    again = 0
    async with gr.Client(url) as client:
        for clerk in CLERKS:
            async for message in client.messages(clerk):
                if message.deliveries > 1 and isinstance(message.body, Portion):
                    again += sum(isinstance(item, Found) for item in message.body.items)
        services = len(await client.executions(ended=True))
    return {"services": services, "files_taken_up_again": again}
