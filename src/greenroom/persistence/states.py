"""State machines as tables: `{(state, event): state}`, one for each kind of row. What is not in the table does not happen."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

State = TypeVar("State", bound=Enum)
Event = TypeVar("Event", bound=Enum)

Moves = Mapping[tuple[State, Event], State]


def steps(moves: Moves[State, Event]) -> frozenset[tuple[State, State]]:
    """All pairs (from, to) that some event allows, which is what a database can check."""
    return frozenset((state, following) for (state, _), following in moves.items())
