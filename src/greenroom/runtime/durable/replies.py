"""Replies of durable addresses: who waits for one here, and how it comes.

A reply is kept in the store with its message. While the address is owned here its owner tells; otherwise it is looked for, when
something has changed elsewhere, and every now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from attrs import frozen

from greenroom.actors import Rejected
from greenroom.errors import ActorStopped, DeadLettered, RemoteError, StoreUnavailable
from greenroom.logs import logger_named
from greenroom.mailbox import Slot
from greenroom.persistence import MessageRecord, MessageStatus, ReadMessage, fetch
from greenroom.persistence.tasks import task_address
from greenroom.runtime.replay import Fault

if TYPE_CHECKING:
    from greenroom.persistence import Store
    from greenroom.runtime.durable.payloads import Payloads
    from greenroom.runtime.durable.storage import Storage

logger = logger_named("greenroom.storage")

FIRST_LOOK = 0.02
"""Seconds after which a reply from elsewhere is looked for. Each time it takes longer."""

LONGEST_PAUSE = 0.5
"""Seconds between two looks, at most."""

STOPPED = f"{ActorStopped.__module__}.{ActorStopped.__qualname__}"
"""What a recorded error is told to be that was no `Rejected`."""


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
            return Reply(error=raised_again(told, record.address, short))
        if record.reply is None:
            return None if record.address.startswith(task_address("")) else Reply()  # a task may answer later
        return Reply(payloads.decode(await fetch(store, record.reply), f"the reply to {where}"))
    if record.status in (MessageStatus.DEAD, MessageStatus.DROPPED):
        why = record.reason or "it was dropped"
        return Reply(error=DeadLettered(record.address, record.message_id, short, why))
    return None


def stopped_itself(address: str, message_type: str) -> ActorStopped:
    """What an asker gets whose question made the actor end."""
    return ActorStopped(address, message_type, "it stopped itself instead")


def raised_again(told: object, address: str, message_type: str) -> Rejected | ActorStopped:
    """An error that was recorded, as it is raised for who asks later: what was told of it, for its class may not be known here."""
    text = told.text if isinstance(told, RemoteError) else told.message if isinstance(told, Fault) else str(told)
    error: Rejected | ActorStopped = Rejected(text)
    if isinstance(told, RemoteError) and told.type_name == STOPPED:
        error = stopped_itself(address, message_type)
    error.__cause__ = told if isinstance(told, BaseException) else None
    return error


class Replies:
    """The questions whose replies are awaited in this runtime."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._waiting: dict[str, dict[str, list[Slot]]] = {}
        """By address and identity of the message."""
        self._elsewhere: set[str] = set()
        """Addresses that are not owned here, or were not when somebody last looked."""
        self._looking = False
        self._news = anyio.Event()

    def expect(self, address: str, message_id: str) -> Slot:
        """A slot that gets the `Reply` to this question."""
        slot = self._storage.loop.slot()
        self._waiting.setdefault(address, {}).setdefault(message_id, []).append(slot)
        if address not in self._storage.owned:
            self.look_for(address)
        return slot

    def forget(self, address: str, message_id: str, slot: Slot) -> None:
        """Nobody waits on this slot any more."""
        slots = self._waiting.get(address, {}).get(message_id, [])
        if slot in slots:
            slots.remove(slot)
            if not slots:
                self._take(address, message_id)

    def are_awaited(self, address: str) -> bool:
        """Does anybody here wait for a reply of this address?"""
        return address in self._waiting

    def settle(self, address: str, message_id: str, reply: Reply) -> None:
        """The question has been dealt with."""
        for slot in self._take(address, message_id):
            if not slot.done():
                slot.set_result(reply)

    def _take(self, address: str, message_id: str) -> list[Slot]:
        questions = self._waiting.get(address)
        if questions is None:
            return []
        slots = questions.pop(message_id, [])
        if not questions:
            del self._waiting[address]
        return slots

    def close(self, why: str) -> None:
        """Nothing comes here any more."""
        for address, questions in tuple(self._waiting.items()):
            for message_id in tuple(questions):
                ended = f"{why}; if it was accepted it stays so: ask again with message_id={message_id!r}"
                self.settle(address, message_id, Reply(error=ActorStopped(address, why=ended)))

    # --------------------------------------------------------------------------------------------- from elsewhere

    def look(self) -> None:
        """Something has changed elsewhere."""
        self._news.set()

    def look_for(self, address: str) -> None:
        """The address is not owned here: what is awaited of it comes by the store."""
        if address in self._waiting:
            self._elsewhere.add(address)
            if not self._looking:
                self._looking = self._storage.spawn(self._look)

    async def _look(self) -> None:
        pause = FIRST_LOOK
        while self._elsewhere:
            with anyio.move_on_after(pause):
                await self._news.wait()
            self._news = anyio.Event()
            for address in tuple(self._elsewhere):
                if address in self._storage.owned:  # the last look: what comes after it is told by the owner
                    self._elsewhere.discard(address)
                await self._look_at(address)
            pause = min(1.5 * pause, LONGEST_PAUSE)
        self._looking = False

    async def _look_at(self, address: str) -> None:
        storage = self._storage
        for message_id in tuple(self._waiting.get(address, ())):
            try:
                reply = await reply_on_record(storage.store, storage.payloads, address, message_id)
            except StoreUnavailable as error:
                logger.warning("the reply to %r of %s could not be looked for: %s", message_id, address, error)
                self.look_for(address)
                return
            except Exception as error:  # noqa: BLE001 - it cannot be decoded here: that is what its asker gets
                reply = Reply(error=error)
            if reply is not None:
                self.settle(address, message_id, reply)
        if address not in self._waiting:
            self._elsewhere.discard(address)
