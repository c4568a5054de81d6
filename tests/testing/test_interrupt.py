"""R35: `interrupt_everywhere` kills a scenario at each of its points, and a scenario that is not fit for that is found out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from greenroom.errors import Misuse, StoreUnavailable
from greenroom.persistence import AddressKind, OpenAddress, Outgoing, message_digest, new_id, open_store, outgoing_id
from greenroom.testing import InterruptionFailed, InvariantBroken, Life, interrupt_everywhere
from tests.testing.desks import claim, done, message, open_desk

if TYPE_CHECKING:
    from greenroom.testing.virtual_clock import Backend
    from tests.persistence.postgres.servers import Server
    from tests.testing.desks import Desk

PHASES = ("before", "unacknowledged", "after")


async def count_to_two(life: Life) -> None:
    """Two messages, counted once each, whatever happens."""
    async with life.open_store() as store:
        desk = await open_desk(store, life)
        for message_id in ("m1", "m2"):
            await desk.send(message_id)
        await desk.handle_all()
        assert await desk.count() == 2
        await desk.end()


TRANSITIONS = (
    "RegisterExecution e1",
    "ClaimAddress desk",
    "AcceptMessage desk m1",
    "AcceptMessage desk m2",
    "BeginDelivery desk m1",
    "FinishDelivery desk m1",
    "BeginDelivery desk m2",
    "FinishDelivery desk m2",
    "EndExecution e1",
)


def test_a_scenario_is_killed_once_at_each_point(backend: Backend) -> None:
    tried = interrupt_everywhere(count_to_two, backend=backend)
    assert tried.trials == tuple(f"{phase} {transition}" for transition in TRANSITIONS for phase in PHASES)
    assert tried.unmet == ()


def test_a_scenario_is_killed_a_second_time_at_each_point_of_its_recovery() -> None:
    async def scenario(life: Life) -> None:
        async with life.open_store() as store:
            await done(store, OpenAddress(address="desk", kind=AddressKind.ACTOR))
            await done(store, message("desk", "m1"))

    tried = interrupt_everywhere(scenario, twice=True)
    points = [f"{phase} {name}" for name in ("OpenAddress desk", "AcceptMessage desk m1") for phase in PHASES]
    assert [trial for trial in tried.trials if "; then " not in trial] == points
    assert {trial.partition("; then ")[0] for trial in tried.trials} == set(points)
    seconds = [trial for trial in tried.trials if trial.startswith("unacknowledged OpenAddress desk; then ")]
    assert [trial.partition("; then ")[2] for trial in seconds] == [
        f"{phase} {name}" for name in ("OpenAddress desk (2)", "AcceptMessage desk m1") for phase in PHASES
    ]
    assert tried.unmet == ()


def test_desks_that_work_at_once_and_send_to_each_other_survive(backend: Backend) -> None:
    passed_on = Outgoing(
        recipient="shelf",
        message_id=outgoing_id("desk", "m1", 1),
        type="Note",
        body=b"{}",
        digest=message_digest("Note", b"{}"),
    )

    async def pass_on(desk: Desk) -> None:
        if await desk.count() == 0:
            await desk.handle(1, outgoing=(passed_on,))

    async def scenario(life: Life) -> None:
        async with life.open_store() as store:
            await done(store, OpenAddress(address="shelf", kind=AddressKind.ACTOR))
            desk = await open_desk(store, life)
            await desk.send("m1")
            async with anyio.create_task_group() as group:
                group.start_soon(pass_on, desk)
                group.start_soon(desk.send, "m2")
        async with life.open_store() as store:
            shelf = await claim(store, f"e{life.number}", "shelf")
            await shelf.handle_all()
            assert await shelf.count() == 1

    assert interrupt_everywhere(scenario, backend=backend, seed=3).unmet == ()


def test_a_scenario_that_counts_on_one_life_is_found_out_and_its_point_is_named() -> None:
    async def scenario(life: Life) -> None:
        async with life.open_store() as store:
            desk = await open_desk(store, life)
            await desk.send(new_id())  # a client that does not remember what it has sent
            await desk.handle_all()
            assert await desk.count() == 1

    with pytest.raises(InterruptionFailed) as failure:
        interrupt_everywhere(scenario, seed=5)
    assert failure.value.points == "unacknowledged AcceptMessage desk ~1"
    assert isinstance(failure.value.__cause__, AssertionError)
    assert "only='unacknowledged AcceptMessage desk ~1', backend='asyncio', seed=5" in str(failure.value)

    with pytest.raises(InterruptionFailed) as again:
        interrupt_everywhere(scenario, only=failure.value.points)
    assert again.value.points == failure.value.points

    assert interrupt_everywhere(scenario, only="before AcceptMessage desk ~1").unmet == ()


def test_a_scenario_that_fails_without_being_killed_is_said_to() -> None:
    async def scenario(life: Life) -> None:
        raise LookupError

    with pytest.raises(InterruptionFailed, match="without being killed at all") as failure:
        interrupt_everywhere(scenario)
    assert isinstance(failure.value.__cause__, LookupError)


def test_a_life_that_writes_past_the_kit_is_found_out() -> None:
    async def scenario(life: Life) -> None:
        async with life.open_store() as store:
            desk = await open_desk(store, life)
            await desk.send("m1")
        async with open_store(life.store.url, clock=life.store.clock) as store:
            await done(store, message("desk", "m2"))

    with pytest.raises(InterruptionFailed) as failure:
        interrupt_everywhere(scenario)
    assert isinstance(failure.value.__cause__, InvariantBroken)


def test_what_a_dying_life_raises_does_not_count() -> None:
    async def scenario(life: Life) -> None:
        async with life.open_store() as store:
            desk = await open_desk(store, life)
            try:
                await desk.send("m1")
            except StoreUnavailable as error:
                raise LookupError("no assertion of the dead counts") from error

    assert interrupt_everywhere(scenario).unmet == ()


def test_lives_are_numbered_and_the_world_outside_remembers_within_a_trial() -> None:
    memories: list[dict[str, list[int]]] = []

    async def scenario(life: Life) -> None:
        life.kept.setdefault("lives", []).append(life.number)
        memories.append(life.kept)
        async with life.open_store() as store:
            await open_desk(store, life)

    interrupt_everywhere(scenario, only="after ClaimAddress desk")
    interrupt_everywhere(scenario, only="before ClaimAddress desk")
    assert memories == [{"lives": [1, 2]}] * 4
    assert memories[0] is memories[1] is not memories[2] is memories[3]


def test_a_life_that_has_died_can_be_told() -> None:
    alive: list[bool] = []

    async def scenario(life: Life) -> None:
        async with life.open_store() as store:
            try:
                alive.append(life.alive)
                await open_desk(store, life)
            finally:
                alive.append(life.alive)

    interrupt_everywhere(scenario, only="before ClaimAddress desk")
    assert alive == [True, False, True, True]


def test_between_two_lives_the_lease_passes() -> None:
    moments: list[float] = []

    async def scenario(life: Life) -> None:
        assert life.store.clock is not None
        moments.append(life.store.clock.boot())
        async with life.open_store() as store:
            await open_desk(store, life)

    interrupt_everywhere(scenario, only="after ClaimAddress desk", lease=4000.0)
    assert moments[1] - moments[0] == 4001.0


def test_virtual_time_passes_in_no_time() -> None:
    async def scenario(life: Life) -> None:
        async with life.open_store() as store:
            await open_desk(store, life)
            await anyio.sleep(3000)

    assert interrupt_everywhere(scenario).unmet == ()


def test_a_sample_is_chosen_by_its_seed() -> None:
    def tried(seed: int, fraction: float) -> tuple[str, ...]:
        return interrupt_everywhere(count_to_two, sample=(seed, fraction)).trials

    assert tried(1, 0.2) == tried(1, 0.2)
    assert tried(1, 0.2) != tried(2, 0.2)
    assert len(tried(1, 0.2)) == 6  # of 27, rounded up
    assert len(tried(1, 0.001)) == 1


@pytest.mark.parametrize("sample", [(1, 0.0), (1, 1.5)])
def test_a_sample_has_a_sensible_size(sample: tuple[int, float]) -> None:
    with pytest.raises(Misuse, match="fraction"):
        interrupt_everywhere(count_to_two, sample=sample)


def test_a_point_that_is_not_there_is_said_not_to_be() -> None:
    with pytest.raises(Misuse, match="before AcceptMessage desk m1, unacknowledged") as failure:
        interrupt_everywhere(count_to_two, only="before AcceptMessage desk m7")
    assert "m7" in str(failure.value)


def test_a_trial_that_went_another_way_is_told() -> None:
    lives = 0

    async def scenario(life: Life) -> None:
        nonlocal lives
        lives += 1
        async with life.open_store() as store:
            desk = await open_desk(store, life)
            await desk.send(f"m{lives}")  # another one each time, as a thread's or a process's might be

    tried = interrupt_everywhere(scenario)
    assert tried.unmet == tuple(trial for trial in tried.trials if "AcceptMessage" in trial)
    assert len(tried.unmet) == 3


def test_r35_a_tenth_of_the_points_on_postgres(postgres: Server, backend: Backend) -> None:
    tried = interrupt_everywhere(count_to_two, server=postgres.url, backend=backend, sample=(1, 0.1))
    assert len(tried.trials) == 3
    assert tried.unmet == ()


@pytest.mark.full
def test_r35_all_points_on_postgres(postgres: Server, backend: Backend) -> None:
    tried = interrupt_everywhere(count_to_two, server=postgres.url, backend=backend, twice=True, sample=(1, 0.3))
    assert tried.unmet == ()
