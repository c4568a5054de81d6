"""Callbacks: an answer from outside, once, by whoever knows an unguessable token."""

from __future__ import annotations

import secrets
from datetime import datetime
from enum import Enum
from hashlib import sha256
from typing import Final

from attrs import field, frozen

from greenroom.persistence.clock import aware
from greenroom.persistence.content import Payload, fits_inline
from greenroom.persistence.states import Moves
from greenroom.persistence.transitions import OwnerWrite, Query, Row, Transition


class CallbackStatus(Enum):
    OPEN = "open"
    ANSWERED = "answered"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class CallbackEvent(Enum):
    ANSWER = "answer"
    EXPIRE = "expire"
    CANCEL = "cancel"


CALLBACK_MOVES: Final[Moves[CallbackStatus, CallbackEvent]] = {
    (CallbackStatus.OPEN, CallbackEvent.ANSWER): CallbackStatus.ANSWERED,
    (CallbackStatus.OPEN, CallbackEvent.EXPIRE): CallbackStatus.EXPIRED,
    (CallbackStatus.OPEN, CallbackEvent.CANCEL): CallbackStatus.CANCELLED,
}


def new_token() -> str:
    """A token that nobody can guess: 256 random bits, safe in a URL."""
    return secrets.token_urlsafe(32)


def token_digest(token: str) -> str:
    """What the store keeps of a token: enough to know it again, and of no use to whoever reads the database."""
    return sha256(token.encode()).hexdigest()


@frozen(kw_only=True)
class CreateCallback(OwnerWrite["CallbackMoved"]):
    """Open a callback for an address. `CONFLICT` when the token is taken.

    Args:
        expires_at: an aware instant after which an answer is late; None: never.
    """

    token_digest: str
    name: str
    expires_at: datetime | None = field(default=None, validator=aware)

    @property
    def locks(self) -> tuple[Row, ...]:
        return (Row("addresses", self.address), Row("callbacks", self.token_digest))

    @property
    def exclusive(self) -> tuple[Row, ...]:
        return self.locks


@frozen
class CallbackMoved:
    """The callback is in that state now."""

    status: CallbackStatus


@frozen(kw_only=True)
class CallbackWrite(Transition["CallbackMoved"]):
    """A change of one callback's row."""

    token_digest: str

    @property
    def locks(self) -> tuple[Row, ...]:
        return (Row("callbacks", self.token_digest),)

    @property
    def exclusive(self) -> tuple[Row, ...]:
        return (Row("callbacks", self.token_digest),)


class AnswerDisposition(Enum):
    """What became of an answer."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """It was answered before, with the same."""
    CONFLICT = "conflict"
    """It was answered before, with something else."""
    LATE = "late"
    """It had expired, or was cancelled."""


@frozen(kw_only=True)
class AnswerCallback(Transition["CallbackAnswered"]):
    """Answer a callback, before or after anybody waits for it. `UNKNOWN_TOKEN` for any token that opens nothing.

    Answers that were not accepted are kept as observations.
    """

    token_digest: str
    answer: Payload = field(validator=fits_inline)
    digest: str
    """Of the answer: what tells a duplicate from a conflict."""

    @property
    def locks(self) -> tuple[Row, ...]:
        return (Row("callbacks", self.token_digest),)

    @property
    def exclusive(self) -> tuple[Row, ...]:
        return (Row("callbacks", self.token_digest),)


@frozen
class CallbackAnswered:
    disposition: AnswerDisposition


@frozen(kw_only=True)
class ExpireCallback(CallbackWrite):
    """Its time has passed. `NOT_PENDING` while it has not; `ALREADY_ANSWERED`."""


@frozen(kw_only=True)
class CancelCallback(CallbackWrite):
    """Nobody waits for it any more. `ALREADY_ANSWERED`; `NOT_PENDING` when it has expired."""


@frozen(kw_only=True)
class CallbackRecord:
    """A callback, as it was when it was read."""

    token_digest: str
    address: str
    name: str
    status: CallbackStatus
    created_at: datetime
    expires_at: datetime | None
    answer: Payload | None


@frozen(kw_only=True)
class ReadCallback(Query["CallbackRecord | None"]):
    token_digest: str


@frozen(kw_only=True)
class ExpiredCallbacks(Query[tuple[CallbackRecord, ...]]):
    """Open callbacks whose time has passed, longest first, for the sweep."""

    limit: int = 100
