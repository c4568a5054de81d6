"""Callbacks: an answer from outside, once, by whoever knows an unguessable token.

A callback has a public identity, chosen by its owner, so that a handler that runs again finds the one it opened before. Each
time it hands out a token: the identity and a secret. All of them stay good; the store keeps the digests of their secrets.
"""

from __future__ import annotations

import hmac
import secrets
from datetime import datetime
from enum import Enum
from hashlib import sha256
from typing import Final

from attrs import field, frozen, validators

from greenroom.persistence.clock import aware
from greenroom.persistence.content import Payload, fits_inline
from greenroom.persistence.messages import Receipt
from greenroom.persistence.states import Moves
from greenroom.persistence.transitions import AddressWrite, OwnerWrite, Query, Row, T_co, Transition

ANSWER: Final = "greenroom:Answer"
"""The type of the message that an answer becomes in a task's mailbox."""


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


def new_token(callback_id: str) -> tuple[str, str]:
    """A token for a callback that nobody can guess: 256 random bits, safe in a URL where the identity is. And its digest."""
    secret = secrets.token_urlsafe(32)
    return f"{callback_id}.{secret}", _digest(secret)


def split_token(token: str) -> tuple[str, str] | None:
    """Which callback a token is for, and the digest of its secret. None: it is no token."""
    callback_id, _, secret = token.rpartition(".")
    return (callback_id, _digest(secret)) if callback_id and secret else None


def _digest(secret: str) -> str:
    """What the store keeps of a secret: enough to know it again, and of no use to whoever reads the database."""
    return sha256(secret.encode()).hexdigest()


def opens(digests: str, digest: str) -> bool:
    """Is it one of these? They are in one text, with blanks between them. How long it takes does not tell how near it came."""
    return any(hmac.compare_digest(known.encode(), digest.encode()) for known in digests.split())


def with_secret(digests: str, digest: str) -> str:
    """The digests with one more."""
    return digests if digest in digests.split() else f"{digests} {digest}"


@frozen(kw_only=True)
class NewCallback:
    """A callback that a task opens with one of its turns. It is there when the turn is, and not before.

    Args:
        callback_id: a fresh identity.
        secret_digest: of the token's secret.
        expires_at: an aware instant after which an answer is late; None: never.
    """

    callback_id: str = field(validator=validators.min_len(1))
    secret_digest: str = field(validator=validators.matches_re(r"\S+"))
    name: str
    expires_at: datetime | None = field(default=None, validator=aware)


@frozen(kw_only=True)
class CreateCallback(OwnerWrite["CallbackMoved"]):
    """Open a callback for an address, or hand out one more token for one that it has opened before.

    Answers how that one stands: when it is not open any more, nothing is changed, and whoever wanted to wait reads it. It keeps
    its name and its end. `CONFLICT` when another address has the identity.

    Args:
        secret_digest: of the token's secret.
        expires_at: an aware instant after which an answer is late; None: never.
    """

    callback_id: str = field(validator=validators.min_len(1))
    secret_digest: str = field(validator=validators.matches_re(r"\S+"))
    name: str
    expires_at: datetime | None = field(default=None, validator=aware)

    @property
    def locks(self) -> tuple[Row, ...]:
        return (Row("addresses", self.address), Row("callbacks", self.callback_id))

    @property
    def exclusive(self) -> tuple[Row, ...]:
        return self.locks


@frozen
class CallbackMoved:
    """The callback is in that state now."""

    status: CallbackStatus


@frozen(kw_only=True)
class CallbackWrite(Transition[T_co]):
    """A change of one callback's row."""

    callback_id: str

    @property
    def locks(self) -> tuple[Row, ...]:
        return (Row("callbacks", self.callback_id),)

    @property
    def exclusive(self) -> tuple[Row, ...]:
        return (Row("callbacks", self.callback_id),)


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
class AnswerCallback(CallbackWrite["CallbackAnswered"]):
    """Answer a callback, before or after anybody waits for it. That of a task gets into its mailbox by `DeliverAnswer`.

    Any token that opens nothing is refused by `UNKNOWN_TOKEN`, whether or not there is such a callback. Answers that were not
    accepted are kept as observations.
    """

    secret_digest: str
    answer: Payload = field(validator=fits_inline)
    digest: str
    """Of the answer: what tells a duplicate from a conflict."""


@frozen
class CallbackAnswered:
    disposition: AnswerDisposition


@frozen(kw_only=True)
class DeliverAnswer(AddressWrite[Receipt]):
    """Put the answer of a task's callback into its mailbox, once, whatever room there is: a message of type `ANSWER`, with the
    callback's identity. For the owner, and for the sweep.

    The receipt says `late` when the task has ended. `UNKNOWN_CALLBACK` when the task has none of that identity; `NOT_PENDING` when it
    has no answer, or that was delivered.
    """

    callback_id: str

    @property
    def locks(self) -> tuple[Row, ...]:
        return (Row("addresses", self.address), Row("callbacks", self.callback_id))

    @property
    def exclusive(self) -> tuple[Row, ...]:
        return self.locks


@frozen(kw_only=True)
class ExpireCallback(CallbackWrite["CallbackMoved"]):
    """Its time has passed. `UNKNOWN_CALLBACK`; `NOT_PENDING` while it has not; `ALREADY_ANSWERED`."""


@frozen(kw_only=True)
class CancelCallback(CallbackWrite["CallbackMoved"]):
    """Nobody waits for it any more. `UNKNOWN_CALLBACK`; `ALREADY_ANSWERED`; `NOT_PENDING` when it has expired."""


@frozen(kw_only=True)
class CallbackRecord:
    """A callback, as it was when it was read."""

    callback_id: str
    address: str
    name: str
    status: CallbackStatus
    created_at: datetime
    expires_at: datetime | None
    answer: Payload | None


@frozen(kw_only=True)
class ReadCallback(Query["CallbackRecord | None"]):
    """One callback with its answer; None when it is unknown, or forgotten by retention."""

    callback_id: str


@frozen(kw_only=True)
class OpenCallbacks(Query[tuple[str, ...]]):
    """Identities of an address's open callbacks, in order, a page at a time; `after` is the last one seen."""

    address: str
    after: str = ""
    limit: int = field(default=1000, validator=validators.ge(1))


@frozen(kw_only=True)
class AnsweredCallbacks(Query[tuple[CallbackRecord, ...]]):
    """Callbacks of tasks that have an answer which is not in the mailbox yet, longest first, for the sweep."""

    limit: int = field(default=100, validator=validators.ge(1))


@frozen(kw_only=True)
class ExpiredCallbacks(Query[tuple[CallbackRecord, ...]]):
    """Open callbacks whose time has passed, longest first, for the sweep."""

    limit: int = 100
