"""Where a branch stands, and which call of it is meant (T18).

A branch is known by the way to it: which nurseries were opened around it, each by the number of the call that opened it, and which
start in each. Nothing of that depends on who ran first.
"""

from __future__ import annotations

from typing import Final, TypeAlias

BranchPath: TypeAlias = tuple[tuple[int, int], ...]
"""(number of the call that opened the nursery, number of the start in it), from the root on. Its order is the order in which
branches are visited: the opener before its children, children by number."""

ROOT: Final[BranchPath] = ()


def path_text(path: BranchPath) -> str:
    """A path as it is stored and shown: `root`, `root/3.1`, `root/3.1/2.4`."""
    return "/".join(("root", *(f"{nursery}.{start}" for nursery, start in path)))


class CallId(str):
    """A call, by its place in the segment: the path of its branch, and its number among that branch's calls, from 1. It is a text, as it
    is stored and shown: `root/1.2#3`."""

    __slots__ = ()

    def __new__(cls, branch: str, number: int) -> CallId:
        return super().__new__(cls, f"{branch}#{number}")

    @classmethod
    def read(cls, text: str) -> CallId:
        """The call that is stored so."""
        return super().__new__(cls, text)

    @property
    def number(self) -> int:
        return int(self.rpartition("#")[2])
