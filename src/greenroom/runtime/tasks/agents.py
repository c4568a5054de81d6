"""`Agents`: a pool of agents in the tree. Tasks are submitted to it by its path, and performed by any process that runs it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar, TypeVarTuple, Unpack

from greenroom.errors import BadSpec
from greenroom.mailbox import PersistentMailbox, is_seconds, is_whole
from greenroom.runtime.tasks.agent import Agent
from greenroom.supervisors import SupervisorSpec

Req = TypeVar("Req")
Res = TypeVar("Res")
Ts = TypeVarTuple("Ts")

MAX_RESIDENT = 10_000


class Agents(SupervisorSpec, Generic[Req, Res]):
    """A pool of agents: `await runtime.submit("service/reviewers", Review(...))` has a task performed by one of them.

    Tasks wait in the pool's queue in the store, and are claimed from there by need, by whichever of the processes that run this pool
    has room. A task that waits for something (a signal, a time, a child) takes no room.

    Args:
        factory, args: `factory(*args)` makes the agent at each activation: an `Agent` class, or something that makes one.
        max_running: tasks (int > 0) that have something in hand here at once.
        queue_limit: tasks (int > 0) that may stand in the queue; more are refused, with the time after which to try again. None: no limit.
        max_resident: tasks (int > 0) in memory at once; beyond them those go that have waited longest, and come back when they are woken.
        max_restarts, period: crashes of one task that are answered by running it again, within so many seconds; one more parks it.
        shutdown: seconds for which operations in flight may go on when the pool stops.

    Raises `BadSpec`.
    """

    stops_together = True
    refuses_children = "its tasks are submitted, by `runtime.submit(...)`"

    def __init__(
        self,
        name: str,
        factory: Callable[[Unpack[Ts]], Agent[Req, Res]],
        *args: Unpack[Ts],
        max_running: int = 1,
        queue_limit: int | None = None,
        max_resident: int = MAX_RESIDENT,
        max_restarts: int = 3,
        period: float = 60.0,
        shutdown: float = 5.0,
    ) -> None:
        self._place(name, "permanent", None, False, None, "pool")
        self._govern(1, 5.0)
        where = f"pool {name!r}: "
        if not callable(factory):
            raise BadSpec(
                f"{where}factory={factory!r} cannot be called: give a gr.Agent class, or a function that makes one"
            )
        for option, value in (("max_running", max_running), ("max_resident", max_resident)):
            if not is_whole(value, least=1):
                raise BadSpec(f"{where}{option}={value!r}: a whole number of tasks above 0")
        if queue_limit is not None and not is_whole(queue_limit, least=1):
            raise BadSpec(f"{where}queue_limit={queue_limit!r}: a whole number of tasks above 0, or None for no limit")
        if not is_whole(max_restarts, least=0):
            raise BadSpec(f"{where}max_restarts={max_restarts!r}: a whole number, 0 or more")
        for option, seconds in (("period", period), ("shutdown", shutdown)):
            if not is_seconds(seconds):
                raise BadSpec(f"{where}{option}={seconds!r}: a number of seconds above 0")
        self.make: Callable[[], Any] = partial(factory, *args)
        self.max_running = max_running
        self.queue_limit = queue_limit
        self.max_resident = max_resident
        self.max_restarts = max_restarts
        self.restart_period = float(period)
        self.grace = float(shutdown)
        self.mailbox = PersistentMailbox()
        """What a task's signals lie in."""
