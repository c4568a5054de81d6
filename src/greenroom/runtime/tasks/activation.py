"""An activation: a task that this runtime has claimed, from then until it ends, is let go, or is lost."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from greenroom.actors import described
from greenroom.actors.exits import Contained
from greenroom.errors import Stalled, TransitionFailed
from greenroom.logs import logger_named
from greenroom.persistence import ParkReason, RefusalReason
from greenroom.persistence.journal import CommitTurn
from greenroom.persistence.tasks import (
    ClaimedTask,
    ClaimTask,
    ParkTask,
    QuarantineTask,
    ReadTask,
    ReleaseTask,
    TaskRecord,
    task_id_of,
)
from greenroom.runtime.replay import End, EndKind, OperationCall
from greenroom.runtime.tasks.endings import (
    MOST_SUSPICIONS,
    Park,
    cause_of,
    obstacle_of,
    restarts_with,
    trouble_of,
)
from greenroom.runtime.tasks.finishing import end_unbegun
from greenroom.runtime.tasks.length import JournalLong, is_warned
from greenroom.runtime.tasks.loading import load
from greenroom.runtime.tasks.migrating import is_of_other_code, migrated
from greenroom.runtime.tasks.ownership import NotOurs, Ownership
from greenroom.runtime.tasks.resting import Left
from greenroom.runtime.tasks.run import Run
from greenroom.runtime.tasks.stalls import PROGRESS_LIMIT, TaskStalled
from greenroom.supervisors import Backoff
from greenroom.supervisors.restarts import delay

if TYPE_CHECKING:
    from greenroom.actors.timers import Timers
    from greenroom.mailbox.parking import CancelScope
    from greenroom.runtime.tasks.codec import TaskCodec
    from greenroom.runtime.tasks.pool import AgentsLife

logger = logger_named("greenroom.tasks")

SHOWN_WAITS = 20
"""Waits of branches that are recorded, for people, when a task is let go."""

PAUSES = Backoff(0.1, maximum=30.0)
"""Between a crash and the next activation."""

SUSPECT_PAUSE = timedelta(seconds=10)
"""After which a suspect is claimed again that could not be alone."""


class Activation:
    """See the module. For the event loop's thread."""

    __slots__ = (
        "_alone",
        "_run",
        "_scope",
        "_suspect",
        "address",
        "cancelled",
        "codec",
        "deadline",
        "ended",
        "evicted",
        "has_children",
        "has_open_callbacks",
        "loop",
        "mail_came",
        "owned",
        "owner",
        "pool",
        "stopping",
        "storage",
    )

    owner: Ownership

    def __init__(self, pool: AgentsLife, address: str) -> None:
        self.pool = pool
        self.address = address
        self.storage = pool.storage
        self.loop = pool.services.loop
        self.codec: TaskCodec = pool.desk.codec
        self.deadline: datetime | None = None
        self.evicted = False
        """It is to make room, if it waits for something durable."""
        self.stopping = False
        """It is to be let go as soon as nothing of it is in flight."""
        self.has_children = False
        """Tasks that it has submitted may not have ended."""
        self.has_open_callbacks = False
        """Callbacks that it has opened may be open still."""
        self.mail_came: bool = False
        """Messages may have come since it was claimed."""
        self.ended = False
        """The task has: it is terminal."""
        self._suspect = False
        self._alone = False
        """Nothing else runs, until it has shown that it lives."""
        self._run: Run | None = None
        self.owned = False
        """It has been claimed here."""
        self.cancelled = False
        """It was cut short."""
        self._scope: CancelScope | None = None
        """Around its driver, while it has one."""

    @property
    def task_id(self) -> str:
        return task_id_of(self.address)

    @property
    def timers(self) -> Timers:
        return self.pool.services.timers

    def spawn(self, main: Callable[[], Coroutine[Any, Any, None]], what: str) -> None:
        """Run an event-loop task beside it, in its pool's nursery."""
        self.pool.spawn(main, f"{self.address} {what}")

    def spawn_branch(self, main: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """The same for a branch of its control code: it is there also while nobody drives it."""
        self.pool.spawn(main, name)

    def drive(self) -> None:
        """Have an event-loop task that drives it: until it rests, or is over."""
        scope = self.loop.cancel_scope()
        try:
            self.pool.context.run(self.pool.spawn, partial(self._main, scope), self.address)
        except (
            RuntimeError
        ) as error:  # the nursery is being torn down, and the pool abandons the task when that is done
            logger.warning("%s is not driven on: %s", self.address, error)
        else:
            self._scope = scope

    def abandon(self) -> None:
        """The nursery has ended, by the event loop's end or a defect, and with it what could have let the task go."""
        if self._run is not None:
            self._run.abandon()
        self._let_go()

    def now(self) -> datetime:
        return self.storage.now()

    def may_act(self) -> bool:
        """Whether an effect may be made now."""
        return self.owner.may_act()

    def fatal(self, error: BaseException) -> None:
        """KeyboardInterrupt or SystemExit came out of the task's code: it ends the tree."""
        self.pool.services.watch.fatal(error)

    # --------------------------------------------------------------------------------------------------- from outside

    def look(self) -> None:
        """There may be a message for it."""
        self.mail_came = True
        if self._run is not None:
            self._run.look()

    def request_stop(self) -> None:
        """Let the task go: nothing more is sent, and what is in flight may land."""
        self.stopping = True
        self._wake()

    def evict(self) -> None:
        """Let the task go if it waits for something durable still (R20)."""
        self.evicted = True
        self._wake()

    def cancel(self) -> None:
        """End now. That is no event of the task (T23)."""
        self.stopping = self.cancelled = True
        if self._run is not None:
            self._run.cut_short()
        if self._scope is not None:
            self._scope.cancel()

    def lost(self) -> None:
        """The lease under which the task is owned is gone."""
        if self.owned:
            self.owner.held = False
        self.cancel()

    def _wake(self) -> None:
        if self._run is not None:
            self._run.wake()

    # ------------------------------------------------------------------------------------------------ its place in line

    def rest(self) -> None:
        """It waits for something durable, and leaves its place to others.

        A suspect that has come to this has not killed the process: it is let go, which takes the suspicion away (R22).
        """
        self._in_company()
        self.evicted |= self._suspect
        self.pool.rests(self)

    def _in_company(self) -> None:
        """Others may run beside it."""
        if self._alone:
            self._alone = False
            self.pool.desk.solitude.leave(self)

    async def rise(self) -> None:
        """Something has come: wait for a place."""
        self.evicted = False
        await self.pool.rises(self)

    def progressed(self, before: int, rows: int) -> None:
        """Its journal has so many rows now."""
        if rows > before:
            self._in_company()
        limit = self.pool.spec.journal_limit
        if is_warned(before, rows, limit):
            logger.warning(
                "%s: its journal has %d rows; at %d it is parked: use task.continue_as", self.address, rows, limit
            )
            desk, path = self.pool.desk, self.pool.path
            desk.publish(JournalLong(at=desk.now(), path=path, task_id=self.task_id, rows=rows, limit=limit))

    def stall(self, branch: str, stack: str) -> Stalled:
        """Its control code waits for something that is not the task's (R21). Gives what it is broken off by."""
        desk = self.pool.desk
        logger.error(
            "%s is stalled: branch %s waits for what is no call of the task's\n%s", self.address, branch, stack
        )
        desk.publish(
            TaskStalled(
                at=desk.now(),
                path=self.pool.path,
                task_id=self.task_id,
                branch=branch,
                seconds=PROGRESS_LIMIT,
                stack=stack,
            )
        )
        return Stalled(branch, PROGRESS_LIMIT)

    def let_stalled_go(self, task: TaskRecord, error: Stalled) -> None:
        """Nothing of it is in flight, and its control code can do nothing more, however long that takes: the task is for others."""
        self._troubled(task, error)
        self.pool.activation_stalled(self)

    # ------------------------------------------------------------------------------------------------------- the task

    async def _main(self, scope: CancelScope) -> None:
        """The event-loop task that drives it. Never raises, but for a cancellation from outside the tree."""
        rests = False
        try:
            with scope:
                rests = await self._work()
        except (KeyboardInterrupt, SystemExit) as error:
            self.fatal(error)
        except Exception as error:
            logger.error("%s: its activation failed: %s", self.address, described(error), exc_info=error)
        finally:
            self._scope = None
            if not rests:
                self._let_go()
                self.pool.activation_ended(self)

    def _let_go(self) -> None:
        """Nothing of it runs here."""
        self._in_company()
        if self.owned and not self.ended:  # it was cut short: it may go on elsewhere at once
            self._release(self.now())

    async def _work(self) -> bool:
        """Begin, or go on after a rest. True: it rests."""
        if self._run is not None:
            return await self._pursue(self._run.segment.task)
        task = await self._claim()
        return task is not None and await self._pursue(task)

    async def _claim(self) -> TaskRecord | None:
        storage = self.storage
        await storage.leftovers.settled(self.address)  # what the last activation left is under its generation
        execution = storage.living()
        if execution is None or self.stopping or storage.draining:
            return None
        pool = self.pool
        try:
            answer = await storage.commit_surely(
                ClaimTask(address=self.address, pool=pool.path, execution_id=execution.id, version=pool.version)
            )
        except TransitionFailed as error:
            await self._quarantine(error)
            return None
        if not isinstance(answer, ClaimedTask):
            if answer.reason is RefusalReason.FULL and answer.seconds is not None:
                pool.begins_in(answer.seconds)
            if answer.reason in (RefusalReason.LEASE_EXPIRED, RefusalReason.UNKNOWN_EXECUTION):
                storage.lease_lost(execution)
            logger.info("%s is not claimed here: %s", self.address, answer.detail)
            return None
        task = answer.task
        self.owner = Ownership(storage, self.address, execution.id, task.generation)
        self.owned = True
        self.deadline = task.deadline
        self._suspect = task.suspicions > 0
        return task

    async def _quarantine(self, error: TransitionFailed) -> None:
        """Its row cannot be read: to try that again would be in vain."""
        logger.error(
            "%s cannot be claimed, and is parked (undecodable): %s", self.address, described(error), exc_info=error
        )
        item = QuarantineTask(address=self.address, pool=self.pool.path, detail=described(error))
        await self.storage.commit_surely(item)

    async def _pursue(self, task: TaskRecord) -> bool:
        """Run its segments. True: it rests."""
        try:
            following = task if self._run is not None else await self._begun(task)
            while following is not None:
                task = following
                how = await self._segment(task)
                if how is Left.RESTING:
                    return True
                following = await self.read_again() if isinstance(how, End) and how.kind is EndKind.CONTINUED else None
        except NotOurs as why:
            self.owner.held = False
            logger.info("%s is not owned here any more: %s", self.address, why)
            self.pool.desk.wake_soon()  # if it was terminated, and is pursued again, that was told to what is ending here
        except Contained as odd:
            self._troubled(task, odd.error)
        except Exception as error:  # noqa: BLE001 - whatever it is: it is the task's, and the pool goes on
            self._troubled(task, error)
        return False

    async def _begun(self, task: TaskRecord) -> TaskRecord | None:
        """The task, ready for its first segment here. None: it is let go, for it cannot be run here or now."""
        obstacle = obstacle_of(task, self.pool.version, self.pool.version_policy)
        if obstacle is not None:
            self._park(obstacle.reason, obstacle.detail)
            return None
        if task.deadline is not None and task.deadline <= task.segment_started_at and task.journal_seq == 0:
            await end_unbegun(self, task)
            return None
        if task.suspicions == MOST_SUSPICIONS - 1:
            self._alone = await self.pool.desk.solitude.enter(self)
            if not self._alone:
                pause = timedelta() if self.stopping else SUSPECT_PAUSE
                self._release(self.now() + pause, unsuspect=False)
                return None
        if self.pool.version_policy == "migrate" and is_of_other_code(task, self.pool.version):
            return await self.read_again() if await self._migrate(task) else None
        return task

    async def _migrate(self, task: TaskRecord) -> bool:
        """Take the task over into this version of the code. False: it is parked."""
        segment = await load(self.storage, self.codec, task)
        following = await migrated(self.pool.make_agent(), segment, self.codec, self.storage.stow)
        if isinstance(following, Park):
            self._park(following.reason, following.detail)
            return False
        await self.owner.commit(CommitTurn(**self.owner.fields, after=task.journal_seq, continue_as=following))
        return True

    async def _segment(self, task: TaskRecord) -> End | Left:
        """Run one segment, from its beginning or from where it rested. An end is on record; unless it rests, the task is let go else."""
        run = self._run
        if run is None:
            segment = await load(self.storage, self.codec, task)
            self.has_children, self.has_open_callbacks = segment.has_children, segment.has_open_callbacks
            run = self._run = Run(self, self.pool.make_agent(), segment)
        how: End | Left | None = None
        try:
            how = await run.main()
        finally:
            if how is not Left.RESTING:
                self._run = None
        if how is Left.RESTING:
            return how
        if how is Left.EVICTED or how is Left.STOPPED:
            waits = tuple(f"{wait.branch}: {wait.what}" for wait in run.waits[:SHOWN_WAITS])
            self._release(self.now() if how is Left.STOPPED else run.wakes_at, next_due=run.until, waits=waits)
        run.dispose()
        return how

    async def read_again(self) -> TaskRecord:
        """The task as it stands. Raises `NotOurs`."""
        task = await self.storage.surely(self.storage.store.read, ReadTask(address=self.address))
        if task is None or task.generation != self.owner.generation:
            raise NotOurs("another has claimed it")
        return task

    # ------------------------------------------------------------------------------------------------------- its ends

    def has_ended(self) -> None:
        """Its end is on record."""
        self.ended = True
        self.owner.held = False
        self.pool.desk.changed(self.address)

    async def park_unresolved(self, calls: Sequence[OperationCall]) -> Left:
        """Nobody but an operator can say whether these happened (I8)."""
        names = ", ".join(f"{call.name!r} ({call.id})" for call in calls)
        detail = f"it is not known whether {names} happened: it was sent, and its outcome is not on record"
        logger.error("%s is parked (unresolved): %s", self.address, detail)
        unresolved = tuple(str(call.id) for call in calls)
        await self.owner.commit(
            ParkTask(**self.owner.fields, reason=ParkReason.UNRESOLVED, detail=detail, unresolved=unresolved)
        )
        self.owner.held = False
        return Left.UNRESOLVED

    def _troubled(self, task: TaskRecord, error: BaseException) -> None:
        """It has stopped by an exception: it is run again after a while, or waits for an operator."""
        if not self.owner.held:
            return
        trouble = trouble_of(error)
        now = self.now()
        if isinstance(trouble, Park):
            self._park(trouble.reason, trouble.detail)
            return
        error = trouble.error
        spec = self.pool.spec
        period = spec.restart_period
        if isinstance(error, Stalled):  # a stall takes its time, in which no other can come
            period += (spec.max_restarts + 1) * PROGRESS_LIMIT
        restarts, too_many = restarts_with(task.restarts, now, most=spec.max_restarts, period=period)
        logger.error("%s crashed: %s", self.address, described(error), exc_info=error)
        if too_many:
            often = f"{len(restarts)} times in {period:g} s"
            self._park(ParkReason.CRASH_LOOP, f"its control code crashed {often}, the last time by {cause_of(error)}")
        else:
            pause = timedelta(seconds=delay(PAUSES, len(restarts) - 1, 0.0))
            self._release(now + pause, restarts=restarts)

    def _park(self, reason: ParkReason, detail: str) -> None:
        logger.error("%s is parked (%s): %s", self.address, reason.value, detail)
        self.owner.let_go(ParkTask(**self.owner.fields, reason=reason, detail=detail))

    def _release(self, due_at: datetime | None, **more: Any) -> None:
        if self.owner.held:
            self.owner.let_go(ReleaseTask(**self.owner.fields, due_at=due_at, **more))
            self.pool.desk.released(self.address, due_at)
