"""Where a branch stands, and which call of it is meant (T18).

A branch is known by the way to it: which nurseries were opened around it, each by the number of the call that opened it, and which
start in each. Nothing of that depends on who ran first.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from attrs import frozen

BranchPath: TypeAlias = tuple[tuple[int, int], ...]
"""(number of the call that opened the nursery, number of the start in it), from the root on. Its order is the order in which
branches are visited: the opener before its children, children by number."""

ROOT: Final[BranchPath] = ()


def path_text(path: BranchPath) -> str:
    """A path as it is stored and shown: `root`, `root/3.1`, `root/3.1/2.4`."""
    return "/".join(("root", *(f"{nursery}.{start}" for nursery, start in path)))


@frozen(cache_hash=True)
class CallId:
    """A call, by its place in the segment: the path of its branch, and its number among that branch's calls, from 1."""

    branch: str
    number: int

    def __str__(self) -> str:
        return f"{self.branch}#{self.number}"
