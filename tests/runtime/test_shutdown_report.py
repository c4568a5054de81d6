"""The report of a shutdown, as a value, and the state it is made of."""

from __future__ import annotations

from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.runtime.shutdown import Shutdown

PATHS = ("sup/a", "sup/b", "sup/c")
HOWS = ("stopped", "cancelled", "killed", "abandoned", "failed")

ends = st.tuples(st.sampled_from(PATHS), st.sampled_from(HOWS), st.booleans())
running = st.dictionaries(st.sampled_from(PATHS), st.sampled_from(gr.State))


def nodes(states: dict[str, gr.State]) -> list[gr.TreeNode]:
    return [
        gr.TreeNode(name=path[-1], path=path, kind="worker", state=state, incarnation=1, restarts=0)
        for path, state in states.items()
    ]


@given(st.lists(ends), st.lists(ends), running)
def test_each_path_is_in_the_report_once_unless_an_abandoned_thread_of_it_lingers(
    before: list[tuple[str, str, bool]], after: list[tuple[str, str, bool]], states: dict[str, gr.State]
) -> None:
    shutdown = Shutdown()
    for path, how, brutal in before:
        shutdown.note_end(path, how, brutal=brutal)
    shutdown.advance(1.0)
    for path, how, brutal in after:
        shutdown.note_end(path, how, brutal=brutal)
    report = shutdown.report(nodes(states), 3.0)
    named = [path for how in (*HOWS, "stuck", "unknown") if how != "abandoned" for path in getattr(report, how)]
    assert len(named) == len(set(named))
    assert set(report.brutal) <= {*report.cancelled, *report.killed}


@given(st.lists(ends, min_size=1))
def test_of_one_path_the_last_end_counts(history: list[tuple[str, str, bool]]) -> None:
    shutdown = Shutdown()
    shutdown.advance(1.0)
    for path, how, brutal in history:
        shutdown.note_end(path, how, brutal=brutal)
    report = shutdown.report([], 3.0)
    for path, how in {path: how for path, how, _ in history}.items():
        assert path in getattr(report, how)


@given(running)
def test_what_still_runs_is_stuck_or_unknown_and_never_clean(states: dict[str, gr.State]) -> None:
    shutdown = Shutdown()
    shutdown.advance(1.0)
    report = shutdown.report(nodes(states), 3.0)
    assert set(report.stuck) == {path for path, state in states.items() if state is gr.State.STUCK}
    alive = {gr.State.STARTING, gr.State.RUNNING, gr.State.STOPPING}
    assert set(report.unknown) == {path for path, state in states.items() if state in alive}
    assert report.clean == (not report.stuck and not report.unknown)


@given(st.integers(1, 10))
def test_a_stage_follows_the_other_and_the_last_stays(times: int) -> None:
    shutdown = Shutdown()
    stages = [shutdown.advance(float(n)) for n in range(times)]
    assert stages == [gr.Stage(min(n + 1, 4)) for n in range(times)]
    assert shutdown.report([], 100.0).seconds == 100.0


def test_what_ended_before_the_shutdown_is_not_in_the_report() -> None:
    shutdown = Shutdown()
    shutdown.note_end("sup/a", "failed", brutal=False)
    shutdown.advance(1.0)
    assert shutdown.report([], 1.0) == gr.ShutdownReport(stage=gr.Stage.REQUESTED)


def test_a_thread_that_was_abandoned_before_the_shutdown_and_lingers_is_in_the_report() -> None:
    shutdown = Shutdown()
    for path in ("sup/a", "sup/b"):
        shutdown.note_end(path, "abandoned", brutal=False)
    shutdown.note_thread_ended("sup/b")
    shutdown.advance(1.0)
    assert shutdown.report([], 1.0).abandoned == ("sup/a",)


def test_a_report_is_clean_when_everything_stopped_as_it_was_meant_to() -> None:
    clean = gr.ShutdownReport(stopped=("a",), cancelled=("b",), killed=("c",), brutal=("b", "c"))
    assert clean.clean
    for how in ("cancelled", "killed", "abandoned", "stuck", "failed", "unknown"):
        changes: dict[str, Any] = {how: ("z",)}
        assert not attrs.evolve(clean, **changes).clean, how
