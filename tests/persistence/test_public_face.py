"""The package's public face holds together: names, kinds and drivers."""

from __future__ import annotations

from typing import Any

import attrs

import greenroom.persistence as persistence
from greenroom.persistence.answers import AnswerTo
from greenroom.persistence.applying.appliers import APPLIERS
from greenroom.persistence.reading.queries import READERS
from greenroom.persistence.transitions import OwnerWrite, Query, Transition


def of_kind(base: type[Any]) -> set[type[Any]]:
    """The public classes below a base, without those that only others derive from."""
    found = {value for value in vars(persistence).values() if isinstance(value, type) and issubclass(value, base)}
    return found - {base, OwnerWrite}


def test_every_public_name_is_there_once() -> None:
    assert len(set(persistence.__all__)) == len(persistence.__all__)
    assert all(hasattr(persistence, name) for name in persistence.__all__)


def test_every_public_transition_is_applied_and_nothing_else() -> None:
    assert of_kind(Transition) == set(APPLIERS)


def test_every_public_query_is_answered_and_nothing_else() -> None:
    assert of_kind(Query) == set(READERS)


def test_transitions_and_queries_are_values_with_identities_of_their_own() -> None:
    for kind in of_kind(Transition) | of_kind(Query):
        assert attrs.has(kind)
        assert kind.__hash__ is not None
        assert kind.__hash__ is not object.__hash__
        assert kind.__eq__ is not object.__eq__
    assert AnswerTo(transition_id="a") == AnswerTo(transition_id="a")
    one, other = (persistence.EndExecution(execution_id="e1") for _ in range(2))
    assert one.transition_id != other.transition_id
