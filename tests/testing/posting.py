"""How a thread of the tests' own reaches the event loop, whichever it is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable


def in_loop_soon() -> Callable[[Callable[[], object]], None]:
    """How another thread posts a call to the loop that this is called in."""
    try:
        token = trio.lowlevel.current_trio_token()
    except RuntimeError:
        loop = asyncio.get_running_loop()
        return lambda call: void(loop.call_soon_threadsafe(call))
    return token.run_sync_soon


def void(_: object) -> None:
    """For a callable whose result is of no interest."""
