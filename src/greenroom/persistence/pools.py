"""Pools: a name under which addresses come into being when somebody sends to them."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from attrs import field, frozen, validators

from greenroom.persistence.transitions import Query, Transition


@frozen(kw_only=True)
class RegisterPool(Transition["PoolRegistered"]):
    """Let addresses `POOL/KEY` be opened by whoever sends to them. Registering again replaces what was said before.

    Args:
        capacity: messages (int > 0) that may wait at each address; None is unbounded.
    """

    alone: ClassVar[bool] = True

    pool: str = field(validator=validators.min_len(1))
    capacity: int | None = field(default=None, validator=validators.optional(validators.ge(1)))


@frozen
class PoolRegistered:
    """The pool is known, for good."""


@frozen(kw_only=True)
class PoolRecord:
    """A pool, as it was when it was read."""

    pool: str
    capacity: int | None
    registered_at: datetime
    """For the last time."""


@frozen(kw_only=True)
class ReadPool(Query["PoolRecord | None"]):
    """One pool; None when it is unknown."""

    pool: str
