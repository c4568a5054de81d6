"""A pool of durable actors in its tree: started, restarted and stopped by its supervisor, and what may be asked of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

import greenroom as gr
from greenroom.persistence import ExecutionState, ListExecutions, MessageStatus
from tests.durable.helpers import Boom, raised, settled
from tests.durable.puppets import POOL, Do, Listener, Look, Puppet, mail_of, pool, record_of, residents, sleeping

if TYPE_CHECKING:
    from tests.durable.helpers import Shared


async def test_terminate_child_ends_a_resident_and_mail_brings_it_back(database: Shared) -> None:
    async with database.runtime(pool()) as runtime:
        await runtime.ref(f"{POOL}/alice").ask(Do("a"))
        await runtime.ref(POOL).terminate_child("alice")
        assert residents(runtime) == []
        assert await runtime.ref(f"{POOL}/alice").ask(Look()) == ("a",)


async def test_terminate_child_of_a_key_that_is_not_in_memory_is_fine(database: Shared) -> None:
    async with database.runtime(pool()) as runtime:
        await runtime.ref(POOL).terminate_child("alice")
        assert residents(runtime) == []


async def test_terminate_child_takes_back_what_it_broke_off(database: Shared) -> None:
    async with database.runtime(pool({"long": sleeping(1e6)}, shutdown=1.0)) as runtime:
        await runtime.ref(f"{POOL}/alice").send(Do("long"), message_id="m")
        await settled()
        await runtime.ref(POOL).terminate_child("alice")
        await settled()
        async with database.open() as store:
            (message,) = await mail_of(store, f"{POOL}/alice")
        assert (message.status, message.deliveries) == (MessageStatus.QUEUED, 1)  # its mail has brought it back


async def test_children_are_the_residents(database: Shared) -> None:
    async with database.runtime(pool()) as runtime:
        for key in "abc":
            await runtime.ref(f"{POOL}/{key}").ask(Do("x"))
        assert [child.name for child in await runtime.ref(POOL).which_children()] == ["c", "b", "a"]
        counts = await runtime.ref(POOL).count_children()
        assert (counts.active, counts.workers, counts.supervisors) == (3, 3, 0)
        spec = await runtime.ref(POOL).get_childspec("a")
        assert isinstance(spec, gr.Child)


@pytest.mark.parametrize("call", ["start_child", "restart_child", "delete_child", "replace_childspec"])
async def test_other_administration_is_refused_with_what_a_pool_does_instead(database: Shared, call: str) -> None:
    argument: object = "alice" if call in ("restart_child", "delete_child") else gr.Child("alice", Puppet, {})
    async with database.runtime(pool()) as runtime:
        await runtime.ref(f"{POOL}/alice").ask(Do("x"))
        error = await raised(getattr(runtime.ref(POOL), call)(argument))
    assert isinstance(error, gr.BadSpec)
    assert "started by their mail" in str(error)


async def test_a_pool_in_a_nested_supervisor_is_restarted_by_it(database: Shared) -> None:
    crashed: list[str] = []

    class Crasher(gr.Actor):
        @gr.handles
        async def do(self, message: Do) -> object:
            crashed.append(message.what)
            raise Boom

    nested = gr.Supervisor("nested", gr.Child("crasher", Crasher), pool(), strategy="rest_for_one", intensity=10)
    path = "service/nested/pool"
    async with database.runtime(nested) as runtime:
        alice = runtime.ref(f"{path}/alice")
        await alice.ask(Do("a"))
        runtime.ref("service/nested/crasher").tell(Do("boom"))
        await settled()
        assert crashed == ["boom"]
        node = runtime.tree().find(path)
        assert node is not None
        assert (node.restarts, node.children) == (1, ())
        assert await alice.ask(Look()) == ("a",)
        assert await runtime.ref(f"{path}/bob").ask(Do("b")) is None


async def test_what_waits_in_a_pool_that_is_restarted_is_handled_by_the_next_incarnation(database: Shared) -> None:
    class Crasher(gr.Actor):
        @gr.handles
        async def do(self, message: Do) -> object:
            raise Boom

    script = {"x": sleeping(1.0)}
    nested = gr.Supervisor(
        "nested", gr.Child("crasher", Crasher), pool(script, max_resident=1), strategy="rest_for_one", intensity=10
    )
    path = "service/nested/pool"
    async with database.runtime(nested) as runtime:
        for key in "abcd":
            await runtime.ref(f"{path}/{key}").send(Do("x"))
        await settled()
        runtime.ref("service/nested/crasher").tell(Do("boom"))
        await anyio.sleep(20)
        for key in "abcd":
            assert await runtime.ref(f"{path}/{key}").ask(Look()) == ("x",)


async def test_a_shutdown_with_many_residents_is_orderly_and_gives_all_addresses_back(database: Shared) -> None:
    count = 300
    async with database.runtime(pool({"x": sleeping(0.5)})) as runtime:
        async with anyio.create_task_group() as group:
            for number in range(count):
                group.start_soon(runtime.ref(f"{POOL}/{number}").send, Do("x"))
        await settled()
        assert len(residents(runtime)) == count
    assert runtime.report is not None
    assert runtime.report.clean
    assert runtime.report.seconds <= 0.6
    async with database.open() as store:
        assert [e.state for e in await store.read(ListExecutions(ended=True))] == [ExecutionState.ENDED]
        for number in range(0, count, 30):
            record = await record_of(store, f"{POOL}/{number}")
            assert (record.owner, record.ready) == (None, 0)


async def test_p7_a_shutdown_bounds_residents_that_do_not_end(database: Shared) -> None:
    async with database.runtime(pool({"x": sleeping(1e6)}, shutdown=2.0)) as runtime:
        for key in "abc":
            await runtime.ref(f"{POOL}/{key}").send(Do("x"))
        await settled()
    assert runtime.report is not None
    assert len(runtime.report.cancelled) == 3
    assert runtime.report.seconds == pytest.approx(2.0, abs=0.1)
    async with database.open() as store:
        for key in "abc":
            (message,) = await mail_of(store, f"{POOL}/{key}")
            assert (message.status, message.deliveries) == (MessageStatus.QUEUED, 0)


async def test_a_send_after_the_pool_has_stopped_is_durable_all_the_same(database: Shared) -> None:
    """The address is in the store; who handles it is another matter."""
    heard: list[str] = []
    late: list[object] = []

    class Last(Listener):
        async def on_stop(self, exit: gr.Exit) -> None:
            late.append(await alice.send(Do("late")))

    async with database.runtime(gr.Child("last", Last, heard), pool()) as runtime:
        alice = runtime.ref(f"{POOL}/alice")
        await alice.ask(Do("x"))
    (receipt,) = late
    assert isinstance(receipt, gr.Receipt)
    assert receipt.disposition == "accepted"
    async with database.runtime(pool()) as runtime:
        assert await runtime.ref(f"{POOL}/alice").ask(Look()) == ("x", "late")


async def test_a_key_that_nobody_has_used_can_be_sent_to_while_its_pool_is_down(database: Shared) -> None:
    async with database.runtime(pool()) as runtime:
        ref = runtime.ref(f"{POOL}/new")
        await runtime.ref("service").terminate_child("pool")
        receipt = await ref.send(Do("x"))
        assert receipt is not None
        assert receipt.disposition == "accepted"
        await runtime.ref("service").restart_child("pool")
        await settled()
        assert await runtime.ref(f"{POOL}/new").ask(Look()) == ("x",)


async def test_a_pool_may_be_added_to_a_running_tree(database: Shared) -> None:
    async with database.runtime(gr.Child("other", Listener, [])) as runtime:
        await runtime.ref("service").start_child(pool())
        await runtime.ref(f"{POOL}/alice").ask(Do("x"))
        await runtime.ref("service").terminate_child("pool")
        assert isinstance(await raised(_found(runtime)), gr.NoSuchActor)
        await runtime.ref("service").restart_child("pool")
        assert await runtime.ref(f"{POOL}/alice").ask(Look()) == ("x",)


async def _found(runtime: gr.Runtime) -> gr.Ref:
    return runtime.ref(f"{POOL}/alice")
