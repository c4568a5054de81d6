"""What the actors of the desk and the review's task are asked and told."""

from __future__ import annotations

import os
from typing import Final

import attrs

import greenroom as gr
from greenroom.demo.text import encode_path
from greenroom.demo.values import FileRecord, Found, Kind, Skipped

REVIEW: Final = "review"
"""The `task_id` of the one task that a store of the desk holds."""


@attrs.frozen(kw_only=True)
class Review(gr.Message[int]):
    """To a reviewer: review this folder, and have the report written. The result: how many paths there were."""

    folder: str
    """Absolute path in transport form (`greenroom.demo.text.encode_path`), as the next."""
    out: str | None
    """Where the report goes, if not to the folder's `.greenroom`."""
    after: str = ""
    """Everything up to this path is on record already."""
    seen: int = 0
    """Paths up to there."""
    kinds: tuple[Kind, ...] = tuple(Kind)
    """Only files of these kinds."""

    @classmethod
    def of(cls, folder: str | os.PathLike[str], out: str | os.PathLike[str] | None) -> Review:
        """The request for a folder, however it was named."""
        return cls(
            folder=encode_path(os.path.realpath(folder)),
            out=None if out is None else encode_path(os.path.realpath(out)),
        )


@attrs.frozen
class Narrow(gr.Message[None]):
    """To a review that runs, as a signal: from now on only files of these kinds. What is read already stays on record."""

    kinds: tuple[Kind, ...]


@attrs.frozen
class Section:
    """A stretch of what is to be found below a folder."""

    items: tuple[Found | Skipped, ...]
    is_last: bool


@attrs.frozen
class Read(gr.Message[FileRecord]):
    """To a clerk, or a reader: read this file and say what is in it."""

    found: Found


@attrs.frozen(kw_only=True)
class Progress:
    """How far a review is."""

    found: int = 0
    """Paths that the walk has come to, skipped ones included."""
    answered: int = 0
    """Paths that have their result on record."""
    walked: bool = False
    """The walk has come to its end: `found` is final."""
    given_up: int = 0
    """Files that have crashed their readers."""


@attrs.frozen
class HowFar(gr.Message[Progress]):
    """To the reporter: how far is the review?"""


@attrs.frozen
class WriteReport(gr.Message[bool]):
    """To the reporter: everything has its result, write the report. The reply: could it be written?"""
