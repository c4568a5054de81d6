"""What a review's journal says, event by event: a pure rule."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import greenroom as gr
from greenroom.demo.messages import Progress, Section
from greenroom.demo.record import Record
from greenroom.demo.values import FileRecord, Found, Kind, Review, Skipped, SkipReason, Status

FILES = tuple(Found(path=f"{n}.py", kind=Kind.PYTHON, size=1) for n in range(4))
LINK = Skipped(path="link", reason=SkipReason.LINK_BROKEN)
SECTION = Section((*FILES, LINK), is_last=True)


def operations(*told: tuple[str, str, Any]) -> Iterator[gr.JournalEvent]:
    """Events of operations: who put them on record, the call, what they came to."""
    cursors = count(1)
    for execution, call, value in told:
        yield gr.JournalEvent(
            cursor=next(cursors),
            kind="operation",
            at=None,
            attempt=1,
            segment=1,
            execution=execution,
            call=call,
            value=value,
        )


def record_of(*told: tuple[str, str, Any]) -> Record:
    record = Record()
    for event in operations(*told):
        record.add(event)
    return record


def reviewed(number: int) -> FileRecord:
    return FileRecord.reviewed(FILES[number], Review())


def test_what_was_found_and_answered_is_counted() -> None:
    record = record_of(("a", "root#1", SECTION), ("a", "root/2.1#1", reviewed(0)))
    assert record.progress == Progress(found=5, answered=2, walked=True)


def test_a_file_that_was_given_up_is_counted_as_such() -> None:
    record = record_of(("a", "root#1", SECTION), ("a", "root/2.1#1", FileRecord.crashed(FILES[0], "MemoryError")))
    assert record.progress == Progress(found=5, answered=2, walked=True, given_up=1)


def test_an_event_that_is_added_twice_counts_once() -> None:
    record = Record()
    for event in operations(("a", "root#1", SECTION), ("a", "root/2.1#1", reviewed(0))):
        record.add(event)
        record.add(event)
    assert (record.times["0.py"], record.operations.total(), record.progress.answered) == (1, 2, 2)


def test_what_was_not_wanted_any_more_is_in_the_results_as_skipped() -> None:
    record = record_of(("a", "root#1", SECTION), *(("a", f"root/2.{n}#1", reviewed(n)) for n in range(3)))
    assert {each.path: each.status for each in record.results()} == {
        "0.py": Status.REVIEWED,
        "1.py": Status.REVIEWED,
        "2.py": Status.REVIEWED,
        "3.py": Status.SKIPPED,
        "link": Status.SKIPPED,
    }
    assert [each.reason for each in record.results()][3:] == [SkipReason.NOT_WANTED, SkipReason.LINK_BROKEN]


def test_an_undisturbed_review_kept_nothing_and_invoked_nothing_again() -> None:
    record = record_of(("a", "root#1", SECTION), *(("a", f"root/2.{n}#1", reviewed(n)) for n in range(4)))
    assert (record.kept("a"), record.invoked_again) == (0, 0)


def test_what_each_branch_had_in_hand_at_a_death_was_invoked_again_and_what_came_after_was_not() -> None:
    record = record_of(
        ("a", "root#1", SECTION),
        ("a", "root/2.1#1", reviewed(0)),
        ("b", "root/2.1#2", reviewed(1)),  # in hand: the same branch was told something by `a`
        ("b", "root/2.2#1", reviewed(2)),  # in hand: the root was told by `a` what made it open the branch
        ("b", "root/2.1#3", reviewed(3)),  # begun by `b`
    )
    assert (record.kept("b"), record.invoked_again) == (2, 2)


def test_a_process_that_has_put_nothing_on_record_yet_kept_everything() -> None:
    assert record_of(("a", "root#1", SECTION), ("a", "root/2.1#1", reviewed(0))).kept("b") == 2


def test_what_the_root_had_in_hand_at_a_death_was_invoked_again() -> None:
    first, second = Section(FILES[:1], is_last=False), Section(FILES[1:2], is_last=True)
    record = record_of(
        ("a", "root#1", first),
        ("a", "root/2.1#1", reviewed(0)),
        ("b", "root#3", second),
        ("b", "root/4.1#1", reviewed(1)),
    )
    assert (record.kept("b"), record.invoked_again) == (2, 1)


def test_a_branch_of_another_segment_is_another_branch() -> None:
    record = record_of(("a", "root#1", Section(FILES[:1], is_last=False)), ("a", "root/2.1#1", reviewed(0)))
    (found, answer) = operations(("b", "root#1", Section(FILES[1:], is_last=True)), ("b", "root/2.1#1", reviewed(1)))
    for cursor, event in ((3, found), (4, answer)):
        record.add(gr.JournalEvent(**{**_fields(event), "cursor": cursor, "segment": 2}))
    assert record.invoked_again == 1  # the search of the second segment, which followed what `a` wrote


def _fields(event: gr.JournalEvent) -> dict[str, Any]:
    return {name: getattr(event, name) for name in ("kind", "at", "attempt", "execution", "call", "value")}
