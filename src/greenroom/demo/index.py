"""The index: what is known so far, on shelves, in the store."""

from __future__ import annotations

import greenroom as gr
from greenroom.demo.desk_actor import DeskActor
from greenroom.demo.messages import Keep, Kept, ShowKept


class Shelf(DeskActor, gr.DurableActor[Kept]):
    """Holds the results of one portion; its key is the portion's. The pool of all shelves is the index.

    One actor for everything would write everything again for each portion: a durable state is stored whole.
    """

    def __init__(self) -> None:
        self.state = Kept()

    @gr.handles
    async def keep(self, message: Keep) -> None:
        """Put results on record. Sent twice under one id, it comes here once; after a crash it comes back."""
        self.state = Kept(message.records, self.state.times + 1)
        self.crash_if_doomed()

    @gr.handles
    async def show_kept(self, message: ShowKept) -> Kept:
        """For the report."""
        self.crash_if_doomed()
        return self.state
