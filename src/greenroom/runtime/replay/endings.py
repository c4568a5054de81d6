"""What an exception that leaves control code, or a block of it, means. Groups of foreign nurseries are looked into."""

from __future__ import annotations

from enum import Enum
from typing import Literal, TypeAlias

from greenroom.errors import Cancelled


class Elsewhere(Enum):
    """It is nothing that the task did: the event loop cancels, or the process is to end."""

    FOREIGN = "foreign"


FOREIGN = Elsewhere.FOREIGN

Ending: TypeAlias = Exception | Cancelled | GeneratorExit | None
"""Of a block: an error, cancellation, a generator that is closed, or nothing."""


def meaning(error: BaseException | None) -> Ending | Literal[Elsewhere.FOREIGN]:
    """What an exception says about the task. `Cancelled` beside real failures in a group is left out, as in the task's nurseries."""
    if error is None or isinstance(error, (Exception, Cancelled, GeneratorExit)):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return FOREIGN
    inside, others = error.split(Cancelled)
    if others is None:
        return _first(inside).with_traceback(error.__traceback__)
    return others if isinstance(others, Exception) else FOREIGN


def _first(error: BaseException | None) -> Cancelled:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return Cancelled(error.reason if isinstance(error, Cancelled) else "")
