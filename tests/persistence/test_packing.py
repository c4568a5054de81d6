"""Packing (R6, R7): groups give what the items one by one would give, and locks have one order."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from greenroom.persistence.executions import EndExecution
from greenroom.persistence.packing import batches, locks_of, pack
from greenroom.persistence.transitions import Row, Transition, lock_order

if TYPE_CHECKING:
    from collections.abc import Sequence


@frozen(kw_only=True)
class Touch(Transition[None]):
    """Counts up some rows, and has some for itself."""

    shared: tuple[str, ...] = ()
    own: tuple[str, ...] = ()

    @property
    def locks(self) -> tuple[Row, ...]:
        return tuple(Row("addresses", key) for key in (*self.shared, *self.own))

    @property
    def exclusive(self) -> tuple[Row, ...]:
        return tuple(Row("addresses", key) for key in self.own)


class TouchA(Touch):
    pass


class TouchB(Touch):
    pass


class TouchC(Touch):
    pass


@frozen(kw_only=True)
class Lonely(Transition[None]):
    alone = True


keys = st.lists(st.sampled_from("abcde"), max_size=2, unique=True).map(tuple)
touches = st.builds(
    lambda kind, shared, own: kind(shared=shared, own=own), st.sampled_from([TouchA, TouchB, TouchC]), keys, keys
)
sequences = st.lists(touches, max_size=25)


def rows(item: Transition[Any]) -> set[Row]:
    return {*item.locks, *item.exclusive}


def conflict(one: Transition[Any], other: Transition[Any]) -> bool:
    """Within a group these two could not be applied by one statement."""
    return bool(rows(one) & set(other.exclusive) or rows(other) & set(one.exclusive))


def positions(items: Sequence[Transition[Any]]) -> dict[str, tuple[int, int]]:
    return {
        item.transition_id: (group_index, index)
        for group_index, group in enumerate(pack(items))
        for index, item in enumerate(group.items)
    }


@given(sequences)
def test_packing_keeps_every_item_once_in_a_group_of_its_own_kind(items: list[Touch]) -> None:
    groups = pack(items)
    packed = [item for group in groups for item in group.items]
    assert sorted(packed, key=lambda item: item.transition_id) == sorted(items, key=lambda item: item.transition_id)
    assert all(type(item) is group.kind for group in groups for item in group.items)


@given(sequences)
def test_items_that_share_a_row_are_applied_in_the_order_of_their_submission(items: list[Touch]) -> None:
    where = positions(items)
    for earlier, later in combinations(items, 2):
        if rows(earlier) & rows(later):
            assert where[earlier.transition_id] < where[later.transition_id]


@given(sequences)
def test_a_group_counts_shared_rows_up_and_shares_no_exclusive_key(items: list[Touch]) -> None:
    for group in pack(items):
        for one, other in combinations(group.items, 2):
            assert not conflict(one, other)


@given(sequences)
def test_an_item_never_waits_for_a_later_group_than_it_must(items: list[Touch]) -> None:
    where = positions(items)
    groups = pack(items)
    for number, item in enumerate(items):
        index = where[item.transition_id][0]
        for candidate in range(index):
            if groups[candidate].kind is not type(item):
                continue
            earlier = [other for other in items[:number] if rows(other) & rows(item)]
            behind = any(where[other.transition_id][0] > candidate for other in earlier)
            crowded = any(
                where[other.transition_id][0] == candidate and conflict(other, item) for other in items[:number]
            )
            assert behind or crowded


def test_runs_of_kinds_that_alternate_are_packed_into_one_group_of_each() -> None:
    items = [kind(own=(f"{kind.__name__}{number}",)) for number in range(10) for kind in (TouchA, TouchB)]
    assert [group.kind for group in pack(items)] == [TouchA, TouchB]


def test_many_items_may_count_up_one_row_in_one_group() -> None:
    assert len(pack([TouchA(shared=("hot",)) for _ in range(20)])) == 1


@given(sequences, st.randoms(use_true_random=False))
def test_r07_a_batch_locks_its_rows_in_one_order_whatever_the_order_of_its_items(
    items: list[Touch], random: Any
) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)
    assert locks_of(items) == locks_of(shuffled)
    assert set(locks_of(items)) == {row for item in items for row in item.locks}
    assert len(locks_of(items)) == len(set(locks_of(items)))


def test_r07_locks_go_by_table_then_by_code_point() -> None:
    wanted = [
        Row("executions", "z"),
        Row("addresses", "B"),
        Row("addresses", "a"),
        Row("addresses", "é"),
        Row("callbacks", "a"),
    ]
    assert list(lock_order(reversed(wanted))) == wanted


@given(st.lists(st.sampled_from([TouchA, Lonely]), max_size=30), st.integers(1, 7))
def test_a_long_queue_is_cut_into_batches_and_some_kinds_are_alone_in_theirs(
    kinds: list[type[Transition[None]]], limit: int
) -> None:
    items = [kind() for kind in kinds]
    cut = list(batches(items, limit))
    assert [item for batch in cut for item in batch] == items
    assert all(0 < len(batch) <= limit for batch in cut)
    assert all(len(batch) == 1 for batch in cut if any(item.alone for item in batch))


def test_the_end_of_an_execution_shares_its_commit_with_nobody_since_all_owners_writes_depend_on_it() -> None:
    assert EndExecution(execution_id="e1").alone
