"""The supervising loop: one event-loop task and one nursery for each supervisor.

Everything that happens below comes through one queue, in order of arrival: ends of children, queued restarts, administration
calls (OTP: exits and calls are served as they come). The loop takes an event, asks the rules (`restarts`), and performs what they
say; while it starts or stops children it looks only at them and at its own stop. A restart that failed is queued behind whatever
has come meanwhile.

Its children's tasks live in its nursery, so nothing of theirs can outlive it: a supervisor whose child is stuck goes on around it
and ends when the child does.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
from anyio.abc import TaskGroup
from attrs import frozen

from greenroom.actors import (
    ActorEnded,
    ActorLife,
    ActorStarted,
    Cell,
    Exit,
    Life,
    Owner,
    State,
    Verdict,
    body_for,
    classify,
)
from greenroom.errors import ActorStopped, RestartLimitExceeded, StartFailed, StartTimeout
from greenroom.mailbox import Slot
from greenroom.supervisors import ladder
from greenroom.supervisors.administration import Administrator
from greenroom.supervisors.member import Member
from greenroom.supervisors.reports import Context, RestartDelayed, RestartWaiting, SupervisorReport, is_wanted, publish
from greenroom.supervisors.restarts import (
    GiveUp,
    Leave,
    Limit,
    Restart,
    Rules,
    decide,
    delay,
    failures_in_a_row,
    is_fault_reported,
    plan,
)
from greenroom.supervisors.specs import Child, DynamicSupervisor, SupervisorSpec


@frozen(eq=False)
class Ended:
    """A life of a member is over."""

    member: Member
    life: Life
    verdict: Verdict


@frozen(eq=False)
class Retry:
    """Start a member, and what its strategy adds, again. Void when the member's `pending` is another by then."""

    member: Member
    counted: bool
    """It follows a failed restart: it counts as a restart of its own."""


@frozen(eq=False)
class Call:
    """An administration call."""

    name: str
    args: tuple[object, ...]
    reply: Slot


class SupervisorLife:
    """One incarnation of a supervisor. As `Life` it is steered by the supervisor above, as `Owner` it holds the lives below."""

    def __init__(self, cell: Cell, owner: Owner, spec: SupervisorSpec) -> None:
        self.cell = cell
        self.spec = spec
        self.services = cell.services
        self.exit: Exit | None = None
        self.settled = False
        self.lingering = False
        self.members: dict[str, Member] = {}
        """The children, in start order."""
        self.serial = 0
        """Number of the latest dynamic child."""
        self.stopping = False
        self._owner = owner
        self._cancelled = False
        self._killed = False
        self._nursery: TaskGroup | None = None
        self._events: deque[Ended | Retry | Call] = deque()
        self._slot: Slot | None = None
        self._rules = Rules(spec.strategy, Limit(spec.intensity, spec.period), spec.auto_shutdown)
        self._history: tuple[float, ...] = ()
        self._waiting: Member | None = None
        """The member whose restart waits for a stuck one."""
        self._administrator = Administrator(self)
        cell.incarnation += 1
        self.incarnation = cell.incarnation
        cell.life = self
        cell.state = State.STARTING
        cell.administration = self._administrator

    # ---------------------------------------------------------------------------------------- the supervisor above

    def start(self) -> None:
        """Begin, in the nursery of the supervisor above."""
        self._owner.spawn(self.main)

    def request_stop(self) -> None:
        self.stopping = True
        self._wake()

    def cancel(self) -> None:
        self._cancelled = self.stopping = True
        for member in self.members.values():
            if member.life is not None:
                member.life.cancel()
        self._wake()

    def kill(self) -> None:
        self._cancelled = self._killed = self.stopping = True
        for member in self.members.values():
            if member.life is not None:
                member.life.kill()
        self._wake()

    # --------------------------------------------------------------------------------------------- the lives below

    def spawn(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(main)

    def life_started(self, life: Any, info: object) -> None:
        member = self._member_of(life)
        if member is not None:
            member.started = True
            member.info = info
            member.started_at = self.services.loop.now()
            self._wake()

    def life_settled(self, life: Any) -> None:
        self._wake()

    def life_ended(self, life: Any, verdict: Verdict) -> None:
        member = self._member_of(life)
        if member is not None:
            self._post(Ended(member, life, verdict))

    def _member_of(self, life: Any) -> Member | None:
        member = self.members.get(life.cell.path.rpartition("/")[2])
        return member if member is not None and member.life is life else None

    def post_call(self, name: str, args: tuple[object, ...]) -> Slot:
        """Queue an administration call; the answer comes in the slot."""
        reply = self.services.loop.slot()
        self._post(Call(name, args, reply))
        return reply

    def _post(self, event: Ended | Retry | Call) -> None:
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._slot is not None and not self._slot.done():
            self._slot.set_result(None)

    async def park(self) -> None:
        """Wait until something has changed."""
        self._slot = self.services.loop.slot()
        try:
            await self._slot
        finally:
            self._slot = None

    # ---------------------------------------------------------------------------------------------------- the task

    async def main(self) -> None:
        """The event-loop task. Never raises, but for a cancellation from outside the tree."""
        outside: BaseException | None = None
        try:
            async with anyio.create_task_group() as self._nursery:
                exit = await self._run()
        except BaseException as error:  # noqa: BLE001
            # Only a defect of ours, or the loop's own end, comes here: the nursery has cancelled and awaited all children.
            verdict = classify(error, self.services.loop.cancelled)
            exit = verdict.exit
            if verdict.fatal is not None:
                self.services.watch.fatal(verdict.fatal)
            elif isinstance(error, self.services.loop.cancelled):
                outside = error
        self._end(Exit("killed", exit.cause) if self._cancelled and exit.clean else exit)
        if outside is not None:
            raise outside

    def _end(self, exit: Exit) -> None:
        self.stopping = True
        self.exit = exit
        self.settled = True
        self._administrator.refuse_all(self._events)
        for member in self.members.values():
            if not member.cell.mailbox.closed:
                member.down("its supervisor has ended")
            self.services.directory.remove(member.cell)
        cell = self.cell
        cell.exit = exit
        if exit.cause is not None:
            cell.last_error = str(exit)
        if self.services.events.listened_to:
            now = self.services.loop.now()
            self.services.events.publish(ActorEnded(at=now, path=cell.path, incarnation=self.incarnation, exit=exit))
        cell.tell_watchers(exit)
        self._owner.life_ended(self, Verdict(exit))

    async def _run(self) -> Exit:
        failure = await self._start_children()
        if failure is None and not self.stopping:
            self.cell.state = State.RUNNING
            if self.services.events.listened_to:
                now = self.services.loop.now()
                self.services.events.publish(ActorStarted(at=now, path=self.cell.path, incarnation=self.incarnation))
            self._owner.life_started(self, None)
            exit = await self._serve()
        else:
            exit = failure or Exit("shutdown")
        self.stopping = True
        if self.cell.state is not State.STARTING:
            self.cell.state = State.STOPPING
        self._administrator.refuse_all(self._events)
        await self._stop_children()
        await self._outwait_stuck()
        return exit

    async def _start_children(self) -> Exit | None:
        """Left to right, one at a time (a parallel group at once); the first failure ends it."""
        for group in self.spec.groups():
            members = [self.add(spec) for spec in group]
            for member, error in await self._start(members):
                failed = StartFailed(member.cell.path, str(error))
                failed.__cause__ = error
                self._report("start_error", str(error), member, Exit("error", error))
                return Exit("error", failed)
            if self.stopping:
                break
        return None

    async def _serve(self) -> Exit:
        while not self.stopping:
            if not self._events:
                await self.park()
                continue
            event = self._events.popleft()
            if isinstance(event, Call):
                await self._administrator.answer(event.name, event.args, event.reply)
            elif isinstance(event, Retry):
                exit = await self._retry(event)
                if exit is not None:
                    return exit
            else:
                exit = await self._child_ended(event)
                if exit is not None:
                    return exit
        return Exit("shutdown")

    async def _stop_children(self) -> None:
        running = [member for member in reversed(self.members.values()) if member.life is not None or member.restarting]
        batches = [running] if self.spec.stops_together or self._cancelled else [[member] for member in running]
        for batch in batches:
            if self._killed:
                self.kill()
            elif self._cancelled:
                self.cancel()
            await ladder.stop(
                batch,
                self.park,
                self.services,
                self.cell.path,
                why="its supervisor is stopping or has stopped",
                down=True,
            )

    async def _outwait_stuck(self) -> None:
        """Stuck children hold the nursery open. The supervisor above is told that all else is done."""
        while any(self._runs(member) for member in self.members.values()):
            if not self.settled:
                self.settled = True
                self.cell.state = State.STUCK
                self._owner.life_settled(self)
            await self.park()
            self._administrator.refuse_all(self._events)

    @staticmethod
    def _runs(member: Member) -> bool:
        return member.life is not None and member.life.exit is None

    # -------------------------------------------------------------------------------------------------- one child

    def add(self, spec: Child | SupervisorSpec) -> Member:
        """Give a child its place, at the end of the start order."""
        member = Member(spec, self.cell.path, self.services)
        self.members[spec.name] = member
        return member

    def remove(self, member: Member) -> None:
        """Forget a child that does not run."""
        member.down("it has ended and its supervisor has forgotten it")
        del self.members[member.name]
        self.services.directory.remove(member.cell)

    async def _start(self, members: list[Member]) -> list[tuple[Member, BaseException]]:
        """Start children at once and wait until each has started, failed or run out of time, or until the supervisor is to stop.

        Returns the failures. A child that raised `Ignore` is down (a temporary or dynamic one is gone), which is no failure.
        """
        lives = {member: self._begin(member) for member in members}
        timers = []
        late: set[Member] = set()
        for member, life in lives.items():
            if member.spec.start_timeout is not None:

                def expire(member: Member = member, life: Life = life) -> None:
                    if not member.started and life.exit is None:
                        late.add(member)
                        life.cancel()

                timers.append(self.services.timers.after(member.spec.start_timeout, expire))
        failures: list[tuple[Member, BaseException]] = []
        while not self.stopping and not all(m.started or life.settled for m, life in lives.items()):
            await self.park()
        for timer in timers:
            timer.cancel()
        for member, life in lives.items():
            if member.started:
                if is_wanted(self.services, "progress") and not isinstance(self.spec, DynamicSupervisor):
                    self._report("progress", "started", member)
                continue
            if not life.settled:
                continue  # interrupted by our own stop, which takes care of it
            verdict = self._verdict_of(member, life)
            if life.exit is not None:
                member.life = None
            if verdict is not None and verdict.ignored:
                if member.temporary or isinstance(self.spec, DynamicSupervisor):
                    self.remove(member)
                else:
                    member.down("it had nothing to do (it raised Ignore at its start)")
                continue
            cause: BaseException
            if member in late:
                cause = StartTimeout(member.cell.path, member.spec.start_timeout or 0.0)
            else:
                exit = life.exit or Exit("killed")
                cause = exit.cause or StartFailed(member.cell.path, f"it ended ({exit.kind}) before it had started")
            member.cell.last_error = f"{type(cause).__qualname__}: {cause}"
            if life.exit is not None:
                member.expect_restart()
            failures.append((member, cause))
        return failures

    async def start_one(self, member: Member) -> BaseException | None:
        """Start one child; what it failed with, if it did."""
        for _, error in await self._start([member]):
            return error
        return None

    def _begin(self, member: Member) -> Life:
        member.prepare()
        spec, cell = member.spec, member.cell
        life: ActorLife | SupervisorLife
        if isinstance(spec, Child):
            bound = 0.0 if spec.shutdown == "kill" else spec.shutdown
            life = ActorLife(
                cell,
                self,
                lambda life: body_for(spec.factory, spec.args, spec.isolation, life, spec.ask_failure),
                shutdown=bound,
                drain=spec.drain,
            )
        else:
            life = SupervisorLife(cell, self, spec)
        member.life = life
        life.start()
        return life

    def _verdict_of(self, member: Member, life: Life) -> Verdict | None:
        """The verdict on a life that has ended before it had started; its event is used up with it."""
        for event in self._events:
            if isinstance(event, Ended) and event.life is life:
                self._events.remove(event)
                return event.verdict
        return None

    # --------------------------------------------------------------------------------------------------- restarts

    async def _child_ended(self, event: Ended) -> Exit | None:
        """A child has ended; None, or how this supervisor ends because of it."""
        member, exit = event.member, event.verdict.exit
        if member.life is not event.life:
            return None  # a stop or a failed start has taken note of it already
        if event.life.lingering and not member.replaces_abandoned:
            member.cell.state = State.ABANDONED
            return None  # its thread may still run: told again when that has ended
        was = member.cell.state
        member.life = None
        if was in (State.STUCK, State.ABANDONED):
            await self._stuck_ended(member)
            return None
        if is_fault_reported(member.spec.restart, exit):
            self._report("child_terminated", str(exit), member, exit)
        return await self._decide(member, exit)

    async def _decide(self, member: Member, exit: Exit | None) -> Exit | None:
        now = self.services.loop.now()
        limit = Limit(*member.spec.intensity_limit) if member.spec.intensity_limit is not None else None
        views = [m.view() for m in self.members.values()]
        decision = decide(self._rules, views, member.name, exit, now, self._history, limit, member.history)
        match decision:
            case GiveUp():
                return self._give_up(member, exit, decision)
            case Leave():
                if decision.remove or (isinstance(self.spec, DynamicSupervisor)):
                    self.remove(member)
                else:
                    member.down(f"it has ended ({exit})")
                return Exit("shutdown") if decision.shut_down else None
            case Restart():
                self._history, member.history = decision.history, decision.child_history
                wait = self._backoff(member) if exit is not None else 0.0
                member.expect_restart()
                await self._restart(member, decision.stop, decision.forget, decision.start, wait)
        return None

    def _give_up(self, member: Member, exit: Exit | None, decision: GiveUp) -> Exit:
        whose = "child" if decision.of_child else "supervisor"
        error = RestartLimitExceeded(
            self.cell.path, member.cell.path, decision.limit.intensity, decision.limit.period, whose
        )
        error.__cause__ = exit.cause if exit is not None else None
        self._report("shutdown", "reached_max_restart_intensity", member, Exit("error", error))
        member.down("its supervisor gave up restarting it")
        return Exit("shutdown", error)

    def _backoff(self, member: Member) -> float:
        backoff = member.spec.backoff or self.spec.backoff
        if backoff is None:
            return 0.0
        member.failures = failures_in_a_row(backoff, member.failures, self.services.loop.now() - member.started_at)
        seconds = delay(backoff, member.failures, random.random())
        member.failures += 1
        now = self.services.loop.now()
        self.services.events.publish(
            RestartDelayed(at=now, path=member.cell.path, delay=seconds, failures=member.failures - 1)
        )
        return seconds

    async def _restart(
        self, failed: Member, stop: tuple[str, ...], forget: tuple[str, ...], start: tuple[str, ...], wait: float
    ) -> None:
        """Perform a restart: stop in reverse order, forget, wait for the backoff, start in order."""
        for name in stop:
            await self._stop_sibling(self.members[name], forget=name in forget)
        for name in forget:
            if name in self.members and not self._runs(self.members[name]):
                self.remove(self.members[name])
        for name in start:
            if self.members[name].life is None:
                self.members[name].expect_restart()
        if self.stopping:
            return
        if wait > 0:
            self._queue_retry(failed, counted=False, wait=wait)
            return
        await self._start_again(failed, start)

    async def _stop_sibling(self, member: Member, *, forget: bool) -> None:
        await ladder.stop(
            [member], self.park, self.services, self.cell.path, why="it was stopped with a sibling", down=forget
        )

    async def _start_again(self, failed: Member, names: tuple[str, ...]) -> None:
        held = tuple(self.members[name].cell.path for name in names if self.members[name].life is not None)
        if held:
            # No new incarnation while the old one may still run. The queue is served meanwhile.
            self._waiting = failed
            self.services.events.publish(
                RestartWaiting(at=self.services.loop.now(), path=failed.cell.path, waits_for=held)
            )
            return
        for name in names:
            member = self.members.get(name)
            if member is None:
                continue
            error = await self.start_one(member)
            if self.stopping:
                return
            if error is not None:
                self._report("start_error", str(error), member, Exit("error", error))
                self._queue_retry(member, counted=True, wait=self._backoff(member))
                return

    def _queue_retry(self, member: Member, *, counted: bool, wait: float) -> None:
        retry = Retry(member, counted)
        member.call_off()
        member.pending = retry
        if wait > 0:
            member.timer = self.services.timers.after(wait, lambda: self._post(retry))
        else:
            self._post(retry)

    async def _retry(self, event: Retry) -> Exit | None:
        member = event.member
        if member.pending is not event or self.members.get(member.name) is not member:
            return None  # called off, or covered by another restart meanwhile
        member.call_off()
        if event.counted:
            return await self._decide(member, None)
        await self._resume(member)
        return None

    async def _resume(self, member: Member) -> None:
        """Go on with a restart that has been counted already."""
        stop, forget, start = plan(self.spec.strategy, [m.view() for m in self.members.values()], member.name)
        await self._restart(member, stop, forget, start, 0.0)

    async def _stuck_ended(self, member: Member) -> None:
        """A child that was stuck or abandoned has really ended: its place is free."""
        waiting = self._waiting
        if waiting is None or self.members.get(waiting.name) is not waiting or not waiting.restarting:
            self._waiting = None
            if member.temporary or isinstance(self.spec, DynamicSupervisor):
                self.remove(member)
            else:
                member.down("it was stopped")
            return
        member.expect_restart()
        if member.temporary:
            self.remove(member)
        self._waiting = None
        await self._resume(waiting)

    # ---------------------------------------------------------------------------------------------------- reports

    def _report(self, context: Context, reason: str, member: Member, exit: Exit | None = None) -> None:
        publish(
            self.services,
            SupervisorReport(
                at=self.services.loop.now(),
                path=self.cell.path,
                context=context,
                reason=reason,
                offender=member.record(),
                exit=exit,
            ),
        )

    def stopped(self) -> ActorStopped:
        """What a call gets that came too late."""
        return ActorStopped(
            self.cell.path, why=f"the supervisor {'is stopping' if self.exit is None else f'has ended ({self.exit})'}"
        )
