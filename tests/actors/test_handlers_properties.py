"""Properties of the pure rules: how a child ended by what came out of it, and whether a reply's type fits its promise."""

from __future__ import annotations

import asyncio
import collections.abc
import functools
import operator
from collections.abc import Iterator
from typing import Any, Optional, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

import greenroom as gr
from greenroom.actors.exits import classify, lone
from greenroom.actors.handlers import _fits

Cancelled = asyncio.CancelledError

ERRORS = [ValueError, KeyError, gr.Rejected]
FATAL = [KeyboardInterrupt, SystemExit]
LEAVES = [*ERRORS, *FATAL, Cancelled, gr.Stop]


def exceptions(*kinds: type[BaseException]) -> st.SearchStrategy[BaseException]:
    """An exception of these kinds, or a group of such, however deep."""
    leaf = st.sampled_from(kinds).map(lambda kind: kind())
    return st.recursive(
        leaf,
        lambda inner: st.lists(inner, min_size=1, max_size=4).map(lambda some: BaseExceptionGroup("several", some)),
        max_leaves=8,
    )


def leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def of(error: BaseException, *kinds: type[BaseException]) -> list[BaseException]:
    """The leaves of these kinds, in order."""
    return [leaf for leaf in leaves(error) if isinstance(leaf, kinds)]


# ------------------------------------------------------------------------------------------------- exits.classify


@given(exceptions(*LEAVES))
def test_p15_every_failure_is_in_the_cause_and_nothing_else_beside_it(error: BaseException) -> None:
    verdict = classify(error, Cancelled)
    failures = of(error, *ERRORS)
    if failures:
        assert verdict.exit.kind == "error"
        assert verdict.exit.cause is not None
        assert list(leaves(verdict.exit.cause)) == failures


@given(exceptions(*LEAVES))
def test_p15_the_cause_is_a_group_only_when_it_is_several(error: BaseException) -> None:
    cause = classify(error, Cancelled).exit.cause
    if isinstance(cause, BaseExceptionGroup):
        assert len(cause.exceptions) > 1
        assert not any(isinstance(inner, BaseExceptionGroup) for inner in cause.exceptions)


@given(exceptions(*LEAVES))
def test_p15_keyboard_interrupt_and_system_exit_are_fatal_the_first_of_them_counts(error: BaseException) -> None:
    fatal = of(error, *FATAL)
    assert classify(error, Cancelled).fatal is (fatal[0] if fatal else None)


@given(exceptions(*LEAVES))
@example(BaseExceptionGroup("several", [KeyboardInterrupt(), Cancelled()]))
def test_p12_a_cancellation_is_the_cause_only_when_nothing_else_is(error: BaseException) -> None:
    verdict = classify(error, Cancelled)
    if of(error, *ERRORS, *FATAL, gr.Stop):
        assert verdict.exit.cause is None or not of(verdict.exit.cause, Cancelled)
    else:
        assert verdict.exit.kind == "error"
        assert verdict.exit.cause is not None
        assert list(leaves(verdict.exit.cause)) == of(error, Cancelled)


@given(exceptions(*FATAL, Cancelled, gr.Stop))
def test_p15_what_ends_the_tree_is_the_cause_when_nothing_has_failed_besides(error: BaseException) -> None:
    cause = classify(error, Cancelled).exit.cause
    if fatal := of(error, *FATAL):
        assert cause is not None
        assert list(leaves(cause)) == fatal


@given(exceptions(*LEAVES))
def test_p20_stop_is_a_clean_end_exactly_when_nothing_has_failed_beside_it(error: BaseException) -> None:
    clean = bool(of(error, gr.Stop)) and not of(error, *ERRORS, *FATAL)
    assert classify(error, Cancelled).exit.clean is clean


@given(st.booleans(), st.one_of(st.none(), st.text(max_size=3)))
def test_p20_stop_carries_its_reason_and_kind_into_the_exit(shutdown: bool, reason: str | None) -> None:
    stop = gr.Stop(reason, shutdown=shutdown)
    exit = classify(stop, Cancelled).exit
    assert exit.kind == ("shutdown" if shutdown else "normal")
    assert exit.cause is (None if reason is None else stop)


@given(exceptions(gr.Ignore, Cancelled))
def test_p20_ignore_is_recognised_through_groups(error: BaseException) -> None:
    assert classify(error, Cancelled).ignored is (len(of(error, gr.Ignore)) == 1)


@given(exceptions(*LEAVES))
def test_classify_changes_nothing_in_what_it_is_given(error: BaseException) -> None:
    before = list(leaves(error))
    classify(error, Cancelled)
    assert list(leaves(error)) == before


@given(exceptions(*LEAVES))
def test_a_group_stands_for_one_exception_exactly_when_it_is_one_or_all_are_stops_or_refusals(
    error: BaseException,
) -> None:
    all_of_it = list(leaves(error))
    alike = any(len(of(error, kind)) == len(all_of_it) for kind in (gr.Stop, gr.Rejected))
    assert lone(error) is (all_of_it[0] if len(all_of_it) == 1 or alike else error)


# ---------------------------------------------------------------------------------------------- a reply and its promise


class Animal: ...


class Dog(Animal): ...


T = TypeVar("T")

PLAIN: list[Any] = [int, str, bytes, Animal, Dog, type(None)]
plain = st.sampled_from(PLAIN)
unions = st.lists(plain, min_size=1, max_size=4).map(lambda members: functools.reduce(operator.or_, members))


def fits(returned: Any, promised: Any) -> bool:
    return _fits(returned, promised, lenient=False)


def members(union: Any) -> tuple[Any, ...]:
    return getattr(union, "__args__", (union,))


@given(plain, plain)
def test_a_plain_class_fits_its_bases_and_nothing_else(returned: type, promised: type) -> None:
    assert fits(returned, promised) is issubclass(returned, promised)


@given(unions, unions)
def test_a_union_fits_when_each_of_its_members_fits_some_member_of_the_promise(returned: Any, promised: Any) -> None:
    expected = all(any(issubclass(member, one) for one in members(promised)) for member in members(returned))
    assert fits(returned, promised) is expected


@given(unions, unions)
def test_a_handler_of_several_messages_may_return_more_than_one_of_them_promises(returned: Any, promised: Any) -> None:
    expected = any(any(issubclass(member, one) for one in members(promised)) for member in members(returned))
    assert _fits(returned, promised, lenient=True) is expected


@given(unions)
def test_everything_fits_itself_any_and_object(kind: Any) -> None:
    assert fits(kind, kind)
    assert fits(kind, Any)
    assert fits(Any, kind)
    assert fits(kind, object)


@given(plain, plain)
def test_containers_fit_when_what_they_hold_does(returned: type, promised: type) -> None:
    for container in (list, set, tuple):
        assert fits(container[returned], container[promised]) is fits(returned, promised)


@pytest.mark.parametrize(
    ("returned", "promised"),
    [
        (None, type(None)),
        (bool, int),
        (int, float),
        (bool, float),
        (float, complex),
        (list[int], list),
        (list, list[int]),
        (list[int], collections.abc.Sequence[int]),
        (dict[str, int], dict[str, Any]),
        (tuple[int, int, int], tuple[int, ...]),
        (tuple[int, ...], tuple[int, ...]),
        (Optional[Dog], Animal | None),  # noqa: UP045 - the old spelling is under test
        (T, int),
        (int, T),
        ("Decimal", "decimal.Decimal"),
        ("list[Decimal]", list[int]),
        ("Animal", Animal),
    ],
)
def test_what_a_type_checker_accepts_is_not_refused(returned: Any, promised: Any) -> None:
    assert fits(returned, promised)


@pytest.mark.parametrize(
    ("returned", "promised"),
    [
        (None, int),
        (int, None),
        (float, int),
        (Animal, Dog),
        (int | None, int),
        (list[int], list[str]),
        (list[int], set[int]),
        ("Decimal", int),
        ("Decimal", "Fraction"),
    ],
)
def test_what_contradicts_the_promise_is_refused(returned: Any, promised: Any) -> None:
    assert not fits(returned, promised)
