"""What all actors of the desk have in common: they find each other by name, insist on answers, and can be struck by chaos."""

from __future__ import annotations

import enum
from typing import Final

import attrs

import greenroom as gr

PAUSE: Final = 0.1
"""Seconds between two tries to reach a neighbour that is down."""


class ChaosCrash(Exception):
    """Raised where chaos has struck; a crash by this is nobody's fault and no file's."""


class Way(enum.StrEnum):
    """How chaos strikes."""

    AT_ONCE = "at_once"
    IN_WORK = "in_work"
    """In the middle of the next piece of work, so that somebody who waits for its result is let down."""
    KILL = "kill"
    """The worker process dies by SIGKILL. Only for an actor that has a process of its own."""


@attrs.frozen
class Strike(gr.Message[None]):
    """From chaos, to anybody: crash."""

    way: Way


class DeskActor(gr.Actor):
    """The base of the desk's actors."""

    _doomed = False

    def neighbour(self, name: str) -> gr.Ref:
        """The address of another child of this actor's supervisor, or below one: `index`, `readers/isolated`.

        Raises:
            NoSuchActor: there is none of that name, or its supervisor is just being restarted.
        """
        above = self.context.ref.path.rpartition("/")[0]
        return self.context.runtime.ref(f"{above}/{name}")

    @gr.handles
    async def strike(self, message: Strike) -> None:
        """Crash, now or at the next `crash_if_doomed`."""
        if message.way is Way.IN_WORK:
            self._doomed = True
        else:
            raise ChaosCrash("chaos struck")

    def crash_if_doomed(self) -> None:
        """Stands in the middle of each piece of work. Raises `ChaosCrash` when chaos has struck."""
        if self._doomed:
            raise ChaosCrash("chaos struck in the middle of the work")
