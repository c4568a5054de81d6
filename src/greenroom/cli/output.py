"""What commands say about stored things: tables for people, JSON lines for programs, one line for what went wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDE: Final = 10_000
"""Characters of a line where nobody looks at it: what is piped into another program is never folded."""


def one_line(text: str) -> str:
    """The first line without control characters: a text from elsewhere may hold anything, also what moves a terminal's cursor."""
    line = text.partition("\n")[0]
    return line if line.isprintable() else "".join(c if c.isprintable() else "·" for c in line)


def complain(command: str, why: str) -> None:
    """Say on the standard error stream, in one line, what went wrong."""
    print(f"greenroom {command}: {one_line(why)}", file=sys.stderr)  # noqa: T201 - the command's own voice


def seconds_between(earlier: datetime, later: datetime) -> str:
    """How long something took or is ago, roughly, in the unit that suits."""
    seconds = max(0.0, (later - earlier).total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


class Output:
    """Where a command's answer goes: to people, or with `json` to programs, one JSON object a line and nothing else."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        console = Console()
        self._console = console if console.is_terminal else Console(width=WIDE)

    def say(self, text: str) -> None:
        """A line for people."""
        if not self.json:
            self._console.print(Text(one_line(text)), soft_wrap=True)

    def record(self, values: Mapping[str, Any]) -> None:
        """An object for programs. What JSON does not know is told in text."""
        if self.json:
            sys.stdout.write(msgspec.json.encode(values, enc_hook=str).decode() + "\n")

    def text(self, text: str) -> None:
        """Lines for people, as they are but for what would move a terminal's cursor."""
        for line in text.splitlines():
            self.say(line)

    def table(self, columns: Mapping[str, Literal["left", "right"]], rows: Iterable[Sequence[str]]) -> None:
        """A table for people. Cells are folded, never cut: their texts are there to be copied."""
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for title, justify in columns.items():
            table.add_column(title, justify=justify, overflow="fold")
        for row in rows:
            table.add_row(*(Text(one_line(cell)) for cell in row))
        if table.row_count and not self.json:
            self._console.print(table)
