"""The outbox relay: brings what durable actors have published to destinations outside of the store (C20).

A message is taken for a while, given to the function that is registered for its destination, and marked as sent when that returns. A
relay that dies in between leaves it to the next: it is given again under the same id, and the destination removes the duplicate.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from logging import ERROR, WARNING
from typing import TYPE_CHECKING, Any, Final

import anyio
from attrs import frozen

from greenroom.actors import described
from greenroom.logs import logger_named
from greenroom.persistence import BeginSend, DueOutbox, FailSend, FinishSend, OutboxRecord, Refused, fetch

if TYPE_CHECKING:
    from greenroom.runtime.durable.storage import Storage

logger = logger_named("greenroom.relay")

TAKEN: Final = 30.0
"""Seconds for which a message is one relay's alone."""

LONGEST_SEND: Final = 20.0
"""Seconds that a destination has for one message. Then it is broken off, well before another relay may take the message."""

PAGE: Final = 100

TRIES: Final = 20
"""Tries after which a message is given up, for an operator to see."""

LONGEST_PAUSE: Final = 300.0


@frozen(kw_only=True)
class OutboxMessage:
    """A message on its way out of the store."""

    message_id: str
    """The same at each try: what the destination removes duplicates by."""
    message: Any
    sender: str
    """Address of the actor that published it."""
    attempts: int
    """Which try this is, counted from 1."""


Destination = Callable[[OutboxMessage], Awaitable[object]]
"""Brings a message to the outside, within 20 s. It returns when the outside has it for good; otherwise it is called again later."""


def pause_before(attempts: int, jitter: float) -> float:
    """Seconds before the next try after so many: doubling from 1, at most 300, shortened by up to half.

    Args:
        jitter: from 0 (inclusive) to 1.
    """
    return min(LONGEST_PAUSE, 2.0 ** min(attempts - 1, 16)) * (1 - jitter / 2)


class Relay:
    """See the module. One for each runtime.

    Args:
        attempt: runs something that may fail, says so when it does, and leaves it to the next round.
    """

    def __init__(
        self,
        storage: Storage,
        destinations: Mapping[str, Destination],
        attempt: Callable[[str, Callable[[], Awaitable[object]]], Coroutine[Any, Any, None]],
    ) -> None:
        self._storage = storage
        self._destinations = dict(destinations)
        self._attempt = attempt
        self._busy: set[str] = set()
        """Destinations that are being given what was due."""

    async def look(self) -> None:
        """See what is due, and publish it beside: a destination is given one message after another, and holds up no other.

        What is meant for a destination that is not registered here waits. Raises `StoreUnavailable`.
        """
        for destination in self._destinations:
            if destination in self._busy:
                continue
            rows = await self._storage.store.read(DueOutbox(destination=destination, limit=PAGE))
            publish = partial(self._publish, destination, rows)
            if rows and self._storage.spawn(partial(self._attempt, f"publish to {destination!r}", publish)):
                self._busy.add(destination)

    async def _publish(self, destination: str, rows: Sequence[OutboxRecord]) -> None:
        try:
            for row in rows:
                await self._pass_on(row, self._destinations[destination])
        finally:
            self._busy.discard(destination)
        if len(rows) == PAGE:
            self._storage.hurry()

    async def _pass_on(self, record: OutboxRecord, send: Destination) -> None:
        store = self._storage.store
        row: dict[str, Any] = {"address": record.address, "ordinal": record.ordinal}
        taken = await store.commit(BeginSend(**row, seconds=TAKEN))
        if isinstance(taken, Refused):
            return  # another relay was first
        failure = await self._send(record, send, taken.attempts)
        if failure is None:
            await store.commit(FinishSend(**row))
            return
        seconds = None if taken.attempts >= TRIES else pause_before(taken.attempts, random.random())
        logger.log(
            ERROR if seconds is None else WARNING,
            "the message %r to %r was not published (try %d)%s: %s",
            record.message_id,
            record.destination,
            taken.attempts,
            ", given up" if seconds is None else f", again in {seconds:.1f} s",
            described(failure),
        )
        await store.commit(FailSend(**row, seconds=seconds))
        if seconds is not None:
            self._storage.hurry_in(seconds)

    async def _send(self, record: OutboxRecord, send: Destination, attempts: int) -> Exception | None:
        """Give one message to its destination. Returns why it could not."""
        where = f"the message {record.message_id!r} to {record.destination!r}"
        try:
            with anyio.move_on_after(LONGEST_SEND):
                message = self._storage.payloads.decode(await fetch(self._storage.store, record.body), where)
                await send(
                    OutboxMessage(
                        message_id=record.message_id, message=message, sender=record.address, attempts=attempts
                    )
                )
                return None
        except Exception as error:  # noqa: BLE001 - a destination may raise anything: it is tried again, and in the end shown
            return error
        return TimeoutError(f"it was not done within {LONGEST_SEND:g} s")
