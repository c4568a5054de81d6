"""The rules of restarting: pure functions over values, no clock, no I/O. The supervisor's loop only performs what they say.

Source: OTP `supervisor` (restart types, strategies, restart intensity, automatic shutdown). The one difference in arithmetic: OTP
counts whole seconds, here the window is exact.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import Enum

from attrs import frozen

from greenroom.actors import Exit, Stop
from greenroom.errors import RestartLimitExceeded
from greenroom.supervisors.options import AutoShutdownType, Backoff, RestartType, StrategyType

History = tuple[float, ...]
"""Moments of past restarts, oldest first."""


@frozen
class ChildView:
    """A child as the rules see it."""

    name: str
    restart: RestartType
    significant: bool = False
    running: bool = True
    """Something of it runs."""
    restarting: bool = False


@frozen
class Limit:
    """At most `intensity` restarts within any `period` seconds, both ends of the window included."""

    intensity: int
    period: float


class Fate(Enum):
    """What becomes of a child that has ended by itself."""

    RESTART = "restart"
    DOWN = "down"
    REMOVE = "remove"


@frozen
class Restart:
    """Stop these, in this order; forget those; then start these, in this order."""

    stop: tuple[str, ...]
    forget: tuple[str, ...]
    start: tuple[str, ...]
    history: History
    child_history: History


@frozen
class Leave:
    """No restart: the child stays down, or its spec goes too."""

    remove: bool
    shut_down: bool
    """Automatic shutdown: the supervisor ends in good order."""


@frozen
class GiveUp:
    """One restart too many."""

    limit: Limit
    of_child: bool
    """The child's own limit, not the supervisor's."""


Decision = Restart | Leave | GiveUp


def fate(restart: RestartType, exit: Exit) -> Fate:
    """What becomes of a child of this restart type after this exit (OTP: restart types)."""
    if restart is RestartType.TEMPORARY:
        return Fate.REMOVE
    if restart is RestartType.TRANSIENT and exit.clean:
        return Fate.DOWN
    return Fate.RESTART


def admit(history: History, now: float, limit: Limit) -> History | None:
    """One more restart at `now`: the new history, or None when that is one too many.

    Restarts at `t >= now - period` count, the one asked for included. Success never clears them; they only age out.
    """
    recent = (*history[bisect_left(history, now - limit.period) :], now)
    return recent if len(recent) <= limit.intensity else None


def affected(strategy: StrategyType, children: Sequence[ChildView], failed: str) -> Sequence[ChildView]:
    """The children that a restart of `failed` covers, in start order, itself included."""
    index = next(i for i, child in enumerate(children) if child.name == failed)
    if strategy is StrategyType.ONE_FOR_ALL:
        return children
    if strategy is StrategyType.REST_FOR_ONE:
        return children[index:]
    return children[index : index + 1]


def plan(
    strategy: StrategyType, children: Sequence[ChildView], failed: str
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """(stop, forget, start) of a restart. Temporary siblings are stopped and forgotten; what was down before is started, too."""
    if strategy is StrategyType.ONE_FOR_ONE:
        return (), (), (failed,)
    covered = affected(strategy, children, failed)
    siblings = [child for child in covered if child.name != failed]
    stop = tuple(child.name for child in reversed(siblings) if child.running)
    forget = tuple(child.name for child in siblings if child.restart is RestartType.TEMPORARY)
    start = tuple(child.name for child in covered if child.name not in forget)
    return stop, forget, start


def shuts_down(mode: AutoShutdownType, children: Sequence[ChildView], ended: str) -> bool:
    """Does the end of this child, which will not be restarted, end its supervisor (OTP: auto_shutdown)?"""
    child = next(child for child in children if child.name == ended)
    if mode is AutoShutdownType.NEVER or not child.significant:
        return False
    if mode is AutoShutdownType.ANY_SIGNIFICANT:
        return True
    return not any(c.significant and (c.running or c.restarting) for c in children if c.name != ended)


@frozen
class Rules:
    """What a supervisor's spec says about restarts."""

    strategy: StrategyType
    limit: Limit
    auto_shutdown: AutoShutdownType = AutoShutdownType.NEVER


def decide(
    rules: Rules,
    children: Sequence[ChildView],
    failed: str,
    exit: Exit | None,
    now: float,
    history: History,
    child_limit: Limit | None = None,
    child_history: History = (),
    *,
    counted: bool = True,
) -> Decision:
    """What to do about a child that has ended by itself, or whose restart has failed (`exit` None) and is tried again.

    The child's own limit is checked first; a group restart counts once. Not `counted`: no fault of the child's, no limit applies.
    """
    child = next(child for child in children if child.name == failed)
    verdict = Fate.RESTART if exit is None else fate(child.restart, exit)
    if verdict is not Fate.RESTART:
        return Leave(remove=verdict is Fate.REMOVE, shut_down=shuts_down(rules.auto_shutdown, children, failed))
    if not counted:
        return Restart(*plan(rules.strategy, children, failed), history, child_history)
    if child_limit is not None:
        own = admit(child_history, now, child_limit)
        if own is None:
            return GiveUp(child_limit, of_child=True)
        child_history = own
    admitted = admit(history, now, rules.limit)
    if admitted is None:
        return GiveUp(rules.limit, of_child=False)
    stop, forget, start = plan(rules.strategy, children, failed)
    return Restart(stop, forget, start, admitted, child_history)


def is_fault_reported(restart: RestartType, exit: Exit) -> bool:
    """Is a child's own end worth an error report (OTP: child_terminated)? A permanent child's always is, even a normal one.

    Beyond OTP: so is the end of a supervisor that gave up, though it counts as clean; one that is transient stays down, and
    people do not expect that in silence.
    """
    return restart is RestartType.PERMANENT or not exit.clean or isinstance(exit.cause, RestartLimitExceeded)


def is_expected_stop(restart: RestartType, exit: Exit, *, brutal: bool) -> bool:
    """May a requested stop that ended so pass in silence (OTP: shutdown_error otherwise)?

    A plain shutdown may (after a brutal kill: a kill); a normal end, and a shutdown with a reason, only of children that are
    allowed to end by themselves.
    """
    if exit.kind == "killed":
        return brutal
    plain = exit.kind == "shutdown" and not isinstance(exit.cause, Stop)
    if plain and not brutal:
        return True
    return exit.clean and restart is not RestartType.PERMANENT


def delay(backoff: Backoff, failures: int, random: float) -> float:
    """Seconds to wait before the restart that follows `failures` restarts in a row.

    Args:
        random: from 0 (inclusive) to 1; places the delay within the jitter, which only shortens: the maximum holds.
    """
    try:
        grown = backoff.initial * backoff.factor**failures
    except OverflowError:
        grown = backoff.maximum
    return min(grown, backoff.maximum) * (1 - backoff.jitter * random)


def failures_in_a_row(backoff: Backoff, failures: int, healthy_for: float) -> int:
    """How many count after an incarnation that was healthy for so many seconds: none when that was long enough."""
    enough = backoff.initial if backoff.reset_after is None else backoff.reset_after
    return 0 if healthy_for >= enough else failures
