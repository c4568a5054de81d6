"""The intake: submits the review, waits for its end, and ends the desk."""

from __future__ import annotations

import contextlib
from typing import Final

import greenroom as gr
from greenroom.demo.desk_actor import DeskActor
from greenroom.demo.messages import REVIEW, Review

LOOK: Final = 1.0
"""Seconds between two looks at whether the review still moves."""


class ReviewStuck(Exception):
    """The review waits for an operator. The text says why."""


class Intake(DeskActor):
    """Submits the one task that the desk is for. Made again, in this process or another, it submits the same one: that is none more.

    Args:
        folder: absolute path of the folder to review.
        out: where the report goes, if not to the folder's `.greenroom`; it is left out of the review.
    """

    def __init__(self, folder: str, out: str | None = None) -> None:
        self._folder = folder
        self._out = out

    async def on_start(self) -> None:
        self.context.nursery.start_soon(self._see_it_through)

    async def _see_it_through(self) -> None:
        """End when the review has; as a significant child it ends the desk. A review that fails is a crash, and ends it by that."""
        request = Review.of(self._folder, self._out)
        review = await self.context.runtime.submit("desk/reviewers", request, task_id=REVIEW)
        while True:
            if (await review.status()).parked is not None:
                raise ReviewStuck(await review.explain())
            with contextlib.suppress(gr.WaitTimeout):
                await review.result(timeout=LOOK)
                return self.context.stop()
