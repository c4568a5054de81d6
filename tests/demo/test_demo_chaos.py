"""The plan of chaos: a pure rule."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.demo.chaos import STRIKES, plan
from greenroom.demo.desk_actor import Way
from greenroom.demo.tree import isolated_reader, pool_of, victims

VICTIMS = {"index": (Way.AT_ONCE, Way.IN_WORK), "intake": (Way.AT_ONCE,), "readers/isolated": (Way.KILL,)}
seeds = st.integers(0, 2**32)


@given(seeds)
def test_the_same_seed_gives_the_same_plan(seed: int) -> None:
    assert list(plan(seed, VICTIMS)) == list(plan(seed, VICTIMS))


@given(seeds)
def test_a_plan_ends(seed: int) -> None:
    assert len(list(plan(seed, VICTIMS))) == STRIKES


@given(seeds)
def test_strikes_come_one_after_the_other(seed: int) -> None:
    assert all(first.after < second.after for first, second in pairwise(plan(seed, VICTIMS)))


@given(seeds)
def test_the_first_strike_falls_within_three_files(seed: int) -> None:
    assert 1 <= next(plan(seed, VICTIMS)).after <= 3


@given(seeds)
def test_everybody_is_struck_once_before_anybody_is_struck_twice(seed: int) -> None:
    strikes = list(plan(seed, VICTIMS))
    for start in range(0, STRIKES - len(VICTIMS) + 1, len(VICTIMS)):
        turn = Counter(strike.victim for strike in strikes[start : start + len(VICTIMS)])
        assert turn == Counter(VICTIMS.keys())


@given(seeds)
def test_a_victim_is_struck_only_in_its_own_ways(seed: int) -> None:
    assert all(strike.way in VICTIMS[strike.victim] for strike in plan(seed, VICTIMS))


def test_two_seeds_differ() -> None:
    assert list(plan(1, VICTIMS)) != list(plan(2, VICTIMS))


def test_with_nobody_to_strike_there_is_no_plan() -> None:
    assert list(plan(1, {})) == []


def test_only_an_actor_with_a_process_of_its_own_is_killed() -> None:
    found = victims([*pool_of("/folder", 2), isolated_reader("/folder")])
    assert [name for name, ways in found.items() if Way.KILL in ways] == ["readers/isolated"]


@pytest.mark.parametrize(
    "name",
    ["readers/reader-1", "readers/reader-2", "readers/isolated", "reporter", "clerk", "intake"],
)
def test_every_actor_of_the_desk_is_a_victim(name: str) -> None:
    assert name in victims([*pool_of("/folder", 2), isolated_reader("/folder")])
