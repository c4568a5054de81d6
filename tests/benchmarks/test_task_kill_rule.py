"""How the kill loop of tasks finds what was accepted twice, invoked after its acceptance, or repeated though it must not be."""

from __future__ import annotations

from typing import Literal

from benchmarks.task_kill_loop import Operation, violations
from benchmarks.task_kill_worker import Line

FIRST: Operation = ("T1", 1, "root#1")
SECOND: Operation = ("T1", 1, "root#2")


def line(
    what: Literal["begin", "end"], operation: Operation = FIRST, at: float = 1.0, *, effect: str = "safe", key: str = ""
) -> Line:
    task, segment, call = operation
    return Line(at, 7, what, key or f"key of {operation}", task, segment, call, effect)


def test_what_was_invoked_before_it_was_accepted_once_is_right_however_often_it_was() -> None:
    lines = [line("begin"), line("begin", at=2.0), line("end", at=2.5)]
    assert violations([(FIRST, 3.0)], lines) == []


def test_what_was_accepted_twice_is_found() -> None:
    assert violations([(FIRST, 3.0), (FIRST, 4.0)], [line("begin"), line("end")]) == [f"{FIRST} was accepted 2 times"]


def test_what_was_invoked_after_its_acceptance_is_found() -> None:
    (wrong,) = violations([(FIRST, 3.0)], [line("begin"), line("begin", at=3.5)])
    assert "0.500 s after it was accepted, by process 7" in wrong


def test_what_must_not_be_repeated_is_found_by_its_ends_and_not_by_its_beginnings() -> None:
    begins = [line("begin", effect="once"), line("begin", at=2.0, effect="once")]
    assert violations([(FIRST, 3.0)], [*begins, line("end", effect="once")]) == []
    twice = [*begins, line("end", effect="once"), line("end", effect="once")]
    assert violations([(FIRST, 3.0)], twice) == [f"{FIRST} must not be repeated, and happened 2 times"]


def test_one_key_for_two_operations_and_an_operation_that_never_happened_are_found() -> None:
    lines = [line("begin", key="k"), line("begin", SECOND, key="k")]
    assert violations([], lines) == [f"{SECOND} and {FIRST} have one key"]
    assert violations([(SECOND, 3.0)], [line("begin")]) == [f"{SECOND} was accepted, and never happened"]
