"""`greenroom run MODULE:TREE`: somebody's tree as the whole of this process."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, Literal, TypeAlias

import anyio
from rich.console import Console

import greenroom as gr
from greenroom.cli import live as live_view
from greenroom.cli.load import NotATree, load
from greenroom.cli.logs import Formatter, log_event, log_events
from greenroom.cli.output import complain
from greenroom.runtime.process import FAILED

View: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Shows something of a running tree, for as long as it is let."""

WRONG: Final = 2
"""Exit status when there is nothing to run."""

LATELY: Final = 8
"""Log lines shown below the live tree."""


def run(
    target: str,
    *,
    backend: Literal["asyncio", "trio"] = "asyncio",
    uvloop: bool = False,
    store: str | None = None,
    live: bool = False,
    final_deadline: float | None = 60.0,
    level: str = "INFO",
    traces: bool = False,
) -> int:
    """Load a tree, run it, and return the exit status of `greenroom.run`; or, with one line on the standard error stream, 2 when
    there is nothing to run, 1 when its store cannot be opened."""
    try:
        tree = load(target)
    except NotATree as error:
        complain("run", str(error))
        return WRONG
    console = Console()
    if live and not console.is_terminal:
        complain("run", "--live needs a terminal; writing log lines instead")
        live = False
    lately: deque[str] = deque(maxlen=LATELY)
    handler = Lines(lately) if live else logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter(traces=traces and not live))
    with logging_to(handler, level):
        events: list[gr.Event] = []

        async def body(runtime: gr.Runtime) -> None:
            with runtime.events() as stream:
                views: list[View] = [functools.partial(log_events, stream)]
                if live:
                    views.append(functools.partial(live_view.draw, runtime, console, lines=lately))
                try:
                    await until_the_end(runtime, *views)
                finally:
                    events.extend(stream.pending())

        try:
            status = gr.run(tree, backend=backend, uvloop=uvloop, store=store, final_deadline=final_deadline, body=body)
        except (gr.BadSpec, gr.BadStoreUrl) as error:
            complain("run", str(error))
            return WRONG
        except (gr.IncompatibleStore, gr.StoreUnavailable) as error:
            complain("run", str(error))
            return FAILED
        for event in events:
            log_event(event)
    if live:
        for line in lately:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    return status


async def until_the_end(runtime: gr.Runtime, *views: View) -> None:
    """Run views of a tree beside it, also while it stops, and cancel them when nothing of it runs any more."""
    async with anyio.create_task_group() as group:
        for view in views:
            group.start_soon(view)
        with contextlib.suppress(gr.TreeFailed):  # the runtime's own block raises it
            await runtime.wait()
        group.cancel_scope.cancel()


class Lines(logging.Handler):
    """Keeps formatted records for the live view, which has the terminal to itself."""

    def __init__(self, lines: deque[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record's line."""
        self._lines.append(self.format(record))


@contextlib.contextmanager
def logging_to(handler: logging.Handler, level: str) -> Iterator[None]:
    """Send all log records of this process to one handler, and put everything back afterwards."""
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
