"""Timers of durable actors: by key, set and cancelled with the commit, over restarts, at their moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

import greenroom as gr
from tests.durable.helpers import Boom, raised, settled
from tests.durable.puppets import POOL, Do, Look, Puppet, Script, mail_of, pool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.durable.helpers import Shared

PATH = "service/puppet"


def timer(delay: float, what: str, key: str | None = None) -> Callable[[Puppet], Awaitable[None]]:
    async def step(puppet: Puppet) -> None:
        puppet.context.after(delay, Do(what), key=key)

    return step


def cancel(key: str) -> Callable[[Puppet], Awaitable[None]]:
    async def step(puppet: Puppet) -> None:
        puppet.context.cancel(key)

    return step


def started(database: Shared, script: Script) -> gr.Runtime:
    return database.runtime(gr.Child("puppet", Puppet, script))


async def lines(runtime: gr.Runtime) -> list[str]:
    """What it was told, but for the words that only set something."""
    log = await runtime.ref(PATH).ask(Look())
    return [line for line in log if line.startswith("tick")]


async def test_a_timer_fires_at_its_moment(database: Shared) -> None:
    fired: list[float] = []

    async def note(puppet: Puppet) -> None:
        fired.append(anyio.current_time())

    async with started(database, {"set": timer(123.5, "tick"), "tick": note}) as runtime:
        begun = anyio.current_time()
        await runtime.ref(PATH).ask(Do("set"))
        await anyio.sleep(200)
        assert fired == [begun + 123.5]
        assert await lines(runtime) == ["tick"]


async def test_a_timer_of_no_delay_comes_after_what_is_queued(database: Shared) -> None:
    async with started(database, {"set": timer(0, "tick")}) as runtime:
        puppet = runtime.ref(PATH)
        await puppet.send(Do("set"))
        await settled()
        assert await lines(runtime) == ["tick"]


async def test_a_timer_is_set_with_the_commit_and_not_by_a_handler_that_fails(database: Shared) -> None:
    async def fail(puppet: Puppet) -> None:
        puppet.context.after(10, Do("tick"))
        raise Boom

    async with started(database, {"fail": fail}) as runtime:
        await raised(runtime.ref(PATH).ask(Do("fail")))
        await anyio.sleep(20)
        assert await lines(runtime) == []


async def test_a_timer_replaces_that_of_its_key(database: Shared) -> None:
    async with started(database, {"set": timer(10, "tick 1", "k"), "again": timer(20, "tick 2", "k")}) as runtime:
        await runtime.ref(PATH).ask(Do("set"))
        await anyio.sleep(5)
        await runtime.ref(PATH).ask(Do("again"))
        await anyio.sleep(19)
        assert await lines(runtime) == []
        await anyio.sleep(2)
        assert await lines(runtime) == ["tick 2"]


async def test_timers_of_one_handler_replace_each_other_in_order(database: Shared) -> None:
    async def step(puppet: Puppet) -> None:
        puppet.context.after(10, Do("tick 1"), key="k")
        puppet.context.after(20, Do("tick 2"), key="k")
        puppet.context.after(30, Do("tick 3"), key="gone")
        puppet.context.cancel("gone")

    async with started(database, {"set": step}) as runtime:
        await runtime.ref(PATH).ask(Do("set"))
        async with database.open() as store:
            assert [m.timer for m in await mail_of(store, PATH) if m.timer] == ["k"]
        await anyio.sleep(40)
        assert await lines(runtime) == ["tick 2"]


async def test_timers_without_a_key_do_not_replace_each_other(database: Shared) -> None:
    async def step(puppet: Puppet) -> None:
        puppet.context.after(10, Do("tick 1"))
        puppet.context.after(10, Do("tick 2"))

    async with started(database, {"set": step}) as runtime:
        await runtime.ref(PATH).ask(Do("set"))
        await runtime.ref(PATH).ask(Do("set"))
        await anyio.sleep(11)
        assert await lines(runtime) == ["tick 1", "tick 2", "tick 1", "tick 2"]


async def test_a_cancelled_timer_never_fires(database: Shared) -> None:
    async with started(database, {"set": timer(10, "tick", "k"), "cancel": cancel("k")}) as runtime:
        await runtime.ref(PATH).ask(Do("cancel"))  # nothing to cancel
        await runtime.ref(PATH).ask(Do("set"))
        await runtime.ref(PATH).ask(Do("cancel"))
        await anyio.sleep(20)
        assert await lines(runtime) == []


async def test_i06_a_timer_outlives_the_runtime_and_fires_at_its_moment(database: Shared) -> None:
    fired: list[float] = []

    async def note(puppet: Puppet) -> None:
        fired.append(anyio.current_time())

    script: Script = {"set": timer(100, "tick", "k"), "tick": note}
    async with started(database, script) as runtime:
        begun = anyio.current_time()
        await runtime.ref(PATH).ask(Do("set"))
    await anyio.sleep(50)
    async with started(database, script) as runtime:
        await anyio.sleep(100)
        assert fired == [begun + 100]
        assert await lines(runtime) == ["tick"]


async def test_a_timer_in_a_pool_outlives_the_runtime_and_fires_at_its_moment_though_nothing_else_happens(
    database: Shared,
) -> None:
    fired: list[float] = []

    async def note(puppet: Puppet) -> None:
        fired.append(anyio.current_time())

    script: Script = {"set": timer(1000.5, "tick"), "set again": timer(700, "tick", key="other"), "tick": note}
    async with database.runtime(pool(script)) as runtime:
        begun = anyio.current_time()
        await runtime.ref(f"{POOL}/ann").ask(Do("set"))
        await runtime.ref(f"{POOL}/bob").ask(Do("set again"))
    await anyio.sleep(100)
    async with database.runtime(pool(script)):
        await anyio.sleep(2000)
    assert fired == [begun + 700, begun + 1000.5]


async def test_a_timer_that_came_due_while_nobody_ran_fires_at_the_start(database: Shared) -> None:
    script: Script = {"set": timer(100, "tick", "k")}
    async with started(database, script) as runtime:
        await runtime.ref(PATH).ask(Do("set"))
    await anyio.sleep(500)
    async with started(database, script) as runtime:
        await settled()
        assert await lines(runtime) == ["tick"]


async def test_a_timer_outlives_a_restart_of_its_actor(database: Shared) -> None:
    left = [1]

    async def fail_once(puppet: Puppet) -> None:
        if left[0]:
            left[0] -= 1
            raise Boom

    async with started(database, {"set": timer(100, "tick"), "fail": fail_once}) as runtime:
        await runtime.ref(PATH).ask(Do("set"))
        await runtime.ref(PATH).ask(Do("fail"))
        await anyio.sleep(101)
        assert await lines(runtime) == ["tick"]


async def test_timers_do_not_count_against_the_capacity(database: Shared) -> None:
    children = (gr.Child("puppet", Puppet, {"set": timer(10, "tick")}, mailbox=gr.PersistentMailbox(capacity=1)),)
    async with database.runtime(*children) as runtime:
        for _ in range(3):
            await runtime.ref(PATH).ask(Do("set"))
        await anyio.sleep(11)
        assert await lines(runtime) == ["tick"] * 3


async def test_a_handlers_timer_sets_the_next_one_for_as_long_as_it_likes(database: Shared) -> None:
    async with started(database, {"tick": timer(3600, "tick", "k")}) as runtime:
        await runtime.ref(PATH).send(Do("tick"))
        await anyio.sleep(3000)
        async with database.open() as store:
            assert [m.timer for m in await mail_of(store, PATH)] == [None, "k"]
        assert await lines(runtime) == ["tick"]


async def test_thousands_of_timers_at_once_all_fire(database: Shared) -> None:
    async def step(puppet: Puppet) -> None:
        for number in range(1100):
            puppet.context.after(10, Do(f"tick {number}"))

    async with started(database, {"set": step}) as runtime:
        await runtime.ref(PATH).ask(Do("set"))
        await anyio.sleep(11)
        assert len(await lines(runtime)) == 1100
