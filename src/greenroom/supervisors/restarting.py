"""Performing restarts: what the rules in `restarts` decide about a child that has ended is carried out here.

A restart stops siblings, waits for its backoff, and starts children. Three things make it last longer than one turn of the
supervising loop, and in all of them the loop goes on serving others:

* a start fails: the restart is tried again, behind whatever is queued (OTP), and counted again;
* it waits for its backoff;
* it is held: an incarnation that it must replace may still run (it is stuck, or its thread was abandoned).

In all three the child that the restart is for has the restart as its `pending`: whatever makes it void (a call that terminates the
child, a restart of a sibling that covers it) clears that. Siblings that it covers wait as restarting, without a `pending` of their
own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define

from greenroom.actors import Exit, Life, State, Verdict, text_of
from greenroom.errors import LeaseLost, RestartLimitExceeded, StoreUnavailable
from greenroom.supervisors import ladder
from greenroom.supervisors.member import Afterwards, Member
from greenroom.supervisors.options import AutoShutdownType, StrategyType
from greenroom.supervisors.reports import RestartDelayed, RestartWaiting, announce
from greenroom.supervisors.restarts import (
    ChildView,
    GiveUp,
    History,
    Leave,
    Limit,
    Restart,
    Rules,
    affected,
    decide,
    delay,
    failures_in_a_row,
    is_fault_reported,
    plan,
)
from greenroom.supervisors.specs import DynamicSupervisor
from greenroom.supervisors.starting import start_one

if TYPE_CHECKING:
    from greenroom.supervisors.supervisor import SupervisorLife


NOT_ITS_FAULT = (LeaseLost, StoreUnavailable)
"""What a child may end with that counts as no restart: the store has kept it from its work (R12)."""


@define(eq=False)
class Ended:
    """A life of a member is over."""

    member: Member
    life: Life
    verdict: Verdict


@define(eq=False)
class Retry:
    """Go on with the restart of a member. Void when the member's `pending` is another by then."""

    member: Member
    counted: bool
    """It follows a failed start: it counts as a restart of its own."""
    cause: BaseException | None
    """What the child ended or failed with."""


class Restarter:
    """Restarts the children of one incarnation of a supervisor; remembers its restarts."""

    def __init__(self, life: SupervisorLife, random: Callable[[], float] = random.random) -> None:
        spec = life.spec
        self._life = life
        self._random = random
        self._rules = Rules(spec.strategy, Limit(spec.intensity, spec.period), spec.auto_shutdown)
        self._history: History = ()
        self._held: list[Retry] = []
        """Restarts that wait for the end of lives that are stuck or abandoned."""

    async def child_ended(self, event: Ended) -> Exit | None:
        """A child has ended; None, or how the supervisor ends because of it."""
        member, exit = event.member, event.verdict.exit
        if member.life is not event.life:
            return None  # a stop or a failed start has taken note of it already
        first_told = member.cell.state is not State.ABANDONED and member.afterwards is None
        if first_told and is_fault_reported(member.spec.restart, exit):
            self._life.report("child_terminated", str(exit), member, exit)
        if event.life.lingering and not member.replaces_abandoned:
            member.cell.state = State.ABANDONED
            return None  # its thread may still run: told again when that has ended
        if member.afterwards is not None:
            self._stop_completed(member, member.afterwards)
            return None
        member.life = None
        if event.verdict.fatal is not None:
            member.down("it has ended the whole tree")
            return None
        return await self._decide(member, exit, exit.cause)

    async def retry(self, event: Retry) -> Exit | None:
        """Go on with a restart, if it is still wanted; None, or how the supervisor ends because of it."""
        member = event.member
        if member.pending is not event:
            return None  # called off, or covered by another restart meanwhile
        member.call_off()
        if event.counted:
            return await self._decide(member, None, event.cause)
        stop, forget, start = plan(self._rules.strategy, self._views(member), member.name)
        await self._perform(member, stop, forget, start, event.cause, wait=0.0)
        return None

    def called_off(self, member: Member) -> None:
        """A restart of this child was called off by hand: what waited for it, waits for nothing. It stays down."""
        for view in affected(self._rules.strategy, self._views(member), member.name):
            sibling = self._life.members[view.name]
            if sibling.afterwards is Afterwards.RESTART:
                sibling.afterwards = Afterwards.DOWN
            elif sibling.restarting and sibling.pending is None:
                sibling.down(f"it waited to be restarted with {member.cell.path!r}, and that was called off")

    # -------------------------------------------------------------------------------------------------- decisions

    async def _decide(self, member: Member, exit: Exit | None, cause: BaseException | None) -> Exit | None:
        limit = Limit(*member.spec.intensity_limit) if member.spec.intensity_limit is not None else None
        now = self._life.services.loop.now()
        decision = decide(
            self._rules,
            self._views(member),
            member.name,
            exit,
            now,
            self._history,
            limit,
            member.history,
            counted=not isinstance(cause, NOT_ITS_FAULT),
        )
        match decision:
            case GiveUp():
                return self._give_up(member, decision, cause)
            case Leave():
                if decision.remove or isinstance(self._life.spec, DynamicSupervisor):
                    self._life.remove(member)
                else:
                    member.down(f"it has ended ({exit})")
                return Exit("shutdown") if decision.shut_down else None
            case Restart():
                self._history, member.history = decision.history, decision.child_history
                wait = 0.0 if exit is None else self._backoff(member, healthy_for=now - member.started_at)
                await self._perform(member, decision.stop, decision.forget, decision.start, cause, wait)
        return None

    def _views(self, member: Member) -> list[ChildView]:
        """The children that a decision about this one can touch, in start order. There may be very many dynamic ones."""
        alone = self._rules.strategy is StrategyType.ONE_FOR_ONE and self._rules.auto_shutdown is AutoShutdownType.NEVER
        return [one.view() for one in ((member,) if alone else self._life.members.values())]

    def _give_up(self, member: Member, decision: GiveUp, cause: BaseException | None) -> Exit:
        """One restart too many. The exit is a plain shutdown to the rules above; its cause is for people."""
        supervisor = self._life.cell.path
        whose = "child" if decision.of_child else "supervisor"
        limit = decision.limit
        error = RestartLimitExceeded(supervisor, member.cell.path, limit.intensity, limit.period, whose)
        error.__cause__ = cause
        self._life.report("shutdown", "reached_max_restart_intensity", member, Exit("error", error))
        member.down("its supervisor gave up restarting it")
        return Exit("shutdown", error)

    def _backoff(self, member: Member, *, healthy_for: float) -> float:
        """Seconds to wait before the next start of a child that was up for so long (0: its start failed)."""
        backoff = member.spec.backoff or self._life.spec.backoff
        if backoff is None:
            return 0.0
        before = failures_in_a_row(backoff, member.failures, healthy_for)
        member.failures = before + 1
        seconds = delay(backoff, before, self._random())
        delayed = RestartDelayed(at=self._now(), path=member.cell.path, delay=seconds, failures=before)
        announce(self._life.services, delayed)
        return seconds

    # ---------------------------------------------------------------------------------------------- carrying out

    async def _perform(
        self,
        failed: Member,
        stop: tuple[str, ...],
        forget: tuple[str, ...],
        start: tuple[str, ...],
        cause: BaseException | None,
        wait: float,
    ) -> None:
        """Stop in reverse order, forget, wait for the backoff, start in order."""
        members = self._life.members
        for name in start:
            if members[name].life is None:
                members[name].call_off()
                members[name].expect_restart()
        for name in (*stop, *(name for name in forget if name not in stop)):
            afterwards = Afterwards.FORGET if name in forget else Afterwards.RESTART
            await ladder.stop(self._life, [members[name]], afterwards, f"it was stopped with {failed.cell.path!r}")
        if self._life.stopping:
            return
        if wait > 0:
            self._queue(Retry(failed, counted=False, cause=cause), wait)
        else:
            await self._start_again(failed, start, cause)

    async def _start_again(self, failed: Member, names: tuple[str, ...], cause: BaseException | None) -> None:
        members = self._life.members
        if any(members[name].life is not None for name in names):
            self._hold(Retry(failed, counted=False, cause=cause), names)
            return
        for name in names:
            member = members[name]
            error = await start_one(self._life, member)
            if self._life.stopping:
                return
            if error is not None:
                self._life.report("start_error", text_of(error), member, Exit("error", error))
                ladder.settle(self._life, member, Afterwards.RESTART, "it will be restarted")
                retry = Retry(member, counted=True, cause=error)
                if member.life is not None:
                    self._hold(retry, (name,))
                else:
                    self._queue(retry, self._backoff(member, healthy_for=0.0))
                return

    def _queue(self, retry: Retry, wait: float) -> None:
        member = retry.member
        member.pending = retry
        if wait > 0:
            member.timer = self._life.services.timers.after(wait, lambda: self._life.post(retry))
        else:
            self._life.post(retry)

    # --------------------------------------------------------------------------------------------- held restarts

    def _hold(self, retry: Retry, names: tuple[str, ...]) -> None:
        """No new incarnation while the old one may still run. The queue is served meanwhile."""
        members = self._life.members
        retry.member.pending = retry
        self._held.append(retry)
        held_by = tuple(members[name].cell.path for name in names if members[name].life is not None)
        announce(self._life.services, RestartWaiting(at=self._now(), path=retry.member.cell.path, waits_for=held_by))

    def _stop_completed(self, member: Member, afterwards: Afterwards) -> None:
        """A child that was stuck or abandoned has really ended: its place is free, and restarts that waited for it look again."""
        ladder.settle(self._life, member, afterwards, "it was stopped")
        held, self._held = self._held, []
        for retry in held:
            self._life.post(retry)

    def _now(self) -> float:
        return self._life.services.loop.now()
