"""Where a suspended coroutine waits, in one line: the same for both loops, since both run plain coroutines."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from types import CodeType, FrameType


LIBRARIES = frozenset({"anyio", "asyncio", "trio"})


def describe(name: str, coroutine: object) -> str:
    """Name a task and the innermost line it waits at that does not belong to an event-loop library."""
    place = "its first step"
    while coroutine is not None:
        code: CodeType | None = getattr(coroutine, "cr_code", None) or getattr(coroutine, "gi_code", None)
        frame: FrameType | None = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if code is not None and frame is not None:
            package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            if package not in LIBRARIES or place == "its first step":
                place = f"{code.co_filename}:{frame.f_lineno}, in {code.co_qualname}"
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return f"{name} waits at {place}"


def asyncio_tasks(loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[object]]:
    """Every asyncio task of the loop that has not ended, by name."""
    return sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())


def trio_tasks() -> list[trio.lowlevel.Task]:
    """Every trio task of the current run that is not one of trio's own, by name."""
    found: list[trio.lowlevel.Task] = []
    root = trio.lowlevel.current_root_task()
    ahead = [] if root is None else [root]
    while ahead:
        task = ahead.pop()
        ahead.extend(child for nursery in task.child_nurseries for child in nursery.child_tasks)
        if not task.name.startswith(("<", "trio._core.")):
            found.append(task)
    return sorted(found, key=lambda task: task.name)
