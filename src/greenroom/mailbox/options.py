"""How a mailbox is chosen at the child: `Child(..., mailbox=Mailbox(capacity=64, overflow="drop_oldest"))`."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from greenroom.errors import BadSpec

DEFAULT_CAPACITY = 10_000


def is_whole(value: object, *, least: int) -> bool:
    """Is it a whole number (no bool), and not below `least`?"""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_seconds(value: object, *, zero: bool = False) -> bool:
    """Is it a number of seconds above 0 (`zero`: or 0)?"""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and (value > 0 or (zero and value == 0))  # type: ignore[operator]


Overflow = Literal["reject", "drop_new", "drop_oldest"]


@frozen
class Mailbox:
    """An in-memory mailbox: survives restarts of its actor, not the process.

    Args:
        capacity: messages (int > 0) that may wait; None is unbounded, by choice and in sight. `Terminated` and timer ticks never count.
        overflow: what happens to a message too many. `"reject"`: `tell` raises `MailboxFull`, `send` and `ask` wait for room.
            `"drop_new"` and `"drop_oldest"`: the newest or the oldest is dropped, counted, and becomes a dead letter.

    Raises `BadSpec` for a capacity below 1 or an unknown policy.
    """

    capacity: int | None = DEFAULT_CAPACITY
    overflow: Overflow = "reject"

    def __attrs_post_init__(self) -> None:
        if self.capacity is not None and not is_whole(self.capacity, least=1):
            raise BadSpec(
                f"Mailbox(capacity={self.capacity!r}): a capacity is a whole number of messages above 0, or None for unbounded"
            )
        if self.overflow not in ("reject", "drop_new", "drop_oldest"):
            raise BadSpec(f"Mailbox(overflow={self.overflow!r}): choose 'reject', 'drop_new' or 'drop_oldest'")
