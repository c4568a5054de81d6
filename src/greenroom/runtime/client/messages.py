"""Messages to durable addresses, from outside, and answers to callbacks."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, TypeVar

import anyio

from greenroom.actors import Message
from greenroom.actors.messages import not_a_message
from greenroom.errors import AskTimeout, MailboxFull, NotAccepted, StoreRefused, StoreUnavailable, UnknownToken
from greenroom.mailbox import Receipt, message_type
from greenroom.persistence import (
    AcceptMessage,
    AddressKind,
    AnswerCallback,
    Disposition,
    OpenAddress,
    ReadAddress,
    ReadMessage,
    ReadPool,
    Refused,
    Subscription,
    digest_of,
    new_id,
    split_token,
    stow,
)
from greenroom.persistence import Receipt as StoreReceipt
from greenroom.runtime.client.opened import OpenedStore
from greenroom.runtime.durable.opening import StoreSource
from greenroom.runtime.durable.replies import reply_of
from greenroom.runtime.stored import AnswerDisposition
from greenroom.runtime.tasks.callbacks import bring_answer

R = TypeVar("R")

FIRST_LOOK: Final = 0.005
"""Seconds after which a reply is looked for again. Each time it takes longer, unless the store tells of something new."""

LONGEST_PAUSE: Final = 0.5
"""Seconds between two looks for a reply, at most."""

MOST_KNOWN: Final = 10_000
"""Addresses that are remembered to be there."""


class Messages(OpenedStore):
    """See the module."""

    def __init__(self, store: str | StoreSource) -> None:
        super().__init__(store)
        self._known: set[str] = set()
        """Addresses that were there: nothing takes one away."""

    async def send(
        self, address: str, message: Message[Any], *, message_id: str | None = None, deliver_at: datetime | None = None
    ) -> Receipt:
        """Send to a durable address. Returns when the message is durable, or says in the receipt why it was not accepted.

        Args:
            message_id: its identity at this address: sent again under it, it is a `duplicate`, for as long as the first is on
                record (7 days after it was handled). None: a fresh one.
            deliver_at: an aware instant before which it is not delivered.

        Raises:
            MailboxFull: there is no room.
            NotAMessage, NotEncodable, PayloadTooLarge: it cannot be stored.
            StoreUnavailable: its `unknown` tells whether the message may have been accepted; repeat it under the same id.
            ValueError: `deliver_at` has no time zone.
        """
        message_id = new_id() if message_id is None else message_id
        receipt = await self._accept(address, message, message_id, deliver_at)
        return Receipt(receipt.message_id, receipt.disposition.value)  # type: ignore[arg-type]  # only handlers' own are held

    async def ask(
        self, address: str, message: Message[R], *, message_id: str | None = None, timeout: float | None = 5.0
    ) -> R:
        """Send to a durable address and wait for the reply. Asked again under the same `message_id`, the kept reply is returned.

        Args:
            timeout: seconds, being accepted included; None waits for ever.

        Raises:
            Rejected: as the handler raised it; told, for its class may not be loaded here.
            DeadLettered: nobody will handle the message, unless an operator requeues it.
            NotAccepted: the address is unknown, its actor has ended for good, or the id belongs to another message.
            AskTimeout: in the end. If the message was accepted it stays so, and its reply is kept: ask again under the same id.
            Undecodable: the reply is of a class that is not loaded here, or does not fit it.
            As `send`.
        """
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout={timeout!r}: seconds, 0 or more, or None to wait for ever")
        message_id = new_id() if message_id is None else message_id
        with anyio.move_on_after(timeout), self._store.wakeups() as news:
            receipt = await self._accept(address, message, message_id, None)
            if receipt.disposition not in (Disposition.ACCEPTED, Disposition.DUPLICATE):
                raise NotAccepted(address, message_id, message_type(message), receipt.disposition.value)
            reply: R = await self._reply(address, message_id, news)
            return reply
        assert timeout is not None
        late = AskTimeout(address, message_type(message), timeout)
        late.add_note(f"its reply is kept: ask again with message_id={message_id!r}")
        raise late

    async def _accept(
        self, address: str, message: Message[Any], message_id: str, deliver_at: datetime | None
    ) -> StoreReceipt:
        if not isinstance(message, Message):
            raise not_a_message(message)
        encoded = self._payloads.encode(message)
        body = await stow(self._store, encoded.body, name=f"a {message_type(message)} to {address!r}")
        transition = AcceptMessage(
            address=address,
            message_id=message_id,
            type=encoded.type,
            body=body,
            digest=encoded.digest,
            deliver_at=deliver_at,
        )
        await self._open_in_pool(address)
        try:
            answer = await self._store.commit(transition)
        except StoreUnavailable as error:
            if error.unknown:
                error.add_note(f"send the message again with message_id={message_id!r}: it counts once")
            raise
        if isinstance(answer, Refused):  # for lack of room: everything else is in the receipt
            record = await self._store.read(ReadAddress(address=address))
            capacity = None if record is None else record.capacity
            raise MailboxFull(address, capacity, message_type(message), persistent=True)
        return answer

    async def _open_in_pool(self, address: str) -> None:
        """Make sure of an address that its pool lets anybody open. One that has no pool stays unknown."""
        if address in self._known:
            return
        pool_name, _, key = address.rpartition("/")
        if await self._store.read(ReadAddress(address=address)) is None:
            pool = await self._store.read(ReadPool(pool=pool_name)) if key else None
            if pool is None:
                return
            await self._commit(OpenAddress(address=address, kind=AddressKind.ACTOR, capacity=pool.capacity))
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known.add(address)

    async def _reply(self, address: str, message_id: str, news: Subscription) -> Any:
        """Wait for the reply to a message that was accepted. Wake-ups are hints: what is on record is the truth."""
        pause = FIRST_LOOK
        while True:
            record = await self._store.read(ReadMessage(address=address, message_id=message_id))
            if record is None:
                raise StoreRefused("unknown_message", f"{address!r} has no message {message_id!r} on record any more")
            reply = await reply_of(self._store, self._payloads, record)
            if reply is not None:
                return reply.give()
            with anyio.move_on_after(pause):
                await news.wait()
            pause = min(1.5 * pause, LONGEST_PAUSE)

    async def answer(self, token: str, value: object) -> AnswerDisposition:
        """Answer a callback by its token, whether or not anybody waits for it yet.

        Returns: `accepted`; `duplicate` when it was answered before with the same, `conflict` with something else; `late` when
            it had expired, or nobody waits for it any more.
        Raises:
            UnknownToken: the token opens nothing. Whether there is such a callback is not told.
            NotEncodable, PayloadTooLarge: the value cannot be stored.
        """
        parts = split_token(token)
        if parts is None:
            raise UnknownToken
        data = self._payloads.encode_value(value)
        payload = await stow(self._store, data, name="the answer")
        answer = await self._store.commit(
            AnswerCallback(callback_id=parts[0], secret_digest=parts[1], answer=payload, digest=digest_of(data))
        )
        if isinstance(answer, Refused):
            raise UnknownToken
        disposition: AnswerDisposition = answer.disposition.value
        if disposition in ("accepted", "duplicate") and not await bring_answer(self._store, parts[0]):
            disposition = "late"
        return disposition
