"""State machines as tables: `{(state, event): state}`, one for each kind of row. What is not in the table does not happen."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from greenroom.errors import Defect

State = TypeVar("State", bound=Enum)
Event = TypeVar("Event", bound=Enum)

Moves = Mapping[tuple[State, Event], State]


def move(moves: Moves[State, Event], state: State, event: Event) -> State:
    """The state that follows. Raises `Defect` for a move that the table does not have: whoever asks has tested it before."""
    following = moves.get((state, event))
    if following is None:
        raise Defect(f"no move leads on from {type(state).__name__} {state.value!r} by {event.value!r}")
    return following


def steps(moves: Moves[State, Event]) -> frozenset[tuple[State, State]]:
    """All pairs (from, to) that some event allows, which is what a database can check."""
    return frozenset((state, following) for (state, _), following in moves.items())
