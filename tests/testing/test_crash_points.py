"""R35: an execution dies at a named point; its stores answer nothing from then on, before its scopes are cancelled."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from greenroom.errors import Misuse, StoreUnavailable
from greenroom.persistence import ListMessages, ReadAddress, ReadExecution, open_store, start_execution
from greenroom.testing import CrashPoints, StoreTime, VirtualClock, fresh_store
from tests.testing.desks import claim, done, message, register

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from greenroom.persistence import Committer
    from greenroom.testing.virtual_clock import Backend
    from tests.testing.desks import Desk

ACCEPT = "AcceptMessage desk m1"


class Bench:
    """One database, and the executions that die at it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.time = StoreTime()

    @asynccontextmanager
    async def desk(self, points: CrashPoints) -> AsyncIterator[Desk]:
        async with open_store(self.url, clock=self.time.store_clock, driver=points.wrap) as store:
            await register(store, self.time.store_clock, "e1")
            yield await claim(store, "e1")

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[Committer]:
        async with open_store(self.url, clock=self.time.store_clock) as store:
            yield store

    async def messages(self) -> list[str]:
        async with self.looking() as store:
            return [record.message_id for record in await store.read(ListMessages(address="desk"))]


@pytest.fixture
def bench(store_url: str) -> Bench:
    return Bench(store_url)


@pytest.fixture
def sqlite_bench(sqlite_url: str) -> Bench:
    return Bench(sqlite_url)


async def test_without_a_point_everything_is_passed_in_order(sqlite_bench: Bench) -> None:
    async with CrashPoints() as points, sqlite_bench.desk(points) as desk:
        await desk.send("m1")
        await desk.handle(1)
        await desk.end()
    assert points.died_at is None
    transitions = [
        "RegisterExecution e1",
        "ClaimAddress desk",
        ACCEPT,
        "BeginDelivery desk m1",
        "FinishDelivery desk m1",
        "EndExecution e1",
    ]
    phases = ("before", "unacknowledged", "after")
    assert [*points.passed] == [f"{phase} {transition}" for transition in transitions for phase in phases]


@pytest.mark.parametrize(
    ("phase", "committed", "told"), [("before", [], 0), ("unacknowledged", ["m1"], 0), ("after", ["m1"], 1)]
)
async def test_r35_each_phase_leaves_what_its_name_says(
    bench: Bench, phase: str, committed: list[str], told: int
) -> None:
    acknowledged = 0
    async with CrashPoints({f"{phase} {ACCEPT}"}) as points, bench.desk(points) as desk:
        await desk.send("m1")
        acknowledged += 1
        await desk.send("m2")
    assert points.died_at == f"{phase} {ACCEPT}"
    assert acknowledged == told
    assert await bench.messages() == committed


async def test_after_an_acknowledgement_all_that_needs_no_store_is_still_done(sqlite_bench: Bench) -> None:
    told: list[str] = []
    async with CrashPoints({f"after {ACCEPT}"}) as points, sqlite_bench.desk(points) as desk:
        await desk.send("m1")
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        told.append("m1")
        await anyio.sleep(0.001)
        told.append("a millisecond later")
    assert told == ["m1"]


async def test_r35_no_finally_block_of_a_dead_execution_can_write(bench: Bench) -> None:
    failures: list[StoreUnavailable] = []
    async with CrashPoints({f"before {ACCEPT}"}) as points, bench.desk(points) as desk:
        try:
            await desk.send("m1")
        finally:
            with anyio.CancelScope(shield=True):
                for write in (message("desk", "m2"), desk.finish(1)):
                    try:
                        await desk.store.commit(write)
                    except StoreUnavailable as error:
                        failures.append(error)
                with pytest.raises(StoreUnavailable):
                    await desk.store.read(ReadAddress(address="desk"))
    assert len(failures) == 2
    assert await bench.messages() == []


async def test_a_dead_execution_is_cancelled_where_it_waits(clock: VirtualClock, sqlite_bench: Bench) -> None:
    async with (
        CrashPoints({f"after {ACCEPT}"}) as points,
        sqlite_bench.desk(points) as desk,
        anyio.create_task_group() as group,
    ):
        group.start_soon(anyio.sleep_forever)
        await desk.send("m1")
        await anyio.sleep(3600.0)
        raise AssertionError("it should be dead by now")
    assert clock.now() == 0.0


async def test_all_stores_of_an_execution_die_together(sqlite_bench: Bench) -> None:
    async with (
        CrashPoints({f"before {ACCEPT}"}) as points,
        sqlite_bench.desk(points) as desk,
        open_store(sqlite_bench.url, driver=points.wrap) as other,
    ):
        try:
            await desk.send("m1")
        finally:
            with anyio.CancelScope(shield=True), pytest.raises(StoreUnavailable):
                await other.commit(message("desk", "m2"))
    assert await sqlite_bench.messages() == []


async def test_a_store_cannot_be_opened_by_the_dead(sqlite_bench: Bench) -> None:
    async with CrashPoints({f"before {ACCEPT}"}) as points, sqlite_bench.desk(points) as desk:
        try:
            await desk.send("m1")
        finally:
            with anyio.CancelScope(shield=True), pytest.raises(StoreUnavailable):
                async with open_store(sqlite_bench.url, driver=points.wrap):
                    pass


async def test_r35_the_dead_release_nothing_and_end_nothing(bench: Bench) -> None:
    async with CrashPoints({f"before {ACCEPT}"}) as points, bench.desk(points) as desk:
        try:
            await desk.send("m1")
        finally:
            with anyio.CancelScope(shield=True), pytest.raises(StoreUnavailable):
                await desk.end()
    async with bench.looking() as store:
        record = await store.read(ReadExecution(execution_id="e1"))
        assert record is not None
        assert record.alive
        bench.time.pass_time(3601)
        record = await store.read(ReadExecution(execution_id="e1"))
        assert record is not None
        assert not record.alive


async def test_r11_the_dead_lose_the_proof_that_they_live(sqlite_bench: Bench) -> None:
    time = sqlite_bench.time
    async with (
        CrashPoints({f"before {ACCEPT}"}) as points,
        open_store(sqlite_bench.url, clock=time.store_clock, driver=points.wrap) as store,
    ):
        execution = await start_execution(
            store, on_lost=lambda: None, execution_id="e1", clock=time.store_clock, lease=3600.0
        )
        try:
            await store.commit(message("desk", "m1"))
        finally:
            with pytest.raises(StoreUnavailable):
                await execution.end()
    async with sqlite_bench.looking() as store:
        record = await store.read(ReadExecution(execution_id="e1"))
        assert record is not None
        assert not record.alive
        await register(store, time.store_clock, "e2")
        await claim(store, "e2")


async def test_what_falls_to_pieces_as_it_dies_ends_there(sqlite_bench: Bench) -> None:
    async with CrashPoints({f"before {ACCEPT}"}) as points, sqlite_bench.desk(points) as desk:
        try:
            await desk.send("m1")
        finally:
            raise LookupError("the dying say many things")


async def test_what_falls_to_pieces_in_several_tasks_ends_there_too(sqlite_bench: Bench) -> None:
    async def fall() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise LookupError("the dying say many things")

    async with (
        CrashPoints({f"before {ACCEPT}"}) as points,
        sqlite_bench.desk(points) as desk,
        anyio.create_task_group() as group,
    ):
        group.start_soon(fall)
        group.start_soon(anyio.sleep_forever)
        await anyio.lowlevel.checkpoint()
        await desk.send("m1")
    assert points.died_at is not None


async def test_what_fails_before_its_death_comes_out_as_it_is(sqlite_bench: Bench) -> None:
    with pytest.raises(LookupError):
        async with CrashPoints({f"before {ACCEPT}"}) as points, sqlite_bench.desk(points):
            raise LookupError("alive")


async def test_a_cancellation_from_outside_passes_through(sqlite_bench: Bench) -> None:
    with anyio.CancelScope() as scope:
        async with CrashPoints() as points, sqlite_bench.desk(points):
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert points.died_at is None


async def test_transitions_that_are_submitted_together_are_separate_points(bench: Bench) -> None:
    async with (
        CrashPoints({"before AcceptMessage desk m2"}) as points,
        bench.desk(points) as desk,
        anyio.create_task_group() as group,
    ):
        for number in range(4):
            group.start_soon(desk.send, f"m{number}")
    assert points.died_at == "before AcceptMessage desk m2"
    found = await bench.messages()
    assert "m2" not in found
    assert len(found) == sum(f"after AcceptMessage desk m{number}" in points.passed for number in range(4))


def passed_under(seed: int, backend: Backend) -> list[str]:
    """What is passed by an execution with two stores, and tasks that use them at once."""

    async def send(desk: Desk, other: Committer, number: int) -> None:
        await desk.send(f"m{number}")
        async with anyio.create_task_group() as group:
            group.start_soon(done, other, message("desk", f"m{number} by another way"))
            group.start_soon(desk.send, f"m{number} again")
        await anyio.sleep(1.0)
        await desk.handle(number + 1)

    async def main(url: str) -> list[str]:
        bench = Bench(url)
        async with (
            CrashPoints() as points,
            bench.desk(points) as desk,
            open_store(url, clock=bench.time.store_clock, driver=points.wrap) as other,
            anyio.create_task_group() as group,
        ):
            for number in range(4):
                group.start_soon(send, desk, other, number)
        return [*points.passed]

    with fresh_store() as url:
        return VirtualClock(seed=seed).run(main, url, backend=backend)


def test_r35_the_same_seed_passes_the_same_points_in_the_same_order(backend: Backend) -> None:
    for seed in range(5):
        assert passed_under(seed, backend) == passed_under(seed, backend)
    assert passed_under(0, backend) != passed_under(1, backend)


async def test_the_next_execution_goes_on_with_the_names(sqlite_bench: Bench) -> None:
    async with CrashPoints({f"before {ACCEPT}"}) as first, sqlite_bench.desk(first) as desk:
        await desk.send("m1")
    async with (
        CrashPoints(names=first.names) as second,
        open_store(sqlite_bench.url, clock=sqlite_bench.time.store_clock, driver=second.wrap) as store,
    ):
        await done(store, message("desk", "m1"))
    assert [*second.passed] == [f"{phase} {ACCEPT} (2)" for phase in ("before", "unacknowledged", "after")]


@pytest.mark.real_time
async def test_it_needs_a_virtual_clock() -> None:
    with pytest.raises(Misuse, match="VirtualClock"):
        async with CrashPoints():
            pass
