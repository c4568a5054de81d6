"""The rules that the machine is made of, each against a simpler way to say it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import copy_context
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.runtime.replay import CallId, Cancelled, SignalRow
from greenroom.runtime.replay.branch_state import BranchState, NurseryState
from greenroom.runtime.replay.endings import FOREIGN, meaning
from greenroom.runtime.replay.paths import ROOT, BranchPath, path_text
from greenroom.runtime.replay.scopes import Scope, ScopeKind, is_cancelled, live, reached
from greenroom.runtime.replay.signals import Signals
from greenroom.runtime.replay.timers import Timer, Timers
from greenroom.runtime.replay.trace import Trace
from tests.replay.values import BEGIN

paths = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), max_size=3).map(tuple)


# ---------------------------------------------------------------------------------------------------------- paths


@given(paths, paths)
def test_t18_different_paths_have_different_texts(one: BranchPath, other: BranchPath) -> None:
    assert (path_text(one) == path_text(other)) == (one == other)


@given(paths, st.integers(1, 12), st.integers(1, 12))
def test_t10_an_opener_comes_before_its_branches(path: BranchPath, nursery: int, number: int) -> None:
    assert path < (*path, (nursery, number))
    assert (*path, (nursery, number)) < (*path, (nursery, number + 1))


# ---------------------------------------------------------------------------------------------------------- trace


@given(st.lists(st.tuples(st.sampled_from(["root", "root/1.1"]), st.integers(1, 3), st.text(max_size=3)), max_size=6))
def test_t25_a_trace_tells_sequences_of_calls_apart(calls: list[tuple[str, int, str]]) -> None:
    def digest(calls: Sequence[tuple[str, int, str]]) -> bytes:
        trace = Trace()
        for call in calls:
            trace.add(*call)
        return trace.digest

    assert digest(calls) == digest(list(calls))
    for index in range(len(calls)):
        assert digest(calls[:index]) != digest(calls)
        assert digest([*calls[:index], *calls[index + 1 :]]) != digest(calls)
    if calls[::-1] != calls:
        assert digest(calls[::-1]) != digest(calls)


# --------------------------------------------------------------------------------------------------------- timers


@given(st.lists(st.tuples(st.integers(0, 5), paths, st.integers(1, 5)), max_size=40), st.data())
def test_t02_timers_fire_by_due_time_then_path_then_number(
    made: list[tuple[int, BranchPath, int]], data: st.DataObject
) -> None:
    timers = Timers()
    armed: dict[CallId, Timer] = {}
    for seconds, path, number in made:
        call = CallId(path_text(path), number)
        if call in armed:
            continue
        armed[call] = Timer(BEGIN + timedelta(seconds=seconds), path, call, None)
        timers.arm(armed[call])
        if data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(sorted(armed, key=str)))
            timers.disarm(armed.pop(gone))
    now = BEGIN + timedelta(seconds=data.draw(st.integers(0, 5)))
    expected = sorted(armed.values(), key=lambda timer: (timer.due, timer.path, timer.call.number))
    assert timers.earliest() is (expected[0] if expected else None)
    fired = []
    while (timer := timers.pop_due(now)) is not None:
        fired.append(timer)
    assert fired == [timer for timer in expected if timer.due <= now]
    assert len(timers) == len(expected) - len(fired)


def test_disarmed_timers_are_forgotten() -> None:
    timers = Timers()
    for number in range(10_000):
        timer = Timer(BEGIN, ROOT, CallId("root", number), None)
        timers.arm(timer)
        timers.disarm(timer)
    assert len(timers._heap) < 100


# -------------------------------------------------------------------------------------------------------- signals

Event = tuple[str, str]
events = st.lists(
    st.tuples(st.sampled_from(["arrive", "receive", "give up"]), st.sampled_from(["a", "b", "ab"])), max_size=40
)


@given(events)
def test_t21_the_first_unread_one_is_read_and_the_first_caller_is_served(happened: list[Event]) -> None:
    signals: Signals[tuple[int, str]] = Signals()
    unread: list[SignalRow] = []
    waiting: list[tuple[int, str]] = []
    for seq, (event, types) in enumerate(happened, 1):
        if event == "arrive":
            row = SignalRow(seq=seq, at=BEGIN, message_id=f"m{seq}", type=types[0], body=b"")
            served = [wait for wait in waiting if types[0] in wait[1]][:1]
            assert signals.arrive(row) == tuple(served)
            for wait in served:
                signals.receivers.remove(wait[1], wait)
                waiting.remove(wait)
            if not served:
                unread.append(row)
        elif event == "receive":
            expected = next((row for row in unread if row.type in types), None)
            assert signals.read(types) is expected
            if expected is None:
                waiting.append((seq, types))
                signals.receivers.add(types, (seq, types))
            else:
                unread.remove(expected)
        elif waiting:
            wait = waiting.pop(0)
            signals.receivers.remove(wait[1], wait)
        assert signals.unread() == tuple(unread)


def test_an_answer_serves_all_who_wait_and_stays_and_the_first_one_counts() -> None:
    signals: Signals[str] = Signals()
    for name in ("one", "two"):
        signals.askers.add(("key",), name)
    row, again = (SignalRow(seq=seq, at=BEGIN, message_id="m", type="a", body=b"", answers="key") for seq in (1, 2))
    assert signals.arrive(row) == ("one", "two")
    signals.arrive(again)
    assert signals.answer("key") is row
    assert signals.read("a") is None
    assert signals.unread() == ()


# --------------------------------------------------------------------------------------------------------- scopes


@st.composite
def trees(draw: st.DrawFn) -> list[BranchState]:
    """Branches with scopes in them, as control code may have made them."""

    async def main() -> None: ...

    root = BranchState(ROOT, None, main, copy_context())
    root.enter(Scope(ScopeKind.ROOT, root, 0))
    branches = [root]
    for number in range(1, draw(st.integers(0, 12)) + 1):
        branch = draw(st.sampled_from(branches))
        kind = draw(st.sampled_from([ScopeKind.NURSERY, ScopeKind.LIMIT, ScopeKind.CLEANUP]))
        scope = branch.enter(Scope(kind, branch, number))
        if kind is ScopeKind.NURSERY:
            for start in range(1, draw(st.integers(0, 3)) + 1):
                member = BranchState((*branch.path, (number, start)), NurseryState(scope), main, copy_context())
                scope.members[start] = member
                branches.append(member)
    return branches


@given(trees(), st.data())
def test_t10_a_cancellation_reaches_exactly_those_whose_calls_it_makes_raise(
    branches: list[BranchState], data: st.DataObject
) -> None:
    scopes = [scope for branch in branches for scope in branch.scopes]
    origin = data.draw(st.sampled_from(scopes))
    assert not any(is_cancelled(branch.scope) for branch in branches)
    origin.cancelled = True
    found = reached(origin)
    assert found == sorted((b for b in branches if is_cancelled(b.scope)), key=lambda branch: branch.path)


@given(trees())
def test_all_live_branches_are_found(branches: list[BranchState]) -> None:
    assert live(branches[0]) == sorted(branches, key=lambda branch: branch.path)


# -------------------------------------------------------------------------------------------------------- endings


@pytest.mark.parametrize("error", [None, ValueError(), Cancelled(), GeneratorExit()])
def test_what_control_code_raises_means_what_it_is(error: BaseException | None) -> None:
    assert meaning(error) is error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), asyncio.CancelledError()])
def test_what_comes_from_elsewhere_is_foreign_also_in_a_group(error: BaseException) -> None:
    assert meaning(error) is FOREIGN
    assert meaning(BaseExceptionGroup("of a foreign nursery", [ValueError(), error])) is FOREIGN


def test_cancelled_is_taken_out_of_the_groups_of_foreign_nurseries() -> None:
    inner = BaseExceptionGroup("inner", [Cancelled(), Cancelled()])
    assert isinstance(meaning(BaseExceptionGroup("outer", [inner, Cancelled()])), Cancelled)
    mixed = meaning(BaseExceptionGroup("outer", [inner, ValueError("real")]))
    assert isinstance(mixed, ExceptionGroup)
    assert [str(error) for error in mixed.exceptions] == ["real"]
