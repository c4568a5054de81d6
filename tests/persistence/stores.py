"""Databases for the conformance suite, and short words for what its tests say again and again.

A backend is a class with the methods of `Database`; `tests/persistence/conftest.py` lists those that the suite runs on.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio.to_thread
from attrs import define, field

from greenroom.persistence.addresses import AddressKind, ClaimAddress, Claimed, CloseAddress, ReleaseAddress, StateWrite
from greenroom.persistence.clock import StoreClock
from greenroom.persistence.committer import Committer
from greenroom.persistence.content import Payload, message_digest
from greenroom.persistence.deliveries import (
    BeginDelivery,
    BuryMessage,
    CancelTimer,
    DeadLettered,
    Delivery,
    FinishDelivery,
    Handled,
    Outgoing,
    SetTimer,
    ToOutside,
    UndoDelivery,
)
from greenroom.persistence.driver import Driver
from greenroom.persistence.executions import RegisterExecution
from greenroom.persistence.messages import AcceptMessage, MessageRecord, NextMessages, Receipt
from greenroom.persistence.store import Store, make_driver, open_store
from greenroom.persistence.transitions import RefusalReason, Refused, Transition

T = TypeVar("T")

Tables = dict[str, list[tuple[Any, ...]]]


@define
class SteeredClock:
    """A store's time, moved by hand. It begins at noon of the first of January 2030."""

    start: datetime = datetime(2030, 1, 1, 12, tzinfo=UTC)
    passed: float = 0.0
    boot_id: str = "boot-1"

    def pass_time(self, seconds: float) -> None:
        self.passed += seconds

    def at(self, seconds: float) -> datetime:
        """The instant that many seconds from now."""
        return self.start + timedelta(seconds=self.passed + seconds)

    @property
    def store_clock(self) -> StoreClock:
        return StoreClock(
            now=lambda: round((self.start.timestamp() + self.passed) * 1e6),
            boot=lambda: 1000.0 + self.passed,
            boot_id=self.boot_id,
        )


class Database(Protocol):
    """One empty database, and its time."""

    time: SteeredClock

    @property
    def url(self) -> str: ...

    def open(self, *, bound: float = 30.0) -> AbstractAsyncContextManager[Committer]:
        """A store on it."""

    def driver(self) -> Driver:
        """A driver for it, not opened, for tests that apply batches by hand: `driver.run(coroutine)`."""

    def tables(self) -> Tables:
        """All rows that are there and committed, by table, in an order that does not depend on their insertion.

        Without what no caller can know: `batches`, `meta`, the ids of observations.
        """


@define
class SqliteDatabase:
    """A file without the fsync at each commit, which no test of this suite can see."""

    path: Path
    time: SteeredClock = field(factory=SteeredClock)

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}?durability=reduced"

    def open(self, *, bound: float = 30.0) -> AbstractAsyncContextManager[Committer]:
        return open_store(self.url, clock=self.time.store_clock, bound=bound)

    def driver(self) -> Driver:
        return make_driver(self.url, clock=self.time.store_clock)

    def tables(self) -> Tables:
        with closing(sqlite3.connect(self.path)) as connection:
            names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            tables: Tables = {}
            for name in sorted(set(names) - {"batches", "meta"}):
                columns = [column[1] for column in connection.execute(f"PRAGMA table_info({name})")]
                wanted = ", ".join(column for column in columns if (name, column) != ("observations", "id"))
                tables[name] = sorted(connection.execute(f"SELECT {wanted} FROM {name}").fetchall(), key=repr)
            return tables


def drive(driver: Driver, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a driver's coroutines in this thread, as its store thread would."""
    results: list[T] = []

    async def main() -> None:
        results.append(await work())

    driver.run(main())
    return results[0]


async def until(condition: Callable[[], bool]) -> None:
    """Wait, in real time, for something that happens in another thread."""
    while not condition():
        await anyio.to_thread.run_sync(time.sleep, 0.001)


# ------------------------------------------------------------------------------------------------------------ words


async def done(store: Store, transition: Transition[T]) -> T:
    """Commit what is not to be refused."""
    answer = await store.commit(transition)
    assert not isinstance(answer, Refused), answer
    return answer


async def refused(store: Store, transition: Transition[Any]) -> RefusalReason:
    """Commit what is to be refused, and tell why it was."""
    answer = await store.commit(transition)
    assert isinstance(answer, Refused), answer
    assert answer.detail
    return answer.reason


def message(
    address: str,
    message_id: str,
    body: bytes = b"{}",
    *,
    type: str = "Note",
    sender: str | None = None,
    deliver_at: datetime | None = None,
) -> AcceptMessage:
    return AcceptMessage(
        address=address,
        message_id=message_id,
        type=type,
        body=body,
        digest=message_digest(type, body),
        sender=sender,
        deliver_at=deliver_at,
    )


def outgoing(recipient: str, message_id: str, body: bytes = b"{}", *, deliver_at: datetime | None = None) -> Outgoing:
    return Outgoing(
        recipient=recipient,
        message_id=message_id,
        type="Note",
        body=body,
        digest=message_digest("Note", body),
        deliver_at=deliver_at,
    )


def timer(key: str, message_id: str, deliver_at: datetime, body: bytes = b"{}") -> SetTimer:
    return SetTimer(
        key=key,
        message_id=message_id,
        type="Tick",
        body=body,
        digest=message_digest("Tick", body),
        deliver_at=deliver_at,
    )


def register(execution_id: str, *, lease: float = 30.0, boot_id: str = "boot-1") -> RegisterExecution:
    return RegisterExecution(execution_id=execution_id, host="here", pid=1, boot_id=boot_id, lease=lease)


def claiming(address: str, execution_id: str, *, capacity: int | None = None) -> ClaimAddress:
    return ClaimAddress(address=address, kind=AddressKind.ACTOR, execution_id=execution_id, capacity=capacity)


@define
class Owner:
    """An execution that owns an address."""

    store: Store
    execution_id: str
    address: str
    claimed: Claimed

    @property
    def generation(self) -> int:
        return self.claimed.generation

    async def send(self, message_id: str, body: bytes = b"{}") -> Receipt:
        """Somebody's message to the address."""
        return await done(self.store, message(self.address, message_id, body))

    def begin(self, seq: int, *, max_deliveries: int = 5) -> BeginDelivery:
        return BeginDelivery(
            address=self.address,
            execution_id=self.execution_id,
            generation=self.generation,
            seq=seq,
            max_deliveries=max_deliveries,
        )

    def finish(
        self,
        seq: int,
        *,
        reply: Payload | None = None,
        error: Payload | None = None,
        state: StateWrite | None = None,
        outgoing: tuple[Outgoing, ...] = (),
        timers: tuple[SetTimer | CancelTimer, ...] = (),
        outside: tuple[ToOutside, ...] = (),
        next_seq: int | None = None,
        max_deliveries: int = 5,
    ) -> FinishDelivery:
        return FinishDelivery(
            address=self.address,
            execution_id=self.execution_id,
            generation=self.generation,
            seq=seq,
            reply=reply,
            error=error,
            state=state,
            outgoing=outgoing,
            timers=timers,
            outside=outside,
            next_seq=next_seq,
            max_deliveries=max_deliveries,
        )

    def bury(self, seq: int, reason: str = "cannot be decoded") -> BuryMessage:
        return BuryMessage(
            address=self.address,
            execution_id=self.execution_id,
            generation=self.generation,
            seq=seq,
            reason=reason,
        )

    def release(self) -> ReleaseAddress:
        return ReleaseAddress(address=self.address, execution_id=self.execution_id, generation=self.generation)

    def close(self) -> CloseAddress:
        return CloseAddress(address=self.address, execution_id=self.execution_id, generation=self.generation)

    def undo(self, seq: int) -> UndoDelivery:
        return UndoDelivery(address=self.address, execution_id=self.execution_id, generation=self.generation, seq=seq)

    async def begun(self, seq: int) -> Delivery | DeadLettered:
        return await done(self.store, self.begin(seq))

    async def handle(self, seq: int, **what: Any) -> Handled:
        """Begin and finish a delivery."""
        await self.begun(seq)
        return await done(self.store, self.finish(seq, **what))

    async def waiting(self) -> list[str]:
        """The identities of the messages that wait, in order."""
        return [record.message_id for record in await self.records()]

    async def records(self) -> tuple[MessageRecord, ...]:
        return await self.store.read(NextMessages(address=self.address))


async def owner(
    store: Store,
    address: str = "desk",
    *,
    execution_id: str = "e1",
    kind: AddressKind = AddressKind.ACTOR,
    capacity: int | None = None,
    lease: float = 30.0,
) -> Owner:
    """Register an execution, if it is not, and let it claim an address."""
    await store.commit(register(execution_id, lease=lease))
    claim = ClaimAddress(address=address, kind=kind, execution_id=execution_id, capacity=capacity)
    return Owner(store, execution_id, address, await done(store, claim))
