"""`Schedule`: a child of a tree that submits a task at each of its moments, once for all processes that run it.

Each process looks at the clock for itself, and none of them leads. How far a schedule has come is one row in the store: who finds
the next moment open there submits its task and moves the row on, in one commit.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
from attrs import frozen

from greenroom.actors import Actor, Event
from greenroom.errors import BadSpec, Misuse
from greenroom.logs import logger_named
from greenroom.mailbox import is_seconds
from greenroom.persistence import Refused
from greenroom.persistence.schedules import MomentEnd, PassMoment, RegisterSchedule, SchedulePlan
from greenroom.runtime.tasks.agents import Agents
from greenroom.runtime.tasks.ids import check_group, check_priority, check_task_id
from greenroom.runtime.tasks.moments import CENTURY, MICROSECOND, Moments, rule
from greenroom.runtime.tasks.submitting import new_task
from greenroom.supervisors import Child
from greenroom.supervisors.specs import WITH_A_STORE

if TYPE_CHECKING:
    from greenroom.persistence.tasks import NewTask
    from greenroom.runtime.durable.storage import Storage
    from greenroom.runtime.tasks.codec import TaskCodec

logger = logger_named("greenroom.schedules")

CATCH_UP: Final = 3600.0

AGAIN: Final = 5.0
"""Seconds after which a moment is tried again whose pool nobody has run yet."""

LOOK: Final = 60.0
"""Seconds after which the clock is looked at again, however far the next moment is: it may be set, and machines sleep."""


@frozen(kw_only=True)
class MomentSkipped(Event):
    """A moment of a schedule has come to no task. `path` is that of the schedule.

    `why`: `"overlap"`, the task of an earlier moment has not ended; `"missed"`, it was not seen to within `catch_up` seconds, and
    perhaps others after it; `"conflict"`, another task has the identity that its task would have had.
    """

    moment: datetime
    why: Literal["overlap", "missed", "conflict"]


@frozen(kw_only=True)
class Plan:
    """What a schedule is to do."""

    pool: str | Agents[Any, Any]
    request: object
    moments: Moments
    cron: str | None
    every: float | None
    time_zone: str | None
    overlap: bool
    catch_up: timedelta
    deadline: timedelta | None
    group: str
    priority: int

    def request_at(self, moment: datetime) -> object:
        return self.request(moment) if callable(self.request) else self.request

    def told(self, pool: str, codec: TaskCodec) -> SchedulePlan:
        """The same for the store. Raises `NotEncodable` for a request that no task can have."""
        return SchedulePlan(
            pool=pool,
            request_type=None if callable(self.request) else codec.message(self.request).type,
            cron=self.cron,
            time_zone=self.time_zone,
            every=self.every,
            overlap=self.overlap,
            catch_up=self.catch_up.total_seconds(),
        )


class Schedule(Child):
    """Submits a task to a pool at each of its moments.

        gr.Schedule("nightly", "service/reviewers", Review("all"), cron="0 3 * * *", time_zone="Europe/Berlin")

    The task of a moment has the identity `PATH@MOMENT`, for example `service/nightly@2026-03-01T02:00:00Z`. However many processes run
    the schedule, a moment has one task, or none; also after crashes. A new schedule begins with the first moment after its first start.

    Args:
        pool: its path, also that of another service on the same store; or its `gr.Agents` in this tree.
        request: what is asked for, or a function that makes it of the moment (an aware instant in UTC).
        cron: five fields (minute, hour, day, month, weekday), or six with seconds first. Needs the extra `schedules`.
        every: seconds (> 0): whole multiples since 1970-01-01T00:00Z.
        time_zone: in which `cron` is meant, by its IANA name; None: UTC.
        overlap: `"skip"`: a moment passes without a task while the last task of this schedule has not ended; `"allow"`: it does not.
        catch_up: seconds (> 0) for which a moment is made up for that nobody has seen to, because nothing ran or the pool's queue was
            full. Older ones are left out.
        deadline: seconds (> 0) from the moment to the task's deadline; None: it has none.
        group, priority: as for `Runtime.submit`.

    Raises `BadSpec`.
    """

    needs_store = True

    def __init__(
        self,
        name: str,
        pool: str | Agents[Any, Any],
        request: object | Callable[[datetime], object],
        *,
        cron: str | None = None,
        every: float | None = None,
        time_zone: str | None = None,
        overlap: Literal["skip", "allow"] = "skip",
        catch_up: float = CATCH_UP,
        deadline: float | None = None,
        group: str = "",
        priority: int = 0,
    ) -> None:
        where = f"schedule {name!r}: "
        if not isinstance(pool, (str, Agents)):
            raise BadSpec(f"{where}pool={pool!r}: the path of a pool, or its gr.Agents")
        if overlap not in ("skip", "allow"):
            raise BadSpec(f"{where}overlap={overlap!r}: 'skip' or 'allow'")
        for option, seconds in (("catch_up", catch_up), ("deadline", deadline)):
            if seconds is not None and not (is_seconds(seconds) and seconds <= CENTURY):
                raise BadSpec(f"{where}{option}={seconds!r}: a number of seconds above 0, for no more than a century")
        try:
            check_group(group)
            check_priority(priority)
        except (TypeError, ValueError) as error:
            raise BadSpec(f"{where}{error}") from None
        plan = Plan(
            pool=pool,
            request=request,
            moments=rule(where, cron=cron, every=every, time_zone=time_zone),
            cron=cron,
            every=every,
            time_zone=time_zone,
            overlap=overlap == "allow",
            catch_up=timedelta(seconds=catch_up),
            deadline=None if deadline is None else timedelta(seconds=deadline),
            group=group,
            priority=priority,
        )
        super().__init__(name, Scheduler, plan)


class Scheduler(Actor):
    """One process's look at the clock for a schedule."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    async def on_start(self) -> None:
        runtime = self.context.runtime
        storage = runtime.storage
        if storage is None:
            raise Misuse(f"{self.context.ref.path!r} submits tasks, and this runtime has no store: {WITH_A_STORE}")
        check_task_id(self._task_id(storage.now()))
        pool = runtime.path_of_pool(self.plan.pool)
        told = self.plan.told(pool, storage.tasks.codec)
        self.context.nursery.start_soon(partial(self._run, storage, told))

    def _task_id(self, moment: datetime) -> str:
        return f"{self.context.ref.path}@{moment.isoformat().replace('+00:00', 'Z')}"

    async def _run(self, storage: Storage, told: SchedulePlan) -> None:
        path, plan = self.context.ref.path, self.plan
        known = await storage.commit_surely(RegisterSchedule(schedule=path, plan=told))
        assert not isinstance(known, Refused)  # nothing speaks against it
        passed_at = known.passed_at
        while (moment := plan.moments.after(passed_at)) is not None:
            now = storage.now()
            if moment > now:
                await self._sleep(storage, moment - now)
                continue
            oldest = now - plan.catch_up
            late = moment < oldest
            passing = PassMoment(
                schedule=path,
                moment=oldest - MICROSECOND if late else moment,
                task=None if late else await self._task(storage, told.pool, moment),
                overlap=plan.overlap,
            )
            answer = await storage.commit_surely(passing)
            if isinstance(answer, Refused):  # the pool's queue is full, or nobody has run the pool yet
                logger.warning("%s: the moment %s waits: %s", path, moment.isoformat(), answer.detail)
                await anyio.sleep(answer.seconds or AGAIN)
                continue
            passed_at = answer.passed_at
            self._tell(storage, moment, answer.end)
        logger.warning("%s has no moment after %s: it submits nothing more", path, passed_at.isoformat())

    async def _task(self, storage: Storage, pool: str, moment: datetime) -> NewTask:
        plan = self.plan
        return await new_task(
            storage.tasks,
            pool,
            plan.request_at(moment),
            task_id=self._task_id(moment),
            group=plan.group,
            priority=plan.priority,
            deadline=None if plan.deadline is None else moment + plan.deadline,
        )

    @staticmethod
    async def _sleep(storage: Storage, pause: timedelta) -> None:
        seconds = pause.total_seconds()
        await anyio.sleep(seconds if storage.loop.virtual_clock is not None else min(seconds, LOOK))

    def _tell(self, storage: Storage, moment: datetime, end: MomentEnd) -> None:
        path = self.context.ref.path
        if end in (MomentEnd.SUBMITTED, MomentEnd.SETTLED):
            logger.info("%s: the moment %s has its task (%s)", path, moment.isoformat(), end.value)
            return
        logger.warning("%s: the moment %s has no task of its own: %s", path, moment.isoformat(), end.value)
        why: Literal["overlap", "missed", "conflict"] = (
            "overlap" if end is MomentEnd.OVERLAP else "missed" if end is MomentEnd.MISSED else "conflict"
        )
        storage.services.events.publish(MomentSkipped(at=storage.loop.now(), path=path, moment=moment, why=why))
