"""What the actors of the desk say to each other."""

from __future__ import annotations

import os
from hashlib import sha256

import attrs

import greenroom as gr
from greenroom.demo.review import needs_isolation
from greenroom.demo.text import encode_path
from greenroom.demo.values import FileRecord, Found, Skipped


@attrs.frozen(kw_only=True)
class TakeIn(gr.Message[None]):
    """To the intake: review this folder. It is handled when the report is written."""

    folder: str
    """Absolute path in transport form (`greenroom.demo.text.encode_path`), as the next."""
    out: str | None
    """Where the report goes, if not to the folder's `.greenroom`."""

    @classmethod
    def of(cls, folder: str | os.PathLike[str], out: str | os.PathLike[str] | None) -> TakeIn:
        """The request for a folder, however it was named."""
        return cls(
            folder=encode_path(os.path.realpath(folder)),
            out=None if out is None else encode_path(os.path.realpath(out)),
        )


@attrs.frozen
class Portion(gr.Message[int]):
    """To a clerk: have these files read, and the results kept. The reply: how often one of them has crashed a reader."""

    items: tuple[Found | Skipped, ...]

    @property
    def key(self) -> str:
        """Stands for the content: its name in the index, and its identity in the work list."""
        return sha256(repr(self.items).encode()).hexdigest()[:20]

    @property
    def is_large(self) -> bool:
        """It holds files that go to the isolated reader."""
        return any(isinstance(item, Found) and needs_isolation(item) for item in self.items)


@attrs.frozen
class Read(gr.Message[FileRecord]):
    """To a reader: read this file and say what is in it."""

    found: Found


@attrs.frozen
class Keep(gr.Message[None]):
    """To a shelf of the index: keep the results of your portion."""

    records: tuple[FileRecord, ...]


@attrs.frozen
class Kept:
    """What a shelf of the index holds."""

    records: tuple[FileRecord, ...] = ()
    times: int = 0
    """How often results were put on record here: once, whatever crashed in between."""


@attrs.frozen
class ShowKept(gr.Message[Kept]):
    """To a shelf of the index: what do you hold?"""


@attrs.frozen(kw_only=True)
class Progress(gr.Message[None]):
    """To the reporter, from the intake: so far it is."""

    found: int = 0
    """Paths that the walk has come to, skipped ones included."""
    answered: int = 0
    """Paths that have a result in the index, or on their way to it for good."""
    walked: bool = False
    """The walk has come to its end: `found` is final."""
    crashes: int = 0
    """Crashes that were put down to files."""


@attrs.frozen(kw_only=True)
class WriteReport(gr.Message[bool]):
    """To the reporter: everything has its result, write the report. The reply: could it be written?"""

    portions: tuple[str, ...]
    """Keys of the portions that the folder was cut into."""
    progress: Progress


@attrs.frozen
class HowFar(gr.Message[Progress]):
    """To the reporter: how far is the intake?"""
