"""The rule of what a block is left by, when several things have happened in it at once."""

from __future__ import annotations

import itertools
from asyncio import CancelledError

import pytest

import greenroom as gr
from greenroom.runtime.leaving import what_leaves

Makers = tuple[type[BaseException] | None, ...]

LEFT: Makers = (None, ValueError, CancelledError, KeyboardInterrupt, SystemExit)
MET: Makers = (None, CancelledError, KeyboardInterrupt)
FATAL: Makers = (None, KeyboardInterrupt, SystemExit)
ORDERS = (KeyboardInterrupt, SystemExit)


def make(kind: type[BaseException] | None) -> BaseException | None:
    return None if kind is None else kind("made")


CASES = [
    (make(left), make(met), make(fatal), gr.TreeFailed("sup", "made") if failed else None)
    for left, met, fatal, failed in itertools.product(LEFT, MET, FATAL, (False, True))
]
Case = tuple[BaseException | None, BaseException | None, BaseException | None, BaseException | None]


def leaves(case: Case) -> BaseException | None:
    left, met, fatal, failure = case
    return what_leaves(left, met, fatal=fatal, failure=failure, cancelled=CancelledError)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_one_of_the_things_that_happened_and_nothing_only_when_nothing_did(case: Case) -> None:
    gone = leaves(case)
    assert (gone is None) == all(one is None for one in case)
    assert gone is None or any(gone is one for one in case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_order_to_the_whole_program_is_never_hidden(case: Case) -> None:
    if any(isinstance(one, ORDERS) for one in case):
        assert isinstance(leaves(case), ORDERS)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_cancellation_hides_nothing(case: Case) -> None:
    if any(one is not None and not isinstance(one, CancelledError) for one in case):
        assert not isinstance(leaves(case), CancelledError)


def test_the_bodys_own_exception_goes_before_the_failure_of_the_tree_which_is_a_note() -> None:
    own, failure = ValueError("own"), gr.TreeFailed("sup", "made")
    assert leaves((own, None, None, failure)) is own
    assert own.__notes__ == [f"greenroom: besides, {failure}"]


def test_a_failure_that_the_body_passes_on_has_no_note_about_itself() -> None:
    failure = gr.TreeFailed("sup", "made")
    assert leaves((failure, None, None, failure)) is failure
    assert not hasattr(failure, "__notes__")


def test_a_failure_by_the_cancellation_of_all_tasks_gives_way_to_the_hosts_own() -> None:
    cancellation, failure = CancelledError(), gr.TreeFailed("sup", "made")
    failure.__cause__ = CancelledError()
    assert leaves((cancellation, None, None, failure)) is cancellation
    assert leaves((None, None, None, failure)) is failure
