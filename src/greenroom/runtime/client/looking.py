"""Looking at durable addresses from outside, and settling what waits for an operator."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from greenroom.persistence import (
    AddressRecord,
    DeadLetters,
    DelayedMessages,
    DropDead,
    ListAddresses,
    ListExecutions,
    ListMessages,
    ListObservations,
    MessageRecord,
    NextMessages,
    Observation,
    OutboxRecord,
    ReadAddress,
    ReadMessage,
    ReadOutbox,
    RequeueDead,
    RequeueSend,
    UnparkAddress,
)
from greenroom.persistence import ObservationKind as StoredKind
from greenroom.runtime.client.opened import OpenedStore
from greenroom.runtime.listing import PAGE, Listing
from greenroom.runtime.stored import (
    AddressInfo,
    ExecutionInfo,
    MessageInfo,
    ObservationInfo,
    ObservationKind,
    OutboxInfo,
)


class Addresses(OpenedStore):
    """See the module."""

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

    def delayed(self, address: str) -> AsyncIterator[MessageInfo]:
        """All delayed messages and timers of an address, the next due first, those of one moment by their identity."""

        async def read(last: MessageRecord | None) -> Sequence[MessageRecord]:
            after = None if last is None or last.deliver_at is None else (last.deliver_at, last.message_id)
            return await self._store.read(DelayedMessages(address=address, after=after, limit=PAGE))

        return Listing(read, self._shown.message)

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


def _place(last: MessageRecord | None, first: int) -> int:
    """Where the next page begins: behind the last record of the one before, which has a place, or where the caller says."""
    return first if last is None or last.seq is None else last.seq
