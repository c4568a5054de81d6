"""Stores of several executions on one event loop take their steps one after another, and one that sleeps lets the others go on."""

from __future__ import annotations

import anyio
from attrs import evolve

from greenroom.mailbox import current_loop
from greenroom.persistence import ListExecutions, RegisterExecution, new_id, open_store
from greenroom.testing import Away, CrashPoints, Slow, StoreFaults, StoreTime, VirtualClock
from greenroom.testing.in_step import Conductor


async def test_a_slow_store_does_not_hold_up_another_and_what_is_behind_the_slow_commit_waits(
    clock: VirtualClock, sqlite_url: str
) -> None:
    time = StoreTime()
    time.follow(clock.now)
    done: list[tuple[str, float]] = []
    faults = StoreFaults({"RegisterExecution slow": Slow(5.0), "RegisterExecution away": Away(2.0)})

    def register(name: str) -> RegisterExecution:
        return RegisterExecution(execution_id=name, host="h", pid=1, boot_id=time.boot_id, lease=100.0)

    async def process(conductor: Conductor, *names: str) -> None:
        async with CrashPoints(conductor=conductor) as points:

            def wrap(driver: object) -> object:
                return points.wrap(faults.wrap(driver, points.stepper))  # type: ignore[arg-type]

            async with (
                open_store(sqlite_url, loop=current_loop(), clock=time.store_clock, driver=wrap) as store,  # type: ignore[arg-type]
                anyio.create_task_group() as group,
            ):

                async def commit(name: str) -> None:
                    await store.commit(register(name))
                    done.append((name, clock.now()))

                for name in names:
                    group.start_soon(commit, name)
                    await anyio.sleep(0.001)

    async with faults, Conductor() as conductor, anyio.create_task_group() as group:
        group.start_soon(process, conductor, "slow", "behind")
        group.start_soon(process, conductor, "quick")
    assert [name for name, _ in done] == ["quick", "slow", "behind"]
    moments = dict(done)
    assert moments["quick"] < 0.1
    assert 5.0 <= moments["slow"] <= moments["behind"] < 5.1


async def test_a_death_amid_a_slow_commit_ends_its_thread_and_nothing_is_applied(
    clock: VirtualClock, sqlite_url: str
) -> None:
    time = StoreTime()
    faults = StoreFaults({"RegisterExecution victim": Slow(50.0)})
    register = RegisterExecution(execution_id="victim", host="h", pid=1, boot_id=time.boot_id, lease=100.0)
    async with (
        faults,
        Conductor() as conductor,
        CrashPoints({"before RegisterExecution other"}, conductor=conductor) as points,
        open_store(
            sqlite_url,
            clock=time.store_clock,
            driver=lambda driver: points.wrap(faults.wrap(driver, points.stepper)),
        ) as store,
        open_store(sqlite_url, clock=time.store_clock, driver=points.wrap) as other,
        anyio.create_task_group() as group,
    ):
        group.start_soon(store.commit, register)
        await anyio.sleep(1)
        await other.commit(evolve(register, execution_id="other", transition_id=new_id()))
    async with open_store(sqlite_url, clock=time.store_clock) as looking:
        assert await looking.read(ListExecutions(ended=True)) == ()
    assert points.died_at == "before RegisterExecution other"
    assert clock.now() < 2.0
