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
JOURNAL_LIMIT = 50_000


class Agents(SupervisorSpec, Generic[Req, Res]):
    """A pool of agents: `await runtime.submit("service/reviewers", Review(...))` has a task performed by one of them.

    Tasks wait in the pool's queue in the store, and are claimed from there by need, by whichever of the processes that run this pool
    has room. A task that waits for something (a signal, a time, a child) takes no room.

    Args:
        factory, args: `factory(*args)` makes the agent at each activation: an `Agent` class, or something that makes one.
        max_running: tasks (int > 0) that have something in hand here at once.
        queue_limit: tasks (int > 0) that may stand in the queue; more are refused, with the time after which to try again. None: no limit.
        per_group: tasks (int > 0) of one `group=` that may run at once, in all processes together; those without a group are one. A task
            that waits for something lets go of its place, and is dropped from memory for that. None: no limit.
        rate: (count, seconds): tasks (int > 0) that may be begun within any so many seconds (> 0), by all processes together. Going on
            with one is no beginning. None: no limit.
        parallel: operations (int > 0) of one task that may be in flight at once; others wait for their turn. None: no limit.
        max_resident: tasks (int > 0) in memory at once; beyond them those go that have waited longest, and come back when they are woken.
        journal_limit: rows (int > 0) that a task's journal may have in one segment; one more parks it as `oversize`. From a fifth of them
            on there is a warning: `task.continue_as(...)` begins a new segment.
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
        per_group: int | None = None,
        rate: tuple[int, float] | None = None,
        parallel: int | None = None,
        max_resident: int = MAX_RESIDENT,
        journal_limit: int = JOURNAL_LIMIT,
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
        limits = {"max_running": max_running, "max_resident": max_resident, "journal_limit": journal_limit}
        for option, value in limits.items():
            if not is_whole(value, least=1):
                raise BadSpec(f"{where}{option}={value!r}: a whole number above 0")
        for option, limit in (("queue_limit", queue_limit), ("per_group", per_group), ("parallel", parallel)):
            if limit is not None and not is_whole(limit, least=1):
                raise BadSpec(f"{where}{option}={limit!r}: a whole number above 0, or None for no limit")
        if rate is not None and not _is_rate(rate):
            raise BadSpec(f"{where}rate={rate!r}: (tasks, seconds), for example (60, 60.0), or None for no limit")
        if not is_whole(max_restarts, least=0):
            raise BadSpec(f"{where}max_restarts={max_restarts!r}: a whole number, 0 or more")
        for option, seconds in (("period", period), ("shutdown", shutdown)):
            if not is_seconds(seconds):
                raise BadSpec(f"{where}{option}={seconds!r}: a number of seconds above 0")
        self.make: Callable[[], Any] = partial(factory, *args)
        self.max_running = max_running
        self.queue_limit = queue_limit
        self.per_group = per_group
        self.rate = None if rate is None else (rate[0], float(rate[1]))
        self.parallel = parallel
        self.max_resident = max_resident
        self.journal_limit = journal_limit
        self.max_restarts = max_restarts
        self.restart_period = float(period)
        self.grace = float(shutdown)
        self.mailbox = PersistentMailbox()
        """What a task's signals lie in."""


def _is_rate(rate: object) -> bool:
    return isinstance(rate, tuple) and len(rate) == 2 and is_whole(rate[0], least=1) and is_seconds(rate[1])
