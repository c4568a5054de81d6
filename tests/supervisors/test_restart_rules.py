"""The pure rules of restarting, as properties."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.supervisors.options import AutoShutdownType, Backoff, RestartType, StrategyType
from greenroom.supervisors.restarts import (
    ChildView,
    Fate,
    GiveUp,
    History,
    Leave,
    Limit,
    Restart,
    Rules,
    admit,
    affected,
    decide,
    delay,
    failures_in_a_row,
    fate,
    is_expected_stop,
    is_fault_reported,
    plan,
    shuts_down,
)
from tests.supervisors.families import (
    CLEAN,
    DETAIL,
    FAULTY,
    GAVE_UP,
    KILLED,
    NORMAL,
    PERMANENT,
    SHUTDOWN,
    TEMPORARY,
    TRANSIENT,
    eighths,
    exits,
    families_with_one_ended,
    limits,
    moments,
    names,
    strategies,
)

# ------------------------------------------------------------------------------------------------------- the window


def admitted(asked: Sequence[float], limit: Limit) -> list[float]:
    """The moments of those asked for that were allowed."""
    history: History = ()
    allowed = []
    for now in asked:
        counted = admit(history, now, limit)
        if counted is not None:
            history = counted
            allowed.append(now)
    return allowed


@given(moments, limits)
def test_never_more_restarts_than_the_intensity_start_in_any_closed_window_of_the_period(
    asked: list[float], limit: Limit
) -> None:
    allowed = admitted(asked, limit)
    for start in allowed:
        assert sum(start <= moment <= start + limit.period for moment in allowed) <= limit.intensity


@given(moments, limits)
def test_a_restart_is_refused_only_when_the_window_before_it_is_full(asked: list[float], limit: Limit) -> None:
    allowed = admitted(asked, limit)
    for now in asked:
        if now not in allowed:
            assert sum(now - limit.period <= moment <= now for moment in allowed) == limit.intensity


@given(moments, limits)
def test_only_what_is_still_in_the_window_is_remembered(asked: list[float], limit: Limit) -> None:
    history: History = ()
    for now in asked:
        history = admit(history, now, limit) or history
        assert len(history) <= limit.intensity


@given(eighths(0, 100), eighths(1, 20))
def test_a_restart_exactly_one_period_ago_counts_and_one_a_moment_more_ago_does_not(now: float, period: float) -> None:
    limit = Limit(1, period)
    assert admit((now - period,), now, limit) is None
    assert admit((now - period - 0.125,), now, limit) == (now,)


@given(moments, eighths(0, 60))
def test_without_intensity_nothing_is_ever_allowed(history: list[float], now: float) -> None:
    assert admit(tuple(history), now, Limit(0, 5.0)) is None


# -------------------------------------------------------------------------------------------------------- the fate


@pytest.mark.parametrize(
    ("restart", "exit", "expected"),
    [
        *((PERMANENT, exit, Fate.RESTART) for exit in (*CLEAN, *FAULTY)),
        *((TRANSIENT, exit, Fate.DOWN) for exit in CLEAN),
        *((TRANSIENT, exit, Fate.RESTART) for exit in FAULTY),
        *((TEMPORARY, exit, Fate.REMOVE) for exit in (*CLEAN, *FAULTY)),
    ],
    ids=str,
)
def test_the_fate_of_a_child_by_its_restart_type_and_exit(restart: RestartType, exit: gr.Exit, expected: Fate) -> None:
    assert fate(restart, exit) is expected


@given(families_with_one_ended(), exits, strategies, limits, moments)
def test_a_decision_follows_the_fate(
    family: tuple[list[ChildView], str], exit: gr.Exit, strategy: StrategyType, limit: Limit, history: list[float]
) -> None:
    children, ended = family
    restart = next(child.restart for child in children if child.name == ended)
    decision = decide(Rules(strategy, limit), children, ended, exit, 60.0, tuple(history))
    match fate(restart, exit):
        case Fate.RESTART:
            assert isinstance(decision, Restart | GiveUp)
        case Fate.DOWN:
            assert decision == Leave(remove=False, shut_down=False)
        case Fate.REMOVE:
            assert decision == Leave(remove=True, shut_down=False)


@given(families_with_one_ended(), strategies, limits, moments)
def test_a_failed_restart_is_tried_again_whatever_the_restart_type(
    family: tuple[list[ChildView], str], strategy: StrategyType, limit: Limit, history: list[float]
) -> None:
    children, failed = family
    decision = decide(Rules(strategy, limit), children, failed, None, 60.0, tuple(history))
    assert isinstance(decision, Restart | GiveUp)


# ------------------------------------------------------------------------------------------------------- the groups


@given(families_with_one_ended(), strategies)
def test_starts_are_in_start_order_and_stops_in_the_reverse_of_it(
    family: tuple[list[ChildView], str], strategy: StrategyType
) -> None:
    children, failed = family
    order = names(children)
    stop, _, start = plan(strategy, children, failed)
    assert list(start) == [name for name in order if name in start]
    assert list(stop) == [name for name in reversed(order) if name in stop]
    both = set(stop) & set(start)
    assert [name for name in stop if name in both] == [name for name in reversed(start) if name in both]


@given(families_with_one_ended(), strategies)
def test_a_restart_touches_those_its_strategy_covers_and_no_others(
    family: tuple[list[ChildView], str], strategy: StrategyType
) -> None:
    children, failed = family
    order = names(children)
    stop, forget, start = plan(strategy, children, failed)
    covered = {
        StrategyType.ONE_FOR_ONE: [failed],
        StrategyType.ONE_FOR_ALL: order,
        StrategyType.REST_FOR_ONE: order[order.index(failed) :],
    }[strategy]
    assert names(affected(strategy, children, failed)) == covered
    assert {*stop, *forget, *start} <= set(covered)
    assert set(start) | set(forget) == set(covered)
    assert set(stop) == {child.name for child in children if child.running and child.name in covered}


@given(families_with_one_ended(), strategies)
def test_temporary_siblings_are_forgotten_and_never_started_again(
    family: tuple[list[ChildView], str], strategy: StrategyType
) -> None:
    children, failed = family
    temporary = {child.name for child in children if child.restart is TEMPORARY} - {failed}
    _, forget, start = plan(strategy, children, failed)
    assert not temporary & set(start)
    assert set(forget) <= temporary


@given(families_with_one_ended(), strategies, moments, st.integers(1, 5))
def test_a_group_restart_counts_once_however_many_children_it_touches(
    family: tuple[list[ChildView], str], strategy: StrategyType, history: list[float], free: int
) -> None:
    children, failed = family
    limit = Limit(len(history) + free, 1000.0)
    decision = decide(Rules(strategy, limit), children, failed, None, 60.0, tuple(history))
    assert isinstance(decision, Restart)
    assert decision.history == (*history, 60.0)


# ------------------------------------------------------------------------------------------------ a child's own limit


@given(families_with_one_ended(), limits, limits, moments, moments)
def test_a_childs_own_limit_is_asked_first_and_both_must_allow(
    family: tuple[list[ChildView], str], own: Limit, shared: Limit, own_past: list[float], past: list[float]
) -> None:
    children, failed = family
    rules = Rules(StrategyType.ONE_FOR_ONE, shared)
    decision = decide(rules, children, failed, None, 60.0, tuple(past), own, tuple(own_past))
    own_allows = admit(tuple(own_past), 60.0, own)
    shared_allows = admit(tuple(past), 60.0, shared)
    if own_allows is None:
        assert decision == GiveUp(own, of_child=True)
    elif shared_allows is None:
        assert decision == GiveUp(shared, of_child=False)
    else:
        assert isinstance(decision, Restart)
        assert (decision.history, decision.child_history) == (shared_allows, own_allows)


# ------------------------------------------------------------------------------------------------ automatic shutdown


@given(families_with_one_ended(), st.sampled_from(AutoShutdownType))
def test_which_ends_shut_a_supervisor_down(family: tuple[list[ChildView], str], mode: AutoShutdownType) -> None:
    children, ended = family
    significant = {child.name for child in children if child.significant}
    active = {child.name for child in children if child.significant and (child.running or child.restarting)}
    expected = (
        ended in significant
        and {
            AutoShutdownType.NEVER: False,
            AutoShutdownType.ANY_SIGNIFICANT: True,
            AutoShutdownType.ALL_SIGNIFICANT: active <= {ended},
        }[mode]
    )
    assert shuts_down(mode, children, ended) == expected


@given(families_with_one_ended(), exits, st.sampled_from(AutoShutdownType))
def test_a_child_that_is_restarted_shuts_nothing_down(
    family: tuple[list[ChildView], str], exit: gr.Exit, mode: AutoShutdownType
) -> None:
    children, ended = family
    restart = next(child.restart for child in children if child.name == ended)
    decision = decide(Rules(StrategyType.ONE_FOR_ONE, Limit(1, 5.0), mode), children, ended, exit, 0.0, ())
    if fate(restart, exit) is Fate.RESTART:
        assert isinstance(decision, Restart)
    else:
        assert isinstance(decision, Leave)
        assert decision.shut_down == shuts_down(mode, children, ended)


# ---------------------------------------------------------------------------------------------------------- reports


@pytest.mark.parametrize("exit", [*CLEAN, *FAULTY], ids=str)
@pytest.mark.parametrize("restart", RestartType)
def test_which_ends_of_their_own_are_reported(restart: RestartType, exit: gr.Exit) -> None:
    assert is_fault_reported(restart, exit) == (restart is PERMANENT or exit in FAULTY or exit is GAVE_UP)


@pytest.mark.parametrize("exit", [*CLEAN, *FAULTY], ids=str)
@pytest.mark.parametrize("restart", RestartType)
def test_which_ends_of_a_timed_stop_pass_in_silence(restart: RestartType, exit: gr.Exit) -> None:
    silent = exit in (SHUTDOWN, GAVE_UP) or (exit in (NORMAL, DETAIL) and restart is not PERMANENT)
    assert is_expected_stop(restart, exit, brutal=False) == silent


@pytest.mark.parametrize("exit", [*CLEAN, *FAULTY], ids=str)
@pytest.mark.parametrize("restart", RestartType)
def test_which_ends_of_a_brutal_stop_pass_in_silence(restart: RestartType, exit: gr.Exit) -> None:
    silent = exit is KILLED or (exit in CLEAN and restart is not PERMANENT)
    assert is_expected_stop(restart, exit, brutal=True) == silent


# ---------------------------------------------------------------------------------------------------------- backoff

backoffs = st.builds(
    lambda initial, more, factor, jitter: Backoff(initial, maximum=initial + more, factor=factor, jitter=jitter),
    st.floats(0.001, 100.0),
    st.floats(0.0, 1000.0),
    st.floats(1.0, 10.0),
    st.floats(0.0, 1.0),
)
failure_counts = st.integers(0, 10_000)
randoms = st.floats(0.0, 1.0, exclude_max=True)


@given(backoffs, failure_counts, randoms)
def test_a_delay_lies_between_the_initial_one_less_its_jitter_and_the_maximum(
    backoff: Backoff, failures: int, random: float
) -> None:
    seconds = delay(backoff, failures, random)
    assert backoff.initial * (1 - backoff.jitter) <= seconds <= backoff.maximum


@given(backoffs, failure_counts)
def test_jitter_takes_at_most_its_share_of_a_delay(backoff: Backoff, failures: int) -> None:
    whole, least = delay(backoff, failures, 0.0), delay(backoff, failures, 1.0)
    assert least == pytest.approx(whole * (1 - backoff.jitter))


@given(backoffs, failure_counts, randoms)
def test_a_delay_never_shrinks_with_more_failures(backoff: Backoff, failures: int, random: float) -> None:
    assert delay(backoff, failures, random) <= delay(backoff, failures + 1, random)


@given(backoffs)
def test_the_first_delay_is_the_initial_one(backoff: Backoff) -> None:
    assert delay(backoff, 0, 0.0) == backoff.initial


@given(failure_counts, st.floats(0.0, 100.0), st.floats(0.0, 100.0))
def test_failures_are_forgotten_after_a_healthy_time_and_not_before(
    failures: int, healthy: float, enough: float
) -> None:
    backoff = Backoff(1.0, reset_after=enough)
    assert failures_in_a_row(backoff, failures, healthy) == (0 if healthy >= enough else failures)


@given(failure_counts, st.floats(0.1, 100.0), st.floats(0.0, 100.0))
def test_the_healthy_time_is_the_initial_delay_unless_it_is_given(
    failures: int, initial: float, healthy: float
) -> None:
    backoff = Backoff(initial, maximum=100.0)
    assert failures_in_a_row(backoff, failures, healthy) == (0 if healthy >= initial else failures)
