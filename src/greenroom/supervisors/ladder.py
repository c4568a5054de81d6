"""The shutdown ladder of one supervisor: stop children, each by its own rule, and say how each ended.

Request, wait for the shutdown time, cancel; the life then settles by itself within the kill time, ended or stuck. Stuck children
are left where they are and named: the rest of the stop goes on around them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from greenroom.actors import Exit, Services, State
from greenroom.supervisors.member import Member
from greenroom.supervisors.reports import SupervisorReport, publish
from greenroom.supervisors.restarts import is_expected_stop


async def stop(
    members: Sequence[Member],
    park: Callable[[], Coroutine[Any, Any, None]],
    services: Services,
    supervisor: str,
    *,
    why: str,
    down: bool,
) -> None:
    """Stop these children at once (one after another: call it for each).

    Args:
        park: waits until something changed below this supervisor.
        down: they stay down (their mailboxes close); False: a restart follows.

    Afterwards a member's `life` is None, or it is stuck or abandoned, with the state that says so.
    """
    asked = [member for member in members if member.life is not None and not member.life.settled]
    timers = []
    for member in asked:
        assert member.life is not None
        member.cell.state = State.STOPPING
        shutdown = member.spec.shutdown
        if shutdown == "kill" or shutdown == 0:
            member.life.kill()
        else:
            member.life.request_stop()
            if shutdown is not None:
                timers.append(services.timers.after(float(shutdown), member.life.cancel))
    while not all(member.life is None or member.life.settled for member in asked):
        await park()
    for timer in timers:
        timer.cancel()
    unexpected: Counter[str] = Counter()
    reports: dict[str, tuple[Member, Exit]] = {}
    for member in members:
        member.call_off()
        life = member.life
        if life is not None and life.exit is None:
            continue  # stuck: it keeps its place, its state and its mailbox until it has really ended
        if life is not None and life.exit is not None:
            exit = life.exit
            if not is_expected_stop(member.spec.restart, exit, brutal=member.spec.shutdown in ("kill", 0)):
                unexpected[str(exit)] += 1
                reports.setdefault(str(exit), (member, exit))
            if life.lingering and not member.replaces_abandoned:
                member.cell.state = State.ABANDONED
                continue
        if down:
            member.down(why)
        else:
            member.expect_restart()
    for reason, (member, exit) in reports.items():
        publish(
            services,
            SupervisorReport(
                at=services.loop.now(),
                path=supervisor,
                context="shutdown_error",
                reason=reason,
                offender=member.record(unexpected[reason]),
                exit=exit,
            ),
        )
