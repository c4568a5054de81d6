"""What is known, elsewhere in the core, of an actor whose code runs on a thread of its own."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable


@runtime_checkable
class OwnThread(Protocol):
    """A body whose code runs on a thread of this process. Nothing can interrupt that."""

    caller: object
    """The event-loop task that makes a call on behalf of the thread, which waits for it; None when there is none."""

    @property
    def thread(self) -> int | None:
        """Identity of the thread, as by `threading.get_ident()`."""

    def stack(self) -> str:
        """Where the thread is just now."""

    def calling(self) -> AbstractContextManager[None]:
        """Around a call to the event loop that the thread waits for."""
