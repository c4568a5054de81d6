"""The packing of a batch: which transitions are applied together, and which rows are locked before the first (R6, R7).

A driver that applies one kind of transition to many items by one statement needs groups of one kind. Runs of one kind, as
they were submitted, fall apart under mixed load; so items are moved ahead, but only past items that share no row with them.
Within a group, items may share a row only to count it up, which running sums can do; whoever does more to a row has it for
itself. Hence applying the groups in order gives what applying the items one by one would have given.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import field, frozen

from greenroom.persistence.transitions import Row, Transition, lock_order


@frozen
class Group:
    """Transitions of one kind, in the order of their submission."""

    kind: type[Transition[Any]]
    items: list[Transition[Any]] = field(factory=list)


def pack(items: Sequence[Transition[Any]]) -> list[Group]:
    """Groups to be applied in order, with the same answers and effects as the items one by one.

    An item joins the earliest group of its kind that lies after every earlier item which it must follow.
    """
    groups: list[Group] = []
    of_kind: dict[type[Transition[Any]], list[int]] = {}
    touched: dict[Row, int] = {}
    """The last group that touches a row."""
    taken: dict[Row, int] = {}
    """The last group in which an item has a row for itself."""
    for item in items:
        kind, shared, exclusive = type(item), item.locks, item.exclusive
        if shared == exclusive:  # as of most owners' writes
            shared = ()
        earliest = 0
        for row in exclusive:
            earliest = max(earliest, touched.get(row, -1) + 1)
        for row in shared:
            earliest = max(earliest, touched.get(row, 0), taken.get(row, -1) + 1)
        candidates = of_kind.setdefault(kind, [])
        at = bisect_left(candidates, earliest)
        if at < len(candidates):
            index = candidates[at]
        else:
            index = len(groups)
            groups.append(Group(kind))
            candidates.append(index)
        groups[index].items.append(item)
        for row in shared:
            touched[row] = max(index, touched.get(row, 0))
        for row in exclusive:
            touched[row] = taken[row] = index
    return groups


def batches(items: Sequence[Transition[Any]], limit: int) -> Iterator[Sequence[Transition[Any]]]:
    """The items in order, cut into what may share a commit: at most `limit` at once, and some kinds alone."""
    start = 0
    for index, item in enumerate(items):
        if item.alone or index - start == limit:
            if start < index:
                yield items[start:index]
            start = index
        if item.alone:
            yield items[index : index + 1]
            start = index + 1
    if start < len(items):
        yield items[start:]


def locks_of(items: Sequence[Transition[Any]]) -> tuple[Row, ...]:
    """All rows that a batch locks, in the one canonical order, to be locked in one call before its first group."""
    return lock_order(row for item in items for row in item.locks)
