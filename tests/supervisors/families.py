"""What the tests of the rules draw from: families of children, exits, limits, moments.

Moments and periods are multiples of 1/8 s: sums of them are exact, so that the edges of windows are.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

import greenroom as gr
from greenroom.supervisors.options import RestartType, StrategyType
from greenroom.supervisors.restarts import ChildView, Limit

PERMANENT, TRANSIENT, TEMPORARY = RestartType

NORMAL = gr.Exit("normal")
SHUTDOWN = gr.Exit("shutdown")
DETAIL = gr.Exit("shutdown", gr.Stop("detail", shutdown=True))
ERROR = gr.Exit("error", RuntimeError("boom"))
KILLED = gr.Exit("killed")
ABANDONED = gr.Exit("abandoned")
GAVE_UP = gr.Exit("shutdown", gr.RestartLimitExceeded("sup", "sup/a", 1, 5.0))
CLEAN = (NORMAL, SHUTDOWN, DETAIL, GAVE_UP)
FAULTY = (ERROR, KILLED, ABANDONED)


def eighths(least: int, most: int) -> st.SearchStrategy[float]:
    """Seconds, in steps of 1/8."""
    return st.integers(least * 8, most * 8).map(lambda n: n / 8)


limits = st.builds(Limit, st.integers(0, 5), eighths(1, 20))
moments = st.lists(eighths(0, 60), max_size=40).map(sorted)
exits = st.sampled_from((*CLEAN, *FAULTY))
strategies = st.sampled_from(StrategyType)
restart_types = st.sampled_from(RestartType)


@st.composite
def families(draw: st.DrawFn) -> list[ChildView]:
    """The children of one supervisor, in start order; the names tell nothing of the order."""
    names = draw(st.lists(st.text("abcdef", min_size=1, max_size=2), min_size=1, max_size=8, unique=True))
    children = []
    for name in names:
        state = draw(st.sampled_from(("running", "restarting", "down")))
        restart = draw(restart_types)
        significant = draw(st.booleans()) and restart is not PERMANENT
        children.append(ChildView(name, restart, significant, state == "running", state == "restarting"))
    return children


@st.composite
def families_with_one_ended(draw: st.DrawFn) -> tuple[list[ChildView], str]:
    """The same, with the name of one that has just ended."""
    children = draw(families())
    index = draw(st.integers(0, len(children) - 1))
    ended = children[index]
    children[index] = ChildView(ended.name, ended.restart, ended.significant, running=False)
    return children, ended.name


def names(children: Sequence[ChildView]) -> list[str]:
    return [child.name for child in children]
