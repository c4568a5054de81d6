"""What is worth telling people about a running activation. Notices change nothing; a replay gives those of derived events again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import frozen


@frozen
class CancellationIgnored:
    """A branch that is cancelled goes on calling: each call raises `Cancelled` at once, and it catches it."""

    branch: str
    calls: int


@frozen
class CleanupCut:
    """A cleanup did not end within its seconds and was cancelled."""

    branch: str
    scope: str


@frozen
class EndDiscarded:
    """A branch ended with an exception after its activation had been given up; that means nothing to the task."""

    branch: str
    error: BaseException


@frozen
class Stopped:
    """The activation has stopped itself and writes nothing more. `Engine.check` raises the reason."""

    reason: BaseException


Notice: TypeAlias = CancellationIgnored | CleanupCut | EndDiscarded | Stopped
Tell: TypeAlias = Callable[[Notice], None]
