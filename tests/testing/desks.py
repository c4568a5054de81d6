"""A desk: an address whose owner counts the messages it has handled, made of bare transitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define

from greenroom.persistence import (
    AcceptMessage,
    AddressKind,
    AddressRecord,
    BeginDelivery,
    ClaimAddress,
    EndExecution,
    FinishDelivery,
    Handled,
    NextMessages,
    ReadAddress,
    Refused,
    RegisterExecution,
    StateWrite,
    message_digest,
)

if TYPE_CHECKING:
    from greenroom.persistence import Outgoing, Receipt, Store, StoreClock, Transition
    from greenroom.testing import Life

T = TypeVar("T")

LEASE = 3600.0


async def done(store: Store, transition: Transition[T]) -> T:
    """Commit what is not to be refused."""
    answer = await store.commit(transition)
    assert not isinstance(answer, Refused), answer
    return answer


def message(address: str, message_id: str, body: bytes = b"{}") -> AcceptMessage:
    return AcceptMessage(
        address=address, message_id=message_id, type="Note", body=body, digest=message_digest("Note", body)
    )


async def record_of(store: Store, address: str = "desk") -> AddressRecord:
    record = await store.read(ReadAddress(address=address))
    assert record is not None
    return record


@define
class Desk:
    """An execution that owns an address."""

    store: Store
    execution_id: str
    address: str
    generation: int

    async def send(self, message_id: str) -> Receipt:
        return await done(self.store, message(self.address, message_id))

    def begin(self, seq: int) -> BeginDelivery:
        return BeginDelivery(address=self.address, execution_id=self.execution_id, generation=self.generation, seq=seq)

    def finish(self, seq: int, **what: Any) -> FinishDelivery:
        return FinishDelivery(
            address=self.address, execution_id=self.execution_id, generation=self.generation, seq=seq, **what
        )

    async def count(self) -> int:
        """How many messages the desk has handled, by its state."""
        return len((await record_of(self.store, self.address)).state or b"")  # type: ignore[arg-type]

    async def handle(self, seq: int, *, outgoing: tuple[Outgoing, ...] = ()) -> Handled:
        await done(self.store, self.begin(seq))
        state = StateWrite(payload=b"x" * (await self.count() + 1), type="Count", version=1)
        return await done(self.store, self.finish(seq, state=state, reply=b"1", outgoing=outgoing))

    async def handle_all(self) -> None:
        for record in await self.store.read(NextMessages(address=self.address)):
            assert record.seq is not None
            await self.handle(record.seq)

    async def end(self) -> None:
        await done(self.store, EndExecution(execution_id=self.execution_id))


async def register(store: Store, clock: StoreClock, execution_id: str, *, lease: float = LEASE) -> None:
    await done(
        store, RegisterExecution(execution_id=execution_id, host="here", pid=1, boot_id=clock.boot_id, lease=lease)
    )


def claiming(execution_id: str, address: str = "desk", *, capacity: int | None = None) -> ClaimAddress:
    return ClaimAddress(address=address, kind=AddressKind.ACTOR, execution_id=execution_id, capacity=capacity)


async def claim(store: Store, execution_id: str, address: str = "desk", *, capacity: int | None = None) -> Desk:
    claimed = await done(store, claiming(execution_id, address, capacity=capacity))
    return Desk(store, execution_id, address, claimed.generation)


async def open_desk(store: Store, life: Life, address: str = "desk") -> Desk:
    """A desk of this life's own execution."""
    execution_id = f"e{life.number}"
    assert life.store.clock is not None
    await register(store, life.store.clock, execution_id)
    return await claim(store, execution_id, address)
