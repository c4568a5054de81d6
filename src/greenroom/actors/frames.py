"""Whose code a thread runs just now: read off its stack, for reports on an event loop that is blocked."""

from __future__ import annotations

import sys
import traceback
from types import FrameType

from greenroom.actors.life import ActorLife
from greenroom.actors.nursery import Nursery

_TASKS = (ActorLife.main.__code__, Nursery.run_task.__code__)
"""The outermost frames of an actor's own event-loop tasks; their `self` leads to it."""


def running_on(thread: int) -> tuple[ActorLife | None, str]:
    """The actor whose code the thread (by `threading.get_ident()`) runs, and its stack, outermost first. None when it is nobody's.

    For any thread: it looks, and touches nothing.
    """
    frame: FrameType | None = sys._current_frames().get(thread)
    if frame is None:
        return None, ""
    stack = "".join(traceback.format_stack(frame))
    while frame is not None:
        if frame.f_code in _TASKS:
            owner = frame.f_locals["self"]
            host = owner.host if isinstance(owner, Nursery) else owner
            return (host if isinstance(host, ActorLife) else None), stack
        frame = frame.f_back
    return None, stack
