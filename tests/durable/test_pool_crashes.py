"""Crashes in a pool of durable actors: a pause, the message again, in the end a dead letter or a parked actor; the others go on."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import anyio
import pytest

import greenroom as gr
from greenroom.persistence import MessageStatus, ParkReason, UnparkAddress
from greenroom.runtime.durable import pool as rules
from tests.durable.helpers import Boom, events_of, raised, settled
from tests.durable.puppets import POOL, Do, Look, Puppet, Script, mail_of, record_of, residents

if TYPE_CHECKING:
    from tests.durable.helpers import Shared

ALICE = f"{POOL}/alice"


async def crash(puppet: Puppet) -> None:
    raise Boom


class Moody(Puppet):
    """Crashes in its constructor for as long as the script says `moody`."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        if script.get("moody"):
            raise Boom("bad day")


async def test_a_crash_is_followed_by_a_pause_and_the_message_comes_again(database: Shared) -> None:
    seen: list[float] = []

    async def step(puppet: Puppet) -> str:
        seen.append(anyio.current_time())
        if len(seen) < 4:
            raise Boom
        return "done"

    async with database.runtime(gr.DurableActors("pool", Puppet, {"x": step})) as runtime:
        assert await runtime.ref(ALICE).ask(Do("x"), timeout=60) == "done"
    pauses = [later - earlier for earlier, later in pairwise(seen)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4], abs=0.01)


async def test_pauses_begin_anew_after_a_message_was_handled(database: Shared) -> None:
    left = [2]

    async def step(puppet: Puppet) -> None:
        if left[0]:
            left[0] -= 1
            raise Boom

    async with database.runtime(gr.DurableActors("pool", Puppet, {"x": step})) as runtime:
        await runtime.ref(ALICE).ask(Do("x"), timeout=60)
        left[0] = 1
        begun = anyio.current_time()
        await runtime.ref(ALICE).ask(Do("x"), timeout=60)
        assert anyio.current_time() - begun == pytest.approx(0.1, abs=0.01)


async def test_a_poison_message_becomes_a_dead_letter_and_the_next_one_is_handled(database: Shared) -> None:
    async with database.runtime(gr.DurableActors("pool", Puppet, {"poison": crash}, max_deliveries=3)) as runtime:
        letters = runtime.dead_letters()
        await runtime.ref(ALICE).send(Do("poison"), message_id="p")
        assert await runtime.ref(ALICE).ask(Do("x"), timeout=60) is None
        assert await runtime.ref(ALICE).ask(Look()) == ("x",)
        async with database.open() as store:
            (poison,) = [m for m in await mail_of(store, ALICE) if m.message_id == "p"]
            assert (await record_of(store, ALICE)).parked is None
        assert (poison.status, poison.deliveries) == (MessageStatus.DEAD, 3)
        assert [letter.recipient for letter in letters.pending()] == [ALICE]


async def test_an_asker_of_a_poison_message_is_told(database: Shared) -> None:
    async with database.runtime(gr.DurableActors("pool", Puppet, {"poison": crash})) as runtime:
        error = await raised(runtime.ref(ALICE).ask(Do("poison"), timeout=60))
    assert isinstance(error, gr.DeadLettered)


async def test_many_poison_messages_do_not_park_an_actor(database: Shared) -> None:
    async with database.runtime(gr.DurableActors("pool", Puppet, {"poison": crash}, max_deliveries=2)) as runtime:
        for _ in range(12):
            await runtime.ref(ALICE).send(Do("poison"))
        assert await runtime.ref(ALICE).ask(Look(), timeout=600) == ()


async def test_a_crash_loop_without_a_message_parks_the_actor_and_the_pool_goes_on(database: Shared) -> None:
    moody = {"moody": crash}
    async with database.runtime(gr.DurableActors("pool", Moody, moody)) as runtime:
        ends = runtime.events()
        await runtime.ref(ALICE).send(Do("x"))
        await anyio.sleep(300)
        async with database.open() as store:
            record = await record_of(store, ALICE)
        assert record.parked is ParkReason.CRASH_LOOP
        assert record.parked_detail == "it has crashed 10 times in a row, the last time by Boom: bad day"
        assert (record.ready, record.owner) == (1, None)
        assert residents(runtime) == []
        assert len([end for end in events_of(gr.ActorEnded, ends) if end.path == ALICE]) == 10
        moody.clear()
        assert await runtime.ref(f"{POOL}/bob").ask(Do("y")) is None
        # Nothing but an operator's word brings it back.
        await anyio.sleep(1000)
        async with database.open() as store:
            assert (await record_of(store, ALICE)).ready == 1
            await store.commit(UnparkAddress(address=ALICE))
        await anyio.sleep(2 * rules.ELSEWHERE)
        assert await runtime.ref(ALICE).ask(Look()) == ("x",)


async def test_mail_for_a_parked_actor_is_accepted_and_waits(database: Shared) -> None:
    moody = {"moody": crash}
    async with database.runtime(gr.DurableActors("pool", Moody, moody)) as runtime:
        await runtime.ref(ALICE).send(Do("1"))
        await anyio.sleep(300)
        moody.clear()
        receipt = await runtime.ref(ALICE).send(Do("2"))
        assert receipt is not None
        assert receipt.disposition == "accepted"
        await anyio.sleep(10)
        async with database.open() as store:
            assert (await record_of(store, ALICE)).ready == 2
            await store.commit(UnparkAddress(address=ALICE))
        await anyio.sleep(2 * rules.ELSEWHERE)
        assert await runtime.ref(ALICE).ask(Look()) == ("1", "2")


async def test_a_state_that_cannot_be_used_parks_its_actor_alone(database: Shared) -> None:
    class Later(Puppet):
        state_version = 2

    async with database.runtime(gr.DurableActors("pool", Puppet, {})) as runtime:
        await runtime.ref(ALICE).ask(Do("x"))
    async with database.runtime(gr.DurableActors("pool", Later, {})) as runtime:
        await runtime.ref(ALICE).send(Do("y"))
        assert await runtime.ref(f"{POOL}/bob").ask(Do("z")) is None
        await settled()
        async with database.open() as store:
            record = await record_of(store, ALICE)
        assert (record.parked, record.ready) == (ParkReason.INCOMPATIBLE, 1)
        assert residents(runtime) == ["bob"]


async def test_a_crash_of_one_actor_does_not_touch_the_others(database: Shared) -> None:
    async def wait(puppet: Puppet) -> str:
        await anyio.sleep(30)
        return "undisturbed"

    async with database.runtime(gr.DurableActors("pool", Puppet, {"poison": crash, "wait": wait})) as runtime:
        answers: list[object] = []

        async def ask() -> None:
            answers.append(await runtime.ref(f"{POOL}/bob").ask(Do("wait"), timeout=60))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            for _ in range(3):
                await runtime.ref(ALICE).send(Do("poison"))
        assert answers == ["undisturbed"]
        node = runtime.tree().find(POOL)
        assert node is not None
        assert node.restarts == 0
        async with database.open() as store:
            assert [m.deliveries for m in await mail_of(store, f"{POOL}/bob")] == [1]
