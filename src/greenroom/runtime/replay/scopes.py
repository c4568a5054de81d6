"""Scopes of cancellation, and whom a cancellation reaches (T8, T9, T10). No scope of the event loop is involved."""

from __future__ import annotations

from enum import Enum

from greenroom.errors import Cancelled
from greenroom.runtime.replay.branch_state import BranchState
from greenroom.runtime.replay.timers import Timer


class ScopeKind(Enum):
    ROOT = "the task"
    NURSERY = "nursery"
    HANDLERS = "signal handlers"
    LIMIT = "limit"
    CLEANUP = "cleanup"


class Scope:
    """A part of control code that is cancelled as one. Once cancelled it stays so."""

    __slots__ = ("cancelled", "kind", "members", "number", "owner", "parent", "reason", "timer")

    def __init__(self, kind: ScopeKind, owner: BranchState, number: int) -> None:
        self.kind = kind
        self.owner = owner
        """The branch that has entered it."""
        self.number = number
        """Of the call that opened it."""
        self.parent = owner.scope
        self.cancelled = False
        self.reason = ""
        """Why it was cancelled."""
        self.timer: Timer | None = None
        self.members: dict[int, BranchState] = {}
        """The live branches of a nursery, or running handlers, by their number."""

    @property
    def shields(self) -> bool:
        """Whether cancellation from outside stops at it."""
        return self.kind is ScopeKind.CLEANUP

    def __str__(self) -> str:
        return f"{self.kind.value} {self.owner.label}#{self.number}"


def canceller(scope: Scope | None) -> Scope | None:
    """The scope by which calls made in this one raise `Cancelled`: the innermost. None: they do not."""
    while scope is not None and not scope.cancelled:
        scope = None if scope.shields else scope.parent
    return scope


def is_cancelled(scope: Scope | None) -> bool:
    """Whether calls made in this scope raise `Cancelled`."""
    return canceller(scope) is not None


def cancelled_in(scope: Scope | None) -> Cancelled:
    """What such a call raises, with the reason."""
    around = canceller(scope)
    return Cancelled("" if around is None else around.reason)


def reached(origin: Scope) -> list[BranchState]:
    """The live branches in a scope that has just been cancelled and behind no shield inside it: openers before their children."""
    found: list[BranchState] = []
    ahead = [(origin.owner, origin.owner.scopes.index(origin))]
    while ahead:
        branch, begin = ahead.pop()
        for scope in branch.scopes[begin:]:
            if scope.shields and scope is not origin:
                break
            ahead.extend((member, 0) for member in scope.members.values())
        else:
            found.append(branch)
    return sorted(found, key=lambda branch: branch.path)


def live(root: BranchState) -> list[BranchState]:
    """All branches that have not ended, openers before their children."""
    found = [root]
    for branch in found:
        found.extend(member for scope in branch.scopes for member in scope.members.values())
    return sorted(found, key=lambda branch: branch.path)
