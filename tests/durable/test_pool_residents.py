"""Pools of durable actors: who is in memory, when, and what nobody can see of that."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import greenroom as gr
from greenroom.persistence import AddressKind, ReadPool
from greenroom.runtime.durable import pool as rules
from tests.durable.helpers import events_of, raised, settled
from tests.durable.puppets import POOL, Do, Look, Puppet, Script, pool, record_of, residents, sleeping

if TYPE_CHECKING:
    from tests.durable.helpers import Shared

# --------------------------------------------------------------------------------------------------------- coming, going


async def test_the_first_message_makes_the_actor_and_its_address(database: Shared) -> None:
    async with database.runtime(pool()) as runtime:
        assert residents(runtime) == []
        await runtime.ref(f"{POOL}/alice").send(Do("a"))
        assert await runtime.ref(f"{POOL}/alice").ask(Look()) == ("a",)
        assert residents(runtime) == ["alice"]
        async with database.open() as store:
            assert (await record_of(store, f"{POOL}/alice")).kind is AddressKind.ACTOR


async def test_a_ref_alone_makes_nothing(database: Shared) -> None:
    async with database.runtime(pool()) as runtime:
        runtime.ref(f"{POOL}/alice")
        await settled()
        assert residents(runtime) == []


async def test_an_actor_knows_its_key(database: Shared) -> None:
    async def step(puppet: Puppet) -> str:
        return puppet.context.key

    async with database.runtime(pool({"key": step})) as runtime:
        assert await runtime.ref(f"{POOL}/alice b. c").ask(Do("key")) == "alice b. c"


async def test_an_actor_is_dropped_when_it_has_been_idle_and_comes_back_with_its_state(database: Shared) -> None:
    async with database.runtime(pool(idle=60.0)) as runtime:
        alice = runtime.ref(f"{POOL}/alice")
        await alice.send(Do("a"))
        await settled()
        await anyio.sleep(59)
        assert residents(runtime) == ["alice"]
        await anyio.sleep(1.1)
        assert residents(runtime) == []
        async with database.open() as store:
            record = await record_of(store, f"{POOL}/alice")
            assert (record.owner, record.due_at, record.closed_at) == (None, None, None)
        assert await alice.ask(Look()) == ("a",)
        assert residents(runtime) == ["alice"]


async def test_an_actor_that_is_used_is_not_dropped(database: Shared) -> None:
    async with database.runtime(pool(idle=60.0)) as runtime:
        events = runtime.events()
        for _ in range(10):
            await runtime.ref(f"{POOL}/alice").ask(Do("a"))
            await anyio.sleep(50)
        assert residents(runtime) == ["alice"]
        assert events_of(gr.ActorEnded, events) == []
        await anyio.sleep(11)
        assert residents(runtime) == []


async def test_an_actor_in_a_long_handler_is_not_idle_and_its_idle_time_begins_with_the_handlers_end(
    database: Shared,
) -> None:
    async with database.runtime(pool({"long": sleeping(500)}, idle=60.0)) as runtime:
        await runtime.ref(f"{POOL}/alice").send(Do("long"))
        await anyio.sleep(550)
        assert residents(runtime) == ["alice"]
        await anyio.sleep(11)
        assert residents(runtime) == []


async def test_each_is_dropped_at_its_own_time(database: Shared) -> None:
    async with database.runtime(pool(idle=60.0)) as runtime:
        for key in "abc":
            await runtime.ref(f"{POOL}/{key}").ask(Do("x"))
            await anyio.sleep(20)
        await runtime.ref(f"{POOL}/a").ask(Do("x"))  # at 60: b goes at 80, c at 100, a at 120
        seen = []
        for _ in range(4):
            seen.append(residents(runtime))
            await anyio.sleep(20.1)
        assert seen == [["a", "b", "c"], ["a", "c"], ["a"], []]


async def test_a_timer_brings_a_dropped_actor_back_at_its_moment(database: Shared) -> None:
    fired: list[float] = []

    async def tick(puppet: Puppet) -> None:
        fired.append(anyio.current_time())

    async def step(puppet: Puppet) -> None:
        puppet.context.after(1000, Do("tick"))

    async with database.runtime(pool({"set": step, "tick": tick}, idle=10.0)) as runtime:
        begun = anyio.current_time()
        await runtime.ref(f"{POOL}/alice").ask(Do("set"))
        await anyio.sleep(900)
        assert residents(runtime) == []
        await anyio.sleep(101)
        assert fired == [begun + 1000]


async def test_delayed_mail_makes_an_actor_at_its_moment(database: Shared) -> None:
    async with database.runtime(pool()) as runtime:
        await runtime.ref(f"{POOL}/alice").send(Do("later"), deliver_at=database.time.now() + timedelta(seconds=100))
        await anyio.sleep(99)
        assert residents(runtime) == []
        await anyio.sleep(1.1)
        assert await runtime.ref(f"{POOL}/alice").ask(Look()) == ("later",)


async def test_what_was_due_when_the_runtime_ended_is_handled_by_the_next(database: Shared) -> None:
    async with database.runtime(pool({"long": sleeping(1000)})) as runtime:
        for number in range(20):
            await runtime.ref(f"{POOL}/{number}").send(Do("long"))
    async with database.runtime(pool()) as runtime:
        await settled()
        assert len(residents(runtime)) == 20
        for number in range(20):
            assert await runtime.ref(f"{POOL}/{number}").ask(Look()) == ("long",)


@pytest.mark.parametrize("turns", range(0, 12, 2))
async def test_mail_that_comes_while_an_actor_is_being_dropped_is_handled_at_once(database: Shared, turns: int) -> None:
    """Whatever the drop has come to: telling it to end, its end, giving the address back."""
    async with database.runtime(pool(idle=10.0)) as runtime:
        alice = runtime.ref(f"{POOL}/alice")
        await alice.ask(Do("a"))
        await anyio.sleep(10)
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        begun = anyio.current_time()
        assert await alice.ask(Do("b")) is None
        assert anyio.current_time() - begun < 0.01
        assert await alice.ask(Look()) == ("a", "b")


# ------------------------------------------------------------------------------------------------------------- bounds


async def test_max_resident_bounds_who_is_in_memory_and_nobody_starves(database: Shared) -> None:
    most = 0

    async def step(puppet: Puppet) -> None:
        nonlocal most
        most = max(most, len(residents(runtime)))
        await anyio.sleep(0.5)

    async with database.runtime(pool({"x": step}, max_resident=3)) as runtime:
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(partial(runtime.ref(f"{POOL}/{number}").ask, Do("x"), timeout=60))
        assert most == 3
        assert len(residents(runtime)) == 3


async def test_the_least_recently_used_one_that_is_idle_goes(database: Shared) -> None:
    async with database.runtime(pool({"long": sleeping(100)}, max_resident=3)) as runtime:
        await runtime.ref(f"{POOL}/busy").send(Do("long"))
        for key in "abab":
            await runtime.ref(f"{POOL}/{key}").ask(Do("x"))
        await runtime.ref(f"{POOL}/a").ask(Do("x"))
        await runtime.ref(f"{POOL}/c").ask(Do("x"))
        assert residents(runtime) == ["a", "busy", "c"]


async def test_an_actor_that_always_has_mail_lets_others_have_their_turn(database: Shared) -> None:
    async with database.runtime(pool({"x": sleeping(0.1)}, max_resident=1)) as runtime:
        greedy, modest = runtime.ref(f"{POOL}/greedy"), runtime.ref(f"{POOL}/modest")
        for _ in range(200):
            await greedy.send(Do("x"))
        begun = anyio.current_time()
        await modest.ask(Do("y"))
        assert anyio.current_time() - begun <= 2 * rules.TURN
        assert len(await greedy.ask(Look(), timeout=60)) == 200


async def test_a_message_in_hand_is_never_broken_off_for_another_actors_turn(database: Shared) -> None:
    async with database.runtime(pool({"long": sleeping(30)}, max_resident=1)) as runtime:
        await runtime.ref(f"{POOL}/long").send(Do("long"))
        begun = anyio.current_time()
        await runtime.ref(f"{POOL}/other").ask(Do("y"), timeout=60)
        assert anyio.current_time() - begun == pytest.approx(30, abs=1)
        assert await runtime.ref(f"{POOL}/long").ask(Look()) == ("long",)


async def test_more_keys_than_are_noted_all_get_their_turn(database: Shared) -> None:
    count = 3 * rules.WAITING
    handled: Counter[str] = Counter()

    async def step(puppet: Puppet) -> None:
        handled[puppet.context.key] += 1

    async with database.runtime(pool({"x": step}, max_resident=5, idle=1000.0)) as runtime:
        for number in range(count):
            await runtime.ref(f"{POOL}/{number}").send(Do("x"))
        await settled()
        assert len(residents(runtime)) <= 5
    assert len(handled) == count
    assert set(handled.values()) == {1}


async def test_everything_due_at_once_is_looked_at_a_few_pages_at_a_time_while_there_is_no_room(
    database: Shared,
) -> None:
    """After a restart, with all of it in the store only: no more is in memory than may be, and it all gets done."""
    count = 1500
    handled: Counter[str] = Counter()
    most = 0

    async def step(puppet: Puppet) -> None:
        nonlocal most
        handled[puppet.context.key] += 1
        most = max(most, len(residents(runtime)))

    async with (
        database.runtime(pool({"x": sleeping(1e5)}, max_resident=1)) as runtime,
        anyio.create_task_group() as group,
    ):
        for number in range(count):
            group.start_soon(runtime.ref(f"{POOL}/{number}").send, Do("x"))
    async with database.runtime(pool({"x": step}, max_resident=40)) as runtime:
        await settled()
        assert len(handled) == count
        assert most == 40
    assert set(handled.values()) == {1}


async def test_a_crowded_pool_does_not_hide_another_one(database: Shared) -> None:
    def pools(script: Script) -> list[gr.DurableActors]:
        return [gr.DurableActors(name, Puppet, script, max_resident=1) for name in ("pool", "other")]

    async with database.runtime(*pools({"x": sleeping(1e5)})) as runtime, anyio.create_task_group() as group:
        for number in range(1200):
            group.start_soon(runtime.ref(f"{POOL}/{number}").send, Do("x"))
        await settled()
        await runtime.ref("service/other/1").send(Do("x"))
    stuck: Script = {"x": sleeping(1e5)}
    async with database.runtime(
        gr.DurableActors("pool", Puppet, stuck, max_resident=1),
        gr.DurableActors("other", Puppet, {}),
        source=database.source(sweep=1.0),
    ) as runtime:
        await anyio.sleep(3)
        async with database.open() as store:
            assert (await record_of(store, "service/other/1")).ready == 0


# ------------------------------------------------------------------------------------------------------- refs and keys


@pytest.mark.parametrize(
    "key", ["", " ", "a/b", "a\nb", "x" * 201], ids=["empty", "blank", "slash", "line break", "long"]
)
async def test_a_bad_key_is_refused_with_what_a_key_is(database: Shared, key: str) -> None:
    async with database.runtime(pool()) as runtime:
        with pytest.raises((gr.BadSpec, gr.NoSuchActor)):
            runtime.ref(f"{POOL}/{key}")


async def test_refs_behave_the_same_whether_the_actor_is_in_memory_or_not(database: Shared) -> None:
    async with database.runtime(pool(idle=10.0)) as runtime:
        for _ in range(2):
            before = runtime.ref(f"{POOL}/alice")  # not in memory
            await before.ask(Do("x"))
            resident = runtime.ref(f"{POOL}/alice")
            for ref in (before, resident):
                assert ref.path == f"{POOL}/alice"
                with pytest.raises(gr.TellRefused):
                    ref.tell(Do("x"))
                receipt = await ref.send(Do("x"))
                assert receipt is not None
                assert receipt.disposition == "accepted"
                assert isinstance(await raised(ref.which_children()), gr.NotASupervisor)
            await anyio.sleep(11)
            assert residents(runtime) == []
            assert (await resident.send(Do("x"))) is not None  # the ref of one that is gone
            assert len(await resident.ask(Look())) in (4, 8)
            await anyio.sleep(11)


async def test_watching_tells_when_an_actor_of_a_pool_is_not_in_memory(database: Shared) -> None:
    heard: list[str] = []

    class Watcher(gr.Actor):
        @gr.handles
        async def do(self, message: Do) -> object:
            self.context.watch(self.context.runtime.ref(f"{POOL}/{message.what}"))
            return None

        @gr.handles
        async def terminated(self, message: gr.Terminated) -> None:
            heard.append(f"{message.ref.path} {message.exit.kind}")

    async with database.runtime(pool(idle=10.0), gr.Child("watcher", Watcher)) as runtime:
        await runtime.ref(f"{POOL}/alice").ask(Do("x"))
        for key in ("alice", "bob"):
            await runtime.ref("service/watcher").ask(Do(key))
        await settled()
        assert heard == [f"{POOL}/bob normal"]
        await anyio.sleep(11)
        assert heard == [f"{POOL}/bob normal", f"{POOL}/alice normal"]


async def test_actors_of_a_pool_send_to_each_other_and_make_each_other(database: Shared) -> None:
    async def step(puppet: Puppet) -> None:
        await puppet.context.runtime.ref(f"{POOL}/bob").send(Do("from alice"))

    async with database.runtime(pool({"go": step})) as runtime:
        await runtime.ref(f"{POOL}/alice").ask(Do("go"))
        await settled()
        assert await runtime.ref(f"{POOL}/bob").ask(Look()) == ("from alice",)


async def test_a_pool_is_on_record_in_the_store(database: Shared) -> None:
    async with database.runtime(pool(capacity=7)), database.open() as store:
        record = await store.read(ReadPool(pool=POOL))
    assert record is not None
    assert record.capacity == 7


async def test_the_capacity_is_that_of_each_mailbox(database: Shared) -> None:
    async with database.runtime(pool({"long": sleeping(100)}, capacity=1)) as runtime:
        for key in "ab":
            await runtime.ref(f"{POOL}/{key}").send(Do("long"))
        assert isinstance(await raised(runtime.ref(f"{POOL}/a").send(Do("x"))), gr.MailboxFull)


# --------------------------------------------------------------------------------------------------------------- specs


@pytest.mark.parametrize(
    "options",
    [{"max_resident": 0}, {"idle": 0}, {"idle": -1.0}, {"capacity": 0}, {"max_deliveries": 0}, {"shutdown": -1}],
)
def test_numbers_without_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(gr.BadSpec):
        pool(**options)


def test_a_factory_that_shows_no_durable_actor_is_refused() -> None:
    with pytest.raises(gr.BadSpec, match=r"give a gr\.DurableActor class"):
        gr.DurableActors("pool", lambda: Puppet({}))


async def test_keyword_arguments_come_by_partial(database: Shared) -> None:
    async def step(puppet: Puppet) -> str:
        return "by keyword"

    async with database.runtime(gr.DurableActors("pool", partial(Puppet, script={"x": step}))) as runtime:
        assert await runtime.ref(f"{POOL}/alice").ask(Do("x")) == "by keyword"
