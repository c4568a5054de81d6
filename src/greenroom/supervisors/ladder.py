"""The shutdown ladder of one supervisor: stop children, each by its own rule, and say how each ended.

Request, wait for the shutdown time, cancel; the life then settles by itself within the kill time, ended or stuck. Stuck children
are left where they are and named: the rest of the stop goes on around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from greenroom.actors import Exit, State
from greenroom.supervisors.member import Afterwards, Member
from greenroom.supervisors.restarts import is_expected_stop

if TYPE_CHECKING:
    from greenroom.supervisors.supervisor import SupervisorLife


SETTLED_IN_A_ROW = 1_000
"""Children of one stop that are done with before others get a turn: a dynamic supervisor may have 100,000."""


async def stop(supervisor: SupervisorLife, members: Sequence[Member], afterwards: Afterwards, why: str) -> None:
    """Stop these children at once (one after another: call it for each). Calls off restarts of theirs.

    Args:
        why: told to whoever still waits for an answer of theirs, when they stay down.

    A child that died by itself just before is taken as stopped: its end is used up here. Afterwards a member's `life` is None and
    the member is as `afterwards` says, or it is stuck or abandoned and will be so when it has really ended.
    """
    for member in members:
        member.call_off()
    asked = [member for member in members if member.life is not None and not member.life.settled]
    timers = []
    for member in asked:
        assert member.life is not None
        member.cell.state = State.STOPPING
        shutdown = member.spec.shutdown
        if shutdown == "kill" or shutdown == 0:
            cut_short(member)
        else:
            member.life.request_stop()
            if shutdown is not None:
                timers.append(supervisor.services.timers.after(float(shutdown), member.life.cancel))
    while not all(member.life is None or member.life.settled for member in asked):
        await supervisor.park()
    for timer in timers:
        timer.cancel()
    unexpected: dict[str, list[Member]] = {}
    for member in members:
        exit = member.life.exit if member.life is not None else None
        if exit is not None and not _is_expected(member, exit):
            unexpected.setdefault(str(exit), []).append(member)
    for reason, alike in unexpected.items():
        first = alike[0]
        assert first.life is not None
        supervisor.report("shutdown_error", reason, first, first.life.exit, count=len(alike))
    for number, member in enumerate(members, 1):
        settle(supervisor, member, afterwards, why)
        if number % SETTLED_IN_A_ROW == 0:
            await supervisor.services.loop.checkpoint()


def cut_short(member: Member) -> None:
    """Cancel a child at once. An actor whose rule gives it no time for `on_stop` gets none.

    A supervisor dies in the middle of things, but what is below it still cleans up, each by its own rule (OTP `supervisor`:
    children of a killed one that trap exits see it, and run `terminate`).
    """
    assert member.life is not None
    if member.kind == "worker" and member.spec.shutdown in ("kill", 0):
        member.life.kill()
    else:
        member.life.cancel()


def settle(supervisor: SupervisorLife, member: Member, afterwards: Afterwards, why: str) -> None:
    """Do what is to be done after a stop or a failed start; with a child that does not end, when it has ended."""
    life = member.life
    if life is not None and (life.exit is None or (life.lingering and not member.replaces_abandoned)):
        member.afterwards = afterwards
        member.cell.state = State.STUCK if life.exit is None else State.ABANDONED
    elif afterwards is Afterwards.RESTART:
        member.expect_restart()
    elif afterwards is Afterwards.FORGET:
        supervisor.remove(member)
    else:
        member.down(why)


def _is_expected(member: Member, exit: Exit) -> bool:
    return is_expected_stop(member.spec.restart, exit, brutal=member.spec.shutdown == "kill")
