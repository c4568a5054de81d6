"""What a life asks of a body that has a process of its own."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class OwnProcess(Protocol):
    """The only kind of child that can be killed."""

    def kill_process(self) -> None:
        """Stage 3 of the ladder: SIGKILL to the whole process group, now. Safe at any time."""
