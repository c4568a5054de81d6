"""`Client`: a store from outside, without a tree. Whoever sends to durable addresses, looks after them or answers callbacks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, Final, TypeVar

import anyio

from greenroom.actors import Message
from greenroom.actors.messages import not_a_message
from greenroom.errors import (
    AskTimeout,
    MailboxFull,
    Misuse,
    NotAccepted,
    StoreRefused,
    StoreUnavailable,
    UnknownToken,
)
from greenroom.mailbox import Receipt, current_loop, message_type
from greenroom.persistence import (
    AcceptMessage,
    AddressKind,
    AddressRecord,
    AnswerCallback,
    Committer,
    DeadLetters,
    DelayedMessages,
    Disposition,
    DropDead,
    ListAddresses,
    ListExecutions,
    ListMessages,
    ListObservations,
    MessageRecord,
    NextMessages,
    Observation,
    OpenAddress,
    OutboxRecord,
    ReadAddress,
    ReadMessage,
    ReadOutbox,
    ReadPool,
    Refused,
    RequeueDead,
    RequeueSend,
    StoreNow,
    Subscription,
    Transition,
    UnparkAddress,
    digest_of,
    find_store,
    new_id,
    split_token,
    stow,
)
from greenroom.persistence import ObservationKind as StoredKind
from greenroom.persistence import Receipt as StoreReceipt
from greenroom.runtime.durable.opening import StoreSource
from greenroom.runtime.durable.payloads import Payloads
from greenroom.runtime.durable.replies import reply_of
from greenroom.runtime.listing import PAGE, Listing
from greenroom.runtime.stored import (
    AddressInfo,
    AnswerDisposition,
    Durability,
    ExecutionInfo,
    MessageInfo,
    ObservationInfo,
    ObservationKind,
    OutboxInfo,
    Shown,
)

R = TypeVar("R")
T = TypeVar("T")

FIRST_LOOK: Final = 0.005
"""Seconds after which a reply is looked for again. Each time it takes longer, unless the store tells of something new."""

LONGEST_PAUSE: Final = 0.5
"""Seconds between two looks for a reply, at most."""

MOST_KNOWN: Final = 10_000
"""Addresses that are remembered to be there."""


class Client:
    """A store from outside: `async with gr.Client("sqlite:///service.db") as client: ...`, on asyncio or trio.

    It runs no tree and owns no address: what it sends is handled by the services that share the store, now or when they run
    again. Keep one open for as long as it is used; it is used on the event loop that entered it.

    Args:
        store: the URL that the services have.

    Raises, when it is entered:
        NoSuchStore: there is nothing at the URL; a client makes no database.
        BadStoreUrl: the URL will not do; one in memory cannot be shared.
        StoreUnavailable, IncompatibleStore: it does not answer, or is not for this code.
    All methods raise `StoreUnavailable` when the store does not answer.
    """

    def __init__(self, store: str | StoreSource) -> None:
        self._source = StoreSource(store) if isinstance(store, str) else store
        self._payloads = Payloads()
        self._block: AbstractAsyncContextManager[Committer] | None = None
        self._opened: Committer | None = None
        self._known: set[str] = set()
        """Addresses that were there: nothing takes one away."""

    async def __aenter__(self) -> Client:
        if self._block is not None:
            raise Misuse("this Client has been entered before: make a new one")
        self._block = self._source.open(current_loop())
        await find_store(self._source.url)
        self._opened = await self._block.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._block is not None
        self._opened = None
        await self._block.__aexit__(kind, error, trace)

    @property
    def _store(self) -> Committer:
        if self._opened is None:
            raise Misuse("this Client is not open: use it inside `async with gr.Client(url) as client:`")
        return self._opened

    @property
    def _shown(self) -> Shown:
        return Shown(self._store, self._payloads)

    @property
    def name(self) -> str:
        """The store, for people: without a password."""
        return self._store.name

    @property
    def durability(self) -> Durability:
        """What an acknowledgement to this client promises.

        `full`: it survives the death of the process and of the machine. `reduced`: only that of the process.
        """
        return self._store.durability.value

    async def now(self) -> datetime:
        """The store's time, UTC."""
        return await self._store.read(StoreNow())

    def register(self, *classes: type[Any]) -> None:
        """Make classes known that replies and messages are made of, where they have a name of their own (`codec.wire(tag=...)`).

        Others are found by themselves, if their module is loaded. Raises `NotEncodable`.
        """
        self._payloads.register(*classes)

    # ----------------------------------------------------------------------------------------------------- messages

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
        return answer.disposition.value

    # --------------------------------------------------------------------------------------------------- looking

    async def address(self, address: str) -> AddressInfo | None:
        """One address; None when it is unknown."""
        record = await self._store.read(ReadAddress(address=address))
        return None if record is None else await self._shown.address(record)

    def addresses(self, *, after: str = "", parked: bool = False) -> AsyncIterator[AddressInfo]:
        """All addresses, in order. `parked`: only those that wait for an operator. `after`: only those behind this one."""

        async def read(last: AddressRecord | None) -> Sequence[AddressRecord]:
            place = after if last is None else last.address
            return await self._store.read(ListAddresses(after=place, limit=PAGE, parked=parked))

        return Listing(read, self._shown.address)

    async def message(self, address: str, message_id: str) -> MessageInfo | None:
        """One message with what became of it; None when it is unknown, or forgotten by retention."""
        record = await self._store.read(ReadMessage(address=address, message_id=message_id))
        return None if record is None else await self._shown.message(record)

    def messages(self, address: str, *, after: int = 0) -> AsyncIterator[MessageInfo]:
        """All messages on record of an address that have a place (the delayed have none), in order; those behind `after`."""

        async def read(last: MessageRecord | None) -> Sequence[MessageRecord]:
            return await self._store.read(ListMessages(address=address, after=_place(last, after), limit=PAGE))

        return Listing(read, self._shown.message)

    def waiting(self, address: str, *, after: int = 0) -> AsyncIterator[MessageInfo]:
        """Messages of an address that wait for delivery, in order; those behind `after`."""

        async def read(last: MessageRecord | None) -> Sequence[MessageRecord]:
            return await self._store.read(NextMessages(address=address, after=_place(last, after), limit=PAGE))

        return Listing(read, self._shown.message)

    async def delayed(self, address: str, *, limit: int = PAGE) -> tuple[MessageInfo, ...]:
        """The next `limit` delayed messages and timers of an address, the next due first."""
        records = await self._store.read(DelayedMessages(address=address, limit=limit))
        return tuple([await self._shown.message(record) for record in records])

    def dead_letters(self, address: str | None = None) -> AsyncIterator[MessageInfo]:
        """Dead letters of an address, or of all, in order of address and place."""

        async def read(last: MessageRecord | None) -> Sequence[MessageRecord]:
            place = ("", 0) if last is None else (last.address, _place(last, 0))
            return await self._store.read(DeadLetters(address=address, after=place, limit=PAGE))

        return Listing(read, self._shown.message)

    async def executions(self, *, ended: bool = False) -> tuple[ExecutionInfo, ...]:
        """Executions that have not ended, alive and dead, oldest first; with `ended`, all that are on record."""
        records = await self._store.read(ListExecutions(ended=ended))
        return tuple(map(self._shown.execution, records))

    def observations(
        self, *, address: str | None = None, kind: ObservationKind | None = None
    ) -> AsyncIterator[ObservationInfo]:
        """What was refused, came late or matched nothing, newest first."""
        wanted = None if kind is None else StoredKind(kind)

        async def read(last: Observation | None) -> Sequence[Observation]:
            before = None if last is None else last.id
            return await self._store.read(ListObservations(address=address, kind=wanted, before=before, limit=PAGE))

        return Listing(read, self._shown.observation)

    def outbox(self, address: str, *, after: int = 0) -> AsyncIterator[OutboxInfo]:
        """What handlers of an address sent to destinations outside of the store, in order; those behind the ordinal `after`."""

        async def read(last: OutboxRecord | None) -> Sequence[OutboxRecord]:
            place = after if last is None else last.ordinal
            return await self._store.read(ReadOutbox(address=address, after=place, limit=PAGE))

        return Listing(read, self._shown.outbox)

    # --------------------------------------------------------------------------------------------------- settling

    async def requeue(self, address: str, message_id: str) -> None:
        """Put a dead letter back at the end of its mailbox, with no deliveries counted. Raises `StoreRefused`."""
        await self._commit(RequeueDead(address=address, message_id=message_id))

    async def drop(self, address: str, message_id: str) -> None:
        """Let a dead letter never be delivered. Its id stays taken while it is on record. Raises `StoreRefused`."""
        await self._commit(DropDead(address=address, message_id=message_id))

    async def unpark(self, address: str) -> None:
        """Let an address that waits for an operator run again. Raises `StoreRefused`."""
        await self._commit(UnparkAddress(address=address))

    async def requeue_send(self, address: str, ordinal: int) -> None:
        """Try again to send what the outbox has given up. Raises `StoreRefused`."""
        await self._commit(RequeueSend(address=address, ordinal=ordinal))

    async def _commit(self, transition: Transition[T]) -> T:
        answer = await self._store.commit(transition)
        if isinstance(answer, Refused):
            raise StoreRefused(answer.reason.value, answer.detail)
        return answer


def _place(last: MessageRecord | None, first: int) -> int:
    """Where the next page begins: behind the last record of the one before, which has a place, or where the caller says."""
    return first if last is None or last.seq is None else last.seq
