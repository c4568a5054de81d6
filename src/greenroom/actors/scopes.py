"""The two cancel scopes around everything a child runs.

`kill` is what cancels. `guard`, inside it, is never cancelled: it is only a shield. A task that swallows its cancellation in a
cancelled scope is cancelled again in every turn of the loop, which burns a core; while `guard` is shielded it is left in peace.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from greenroom.errors import Misuse
from greenroom.mailbox.parking import CancelScope


def _close_what_is_inside(guard: Any) -> None:
    """Close what code below has left open, so that the harm ends here: it would fail the task, and with it the nursery of its supervisor.

    Only the libraries themselves know their scopes, by names that are not public. Without those it is as if we did nothing.
    """
    module = sys.modules[type(guard).__module__]
    if module.__name__.partition(".")[0] == "trio":  # it has closed the scopes by itself, but not the nurseries
        nurseries: list[Any] = getattr(sys.modules["trio"].lowlevel.current_task(), "_child_nurseries", [])
        while nurseries:
            nurseries.pop().cancel_scope.cancel()
        return
    state = getattr(module, "_task_states", {}).get(asyncio.current_task())
    while state is not None and state.cancel_scope is not None:
        scope = state.cancel_scope
        if scope is not guard:
            scope.cancel()  # the tasks of a task group that nobody will await
        scope.__exit__(None, None, None)
        if scope is guard:
            return


class ScopePair:
    """`with pair:` around the code of a child. Entered once."""

    __slots__ = ("_guard", "_kill", "_make", "cancelled")

    def __init__(self, make: Callable[[], CancelScope]) -> None:
        self._make = make
        self._kill: CancelScope | None = None
        self._guard: CancelScope | None = None
        self.cancelled = False
        """`cancel()` was called: a cancellation that arrives is ours."""

    def __enter__(self) -> ScopePair:
        self._kill = self._make()
        self._guard = self._make()
        self._kill.__enter__()
        self._guard.__enter__()
        if self.cancelled:
            self._kill.cancel()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        assert self._guard is not None
        assert self._kill is not None
        left_open = False
        try:
            # The guard absorbs nothing: it was never cancelled.
            self._guard.__exit__(kind, error, trace)
        except RuntimeError:
            left_open = True
            _close_what_is_inside(self._guard)
        absorbed = bool(self._kill.__exit__(kind, error, trace))
        # A crash is told as what it is. A cancellation may come from what was left open, and nobody would guess that.
        crashed = isinstance(error, (Exception, BaseExceptionGroup, KeyboardInterrupt, SystemExit))
        if left_open and (absorbed or not crashed):
            raise Misuse(
                "it left a cancel scope or a task group open: what `on_start` or a handler opens must be closed by that same call. "
                "Start what lives as long as the actor in `context.nursery`; a client that opens a task group belongs there with "
                "its whole `async with` block"
            ) from error
        return absorbed

    def cancel(self) -> None:
        """Cancel what runs inside, now or when it is entered."""
        self.cancelled = True
        if self._kill is not None:
            self._kill.cancel()

    def rest(self, shielded: bool) -> None:
        """Stop (True) or resume (False) the delivery of the cancellation to a task that swallows it."""
        if self._guard is not None:
            self._guard.shield = shielded
