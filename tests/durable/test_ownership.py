"""One owner for each address: standby, takeover, and what becomes of an owner that has lost its lease (I4)."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import greenroom as gr
from greenroom.mailbox import current_loop
from greenroom.persistence import (
    AddressRecord,
    ClaimAddress,
    ListExecutions,
    ListObservations,
    MessageStatus,
    ReadAddress,
    ReadMessage,
)
from greenroom.persistence.driver import NotReached
from greenroom.testing import Slow, StoreFaults, StoreSource
from greenroom.testing.wrapped_driver import WrappedDriver
from tests.durable.desks import DESK, Desk, Gate, Script, desk
from tests.durable.helpers import LEASE, Add, Note, events_of, settled, until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.persistence import Driver, MessageRecord, Renewer, Store, Transition
    from greenroom.persistence.driver import Applied
    from tests.durable.helpers import Shared


def state_of(runtime: gr.Runtime, path: str = DESK) -> gr.State:
    node = runtime.tree().find(path)
    assert node is not None
    return node.state


async def address_of(store: Store, address: str = DESK) -> AddressRecord:
    record = await store.read(ReadAddress(address=address))
    assert record is not None
    return record


async def message_of(store: Store, message_id: str) -> MessageRecord:
    record = await store.read(ReadMessage(address=DESK, message_id=message_id))
    assert record is not None
    return record


class ClaimCounter(WrappedDriver):
    """Notes down each claim that is made."""

    def __init__(self, inner: Driver, claims: list[str]) -> None:
        super().__init__(inner)
        self.claims = claims

    async def apply(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        self.claims.extend(item.address for item in items if isinstance(item, ClaimAddress))
        return await self.inner.apply(batch_id, items)


# ---------------------------------------------------------------------------------- cancelled while it opens its store


async def test_a_runtime_that_is_cancelled_while_it_registers_ends_and_leaves_no_execution(
    database: Shared,
) -> None:
    async with StoreFaults({"RegisterExecution*": Slow(2.0)}) as faults:
        with anyio.fail_after(100), anyio.move_on_after(1.0) as scope:
            async with database.runtime(desk(Script()), source=database.source(driver=faults.wrap)):
                raise AssertionError("it was entered")
        assert scope.cancelled_caught
        assert not faults.left
    async with database.open() as store:
        assert await store.read(ListExecutions()) == ()


@pytest.mark.backends("asyncio")
async def test_a_runtime_whose_asyncio_task_is_cancelled_while_it_registers_ends(database: Shared) -> None:
    async def enter() -> None:
        async with database.runtime(desk(Script()), source=database.source(driver=faults.wrap)):
            raise AssertionError("it was entered")

    async with StoreFaults({"RegisterExecution*": Slow(2.0)}) as faults:
        host = asyncio.create_task(enter())
        await anyio.sleep(1.0)
        host.cancel()
        with anyio.fail_after(100), pytest.raises(asyncio.CancelledError):
            await host
        assert not faults.left
    async with database.open() as store:
        assert await store.read(ListExecutions()) == ()


# ------------------------------------------------------------------------------------------ standby and takeover


async def test_i4_a_second_runtime_stands_by_and_starts_no_actor(database: Shared) -> None:
    script, heir = Script(), Script()
    async with database.runtime(desk(script)) as first, database.runtime(desk(heir)) as second:
        assert (state_of(first), state_of(second)) == (gr.State.RUNNING, gr.State.STANDBY)
        await first.ref(DESK).send(Note("one"))
        await second.ref(DESK).send(Note("two"))
        await until(lambda: len(script.seen) == 2)
        assert script.seen == ["one", "two"]
        await anyio.sleep(100)
        assert heir.starts == 0


async def test_a_runtime_that_stands_by_can_be_stopped(database: Shared) -> None:
    script, heir = Script(), Script()
    async with database.runtime(desk(script)):
        async with database.runtime(desk(heir)):
            await settled()
        assert heir.starts == 0
        async with database.open() as store:
            assert (await address_of(store)).owner is not None


async def test_whoever_stands_by_takes_over_when_the_owner_stops(database: Shared) -> None:
    script, heir = Script(), Script()
    gate = script.gate("one")
    async with database.runtime(desk(heir)) as placeholder:
        await placeholder.ref("service").terminate_child("desk")
        async with database.runtime(desk(script)) as first:
            await placeholder.ref("service").restart_child("desk")
            assert state_of(placeholder) is gr.State.STANDBY
            for text in ("one", "two"):
                await first.ref(DESK).send(Note(text))
            await gate.begun.wait()
            first.request_stop()
            gate.opened.set()
        await anyio.sleep(10)
        assert state_of(placeholder) is gr.State.RUNNING
    assert (script.seen, heir.seen) == (["one"], ["two"])


async def test_a_child_that_takes_over_is_told_of_as_started_then(database: Shared) -> None:
    heir = Script()
    async with database.runtime(desk(Script())) as first, database.runtime(desk(heir)) as second:
        events = second.events()
        await first.stop()
        await anyio.sleep(10)
        assert [event.path for event in events_of(gr.ActorStarted, events)] == [DESK]


async def test_i4_whoever_stands_by_takes_over_when_the_lease_has_passed_and_not_before(database: Shared) -> None:
    script, heir = Script(), Script()
    script.gate("one")
    async with (
        database.runtime(desk(script), source=database.lagging()) as first,
        database.runtime(desk(heir), source=database.source(lease=10 * LEASE)),
    ):
        await first.ref(DESK).send(Note("one"), message_id="m1")
        await script.gate("one").begun.wait()
        database.time.pass_time(LEASE - 60)
        await anyio.sleep(30)
        assert heir.starts == 0
        await anyio.sleep(60)
        assert heir.seen == ["one"]
        async with database.open() as store:
            assert (await address_of(store)).generation == 2
            handled = await message_of(store, "m1")
            assert (handled.status, handled.deliveries) == (MessageStatus.HANDLED, 2)


async def test_two_runtimes_back_each_other_up(database: Shared) -> None:
    scripts: dict[tuple[int, str], Script] = {(n, name): Script() for n in (1, 2) for name in ("a", "b")}

    def children(number: int) -> list[gr.Child]:
        return [gr.Child(name, Desk, scripts[number, name], mailbox=gr.PersistentMailbox()) for name in ("a", "b")]

    async with database.runtime(*children(1)) as first:
        await first.ref("service").terminate_child("b")
        async with database.runtime(*children(2)) as second:
            await first.ref("service").restart_child("b")
            await settled()
            assert [state_of(first, f"service/{name}") for name in "ab"] == [gr.State.RUNNING, gr.State.STANDBY]
            assert [state_of(second, f"service/{name}") for name in "ab"] == [gr.State.STANDBY, gr.State.RUNNING]
            for name in ("a", "b"):
                await first.ref(f"service/{name}").send(Note("one"))
            await until(lambda: bool(scripts[1, "a"].seen and scripts[2, "b"].seen))
        await anyio.sleep(10)
        assert await first.ref("service/b").ask(Add(1)) == 1
    assert [scripts[key].seen for key in sorted(scripts)] == [["one"], ["1"], [], ["one"]]


async def test_standing_by_costs_the_store_nothing_while_the_owner_is_busy(database: Shared) -> None:
    script = Script()
    claims: list[str] = []
    heir = database.runtime(desk(Script()), source=database.source(driver=lambda inner: ClaimCounter(inner, claims)))
    async with database.runtime(desk(script)) as first, heir as second:
        for number in range(20):
            await first.ref(DESK).send(Note(str(number)))
            await until(lambda number=number: len(script.seen) > number)  # type: ignore[misc]
        assert state_of(second) is gr.State.STANDBY
        assert claims == [DESK]


# ------------------------------------------------------------------------------------------------ stale owners


async def test_k11_an_owner_that_was_followed_writes_nothing_and_what_it_wanted_to_write_is_kept(
    database: Shared,
) -> None:
    script, heir = Script(), Script()
    gate = script.gate("one")
    async with database.runtime(desk(script), source=database.lagging(), intensity=0) as first:
        await first.ref(DESK).send(Note("one"), message_id="m1")
        await gate.begun.wait()
        database.pass_lease()
        async with database.runtime(desk(heir)):
            await settled()
            assert heir.seen == ["one"]
            gate.opened.set()  # the handler of the stale owner returns only now
            await settled()
            async with database.open() as store:
                (kept,) = await store.read(ListObservations(address=DESK))
                assert (kept.kind.value, kept.what, kept.generation) == ("refused", "FinishDelivery", 1)
                handled = await message_of(store, "m1")
                assert (handled.status, handled.deliveries) == (MessageStatus.HANDLED, 2)
            assert state_of(first) is gr.State.STANDBY
    assert script.starts == 1


async def test_i4_a_lost_lease_breaks_off_all_that_was_owned_and_counts_nothing(database: Shared) -> None:
    busy, other = Script(), Script()
    gate = busy.gate("one")
    second = gr.Child("other", Desk, other, mailbox=gr.PersistentMailbox())
    async with database.runtime(desk(busy), second, intensity=0) as runtime:
        await runtime.ref(DESK).send(Note("one"), message_id="m1")
        await gate.begun.wait()
        gate.begun = anyio.Event()
        database.pass_lease()
        assert await runtime.ref("service/other").ask(Add(1)) == 1  # it is here that the loss is noticed
        await gate.begun.wait()
        assert busy.seen == ["one", "one"]
        assert (busy.starts, other.starts) == (2, 2)
        async with database.open() as store:
            assert (await message_of(store, "m1")).deliveries == 1
            assert [execution.alive for execution in await store.read(ListExecutions())].count(True) == 1
        gate.opened.set()
        await settled()
    assert busy.seen == ["one", "one"]
    assert runtime.exit == gr.Exit("shutdown")


async def test_a_lease_that_is_lost_again_and_again_makes_no_dead_letter(database: Shared) -> None:
    script = Script()
    gate = script.gate("one")
    other = gr.Child("other", Desk, Script(), mailbox=gr.PersistentMailbox())
    async with database.runtime(
        desk(script, mailbox=gr.PersistentMailbox(max_deliveries=1)), other, intensity=0
    ) as runtime:
        await runtime.ref(DESK).send(Note("one"), message_id="m1")
        for _ in range(4):
            await gate.begun.wait()
            gate.begun = anyio.Event()
            database.pass_lease()
            await runtime.ref("service/other").ask(Add(1))
        gate.opened.set()
        await settled()
        async with database.open() as store:
            assert (await message_of(store, "m1")).status is MessageStatus.HANDLED
    assert script.seen == ["one"] * 5


async def test_on_stop_of_an_actor_that_was_broken_off_is_told_of_the_loss(database: Shared) -> None:
    script = Script()
    async with database.runtime(desk(script), intensity=0) as runtime:
        database.pass_lease()
        assert await runtime.ref(DESK).ask(Add(1)) == 1
    lost, stopped = script.ends
    assert lost.kind == "error"
    assert isinstance(lost.cause, gr.LeaseLost)
    assert stopped == gr.Exit("shutdown")


async def test_i4_nothing_is_begun_under_a_lease_that_may_have_passed(database: Shared) -> None:
    """The last tenth of a lease is the owner's no more, though nobody else may have it yet."""
    script, heir = Script(), Script()
    async with database.runtime(desk(script), intensity=0) as first, database.open() as store:
        await settled()
        database.time.pass_time(0.95 * LEASE)
        await first.ref(DESK).send(Note("one"), message_id="m1")
        await settled()
        assert (await message_of(store, "m1")).deliveries == 0
        assert script.seen == []
        await anyio.sleep(0.1 * LEASE)
        assert script.seen == ["one"]
        assert (await message_of(store, "m1")).deliveries == 1
    assert heir.seen == []


# ------------------------------------------------------------------------------------- what will not end (P7)


class Blocker(gr.Actor):
    """Its thread waits for a gate. That is a gate of the event loop, so that virtual time goes on meanwhile."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    @gr.handles
    def note(self, message: Note) -> None:
        self.context.runtime.from_thread.call(self._pass)

    async def _pass(self) -> None:
        self.gate.begun.set()
        await self.gate.opened.wait()


def blocker(gate: Gate) -> gr.Child:
    return gr.Child("desk", Blocker, gate, isolation="thread", shutdown=1.0, mailbox=gr.PersistentMailbox())


async def test_p7_what_an_abandoned_thread_may_still_do_is_not_given_to_others_before_the_lease_has_passed(
    database: Shared,
) -> None:
    gate, heir = Gate(), Script()
    async with database.runtime(blocker(gate)) as runtime:
        await runtime.ref(DESK).send(Note("one"), message_id="m1")
        await gate.begun.wait()
    assert runtime.report is not None
    assert runtime.report.abandoned == (DESK,)
    async with database.open() as store:
        (execution,) = await store.read(ListExecutions())
        assert execution.alive
        assert (await address_of(store)).owner == execution.execution_id
    async with database.runtime(desk(heir)):
        await anyio.sleep(60)
        assert heir.starts == 0
        database.pass_lease()
        await anyio.sleep(60)
        assert heir.seen == ["one"]


async def test_p7_an_abandoned_child_of_a_running_tree_keeps_its_address(database: Shared) -> None:
    gate, heir = Gate(), Script()
    async with database.runtime(blocker(gate)) as runtime:
        await runtime.ref(DESK).send(Note("one"), message_id="m1")
        await gate.begun.wait()
        with pytest.raises(gr.ChildStillEnding):
            await runtime.ref("service").terminate_child("desk")
        async with database.runtime(desk(heir)):
            await anyio.sleep(60)
            assert heir.starts == 0
            gate.opened.set()
            await until(lambda: state_of(runtime) is gr.State.DOWN)  # its thread ends in real time
            await anyio.sleep(60)
            assert heir.seen == ["one"]


async def test_p7_a_stuck_task_keeps_the_lease_until_it_has_ended(database: Shared) -> None:
    free = anyio.Event()

    class Stubborn(gr.Actor):
        @gr.handles
        async def note(self, message: Note) -> None:
            while not free.is_set():
                with anyio.CancelScope(shield=True):
                    await free.wait()

    heir = Script()
    stubborn = gr.Child("desk", Stubborn, shutdown=0.1, mailbox=gr.PersistentMailbox())
    async with anyio.create_task_group() as group:

        async def run() -> None:
            async with database.runtime(stubborn, kill_time=0.1) as runtime:
                await runtime.ref(DESK).send(Note("one"), message_id="m1")
                await settled()

        group.start_soon(run)
        await anyio.sleep(10)
        async with database.runtime(desk(heir)) as second:
            await anyio.sleep(10)
            assert state_of(second) is gr.State.STANDBY
            free.set()
            await anyio.sleep(10)
            assert state_of(second) is gr.State.RUNNING


# --------------------------------------------------------------------------------------------------- draining


async def test_r20_a_runtime_that_stops_claims_nothing_any_more(database: Shared) -> None:
    script, slow = Script(), Script()
    gate = slow.gate("slow")
    other = gr.Child("other", Desk, slow, mailbox=gr.PersistentMailbox(), shutdown=1000.0)
    async with database.runtime(desk(script)) as owner, database.runtime(other, desk(Script())) as second:
        await second.ref("service/other").send(Note("slow"))
        await gate.begun.wait()
        second.request_stop()
        await settled()
        await owner.stop()
        await anyio.sleep(100)
        async with database.open() as store:
            assert (await address_of(store)).owner is None
            states = [execution.state.value for execution in await store.read(ListExecutions())]
            assert "draining" in states
        gate.opened.set()


async def test_k11_an_owner_that_was_followed_opens_no_callback(database: Shared) -> None:
    class Opener(Desk):
        @gr.handles
        async def note(self, message: Note) -> None:
            await self.script.play(message.text)
            await self.context.callback("too late", timeout=None)

    script, heir = Script(), Script()
    gate = script.gate("one")
    opener = gr.Child("desk", Opener, script, mailbox=gr.PersistentMailbox())
    async with database.runtime(opener, source=database.lagging(), intensity=0) as first:
        await first.ref(DESK).send(Note("one"), message_id="m1")
        await gate.begun.wait()
        database.pass_lease()
        async with database.runtime(desk(heir)):
            await settled()
            gate.opened.set()
            await settled()
            async with database.open() as store:
                (kept,) = await store.read(ListObservations(address=DESK))
                assert (kept.kind.value, kept.what, kept.generation) == ("refused", "CreateCallback", 1)
            assert state_of(first) is gr.State.STANDBY
    assert heir.seen == ["one"]


# ------------------------------------------------------------------------------------------------- in real time


class DeafRenewer:
    """Reaches the database no more once the world is deaf."""

    def __init__(self, inner: Renewer, deaf: threading.Event) -> None:
        self._inner, self._deaf = inner, deaf
        self.close = inner.close

    def renew(self, execution_id: str, lease: float) -> bool:
        if self._deaf.is_set():
            raise NotReached("nobody hears")
        return self._inner.renew(execution_id, lease)


class Deaf(WrappedDriver):
    """A driver whose leases are renewed by deaf renewers."""

    def __init__(self, inner: Driver, deaf: threading.Event) -> None:
        super().__init__(inner)
        self.deaf = deaf

    def renewer(self) -> Renewer:
        return DeafRenewer(self.inner.renewer(), self.deaf)


@pytest.mark.real_time
async def test_i4_an_execution_that_cannot_renew_stops_its_work_before_the_lease_ends_and_registers_again(
    store_url: str,
) -> None:
    script = Script()
    gate = script.gate("one")
    deaf = threading.Event()
    source = StoreSource(store_url, lease=1.0, driver=lambda inner: Deaf(inner, deaf))
    tree = gr.Supervisor("service", desk(script), intensity=0)
    async with gr.Runtime(tree, store=source) as runtime:
        await runtime.ref(DESK).send(Note("one"), message_id="m1")
        await gate.begun.wait()
        gate.begun = anyio.Event()
        async with source.open(current_loop()) as store:
            (first,) = await store.read(ListExecutions())
            deaf.set()
            while not script.ends:
                held = [
                    each.alive for each in await store.read(ListExecutions()) if each.execution_id == first.execution_id
                ]
                assert held == [True] or script.ends  # its work is broken off while the lease still lasts
                await settled()
            deaf.clear()
            await gate.begun.wait()
            assert (await address_of(store)).owner != first.execution_id
            assert (await message_of(store, "m1")).deliveries == 1
            gate.opened.set()
    assert script.seen == ["one", "one"]
