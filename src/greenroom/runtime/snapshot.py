"""The tree at one moment, as frozen values: `runtime.tree()`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from attrs import frozen

from greenroom.actors import ActorLife, Cell, State
from greenroom.supervisors import Child, SupervisorLife
from greenroom.supervisors.member import Member


@frozen(kw_only=True)
class TreeNode:
    """An actor or a supervisor, with what is below it. Shows types of messages, never their contents."""

    name: str
    path: str
    kind: Literal["worker", "supervisor"]
    state: State
    incarnation: int
    restarts: int
    isolation: str | None = None
    strategy: str | None = None
    mailbox_depth: int = 0
    mailbox_high_water: int = 0
    mailbox_capacity: int | None = None
    dropped: int = 0
    message_type: str | None = None
    """Type of the message in hand."""
    in_hand_for: float | None = None
    """Seconds it has been in hand."""
    last_error: str | None = None
    children: tuple[TreeNode, ...] = ()

    def walk(self) -> Iterator[TreeNode]:
        """This node and all below it, in start order."""
        yield self
        for child in self.children:
            yield from child.walk()

    def find(self, path: str) -> TreeNode | None:
        """The node of a path below this one, or None."""
        return next((node for node in self.walk() if node.path == path), None)


def snapshot(cell: Cell, spec: Any, restarts: int, now: float) -> TreeNode:
    """Describe an address and all below it."""
    life = cell.life
    name = cell.path.rpartition("/")[2]
    if isinstance(life, SupervisorLife):
        return TreeNode(
            name=name,
            path=cell.path,
            kind="supervisor",
            state=cell.state,
            incarnation=cell.incarnation,
            restarts=restarts,
            strategy=life.spec.strategy.value,
            last_error=cell.last_error,
            children=tuple(_member(member, now) for member in life.members.values()),
        )
    statistics = cell.mailbox.statistics()
    messages = life.messages if isinstance(life, ActorLife) else None
    kind = messages.type_in_hand if messages is not None else None
    return TreeNode(
        name=name,
        path=cell.path,
        kind="worker" if isinstance(spec, Child) else "supervisor",
        state=cell.state,
        incarnation=cell.incarnation,
        restarts=restarts,
        isolation=getattr(spec, "isolation", None),
        mailbox_depth=statistics.depth,
        mailbox_high_water=statistics.high_water,
        mailbox_capacity=statistics.capacity,
        dropped=statistics.dropped,
        message_type=kind,
        in_hand_for=None if messages is None or kind is None else now - messages.in_hand_since,
        last_error=cell.last_error,
    )


def _member(member: Member, now: float) -> TreeNode:
    return snapshot(member.cell, member.spec, member.restarts, now)
