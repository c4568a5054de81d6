"""The outbox relay: brings what durable actors have published to destinations outside of the store (C20).

A message is taken for a while, given to the function that is registered for its destination, and marked as sent when that returns. A
relay that dies in between leaves it to the next: it is given again under the same id, and the destination removes the duplicate.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from greenroom.actors import described
from greenroom.errors import GreenroomError
from greenroom.logs import logger_named
from greenroom.persistence import BeginSend, DueOutbox, FailSend, FinishSend, OutboxRecord, Refused, fetch

if TYPE_CHECKING:
    from greenroom.runtime.durable.storage import Storage

logger = logger_named("greenroom.relay")

TAKEN: Final = 30.0
"""Seconds for which a message is one relay's alone; a destination that takes longer may be given it twice."""

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
"""Brings a message to the outside. It returns when the outside has it for good; whatever it raises, it is called again later."""


def pause_before(attempts: int, jitter: float) -> float:
    """Seconds before the next try after so many: doubling from 1, at most 300, shortened by up to half.

    Args:
        jitter: from 0 (inclusive) to 1.
    """
    return min(LONGEST_PAUSE, 2.0 ** min(attempts - 1, 16)) * (1 - jitter / 2)


class Relay:
    """See the module. One for each runtime that has destinations."""

    def __init__(self, storage: Storage, destinations: Mapping[str, Destination]) -> None:
        self._storage = storage
        self._destinations = dict(destinations)

    async def pass_on(self) -> int:
        """Publish what is due, one after another. Returns how many were published. Raises `StoreUnavailable`."""
        if not self._destinations:
            return 0
        published = 0
        for record in await self._storage.store.read(DueOutbox(limit=100)):
            send = self._destinations.get(record.destination)
            if send is not None:
                published += await self._pass_on(record, send)
        return published

    async def _pass_on(self, record: OutboxRecord, send: Destination) -> int:
        store = self._storage.store
        row: dict[str, Any] = {"address": record.address, "ordinal": record.ordinal}
        taken = await store.commit(BeginSend(**row, seconds=TAKEN))
        if isinstance(taken, Refused):
            return 0  # another relay was first
        where = f"the message {record.message_id!r} to {record.destination!r}"
        try:
            message = self._storage.payloads.decode(await fetch(store, record.body), where)
            await send(
                OutboxMessage(
                    message_id=record.message_id, message=message, sender=record.address, attempts=taken.attempts
                )
            )
        except GreenroomError as error:
            failure: Exception = error
        except Exception as error:  # noqa: BLE001 - a destination may raise anything: it is tried again, and in the end shown
            failure = error
        else:
            await store.commit(FinishSend(**row))
            return 1
        last = taken.attempts >= TRIES
        seconds = None if last else pause_before(taken.attempts, random.random())
        logger.log(
            40 if last else 30,
            "%s was not published (try %d)%s: %s",
            where,
            taken.attempts,
            ", given up" if last else f", again in {seconds:.1f} s",
            described(failure),
        )
        await store.commit(FailSend(**row, seconds=seconds))
        return 0
