"""Starting children: the handshake with their lives. A start ends when each has started, failed, or run out of its time.

The handshake is ours (a life says `started` to its supervisor, or ends before), so that a start can be timed, and a supervisor that
is asked to stop meanwhile stops a half-started child by the same ladder as any other.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

from greenroom.actors import Exit, Life, Timer, text_of
from greenroom.errors import StartFailed, StartTimeout
from greenroom.supervisors import ladder
from greenroom.supervisors.member import Afterwards, Member
from greenroom.supervisors.specs import DynamicSupervisor

if TYPE_CHECKING:
    from greenroom.supervisors.supervisor import SupervisorLife


async def start(supervisor: SupervisorLife, members: Sequence[Member]) -> dict[Member, BaseException]:
    """Start children at once; returns the failures by child.

    Returns early when the supervisor is to stop; what is half-started then is left to its stop. A child that raised `Ignore` is
    down (a temporary or dynamic one is gone), which is no failure. What becomes of a child that failed is the caller's to say, by
    `ladder.settle`: it may even still run, when its start did not end in time and swallows its cancellation.
    """
    lives = {member: supervisor.begin(member) for member in members}
    late: set[Member] = set()
    timers = {member: _limit_time(supervisor, member, life, late) for member, life in lives.items()}
    while not supervisor.stopping and not all(_is_done(member, life, late) for member, life in lives.items()):
        await supervisor.park()
    failures: dict[Member, BaseException] = {}
    for member, life in lives.items():
        if _is_done(member, life, late):  # otherwise its time to start still runs, beside that of its stop
            timer = timers[member]
            if timer is not None:
                timer.cancel()
            error = _conclude(supervisor, member, life, late)
            if error is not None:
                failures[member] = error
    return failures


async def start_one(supervisor: SupervisorLife, member: Member) -> BaseException | None:
    """Start one child; what it failed with, if it did. The way of every restart: as `start`, without the machinery for many."""
    if member.spec.start_timeout is not None:
        return (await start(supervisor, (member,))).get(member)
    life = supervisor.begin(member)
    while not (member.started or life.settled or supervisor.stopping):
        await supervisor.park()
    return _conclude(supervisor, member, life, frozenset()) if member.started or life.settled else None


class StartAtOnce:
    """The start of a new child that found its supervisor idle: begun in the caller's own step, and answered by the child's.

    Waking the supervising loop for it, twice, would cost as much as the start itself. Until it is over the supervisor serves
    nothing else, exactly as if its loop waited here. A start that fails is left to the loop, and so is one that a stop overtakes.
    """

    __slots__ = ("_supervisor", "life", "member", "reply")

    def __init__(self, supervisor: SupervisorLife, member: Member) -> None:
        self._supervisor = supervisor
        self.member = member
        self.reply = supervisor.services.loop.slot()
        self.life = supervisor.begin(member)

    @property
    def over(self) -> bool:
        return self.member.started or self.life.settled

    def conclude(self) -> BaseException | None:
        """It is over: what the child failed with, if it did."""
        return _conclude(self._supervisor, self.member, self.life, frozenset())


def _is_done(member: Member, life: Life, late: Set[Member]) -> bool:
    # One that was late and claims to have started all the same (it swallowed the cancellation) is on its way out.
    return life.settled or (member.started and member not in late)


def _conclude(supervisor: SupervisorLife, member: Member, life: Life, late: Set[Member]) -> BaseException | None:
    """The start of a child is over: take note of how, and return what it failed with."""
    if member.started and member not in late:
        if not isinstance(supervisor.spec, DynamicSupervisor):
            supervisor.report("progress", "started", member)
        return None
    member.started = False
    error = _failure(supervisor, member, life, late)
    if error is not None:
        member.cell.last_error = f"{type(error).__qualname__}: {text_of(error)}"
        return error
    gone = member.temporary or isinstance(supervisor.spec, DynamicSupervisor)
    nothing_to_do = "it had nothing to do (it raised Ignore at its start)"
    ladder.settle(supervisor, member, Afterwards.FORGET if gone else Afterwards.DOWN, nothing_to_do)
    return None


def _limit_time(supervisor: SupervisorLife, member: Member, life: Life, late: set[Member]) -> Timer | None:
    """Cancel a start that takes longer than its `start_timeout`."""

    def expire() -> None:
        if not member.started and life.exit is None:
            late.add(member)
            life.cancel()

    seconds = member.spec.start_timeout
    return None if seconds is None else supervisor.services.timers.after(seconds, expire)


def _failure(supervisor: SupervisorLife, member: Member, life: Life, late: Set[Member]) -> BaseException | None:
    """Why a life did not start; None when it raised `Ignore`."""
    verdict = supervisor.take_verdict(life)
    if member in late:
        return StartTimeout(member.cell.path, member.spec.start_timeout or 0.0)
    if verdict is not None and verdict.ignored:
        return None
    exit = life.exit or Exit("killed")
    if exit.cause is not None:
        return exit.cause
    return StartFailed(member.cell.path, f"it ended ({exit.kind}) before it had started")
