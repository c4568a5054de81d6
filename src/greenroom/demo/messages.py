"""What the actors of the desk say to each other."""

from __future__ import annotations

import attrs

import greenroom as gr
from greenroom.demo.values import FileRecord, Found


@attrs.frozen
class Read(gr.Message[FileRecord]):
    """To a reader: read this file and say what is in it."""

    found: Found


@attrs.frozen
class Keep(gr.Message[None]):
    """To the index: keep these results. One for a path that has one already is merged with it."""

    records: tuple[FileRecord, ...]


@attrs.frozen
class Known(gr.Message[frozenset[str]]):
    """To the index: which paths have a result?"""


@attrs.frozen
class Lookup(gr.Message[FileRecord | None]):
    """To the index: what is the result for this path, in transport form?"""

    path: str


@attrs.frozen
class Everything(gr.Message[tuple[FileRecord, ...]]):
    """To the index: all results, sorted by path."""


@attrs.frozen
class WriteReport(gr.Message[None]):
    """To the reporter: everything has its result, write the report. Answered when it is written; the reporter then ends."""


@attrs.frozen(kw_only=True)
class Progress:
    """How far the intake is."""

    found: int
    """Paths that the walk has come to, skipped ones included."""
    answered: int
    """Paths that have a result in the index."""
    walked: bool
    """The walk has come to its end: `found` is final."""
    crashes: int
    """Crashes that were put down to files."""


@attrs.frozen
class HowFar(gr.Message[Progress]):
    """To the intake: how far are you?"""
