"""How an activation ends: what an exception out of control code, or out of the engine, means for the task. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TypeAlias

from attrs import frozen

from greenroom.actors import described, text_of
from greenroom.errors import BranchCancelled, Diverged, JournalBroken, OperationFailed, Undecodable, WaitTimeout
from greenroom.persistence import ParkReason
from greenroom.persistence.tasks import TaskRecord
from greenroom.runtime.replay import Fault
from greenroom.runtime.tasks.agent import Failed

RECORDED = (Failed, OperationFailed, WaitTimeout, BranchCancelled)
"""What a task fails by: said by its author, or made of what is recorded, so that running again would only meet it again."""


@frozen
class Crash:
    """Running again may help."""

    error: BaseException


@frozen
class Park:
    """Only an operator can help."""

    reason: ParkReason
    detail: str


Trouble: TypeAlias = Crash | Park


OVERDUE = "its deadline has passed"
"""Why a task is cancelled that has not ended in time."""


def overdue_id(task: TaskRecord) -> str:
    """The identity of the command by which that is told to its control code."""
    return f"{task.address}|{task.attempt}|deadline"


class Oversize(Exception):
    """The journal of a segment is too long. For the activation, never for users."""


MOST_SUSPICIONS = 3
"""Processes in a row that may die while they perform a task before it counts as what kills them (R22). In the last it runs alone."""


def obstacle_of(task: TaskRecord, version: str, policy: str) -> Park | None:
    """Why a task that was claimed must not be run by this code. None: nothing is in the way."""
    if task.suspicions >= MOST_SUSPICIONS:
        detail = f"{task.suspicions} processes in a row have died while they performed it"
        return Park(ParkReason.CRASH_LOOP, detail)
    if policy == "refuse" and task.version not in (None, version):
        detail = f"its attempt began with version {task.version!r} of the agent, this code is version {version!r} and refuses others"
        return Park(ParkReason.INCOMPATIBLE, detail)
    return None


def trouble_of(error: BaseException) -> Trouble:
    """What it means that an activation stopped with this exception."""
    if isinstance(error, Diverged) and error.__cause__ is not None and failure_of(error.__cause__) is None:
        return Crash(error.__cause__)  # ahead of what is on record: it may not come again
    if isinstance(error, (Diverged, JournalBroken)):
        return Park(ParkReason.DIVERGED, text_of(error))
    if isinstance(error, Undecodable):
        return Park(ParkReason.UNDECODABLE, text_of(error))
    if isinstance(error, Oversize):
        return Park(ParkReason.OVERSIZE, text_of(error))
    return Crash(error)


def failure_of(error: BaseException) -> Fault | None:
    """How a task fails whose control code raised this. None: it has crashed instead."""
    leaves = list(_leaves(error))
    if not all(isinstance(leaf, RECORDED) for leaf in leaves):
        return None
    if len(leaves) > 1:
        return Fault("failed", type(error).__qualname__, "; ".join(described(leaf) for leaf in leaves))
    leaf = leaves[0]
    if isinstance(leaf, Failed):
        return fault_of(leaf)
    if isinstance(leaf, OperationFailed):
        return Fault("operation", leaf.type, text_of(leaf), leaf.details)
    return Fault("failed", type(leaf).__qualname__, text_of(leaf))


def fault_of(failed: Failed) -> Fault:
    """A failure that its author has declared. A reason that is no text is told as one; a subclass may have left both out."""
    reason = getattr(failed, "reason", None)
    message = reason if isinstance(reason, str) else text_of(failed)
    return Fault("failed", type(failed).__qualname__, message, getattr(failed, "details", None))


def cause_of(error: BaseException) -> str:
    """What control code has crashed by, for people: of a group, what is in it."""
    return "; ".join(described(leaf) for leaf in _leaves(error))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error


def restarts_with(
    restarts: tuple[datetime, ...], now: datetime, *, most: int, period: float
) -> tuple[tuple[datetime, ...], bool]:
    """A task's restarts with one more, those that are too old to count left out; and whether that is one too many (C11)."""
    kept = tuple(moment for moment in restarts if moment > now - timedelta(seconds=period))
    return (*kept, now)[-(most + 1) :], len(kept) >= most
