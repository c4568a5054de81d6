"""The two cancel scopes around everything a child runs.

`kill` is what cancels. `guard`, inside it, is never cancelled: it is only a shield. A task that swallows its cancellation in a
cancelled scope is cancelled again in every turn of the loop, which burns a core; while `guard` is shielded it is left in peace.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from greenroom.mailbox.parking import CancelScope


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
        # The guard absorbs nothing: it was never cancelled.
        self._guard.__exit__(kind, error, trace)
        return bool(self._kill.__exit__(kind, error, trace))

    def cancel(self) -> None:
        """Cancel what runs inside, now or when it is entered."""
        self.cancelled = True
        if self._kill is not None:
            self._kill.cancel()

    def rest(self, shielded: bool) -> None:
        """Stop (True) or resume (False) the delivery of the cancellation to a task that swallows it."""
        if self._guard is not None:
            self._guard.shield = shielded
