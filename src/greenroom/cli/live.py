"""The tree as it lives, drawn in a terminal: a pure picture of a snapshot, and the loop that draws it again and again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, Literal

import anyio
import attrs
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

import greenroom as gr
from greenroom.cli.output import one_line

PERIOD: Final = 0.25
"""Seconds between two pictures."""

LEAST_ERROR: Final = 10
"""Characters of an error below which it is not worth a column."""

_COLUMNS: Final[Mapping[str, Literal["left", "right"]]] = {
    "actor": "left",
    "state": "left",
    "life": "right",
    "restarts": "right",
    "mailbox": "right",
    "in hand": "left",
}

_STYLES: Final = {
    gr.State.RUNNING: "green",
    gr.State.STARTING: "cyan",
    gr.State.STANDBY: "cyan",
    gr.State.RESTARTING: "yellow",
    gr.State.STOPPING: "cyan",
    gr.State.DOWN: "dim",
    gr.State.STUCK: "bold red",
    gr.State.ABANDONED: "bold red",
}


@attrs.frozen
class Row:
    """A line of the picture: a node, or `left_out` children of one that have no line of their own."""

    guide: str
    node: gr.TreeNode
    left_out: int = 0


def rows(tree: gr.TreeNode, limit: int | None = None) -> list[Row]:
    """Lay the tree out in lines, in start order.

    Args:
        limit: lines to use at most, as far as that is possible: of each supervisor the children that are most worth seeing
            are kept (not running, restarted, with messages waiting), the others counted. None: all.
    """
    everything = list(_lay_out(tree, "", "", None))
    if limit is None or len(everything) <= limit:
        return everything
    per_supervisor = limit
    while per_supervisor > 1:  # the deeper and wider, the fewer for each; a handful of steps
        per_supervisor //= 2
        fewer = list(_lay_out(tree, "", "", per_supervisor))
        if len(fewer) <= limit:
            return fewer
    return list(_lay_out(tree, "", "", 1))


def _lay_out(node: gr.TreeNode, guide: str, below: str, most: int | None) -> Iterator[Row]:
    yield Row(guide, node)
    kept = _worth_seeing(node.children, most)
    left_out = len(node.children) - len(kept)
    for index, child in enumerate(kept):
        last = index == len(kept) - 1 and not left_out
        yield from _lay_out(child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "), most)
    if left_out:
        yield Row(below + "└─ ", node, left_out)


def _worth_seeing(children: Sequence[gr.TreeNode], most: int | None) -> Sequence[gr.TreeNode]:
    if most is None or len(children) <= most:
        return children
    ranked = sorted(range(len(children)), key=lambda index: (_interest(children[index]), index))
    return [children[index] for index in sorted(ranked[:most])]


def _interest(node: gr.TreeNode) -> tuple[bool, bool, int, int]:
    """Sorts what is most worth seeing first."""
    return node.kind == "worker", node.state is gr.State.RUNNING, -node.restarts, -node.mailbox_depth


def picture(
    tree: gr.TreeNode, *, header: str = "", lines: Sequence[str] = (), limit: int | None = None
) -> RenderableType:
    """Draw a snapshot.

    Args:
        header: a line above. lines: what happened lately, below. limit: as of `rows`.
    """
    parts: list[RenderableType] = [_Tree(rows(tree, limit))]
    if header:
        parts.insert(0, Text(header, style="bold", no_wrap=True, overflow="ellipsis"))
    parts += [Text(one_line(line), style="dim", no_wrap=True, overflow="ellipsis") for line in lines]
    return Group(*parts)


class _Tree:
    """The table. What is left of the terminal's width beside the other columns is for the errors, or they are left out."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plain = self._table()
        left = options.max_width - console.measure(plain, options=options).maximum
        yield plain if left < LEAST_ERROR or not any(row.node.last_error for row in self._rows) else self._table(left)

    def _table(self, error_width: int = 0) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for title, justify in _COLUMNS.items():
            table.add_column(title, justify=justify, no_wrap=True, overflow="ellipsis")
        if error_width:
            table.add_column("last error", max_width=error_width - 2, no_wrap=True, overflow="ellipsis")
        for row in self._rows:
            cells = _cells(row)
            table.add_row(*(cells if error_width else cells[: len(_COLUMNS)]))
        return table


def _cells(row: Row) -> tuple[Text, ...]:
    node = row.node
    if row.left_out:
        return (Text(f"{row.guide}and {row.left_out} more", style="dim"),)
    worker = node.kind == "worker"
    return (
        Text(row.guide + node.name, style="" if worker else "bold"),
        Text(node.state.value, style=_STYLES[node.state]),
        Text(str(node.incarnation)),
        Text(str(node.restarts) if node.restarts else "", style="yellow"),
        Text(_mailbox(node) if worker else ""),
        Text(_in_hand(node)) if worker else Text(node.strategy or "", style="dim"),
        Text(one_line(node.last_error or ""), style="red"),
    )


def _mailbox(node: gr.TreeNode) -> str:
    return (
        f"{node.mailbox_depth}/{node.mailbox_capacity}"
        if node.mailbox_capacity is not None
        else str(node.mailbox_depth)
    )


def _in_hand(node: gr.TreeNode) -> str:
    if node.message_type is None:
        return ""
    seconds = node.in_hand_for or 0.0
    return f"{node.message_type} {seconds:.1f}s" if seconds >= 0.1 else node.message_type


async def draw(
    runtime: gr.Runtime,
    console: Console,
    *,
    header: Callable[[], Awaitable[str]] | None = None,
    lines: Sequence[str] = (),
    period: float = PERIOD,
) -> None:
    """Draw the tree every `period` seconds, until cancelled; the last picture stays on the screen.

    Args:
        header: asked for the line above, before each picture.
        lines: shown below, as they are at each picture: a deque that somebody else appends to.
    """
    title = ""

    def now() -> RenderableType:
        room = max(8, console.height - len(lines) - 3)
        return picture(runtime.tree(), header=title, lines=tuple(lines), limit=room)

    with Live(console=console, auto_refresh=False, transient=False) as screen:
        try:
            while True:
                if header is not None:
                    title = await header()
                screen.update(now(), refresh=True)
                await anyio.sleep(period)
        finally:
            screen.update(now(), refresh=True)
