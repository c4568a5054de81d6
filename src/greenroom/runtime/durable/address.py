"""`Address`: an address in the store as those see it who send to it."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any

import anyio

from greenroom.actors import Cell, Held, open_unit
from greenroom.errors import AskTimeout, MailboxFull, NotAccepted, WouldDeadlock
from greenroom.mailbox import PersistentMailbox, Receipt, Sender, Slot, StoredMessage, message_type
from greenroom.persistence import INLINE_LIMIT, AcceptMessage, Disposition, Payload, Refused, new_id, outgoing_id, stow
from greenroom.runtime.durable.payloads import Encoded
from greenroom.runtime.durable.replies import Reply, reply_on_record

if TYPE_CHECKING:
    from greenroom.runtime.durable.storage import Storage


class Address:
    """See the module. For the event loop's thread.

    Args:
        pooled: the address belongs to a pool: whoever sends to it first opens it, and its owner lets it go when it has nothing to do.
    """

    def __init__(self, storage: Storage, address: str, options: PersistentMailbox, *, pooled: bool = False) -> None:
        self.storage = storage
        self.address = address
        self.options = options
        self.pooled = pooled

    def send(
        self, message: Any, sender: Sender | None, *, message_id: str | None, deliver_at: datetime | None
    ) -> Coroutine[Any, Any, Receipt | None]:
        """As `Ref.send`: to be awaited at once."""
        encoded = self.storage.payloads.encode(message)
        unit = open_unit(sender)  # type: ignore[arg-type]
        if unit is not None:
            unit.messages.append(Held(self.address, encoded, message_id, deliver_at))
            return _held()
        return self._accept(message, encoded, sender, message_id or new_id(), deliver_at)

    async def ask(self, message: Any, sender: Sender | None, *, message_id: str | None, timeout: float | None) -> Any:
        """As `Ref.ask`."""
        if isinstance(sender, Cell) and sender.path == self.address and sender.in_own_loop():
            raise WouldDeadlock(
                f"{self.address!r} would wait for itself: `ask` from its own handler can never be served. Call the method, or `send`"
            )
        unit = open_unit(sender)  # type: ignore[arg-type]
        if message_id is None and unit is not None and sender is not None:
            unit.asks += 1
            message_id = outgoing_id(sender.path, unit.message_id, -unit.asks)
        message_id = message_id or new_id()
        encoded = self.storage.payloads.encode(message)
        replies = self.storage.replies
        slot = replies.expect(self.address, message_id)
        try:
            with anyio.move_on_after(timeout):
                reply = await self._asked(message, encoded, sender, message_id, slot)
                return reply.give()
        finally:
            replies.forget(self.address, message_id, slot)
        raise AskTimeout(self.address, message_type(message), timeout or 0.0)

    async def _asked(self, message: Any, encoded: Encoded, sender: Sender | None, message_id: str, slot: Slot) -> Reply:
        receipt = await self._accept(message, encoded, sender, message_id, None)
        if receipt.disposition == "duplicate":
            storage = self.storage
            known = await reply_on_record(storage.store, storage.payloads, self.address, message_id)
            if known is not None:
                return known
        elif receipt.disposition != "accepted":
            raise NotAccepted(self.address, message_id, message_type(message), receipt.disposition)
        reply: Reply = await slot
        return reply

    async def _accept(
        self, message: Any, encoded: Encoded, sender: Sender | None, message_id: str, deliver_at: datetime | None
    ) -> Receipt:
        storage = self.storage
        if self.pooled:
            await storage.pools.open_if_pooled(self.address)
        body: Payload = encoded.body
        if len(encoded.body) > INLINE_LIMIT:
            body = await stow(storage.store, encoded.body, name=f"the message {message_type(message)}")
        sender_path = sender.path if sender is not None else None
        store = storage.store
        entry = store.submit(
            AcceptMessage(
                address=self.address,
                message_id=message_id,
                type=encoded.type,
                body=body,
                digest=encoded.digest,
                sender=sender_path,
                deliver_at=deliver_at,
                hushed=True,
            )
        )
        try:  # `Committer.commit`, in place: every message passes here
            await store.settled(entry)
        except storage.loop.cancelled:
            if not await store.see_through(entry):
                raise
        answer = entry.result()
        if isinstance(answer, Refused):
            raise MailboxFull(self.address, self.options.capacity, message_type(message), persistent=True)
        if answer.disposition is Disposition.ACCEPTED:
            if deliver_at is not None:
                storage.due(self.address, deliver_at)
            else:
                content = None
                if body is encoded.body and storage.payloads.is_lasting(
                    message
                ):  # what is large waits in the store alone
                    content, body = message, b""
                storage.arrived(
                    self.address,
                    StoredMessage(answer.seq or 0, message_id, encoded.type, body, sender_path, None, content),
                )
            return Receipt(message_id, "accepted")
        return Receipt(message_id, answer.disposition.value)


async def _held() -> None:
    """What a handler sends leaves with its commit."""
