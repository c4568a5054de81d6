"""Replies of durable addresses: who waits for one here, and how it comes.

A reply is kept in the store with its message. When the address is owned here its owner tells; otherwise it is looked for whenever
something has changed elsewhere, and now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from greenroom.actors import Rejected
from greenroom.errors import DeadLettered, RemoteError, StoreUnavailable
from greenroom.logs import logger_named
from greenroom.mailbox import Slot
from greenroom.persistence import MessageRecord, MessageStatus, ReadMessage, fetch

if TYPE_CHECKING:
    from greenroom.persistence import Store
    from greenroom.runtime.durable.payloads import Payloads
    from greenroom.runtime.durable.storage import Storage

logger = logger_named("greenroom.storage")


@frozen
class Reply:
    """What became of a question: a value, or an error to raise."""

    value: Any = None
    error: BaseException | None = None

    def give(self) -> Any:
        """The value; raises the error."""
        if self.error is not None:
            raise self.error
        return self.value


async def reply_on_record(store: Store, payloads: Payloads, address: str, message_id: str) -> Reply | None:
    """What the store knows of a question; None while it has not been handled.

    Raises `StoreUnavailable`, `Undecodable`.
    """
    record = await store.read(ReadMessage(address=address, message_id=message_id))
    return None if record is None else await reply_of(store, payloads, record)


async def reply_of(store: Store, payloads: Payloads, record: MessageRecord) -> Reply | None:
    """The reply that is kept with a message; None while there is none."""
    where = f"the message {record.message_id!r} of {record.address!r}"
    short = record.type.rpartition(":")[2]
    if record.status is MessageStatus.HANDLED:
        if record.error is not None:
            told = payloads.decode(await fetch(store, record.error), f"the error of {where}")
            return Reply(error=rejected(told))
        if record.reply is None:
            return Reply()
        return Reply(payloads.decode(await fetch(store, record.reply), f"the reply to {where}"))
    if record.status in (MessageStatus.DEAD, MessageStatus.DROPPED):
        why = record.reason or "it was dropped"
        return Reply(error=DeadLettered(record.address, record.message_id, short, why))
    return None


def rejected(told: object) -> Rejected:
    """A `Rejected` that was recorded, as it is raised for who asks later: by its text, with what was told of it as the cause."""
    error = Rejected(told.text) if isinstance(told, RemoteError) else Rejected(str(told))
    error.__cause__ = told if isinstance(told, BaseException) else None
    return error


class Replies:
    """The questions whose replies are awaited in this runtime."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._waiting: dict[tuple[str, str], list[Slot]] = {}
        self._looking = False

    def expect(self, address: str, message_id: str) -> Slot:
        """A slot that gets the `Reply` to this question."""
        slot = self._storage.loop.slot()
        self._waiting.setdefault((address, message_id), []).append(slot)
        return slot

    def forget(self, address: str, message_id: str, slot: Slot) -> None:
        """Nobody waits on this slot any more."""
        slots = self._waiting.get((address, message_id))
        if slots is not None and slot in slots:
            slots.remove(slot)
            if not slots:
                del self._waiting[address, message_id]

    def settle(self, address: str, message_id: str, reply: Reply) -> None:
        """The question has been dealt with."""
        if not self._waiting:
            return
        for slot in self._waiting.pop((address, message_id), ()):
            if not slot.done():
                slot.set_result(reply)

    def awaited(self, address: str, message_id: str) -> bool:
        """Does anybody here wait for this one?"""
        return (address, message_id) in self._waiting

    def look(self) -> None:
        """Something has changed elsewhere: look for the replies that come from there."""
        if not self._looking and any(address not in self._storage.owned for address, _ in self._waiting):
            self._looking = self._storage.spawn(self._look)

    async def _look(self) -> None:
        try:
            for address, message_id in tuple(self._waiting):
                if address in self._storage.owned:
                    continue
                storage = self._storage
                try:
                    reply = await reply_on_record(storage.store, storage.payloads, address, message_id)
                except StoreUnavailable as error:
                    logger.warning("replies could not be looked for, trying again: %s", error)
                    return
                except Exception as error:  # noqa: BLE001 - it cannot be decoded here: that is what its asker gets
                    reply = Reply(error=error)
                if reply is not None:
                    self.settle(address, message_id, reply)
        finally:
            self._looking = False
