"""The standing recovery: each duty fails for itself, says so, and is tried again; what it looks for is found (K01, R32)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import greenroom as gr
from greenroom.persistence import (
    AcceptMessage,
    AddressKind,
    ClaimAddress,
    DueAddresses,
    ExecutionState,
    ExpiredCallbacks,
    FlushableHeld,
    HeldForHolders,
    ListExecutions,
    ListMessages,
    ListObservations,
    OpenAddress,
    OwnedReady,
    Prune,
    Query,
    ReadMessage,
    Refused,
    RegisterExecution,
    Transition,
)
from greenroom.persistence.driver import StatementFailed
from greenroom.runtime.durable.payloads import Payloads
from greenroom.runtime.durable.sweep import SweepFailed
from greenroom.testing.wrapped_driver import WrappedDriver
from tests.durable.helpers import events_of, settled
from tests.durable.puppets import POOL, Do, Look, Puppet, pool, record_of, residents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.persistence import Committer, Driver
    from greenroom.persistence.driver import Applied
    from tests.durable.helpers import Shared

PATH = "service/puppet"


class Broken(WrappedDriver):
    """A database that fails at some kinds of transitions and queries, for as long as they are named here."""

    def __init__(self, inner: Driver, kinds: set[type]) -> None:
        super().__init__(inner)
        self.kinds = kinds

    def _check(self, request: object) -> None:
        if type(request) in self.kinds:
            raise StatementFailed(f"a test breaks {type(request).__name__}")

    async def apply(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        for item in items:
            self._check(item)
        return await super().apply(batch_id, items)

    async def read(self, query: Query[Any]) -> Any:
        self._check(query)
        return await super().read(query)


DUTIES = {
    DueAddresses: "wake what is due",
    FlushableHeld: "bring messages to recipients that have room again",
    ExpiredCallbacks: "end callbacks whose time has passed",
    HeldForHolders: "name those who wait for each other's room",
    ListExecutions: "give back what lost executions owned",
    OwnedReady: "look for missed messages",
    Prune: "forget what is past its retention",
}


def broken(database: Shared, kinds: set[type]) -> Any:
    return database.source(driver=lambda driver: Broken(driver, kinds), sweep=60.0)


@pytest.mark.parametrize("kind", DUTIES, ids=lambda kind: kind.__name__)
async def test_k01_a_duty_that_fails_is_an_event_and_is_tried_again_and_the_others_go_on(
    database: Shared, kind: type
) -> None:
    kinds = {kind}
    runtime = database.runtime(pool(), source=broken(database, kinds))
    events = runtime.events()
    async with runtime:
        await anyio.sleep(700)
        failed = events_of(SweepFailed, events)
        assert {event.duty for event in failed} == {DUTIES[kind]}
        assert all("a test breaks" in event.why for event in failed)
        assert len(failed) >= 2
        kinds.clear()
        await anyio.sleep(700)
        events_of(SweepFailed, events)
        await anyio.sleep(700)
        assert events_of(SweepFailed, events) == []
        assert await runtime.ref(f"{POOL}/alice").ask(Do("x")) is None


async def dead_execution(database: Shared, store: Committer, *addresses: str) -> None:
    """An execution that has owned these addresses, each with a message, and is dead."""
    clock = database.time.store_clock
    encoded = Payloads().encode(Do("left behind"))
    await store.commit(
        RegisterExecution(execution_id="dead", host="elsewhere", pid=1, boot_id=clock.boot_id, lease=60.0)
    )
    for address in addresses:
        claim = ClaimAddress(address=address, kind=AddressKind.ACTOR, execution_id="dead")
        assert not isinstance(await store.commit(claim), Refused)
        message = AcceptMessage(
            address=address, message_id="m", type=encoded.type, body=encoded.body, digest=encoded.digest
        )
        assert not isinstance(await store.commit(message), Refused)
    database.time.pass_time(61)


async def test_i4_what_a_lost_execution_owned_is_given_back_and_taken_up(database: Shared) -> None:
    async with database.open() as store:
        await dead_execution(database, store, *(f"{POOL}/{number}" for number in range(5)))
        async with database.runtime(pool(), source=database.source(sweep=1.0)) as runtime:
            await anyio.sleep(30)
            assert residents(runtime) == [str(number) for number in range(5)]
            for number in range(5):
                assert await runtime.ref(f"{POOL}/{number}").ask(Look()) == ("left behind",)
        assert [e.state for e in await store.read(ListExecutions(ended=True))] == [ExecutionState.ENDED] * 2


async def test_what_a_lost_execution_owned_without_mail_is_not_brought_to_memory(database: Shared) -> None:
    async with database.open() as store:
        await dead_execution(database, store, f"{POOL}/mail")
        clock = database.time.store_clock
        await store.commit(
            RegisterExecution(execution_id="dead too", host="elsewhere", pid=1, boot_id=clock.boot_id, lease=60.0)
        )
        for number in range(5):
            claim = ClaimAddress(address=f"{POOL}/{number}", kind=AddressKind.ACTOR, execution_id="dead too")
            assert not isinstance(await store.commit(claim), Refused)
        database.time.pass_time(61)
        async with database.runtime(pool(), source=database.source(sweep=1.0)) as runtime:
            await anyio.sleep(30)
            assert residents(runtime) == ["mail"]
            assert (await record_of(store, f"{POOL}/0")).owner is None


async def test_an_owned_address_whose_wake_up_was_missed_is_found(database: Shared) -> None:
    """A hint may be lost; the sweep is not one."""
    encoded = Payloads().encode(Do("x"))
    async with (
        database.runtime(gr.Child("puppet", Puppet, {}), source=database.source(driver=Deaf, sweep=1.0)) as runtime,
        database.open() as store,
    ):
        message = AcceptMessage(
            address=PATH, message_id="m", type=encoded.type, body=encoded.body, digest=encoded.digest
        )
        assert not isinstance(await store.commit(message), Refused)
        await anyio.sleep(10)
        assert await runtime.ref(PATH).ask(Look()) == ("x",)


async def test_a_key_that_is_due_and_whose_wake_up_was_missed_is_found(database: Shared) -> None:
    encoded = Payloads().encode(Do("x"))
    async with (
        database.runtime(pool(), source=database.source(driver=Deaf, sweep=1.0)) as runtime,
        database.open() as store,
    ):
        await store.commit(OpenAddress(address=f"{POOL}/alice", kind=AddressKind.ACTOR))
        message = AcceptMessage(
            address=f"{POOL}/alice", message_id="m", type=encoded.type, body=encoded.body, digest=encoded.digest
        )
        assert not isinstance(await store.commit(message), Refused)
        await anyio.sleep(3)
        assert residents(runtime) == ["alice"]


class Deaf(WrappedDriver):
    """Hears nothing of what other stores do."""

    async def news(self) -> Any:
        news = await super().news()
        return type(news)()


async def test_r32_retention_runs_as_long_as_the_runtime_does(database: Shared) -> None:
    days = timedelta(days=8).total_seconds()
    source = database.source(lease=1e7, sweep=6 * 3600.0)
    async with database.runtime(gr.Child("puppet", Puppet, {}), source=source) as runtime, database.open() as store:
        puppet = runtime.ref(PATH)
        await puppet.ask(Do("x"), message_id="old")
        await puppet.send(Do("x"), message_id="old")
        assert len(await store.read(ListObservations(address=PATH))) == 1
        await anyio.sleep(days)
        await puppet.ask(Do("y"), message_id="new")
        assert [m.message_id for m in await store.read(ListMessages(address=PATH))] == ["new"]
        assert await store.read(ReadMessage(address=PATH, message_id="old")) is None
        assert await store.read(ListObservations(address=PATH)) == ()
        # What waits and what is owned stays; the state, too.
        assert await puppet.ask(Look()) == ("x", "y")


async def test_the_sweep_of_a_runtime_that_waits_for_weeks_costs_little(database: Shared) -> None:
    """Under a virtual clock rounds are hourly: a wait of weeks must not cost a million looks."""
    async with database.runtime(pool(), source=database.source(lease=1e8)) as runtime:
        await anyio.sleep(timedelta(days=3).total_seconds())
        await settled()
        assert residents(runtime) == []
