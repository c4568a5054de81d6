"""Messages that nobody handled: counted, and published to whoever looks.

A dead letter is not an error of the sender: `tell` promises nothing. But it must not vanish either, so every one is counted by
recipient and reason, logged (its type, never its contents), and offered to subscribers whole.
"""

from __future__ import annotations

import logging
from collections import Counter
from enum import Enum

from attrs import frozen

from greenroom.logs import logger_named
from greenroom.mailbox.broadcast import Broadcast, Subscription

logger = logger_named("greenroom.dead_letters")


RECIPIENTS = 10_000
"""Entries that are counted apart. Dynamic children come and go for as long as a service runs; its memory must not grow with them."""
OTHERS = "(others)"


class DeadLetterReason(Enum):
    """Why nobody handled a message."""

    ENDED = "ended"
    """The recipient had ended, or ended with the message still queued."""
    DROPPED = "dropped"
    """The recipient's overflow policy dropped it."""
    UNHANDLED = "unhandled"
    """The recipient has no handler for its type."""
    REJECTED = "rejected"
    """Its handler raised `Rejected`, and nobody had asked."""
    DELIVERIES = "deliveries"
    """It had used up its deliveries, or could not be handled at all. It is kept in the store, for an operator."""
    UNDELIVERABLE = "undeliverable"
    """It could not be encoded for the recipient's process, or not be decoded there."""


@frozen
class DeadLetter:
    """A message that nobody handled."""

    message: object
    recipient: str
    sender: str | None
    """Path of the actor that sent it; None when it came from outside the tree."""
    reason: DeadLetterReason


class DeadLetters:
    """The dead letters of one runtime: a stream and counts."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, DeadLetterReason]] = Counter()
        self._stream: Broadcast[DeadLetter] = Broadcast()

    def publish(self, message: object, recipient: str, sender: str | None, reason: DeadLetterReason) -> None:
        """Count a dead letter and show it to the subscribers."""
        known = (recipient, reason) in self._counts or len(self._counts) < RECIPIENTS
        self._counts[recipient if known else OTHERS, reason] += 1
        if logger.isEnabledFor(logging.INFO):
            logger.info(
                "dead letter: %s to %s from %s (%s)",
                type(message).__qualname__,
                recipient,
                sender or "outside",
                reason.value,
            )
        self._stream.publish(DeadLetter(message, recipient, sender, reason))

    def counts(self) -> dict[tuple[str, DeadLetterReason], int]:
        """Dead letters so far, by (recipient's path, reason); from many recipients on, those of new ones under the path `OTHERS`."""
        return dict(self._counts)

    @property
    def total(self) -> int:
        """Dead letters so far."""
        return self._counts.total()

    def subscribe(self, *, buffer: int = 10_000) -> Subscription[DeadLetter]:
        """An async iterator over the dead letters from now on; see `Subscription` for what a slow reader misses."""
        return self._stream.subscribe(buffer=buffer)

    def belong_to(self, thread: int) -> None:
        """From now on only this thread, the event loop's, may wait for dead letters."""
        self._stream.belong_to(thread)

    def close(self) -> None:
        """End every subscription, after what it has buffered."""
        self._stream.close()
