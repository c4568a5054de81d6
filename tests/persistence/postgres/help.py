"""Drivers in a test's own hands, without a store thread: each call is made when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import asyncpg
from attrs import define

from greenroom.persistence.addresses import AddressKind, ClaimAddress
from greenroom.persistence.clock import StoreClock
from greenroom.persistence.content import message_digest
from greenroom.persistence.deliveries import BeginDelivery
from greenroom.persistence.driver import NotReached, OutcomeUnknown
from greenroom.persistence.executions import RegisterExecution
from greenroom.persistence.ids import new_id
from greenroom.persistence.messages import AcceptMessage
from greenroom.persistence.postgres.driver import PostgresDriver
from greenroom.persistence.postgres.session import Connection, connect
from greenroom.persistence.postgres.target import Limits, parse_target
from greenroom.persistence.transitions import Transition

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as the store thread would, on an asyncio loop of its own."""
    with asyncio.Runner() as runner:
        return runner.run(main)


def elsewhere(main: Coroutine[Any, Any, T]) -> T:
    """Run asyncio code to its end in a thread of its own, whatever loop runs in this one."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, main).result()


@define
class Hands:
    """A clock that stands until it is moved."""

    micros: int = 1_800_000_000_000_000

    def move(self, seconds: float) -> None:
        self.micros += round(seconds * 1e6)

    @property
    def clock(self) -> StoreClock:
        return StoreClock(now=lambda: self.micros, boot=lambda: self.micros / 1e6 - 1_799_999_000, boot_id="test")


@asynccontextmanager
async def opened(url: str, clock: StoreClock | None = None, **options: Any) -> AsyncIterator[PostgresDriver]:
    """A driver that is open for the length of a block."""
    driver = PostgresDriver(url, clock, **options)
    await driver.open()
    try:
        yield driver
    finally:
        await driver.close()


@asynccontextmanager
async def session(url: str, limits: Limits | None = None) -> AsyncIterator[Connection]:
    """A session in the store's schema, beside the drivers."""
    connection = await connect(parse_target(url), limits or Limits(), application="test")
    try:
        yield connection
    finally:
        if not connection.is_closed():
            await connection.close()


def schema_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["schema"][0]


async def one(driver: PostgresDriver, item: Transition[Any]) -> Any:
    """Apply one transition."""
    return (await driver.apply(new_id(), [item])).answers[0]


async def many(driver: PostgresDriver, items: Sequence[Transition[Any]]) -> list[Any]:
    """Apply transitions in one batch."""
    return list((await driver.apply(new_id(), items)).answers)


async def see_through(driver: PostgresDriver, items: list[Transition[Any]]) -> list[Any]:
    """Apply a batch as the store thread does: recover what is unknown, run again what is known not to be."""
    batch_id, unknown = new_id(), False
    while True:
        try:
            if unknown:
                recovered = await driver.recover(batch_id, items)
                if recovered is not None:
                    return list(recovered.answers)
                unknown = False
            return list((await driver.apply(batch_id, items)).answers)
        except OutcomeUnknown:
            unknown = True
        except NotReached:
            await driver.pause(0.01)


def execution(name: str, lease: float = 30.0) -> RegisterExecution:
    return RegisterExecution(execution_id=name, host="here", pid=1, boot_id="test", lease=lease)


def claim(address: str, name: str, capacity: int | None = None) -> ClaimAddress:
    return ClaimAddress(address=address, kind=AddressKind.ACTOR, execution_id=name, capacity=capacity)


def message(address: str, message_id: str, body: bytes = b"x") -> AcceptMessage:
    digest = message_digest("Test", body)
    return AcceptMessage(address=address, message_id=message_id, type="Test", body=body, digest=digest, sender="me")


def begin(address: str, name: str, generation: int, seq: int) -> BeginDelivery:
    return BeginDelivery(address=address, execution_id=name, generation=generation, seq=seq)


async def waiting_for_locks(connection: asyncpg.Connection[asyncpg.Record], count: int) -> None:
    """Return when that many sessions of drivers wait for a row's lock."""
    while True:
        waiting = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'greenroom' AND wait_event_type = 'Lock'"
        )
        if waiting == count:
            return
        await asyncio.sleep(0.005)
