"""The accumulated result of a run: merged, written as JSON and as a page to read.

`report.json` has two keys. `findings` depends on the files alone: sorted, without times or absolute paths, equal byte
for byte between two runs over the same files, in whatever order the readers answered. `run` is what the caller tells
about this one run and is not compared.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from greenroom.demo.files import REPORT_FILES
from greenroom.demo.report_page import render_markdown
from greenroom.demo.values import FileRecord, Finding, Kind, Status
from greenroom.errors import Failure

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"
"""What JSON can hold."""

_PREFERENCE: Final = {
    status: rank for rank, status in enumerate((Status.REVIEWED, Status.NOT_REVIEWED, Status.SKIPPED, Status.CRASHED))
}


class ReportNotWritten(Failure):
    """The report could not be written; a report that was there before is untouched.

    Not raised for anything about the reviewed files: those are findings.
    """

    def __init__(self, folder: str, cause: str) -> None:
        super().__init__(folder, cause)
        self.folder = folder
        self.cause = cause

    def __str__(self) -> str:
        return (
            f"the report cannot be written to {self.folder}: {self.cause}; "
            "name another folder with --out, or make this one writable"
        )


def merge(records: Iterable[FileRecord]) -> tuple[FileRecord, ...]:
    """Sort records by path and keep one of each, whatever the order they came in.

    A file may be answered twice, since it is sent again until it is answered. Of two different answers the one that saw
    more is kept (reviewed before given up), then the one whose `repr` sorts first.
    """
    kept: dict[str, FileRecord] = {}
    for record in records:
        rival = kept.get(record.path)
        if rival is None or _rank(record) < _rank(rival):
            kept[record.path] = record
    return tuple(kept[path] for path in sorted(kept))


def _rank(record: FileRecord) -> tuple[int, str]:
    return _PREFERENCE[record.status], repr(record)  # all its fields, so that no two different records tie


def findings(records: Iterable[FileRecord]) -> dict[str, Json]:
    """Give the part of the report that is compared between runs: totals, what was skipped by reason, and every file."""
    merged = merge(records)
    reviews = [record.review for record in merged]
    return {
        "totals": {
            "seen": len(merged),
            "by_status": _counts(record.status for record in merged),
            "by_kind": _counts(record.kind for record in merged if record.kind is not None),
            "by_code": _counts(finding.code for review in reviews for finding in review.findings),
            "lines": sum(review.lines for review in reviews),
            "classes": sum(review.class_count for review in reviews),
            "functions": sum(review.function_count for review in reviews),
            "headings": sum(review.heading_count for review in reviews),
            "relative_links": sum(review.link_count for review in reviews),
        },
        "skipped": _counts(record.reason for record in merged if record.reason is not None),
        "files": [_file(record) for record in merged],
    }


def render_json(records: Iterable[FileRecord], run: Mapping[str, Json]) -> bytes:
    """Write `report.json`: UTF-8, keys sorted, a newline at the end.

    Args:
        run: about this run: restarts, seconds, crashes by chaos. Values are what JSON can hold.
    Raises:
        ValueError: if `run` holds a number that JSON has no form for (NaN, infinity).
    """
    whole = {"findings": findings(records), "run": run}
    text = json.dumps(whole, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    # a lone surrogate can only come with `run` (a folder's name); as `\udcff` it is an escape that JSON reads back
    return text.encode("utf-8", "backslashreplace") + b"\n"


def write(out: str | os.PathLike[str], records: Iterable[FileRecord], run: Mapping[str, Json]) -> tuple[Path, Path]:
    """Write both files of the report into the folder `out`, which is made if need be.

    Each file is written beside its place and moved there when both are whole, so that a reader sees the old report or
    the new one, and a full disk spoils neither.

    Returns: the paths of `report.json` and `report.md`.
    Raises:
        ReportNotWritten: if the folder cannot be made or written to.
        ValueError: as `render_json`; nothing is written then.
    """
    merged = merge(records)
    contents = (
        render_json(merged, run),
        render_markdown(merged, run).encode("utf-8", "backslashreplace"),
    )
    folder = Path(out)
    finals = (folder / REPORT_FILES[0], folder / REPORT_FILES[1])
    mark = f"{os.getpid()}-{secrets.token_hex(4)}"
    drafts = [final.with_name(f".{final.name}.{mark}.tmp") for final in finals]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for draft, content in zip(drafts, contents, strict=True):
            draft.write_bytes(content)
        for draft, final in zip(drafts, finals, strict=True):
            draft.replace(final)
    except OSError as error:
        raise ReportNotWritten(str(folder), error.strerror or type(error).__name__) from error
    finally:
        for draft in drafts:
            with contextlib.suppress(OSError):  # moved away already, or never made
                draft.unlink()
    return finals


def _counts(names: Iterable[str]) -> dict[str, Json]:
    return {str(name): count for name, count in Counter(names).items()}


def _file(record: FileRecord) -> dict[str, Json]:
    """One file as JSON: what does not apply to its kind and status is left out."""
    review = record.review
    told: dict[str, Json] = {
        "path": record.path,
        "status": str(record.status),
        "findings": [_finding(finding) for finding in review.findings],
    }
    if record.kind is not None:
        told["kind"] = str(record.kind)
    if record.size is not None:
        told["size"] = record.size
    if record.reason is not None:
        told["reason"] = str(record.reason)
    if record.status is Status.CRASHED:
        told["error"] = record.error
    if record.status is not Status.REVIEWED:
        return told
    told["lines"] = review.lines
    if record.kind is Kind.PYTHON:
        told["classes"] = review.class_count
        told["functions"] = review.function_count
        told["function_list"] = [
            {"name": each.name, "line": each.line, "length": each.length, "complexity": each.complexity}
            for each in review.functions
        ]
    elif record.kind is Kind.MARKDOWN:
        told["relative_links"] = review.link_count
        told["headings"] = review.heading_count
        told["heading_list"] = [{"level": each.level, "text": each.text, "line": each.line} for each in review.headings]
    return told


def _finding(finding: Finding) -> dict[str, Json]:
    return {"path": finding.path, "line": finding.line, "code": str(finding.code), "message": finding.message}
