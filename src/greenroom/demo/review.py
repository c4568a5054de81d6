"""Review one file of any kind: the one entry of the readers."""

from __future__ import annotations

import os
from typing import Final

import attrs

from greenroom.demo import data_files, markdown, python_source
from greenroom.demo.files import read
from greenroom.demo.values import Code, FileRecord, Finding, Found, Kind, Review, Skipped

LIST_LIMIT: Final = 5_000
"""How many functions, headings and findings of one file are listed; more than these are counted and the cut is named.

A hostile file of some megabytes has a million headings, which nobody reads and which no message should carry.
"""

PATHS_LIMIT: Final = 4_000_000
"""Characters that the path may come to in the findings of one file, each of which names it; fewer are listed beyond that."""

ISOLATE_ABOVE: Final = {Kind.PYTHON: 131_072, Kind.MARKDOWN: 65_536, Kind.JSON: 262_144, Kind.TOML: 8_192}
"""Bytes, by kind, above which a file goes to the reader that has a process of its own."""


def needs_isolation(found: Found) -> bool:
    """Tell whether a file might hang a reader or exhaust memory, and so belongs into a process that can be killed.

    Size and kind decide, nothing is opened. The limits are where the worst content of each kind, as measured, still
    costs about a second or 100 MB: a syntax tree takes up to 700 times the bytes of its source, the Markdown parser up
    to 60 microseconds a bracket, and the TOML parser takes time by the square of a dotted key's length. Deep nesting is
    no reason: in each parser it ends at once in a RecursionError or MemoryError, which a supervisor can heal.
    """
    limit = ISOLATE_ABOVE.get(found.kind)
    return limit is not None and found.size > limit


def review(found: Found, data: bytes, exists: markdown.Exists) -> Review:
    """Review the content of a found file; for a kind without a reader the review is empty.

    Raises:
        RecursionError, MemoryError: for content that is nested too deeply; see the module of each kind.
    """
    match found.kind:
        case Kind.PYTHON:
            return limited(found.path, python_source.review(found.path, data))
        case Kind.MARKDOWN:
            return limited(found.path, markdown.review(found.path, data, exists))
        case Kind.JSON:
            return limited(found.path, data_files.review_json(found.path, data))
        case Kind.TOML:
            return limited(found.path, data_files.review_toml(found.path, data))
        case Kind.OTHER:
            return Review()


def review_file(folder: str | os.PathLike[str], found: Found) -> FileRecord:
    """Read and review a file below the folder: what a reader does for one message.

    It blocks for as long as reading and parsing take. What has become unreadable since it was found is skipped with a
    finding; a file of a kind without a reader is not opened.

    Raises:
        RecursionError, MemoryError: for content that is nested too deeply; see the module of each kind.
    """
    if found.kind is Kind.OTHER:
        return FileRecord.not_reviewed(found)
    data = read(folder, found)
    if isinstance(data, Skipped):
        return FileRecord.skipped(data)
    return FileRecord.reviewed(found, review(found, data, lambda path: os.path.exists(os.path.join(folder, path))))


def limited(path: str, review: Review) -> Review:
    """Cut what is listed to `LIST_LIMIT` entries each (findings also by `PATHS_LIMIT`), the first by line, with a finding for each cut."""
    most = min(LIST_LIMIT, PATHS_LIMIT // max(1, len(path)))
    cuts = tuple(
        Finding(path=path, line=None, code=Code.LIST_CUT, message=f"{limit} of {count} {what} are listed")
        for what, count, limit in (
            ("functions", len(review.functions), LIST_LIMIT),
            ("headings", len(review.headings), LIST_LIMIT),
            ("findings", len(review.findings), most),
        )
        if count > limit
    )
    if not cuts:
        return review
    return attrs.evolve(
        review,
        functions=review.functions[:LIST_LIMIT],
        headings=review.headings[:LIST_LIMIT],
        findings=review.findings[:most] + cuts,
    )
