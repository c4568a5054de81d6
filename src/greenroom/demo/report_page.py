"""The report as a page of Markdown, for people."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from greenroom.demo.text import printable
from greenroom.demo.values import Code, FileRecord, Finding, Function, Status

TOP: Final = 10
"""How many of the longest and of the most complex functions the page shows."""

LISTED: Final = 200
"""How many findings a section lists; `report.json` has all of them."""

_SECTIONS: Final = {
    "Dead links": frozenset({Code.DEAD_LINK}),
    "Invalid files": frozenset(
        {Code.SYNTAX_ERROR, Code.NULL_BYTE, Code.BAD_ENCODING, Code.JSON_INVALID, Code.TOML_INVALID}
    ),
    "Crashed files": frozenset({Code.CRASHED}),
    "Unreadable": frozenset({Code.UNREADABLE}),
    "Remarks": frozenset(
        {Code.BYTE_ORDER_MARK, Code.JSON_DUPLICATE_KEY, Code.JSON_CONSTANT, Code.JSON_LONG_NUMBER, Code.LIST_CUT}
    ),
}

_BACKTICKS: Final = re.compile(r"`+")

_Place = tuple[str, Function]


def render_markdown(records: Sequence[FileRecord], run: Mapping[str, object]) -> str:
    """Write the page: a summary, the notable functions, the findings by sort, what was skipped, and this run.

    Args:
        records: one for each path, sorted by path, as `greenroom.demo.report.merge` gives them.
        run: shown as it is, at the end.
    """
    functions = [(record.path, each) for record in records for each in record.review.functions]
    longest = sorted(functions, key=lambda place: (-place[1].length, place[0], place[1].line))
    hardest = sorted(functions, key=lambda place: (-place[1].complexity, place[0], place[1].line))
    lines = ["# Review", "", *_summary(records)]
    lines += _functions("Longest functions", longest[:TOP])
    lines += _functions("Most complex functions", hardest[:TOP])
    for title, codes in _SECTIONS.items():
        lines += _findings(title, [each for record in records for each in record.review.findings if each.code in codes])
    skipped = Counter(str(record.reason) for record in records if record.reason is not None)
    lines += _table("Skipped", ("reason", "count"), sorted(skipped.items()))
    lines += _table("This run", ("what", "value"), list(run.items()))
    return "\n".join(lines)


def code_span(text: str) -> str:
    """Show text as it is, in Markdown: within a fence longer than any run of backticks inside."""
    fence = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    # Markdown takes one space off at either end, but not where there is nothing else; an empty span it does not know
    only_spaces = bool(text) and not text.strip(" ")
    space = " " if not only_spaces and (not text or text[0] in " `" or text[-1] in " `") else ""
    return f"{fence}{space}{text}{space}{fence}"


def _cell(text: str) -> str:
    """Show text as it is within a table, where a bar would end the cell, even in code."""
    return code_span(printable(text)).replace("|", r"\|")


def _summary(records: Sequence[FileRecord]) -> Iterator[str]:
    statuses = Counter(record.status for record in records)
    reviews = [record.review for record in records]
    yield from ("| | |", "|---|---:|")
    for name, number in (
        ("seen", len(records)),
        *((str(status).replace("_", " "), statuses[status]) for status in Status),
        ("lines reviewed", sum(review.lines for review in reviews)),
        ("functions", sum(review.function_count for review in reviews)),
        ("classes", sum(review.class_count for review in reviews)),
        ("headings", sum(review.heading_count for review in reviews)),
        ("relative links", sum(review.link_count for review in reviews)),
        *((title.lower(), _amount(records, codes)) for title, codes in _SECTIONS.items()),
    ):
        yield f"| {name} | {number} |"
    yield ""


def _amount(records: Sequence[FileRecord], codes: frozenset[Code]) -> int:
    return sum(finding.code in codes for record in records for finding in record.review.findings)


def _functions(title: str, places: Sequence[_Place]) -> Iterator[str]:
    if not places:
        return
    yield from (f"## {title}", "", "| function | lines | complexity | where |", "|---|---:|---:|---|")
    for path, function in places:
        where = _cell(f"{path}:{function.line}")
        yield f"| {_cell(function.name)} | {function.length} | {function.complexity} | {where} |"
    yield ""


def _findings(title: str, found: Sequence[Finding]) -> Iterator[str]:
    if not found:
        return
    yield from (f"## {title}", "")
    for finding in found[:LISTED]:
        where = finding.path if finding.line is None else f"{finding.path}:{finding.line}"
        yield f"- {code_span(where)} {finding.code}: {code_span(finding.message)}"
    if len(found) > LISTED:
        yield f"- and {len(found) - LISTED} more, in report.json"
    yield ""


def _table(title: str, head: tuple[str, str], rows: Sequence[tuple[str, object]]) -> Iterator[str]:
    if not rows:
        return
    yield from (f"## {title}", "", f"| {head[0]} | {head[1]} |", "|---|---|")
    for name, value in rows:
        yield f"| {_cell(name)} | {_cell(str(value))} |"
    yield ""
