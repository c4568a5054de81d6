"""A store that is away, slow to answer, or gone for good; a runtime that is used where it is about to be cancelled."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest

import greenroom as gr
from greenroom.persistence import (
    AcceptMessage,
    AddressKind,
    ClaimAddress,
    DueAddresses,
    ListExecutions,
    ListMessages,
    MessageStatus,
    ReadAddress,
    ReadMessage,
    RegisterExecution,
)
from greenroom.runtime.durable.payloads import Payloads
from greenroom.testing import Away, OutcomeLost, StatementError, StoreFaults
from greenroom.testing.wrapped_driver import WrappedDriver
from tests.durable.desks import DESK, Desk, Script, desk
from tests.durable.helpers import LEASE, Add, Boom, Note, events_of, eventually, settled, until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from greenroom.persistence import Transition
    from greenroom.persistence.driver import Applied
    from tests.durable.helpers import Shared

BOUND = 0.4
"""Real seconds that a store waits for its database, where a test waits for it to give up."""


# ------------------------------------------------------------------------------------------------- it is away


@pytest.mark.parametrize("transition", ["ClaimAddress", "BeginDelivery", "FinishDelivery"])
async def test_a_store_that_is_away_for_long_is_waited_for_and_counts_no_crash(
    database: Shared, transition: str
) -> None:
    script = Script()
    async with StoreFaults({f"{transition} {DESK}*": Away()}) as faults, anyio.create_task_group() as group:
        group.start_soon(come_back, faults)
        source = database.source(driver=faults.wrap, bound=BOUND)
        async with database.runtime(desk(script), source=source, intensity=0) as runtime:
            assert await send_until_accepted(runtime, Note("one"), "m1") in ("accepted", "duplicate")
            await eventually(lambda: bool(script.seen) and not faults.away)
            await anyio.sleep(10)
            async with database.open() as store:
                record = await store.read(ReadMessage(address=DESK, message_id="m1"))
                assert record is not None
                assert (record.status, record.deliveries) == (MessageStatus.HANDLED, 1)
    assert (script.starts, script.seen) == (1, ["one"])
    assert faults.left == ()


async def come_back(faults: StoreFaults) -> None:
    """Heal the store when all that waited for it was told that it does not answer."""
    await eventually(lambda: bool(faults.struck))
    end = time.monotonic() + 3 * BOUND
    while time.monotonic() < end:  # the store waits in real time, and those who ask it again do so in virtual time
        await anyio.sleep(0.05)
        await anyio.to_thread.run_sync(time.sleep, 0.02)
    faults.heal()


async def send_until_accepted(runtime: gr.Runtime, message: gr.Message[Any], message_id: str) -> str:
    """Send it again until it is acknowledged."""
    while True:
        try:
            receipt = await runtime.ref(DESK).send(message, message_id=message_id)
        except gr.StoreUnavailable:
            continue
        assert receipt is not None
        return receipt.disposition


@pytest.mark.parametrize("committed", [True, False])
async def test_r05_a_handling_whose_outcome_was_lost_is_looked_up_and_not_repeated(
    database: Shared, committed: bool
) -> None:
    script = Script()
    async with StoreFaults({f"FinishDelivery {DESK} m1": OutcomeLost(committed=committed, seconds=2.0)}) as faults:
        source = database.source(driver=faults.wrap)
        async with database.runtime(desk(script), source=source, intensity=0) as runtime:
            await runtime.ref(DESK).send(Note("one"), message_id="m1")
            assert await runtime.ref(DESK).ask(Add(1), timeout=60) == 1
    assert script.seen == ["one", "1"]
    assert faults.left == ()


async def test_a_sender_is_told_when_the_store_does_not_answer_and_may_send_again(database: Shared) -> None:
    script = Script()
    async with StoreFaults() as faults:
        source = database.source(driver=faults.wrap, bound=BOUND)
        async with database.runtime(desk(script), source=source) as runtime:
            await settled()
            faults.go_away()
            with pytest.raises(gr.StoreUnavailable) as caught:
                await runtime.ref(DESK).send(Note("one"), message_id="m1")
            assert not caught.value.unknown
            faults.heal()
            assert await runtime.ref(DESK).send(Note("one"), message_id="m1") == gr.Receipt("m1", "accepted")
            await settled()
    assert script.seen == ["one"]


async def test_a_transition_that_the_database_refuses_is_the_failure_of_its_actor_alone(database: Shared) -> None:
    script, other = Script(), Script()
    second = gr.Child("other", Desk, other, mailbox=gr.PersistentMailbox())
    async with (
        StoreFaults({f"FinishDelivery {DESK} m1": StatementError()}) as faults,
        database.runtime(desk(script), second, source=database.source(driver=faults.wrap)) as runtime,
    ):
        await runtime.ref(DESK).send(Note("one"), message_id="m1")
        assert await runtime.ref("service/other").ask(Add(1)) == 1
        await settled()
    assert (script.starts, other.starts) == (2, 1)
    assert script.seen == ["one", "one"]


# ------------------------------------------------------------------------------------------------ it is gone


class Dying(WrappedDriver):
    """A driver whose thread ends by an error that no rule covers, when it is told to."""

    doomed = False

    async def apply(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        if self.doomed:
            raise Boom("a defect in the driver")
        return await self.inner.apply(batch_id, items)


async def test_r34_the_death_of_the_store_thread_ends_the_tree_and_is_named(database: Shared) -> None:
    script = Script()
    gate = script.gate("one")
    drivers: list[Dying] = []

    def wrap(inner: Any) -> Dying:
        drivers.append(Dying(inner))
        return drivers[0]

    with pytest.raises(gr.TreeFailed, match="a defect in the driver") as caught:
        async with database.runtime(desk(script), source=database.source(driver=wrap)) as runtime:
            await runtime.ref(DESK).send(Note("one"))
            await gate.begun.wait()
            drivers[0].doomed = True
            with pytest.raises(gr.StoreUnavailable):
                await runtime.ref(DESK).send(Note("two"))
            await anyio.sleep_forever()
    assert isinstance(caught.value.__cause__, gr.StoreUnavailable)
    database.pass_lease()
    gate.opened.set()
    async with database.runtime(desk(script)):
        await settled()
    assert script.seen == ["one", "one"]


async def test_a_store_that_cannot_be_opened_keeps_the_block_from_being_entered(database: Shared) -> None:
    script = Script()
    async with StoreFaults() as faults:
        faults.go_away()
        with pytest.raises(gr.StoreUnavailable):
            async with database.runtime(desk(script), source=database.source(driver=faults.wrap, bound=BOUND)):
                """It does not come here."""
    assert script.starts == 0


async def test_a_store_that_is_away_at_the_end_leaves_the_lease_to_lapse(database: Shared) -> None:
    script = Script()
    async with (
        StoreFaults() as faults,
        database.runtime(desk(script), source=database.source(driver=faults.wrap, bound=BOUND)),
    ):
        await settled()
        faults.go_away()
    async with database.open() as store:
        (execution,) = await store.read(ListExecutions())
        assert execution.alive
    database.pass_lease()
    async with database.runtime(desk(script)) as runtime:
        assert await runtime.ref(DESK).ask(Add(1)) == 1


# ------------------------------------------------------------------------------------------------ K01, K14, K15


ORPHANS = 250


async def orphan(database: Shared, names: Sequence[str]) -> None:
    """Addresses with a message each, owned by an execution that gives no sign any more."""
    encoded = Payloads().encode(Note("orphaned"))
    async with database.open() as store:
        register = RegisterExecution(
            execution_id="lost", host="here", pid=1, boot_id=database.time.boot_id, lease=LEASE
        )
        await store.commit(register)
        async with anyio.create_task_group() as group:

            async def leave(address: str) -> None:
                await store.commit(ClaimAddress(address=address, kind=AddressKind.MAILBOX, execution_id="lost"))
                await store.commit(
                    AcceptMessage(
                        address=address, message_id="m1", type=encoded.type, body=encoded.body, digest=encoded.digest
                    )
                )

            for name in names:
                group.start_soon(leave, f"service/{name}")


async def test_k01_all_that_a_lost_execution_owned_is_handled_though_the_store_fails_amid_the_takeover(
    database: Shared,
) -> None:
    names = [f"desk {number}" for number in range(ORPHANS)]
    script = Script()
    await orphan(database, names)
    children = gr.Parallel(*(gr.Child(name, Desk, script, mailbox=gr.PersistentMailbox()) for name in names))
    async with StoreFaults({"ClaimAddress service/desk 1?7 (2)": Away()}) as faults:
        source = database.source(driver=faults.wrap, bound=BOUND, sweep=1.0, lease=100 * LEASE)
        runtime = database.runtime(children, source=source, intensity=0)
        events = runtime.events()
        async with runtime:
            assert script.seen == []  # the lost one's lease still lasts
            database.pass_lease()
            await come_back(faults)
            failed = events_of(gr.SweepFailed, events)
            await anyio.sleep(7.0)
            assert script.seen == ["orphaned"] * ORPHANS
            assert failed
            async with database.open() as store:
                assert await store.read(DueAddresses()) == ()
                for name in names:
                    (message,) = await store.read(ListMessages(address=f"service/{name}"))
                    assert message.status is MessageStatus.HANDLED


async def test_k14_blocking_calls_on_the_event_loops_thread_are_refused_at_once(database: Shared) -> None:
    async with database.runtime(desk(Script())) as runtime:
        calls, ref = runtime.from_thread, runtime.ref(DESK)
        blocking: list[Callable[[], object]] = [
            lambda: calls.send(ref, Note("x")),
            lambda: calls.ask(ref, Add(1)),
            lambda: calls.tell(ref, Note("x")),
            lambda: calls.call(settled),
        ]
        for call in blocking:
            with pytest.raises(gr.Misuse, match="await"):
                call()


async def test_k14_from_another_thread_a_message_is_durable_when_send_returns(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script)) as runtime:
        calls, ref = runtime.from_thread, runtime.ref(DESK)

        def work() -> tuple[gr.Receipt | None, int]:
            return calls.send(ref, Note("one"), message_id="m1"), calls.ask(ref, Add(2))

        assert await anyio.to_thread.run_sync(work) == (gr.Receipt("m1", "accepted"), 2)
    assert script.seen == ["one", "2"]


def threads() -> set[str]:
    """The names of our own that are alive."""
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("greenroom")}


async def test_k15_a_runtime_in_a_cancelled_scope_leaves_nothing_behind(database: Shared) -> None:
    script = Script()
    before = threads()
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with database.runtime(desk(script)):
            await anyio.sleep(1)
    await until(lambda: threads() <= before)
    async with database.open() as store:
        record = await store.read(ReadAddress(address=DESK))
        assert record is None or record.owner is None
        assert await store.read(ListExecutions()) == ()


async def test_k15_a_runtime_whose_scope_is_cancelled_ends_in_order(database: Shared) -> None:
    script = Script()
    gate = script.gate("one")
    before = threads()
    with anyio.CancelScope() as scope:
        async with database.runtime(desk(script)) as runtime:
            await runtime.ref(DESK).send(Note("one"), message_id="m1")
            await gate.begun.wait()
            scope.cancel()
            await anyio.sleep(1)
    await until(lambda: threads() <= before)
    async with database.open() as store:
        record = await store.read(ReadAddress(address=DESK))
        assert record is not None
        assert (record.owner, record.ready) == (None, 1)
        message = await store.read(ReadMessage(address=DESK, message_id="m1"))
        assert message is not None
        assert message.deliveries == 0
        assert await store.read(ListExecutions()) == ()


async def test_k15_a_send_that_is_cancelled_has_happened_or_not_and_can_be_repeated(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script)) as runtime:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await runtime.ref(DESK).send(Note("one"), message_id="m1")
        receipt = await runtime.ref(DESK).send(Note("one"), message_id="m1")
        assert receipt is not None
        assert receipt.disposition in ("accepted", "duplicate")
        await settled()
    assert script.seen == ["one"]
