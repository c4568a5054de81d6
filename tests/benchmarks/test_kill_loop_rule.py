"""How the kill loop finds what was lost, double or out of order."""

from __future__ import annotations

from functools import reduce

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.kill_loop import violations
from benchmarks.kill_worker import Record, Run

Entries = list[tuple[int, int]]


def record_of(entries: Entries) -> Record:
    return reduce(lambda record, entry: record.with_entry(*entry), entries, Record())


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[dict[int, int], Entries]:
    """Senders with their last numbers, and all their entries in some order that keeps each sender's own."""
    last = draw(st.dictionaries(st.integers(0, 4), st.integers(0, 6), min_size=1))
    senders = draw(st.permutations([sender for sender, count in last.items() for _ in range(count)]))
    passed = dict.fromkeys(last, 0)
    entries = []
    for sender in senders:
        passed[sender] += 1
        entries.append((sender, passed[sender]))
    return last, entries


@given(interleaved())
def test_what_was_handled_once_and_in_order_is_right(made: tuple[dict[int, int], Entries]) -> None:
    acknowledged, entries = made
    record = record_of(entries)
    assert violations(acknowledged, record) == []
    assert len(record.runs) <= len(acknowledged)


@given(interleaved().filter(lambda made: bool(made[1])), st.data())
def test_an_entry_that_is_lost_double_or_moved_is_found(
    made: tuple[dict[int, int], Entries], data: st.DataObject
) -> None:
    acknowledged, entries = made
    place = data.draw(st.integers(0, len(entries) - 1))
    other = data.draw(st.integers(0, len(entries)))
    lost = entries[:place] + entries[place + 1 :]
    double = [*entries[:other], entries[place], *entries[other:]]
    assert violations(acknowledged, record_of(lost)) != []
    assert violations(acknowledged, record_of(double)) != []
    of_one = [entry for entry in entries if entry[0] == entries[place][0]]
    if len(of_one) > 1:
        assert violations(acknowledged, record_of(list(reversed(entries)))) != []


def test_an_entry_that_nobody_was_acknowledged_is_found() -> None:
    assert violations({1: 2}, Record((Run(1, 1, 2), Run(9, 1, 1)))) == [
        "sender 9 was acknowledged up to 0, and handled were [(1, 1)]"
    ]
    assert violations({1: 2}, Record((Run(1, 1, 3),))) == [
        "sender 1 was acknowledged up to 2, and handled were [(1, 3)]"
    ]
