"""Several runtimes run one pool on one store: each key has one owner, and what a dead one owned is taken over (C19, K02, I4)."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import anyio

import greenroom as gr
from greenroom.persistence import AcceptMessage, AddressKind, OpenAddress, Refused
from greenroom.runtime.durable.payloads import Payloads
from tests.durable.helpers import events_of, settled
from tests.durable.puppets import (
    POOL,
    Do,
    Listener,
    Look,
    Script,
    eventually,
    from_elsewhere,
    pool,
    record_of,
    residents,
    sleeping,
)

if TYPE_CHECKING:
    from tests.durable.helpers import Shared
    from tests.durable.puppets import Puppet


async def test_k02_of_two_runtimes_one_runs_each_key_and_every_message_is_handled_once(database: Shared) -> None:
    handled: list[Counter[str]] = [Counter(), Counter()]

    def counting(number: int) -> Script:
        async def step(puppet: Puppet) -> None:
            handled[number][puppet.context.key] += 1
            await anyio.sleep(0.1)

        return {"x": step}

    keys = [f"k{number}" for number in range(12)]
    async with AsyncExitStack() as stack:
        runtimes = [await stack.enter_async_context(database.runtime(pool(counting(n)))) for n in range(2)]
        for turn in range(4):
            for number, key in enumerate(keys):
                await runtimes[(turn + number) % 2].ref(f"{POOL}/{key}").send(Do("x"))
        await eventually(lambda: sum(map(Counter.total, handled)) >= 4 * len(keys))
        await anyio.sleep(1)
        owners: Counter[str] = Counter()
        async with database.open() as store:
            for key in keys:
                record = await record_of(store, f"{POOL}/{key}")
                assert record.owner is not None
                owners[record.owner] += 1
        assert [owners.total(), len(owners)] == [12, 2]
        assert sorted(residents(runtimes[0]) + residents(runtimes[1])) == sorted(keys)
    assert handled[0] + handled[1] == Counter(dict.fromkeys(keys, 4))


async def test_an_ask_is_answered_by_whichever_runtime_has_the_actor(database: Shared) -> None:
    async def there(puppet: Puppet) -> str:
        return "there"

    async with database.runtime(pool({"where": there})) as owner:
        await owner.ref(f"{POOL}/alice").ask(Do("x"))
        async with database.runtime(pool({"where": sleeping(1)})) as asker:
            events = asker.events()
            assert await from_elsewhere(asker.ref(f"{POOL}/alice").ask(Do("where"), timeout=None)) == "there"
            await anyio.sleep(100)
            assert residents(asker) == []
            assert len(events_of(gr.ActorEnded, events)) <= 2  # it does not try again and again


async def test_an_actor_that_one_runtime_drops_may_come_to_life_in_the_other(database: Shared) -> None:
    async with database.runtime(pool(idle=10.0)) as first:
        await first.ref(f"{POOL}/alice").ask(Do("a"))
        await anyio.sleep(11)
        assert residents(first) == []
        async with database.runtime(pool(idle=1000.0)) as second:
            await from_elsewhere(second.ref(f"{POOL}/alice").ask(Do("b"), timeout=None))
            assert await from_elsewhere(first.ref(f"{POOL}/alice").ask(Look(), timeout=None)) == ("a", "b")
            assert len(residents(first) + residents(second)) == 1


async def test_a_runtime_that_ends_leaves_its_work_to_the_other(database: Shared) -> None:
    async with database.runtime(gr.Child("other", Listener, [])) as staying:
        async with database.runtime(pool({"long": sleeping(1e5)})) as leaving:
            for number in range(10):
                await leaving.ref(f"{POOL}/{number}").send(Do("long"))
            await settled()
            assert len(residents(leaving)) == 10
            await staying.ref("service").start_child(pool())
        for number in range(10):
            look = staying.ref(f"{POOL}/{number}").ask(Look(), timeout=None)
            assert await from_elsewhere(look) == ("long",)


async def test_i4_two_hundred_and_fifty_keys_of_a_dead_runtime_are_taken_over(database: Shared) -> None:
    """K01's number, without its failures: every one is handled, once."""
    count = 250
    handled: Counter[str] = Counter()

    async def step(puppet: Puppet) -> None:
        handled[puppet.context.key] += 1

    async with (
        database.death_at(f"before FinishDelivery {POOL}/stop stop") as source,
        database.runtime(pool({"x": sleeping(1e5)}), source=source) as runtime,
        anyio.create_task_group() as group,
    ):
        for number in range(count):
            group.start_soon(runtime.ref(f"{POOL}/{number}").send, Do("x"))
        await settled()
        assert len(residents(runtime)) == count
        await runtime.ref(f"{POOL}/stop").send(Do("y"), message_id="stop")
        await anyio.sleep_forever()
    async with database.runtime(pool({"x": step})) as runtime:
        await settled()
        assert len(residents(runtime)) == count + 1
    assert handled == Counter({str(number): 1 for number in range(count)})


async def test_what_others_send_to_a_pools_keys_is_handled_by_whoever_runs_it(database: Shared) -> None:
    encoded = Payloads().encode(Do("from elsewhere"))
    async with database.runtime(pool()) as runtime:
        async with database.open() as store:
            await store.commit(OpenAddress(address=f"{POOL}/alice", kind=AddressKind.ACTOR))
            message = AcceptMessage(
                address=f"{POOL}/alice",
                message_id="m",
                type=encoded.type,
                body=encoded.body,
                digest=encoded.digest,
            )
            assert not isinstance(await store.commit(message), Refused)
        await eventually(lambda: residents(runtime) == ["alice"])
        assert await runtime.ref(f"{POOL}/alice").ask(Look()) == ("from elsewhere",)


async def test_i4_a_runtime_that_has_lost_its_lease_is_broken_off_and_its_keys_come_back(database: Shared) -> None:
    attempts: Counter[str] = Counter()

    async def step(puppet: Puppet) -> None:
        attempts[puppet.context.key] += 1
        if attempts[puppet.context.key] == 1:
            await anyio.sleep_forever()

    async with database.runtime(pool({"x": step}), source=database.source(sweep=1.0)) as runtime:
        for key in "ab":
            await runtime.ref(f"{POOL}/{key}").send(Do("x"))
        await settled()
        database.pass_lease()
        # What it commits next finds out.
        await runtime.ref(f"{POOL}/c").send(Do("y"))
        await anyio.sleep(60)
        assert attempts == Counter(a=2, b=2)
        for key in "ab":
            assert await runtime.ref(f"{POOL}/{key}").ask(Look()) == ("x",)
        assert await runtime.ref(f"{POOL}/c").ask(Look()) == ("y",)
