"""Observations: what was refused, came late or matched nothing. It changed nothing, and is kept to be looked at (I2, I5)."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

from attrs import field, frozen, validators

from greenroom.persistence.content import Payload
from greenroom.persistence.transitions import Query


class ObservationKind(Enum):
    REFUSED = "refused"
    """An owner's write that was not the owner's any more."""
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    LATE = "late"
    UNMATCHED = "unmatched"


@frozen(kw_only=True)
class Observation:
    """One of them."""

    id: int
    """Grows, with gaps, and not always in the order of commits: no cursor."""
    at: datetime
    kind: ObservationKind
    what: str
    """The kind of transition, or the type of message."""
    address: str
    message_id: str | None
    sender: str | None
    execution_id: str | None
    generation: int | None
    detail: str
    body: Payload | None
    """What it carried: a message's content; the whole refused write, as JSON."""


@frozen(kw_only=True)
class ListObservations(Query[tuple[Observation, ...]]):
    """Observations, newest first, a page at a time; `before` is the id of the last one of the page before."""

    address: str | None = None
    kind: ObservationKind | None = None
    before: int | None = None
    limit: int = field(default=100, validator=validators.ge(1))
