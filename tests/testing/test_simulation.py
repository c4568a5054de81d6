"""C48: seeded simulation of tasks. A seed is one run, to the byte; whatever it brings, all tasks end as they should."""

from __future__ import annotations

import random
import secrets
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

import greenroom as gr
from benchmarks.simulated import Author, Do, Plan, hears, tasks_by_random_plans, words_of
from greenroom.testing.seeded_chance import seeded_chance
from greenroom.testing.simulation import Simulated, SimulationFailed, Weather, World, simulate
from tests.tasks.scripts import POOL, Job, agents

if TYPE_CHECKING:
    from greenroom.testing.simulation import Process
    from greenroom.testing.virtual_clock import Backend

ROOT = Path(__file__).parents[2]

SEEDS = 40
"""On both databases with --full, and looked at for what they bring."""

ALL_SEEDS = 200
"""Every day on SQLite; they take some thirty-five seconds of processor time."""

BLOCK = 10
"""Seeds in one test."""

pytestmark = pytest.mark.usefixtures("quiet")


def run_block(first: int, url: str) -> list[Simulated]:
    return [simulate(tasks_by_random_plans, seed, url=url) for seed in range(first, first + BLOCK)]


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_c48_tasks_end_as_they_should_whatever_a_seed_brings(first: int, sqlite_url: str) -> None:
    runs = run_block(first, sqlite_url)
    assert {run.backend for run in runs} == {"asyncio", "trio"}
    assert any(run.deaths for run in runs)
    assert any(run.faults for run in runs)
    assert any(run.jumps for run in runs)


@pytest.mark.parametrize("first", range(SEEDS, ALL_SEEDS, BLOCK))
def test_c48_tasks_end_as_they_should_under_two_hundred_seeds(first: int, sqlite_url: str) -> None:
    run_block(first, sqlite_url)


@pytest.mark.full
@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_c48_tasks_end_as_they_should_on_postgres(first: int, postgres_url: str) -> None:
    run_block(first, postgres_url)


@pytest.mark.parametrize("seed", [14, 15, 26, 37])  # with deaths, faults and jumps, on both loops
def test_c48_the_same_seed_is_the_same_run_to_the_byte(seed: int, sqlite_url: str) -> None:
    first = simulate(tasks_by_random_plans, seed, url=sqlite_url)
    assert simulate(tasks_by_random_plans, seed, url=sqlite_url) == first
    assert first.journal.count(b"JournalEntry") > 1
    assert simulate(tasks_by_random_plans, seed + 2, url=sqlite_url).journal != first.journal


@pytest.mark.full
def test_c48_the_same_seed_is_the_same_run_in_another_process_under_another_hash_seed() -> None:
    told = []
    for hash_seed in ("1", "2"):
        code = (
            "import hashlib, logging\n"
            "from benchmarks.simulated import tasks_by_random_plans as tasks\n"
            "from greenroom.testing import fresh_store\n"
            "from greenroom.testing.simulation import simulate\n"
            "logging.disable(50)\n"
            "with fresh_store() as url:\n"
            "    for seed in range(20, 26):\n"
            "        print(seed, hashlib.sha256(simulate(tasks, seed, url=url).journal).hexdigest())\n"
        )
        done = subprocess.run(
            (sys.executable, "-c", code),
            cwd=ROOT,
            env={"PYTHONHASHSEED": hash_seed, "PATH": "", "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(done.stdout)
    assert told[0] == told[1]
    assert len(told[0].splitlines()) == 6


# ------------------------------------------------------------------------------------------------ it finds what is wrong


def test_a_scenario_that_does_not_hold_is_told_with_its_seed_and_its_cause(backend: Backend, sqlite_url: str) -> None:
    async def wrong(world: World) -> None:
        await anyio.sleep(1)
        assert world.seed < 0, "as it had to come"

    with pytest.raises(SimulationFailed, match=r"seed 7 .*as it had to come") as caught:
        simulate(wrong, 7, url=sqlite_url, backend=backend)
    assert (caught.value.seed, caught.value.backend) == (7, backend)


def test_work_that_does_not_end_after_the_last_trouble_is_named(backend: Backend, sqlite_url: str) -> None:
    async def script(task: gr.Task, job: Job) -> None:
        await task.receive(Plan, timeout=None)

    async def work(process: Process) -> None:
        async with gr.Runtime(gr.Supervisor("service", agents(script), intensity=1000), store=process.store) as runtime:
            await (await runtime.submit(POOL, Job(), task_id="T1")).result()

    async def scenario(world: World) -> None:
        await world.survive("worker", work)

    with pytest.raises(SimulationFailed, match=r"T1 is (running|waiting)"):
        simulate(scenario, 3, url=sqlite_url, backend=backend, trouble=10.0)


def test_an_accepted_operation_that_is_invoked_again_would_be_found(sqlite_url: str) -> None:
    """The watch over the world outside is no decoration: what it looks for is noticed where it happens."""

    async def scenario(world: World) -> None:
        asked: list[str] = []

        @gr.operation(effect=gr.Effect.SAFE)
        async def look(op: gr.Operation) -> None:
            asked.append(op.id)

        async def script(task: gr.Task, job: Job) -> None:
            await task.run(look)

        async def work(process: Process) -> None:
            tree = gr.Supervisor("service", agents(script), intensity=1000)
            async with gr.Runtime(tree, store=process.store) as runtime:
                await (await runtime.submit(POOL, Job(), task_id="T1")).result()

        await world.survive("worker", work)
        segment = world.ledger.segments["task:T1"]
        assert [entry.call for entry in world.ledger.journals[segment]] == asked[-1:]

    simulate(scenario, 4, url=sqlite_url)


# ------------------------------------------------------------------------------------------------------- its parts


def test_chance_is_in_the_hands_of_the_seed_for_the_length_of_the_block() -> None:
    drawn = []
    for _ in range(2):
        with seeded_chance(5):
            drawn.append((random.random(), secrets.token_bytes(8), secrets.token_bytes()))
    assert drawn[0] == drawn[1]
    assert len(drawn[0][1]) == 8
    assert secrets.token_bytes(8) != secrets.token_bytes(8)


def test_each_kind_of_trouble_is_there_in_some_runs_and_not_in_others() -> None:
    weathers = [Weather.of(seed) for seed in range(100)]
    assert {weather.faults > 0 for weather in weathers} == {True, False}
    assert {weather.deaths > 0 for weather in weathers} == {True, False}
    assert {weather.jumps is None for weather in weathers} == {True, False}
    assert len({weather.among for weather in weathers}) > 20


def test_random_plans_have_steps_of_every_kind_and_what_must_come_of_them_is_known() -> None:
    plans = [Author(random.Random(seed)).task() for seed in range(300)]
    kinds = {type(step).__name__ for plan in plans for step in plan.steps}
    assert kinds == {"Do", "Rest", "Hear", "Stumble", "Together", "Within", "Hand", "Again"}
    assert {step.effect for plan in plans for step in plan.steps if isinstance(step, Do)} == {"safe", "keyed", "once"}
    assert any(hears(plan) > 1 for plan in plans)
    assert all(len(set(words_of(plan))) == len(words_of(plan)) for plan in plans)
