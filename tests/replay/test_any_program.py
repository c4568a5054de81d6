"""Any control program, anywhere cut, evicted or killed, comes back to the same place and goes on (R14, T1 to T26).

Programs are made by hypothesis: nested nurseries, shared variables, first-wins, try/except/finally, limits, cleanups. Their result is
everything that any branch saw, in order, and operations take it as a parameter, so that every change of order shows. Each runs in a
world that a seed decides, on an event loop whose order another seed decides; what is seen after each row must be the same whenever that
row is processed again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import TypeVar

import anyio
from anyio.lowlevel import checkpoint
from attrs import frozen
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st

from greenroom.mailbox import Backend
from greenroom.runtime.replay import Diverged, Engine, JournalRow, OutcomeRow, Recorded, TimeRow
from greenroom.testing import VirtualClock
from tests.replay.programs import Block, Performance, blocks, marked, mutants, programs
from tests.replay.values import CODEC, start
from tests.replay.world import Habits, World, replay

T = TypeVar("T")
seeds = st.integers(0, 2**32 - 1)
many = settings(
    max_examples=max(60, settings().max_examples // 4),  # each is a good number of runs
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def run_on(backend: Backend, seed: int, work: Callable[[], Awaitable[T]]) -> T:
    """Run on an event loop in seeded order, beside tasks that are always ready."""

    async def neighbour() -> None:
        while True:
            await checkpoint()

    async def main() -> T:
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(neighbour)
            result = await work()
            group.cancel_scope.cancel()
        return result

    return VirtualClock(seed=seed).run(main, backend=backend)


def lived(
    backend: Backend,
    program: Block,
    seed: int,
    habits: Habits | None = None,
    journal: Sequence[JournalRow] = (),
    handler: Block | None = None,
) -> World:
    """Run a program to its end, from the start or over a journal."""
    world = World(Performance(program, handler), Random(seed), Habits() if habits is None else habits, list(journal))
    run_on(backend, seed, world.run)
    return world


@many
@given(programs, seeds)
def test_r14_a_program_lives_the_same_on_both_loops_and_is_replayed_on_either(program: Block, seed: int) -> None:
    one = lived("asyncio", program, seed)
    two = lived("trio", program, seed)
    assert (one.journal, one.known) == (two.journal, two.known)
    target(float(len(one.journal)))
    perform = Performance(program)
    assert run_on("trio", seed + 1, partial(replay, perform, one.journal)) == one.known
    assert run_on("asyncio", seed + 2, partial(replay, perform, one.journal)) == one.known


@many
@given(programs, seeds)
def test_r14_a_program_that_is_evicted_and_killed_again_and_again_has_one_history(program: Block, seed: int) -> None:
    habits = Habits(evicts=0.2, kills=0.1)
    one = lived("trio", program, seed, habits)
    two = lived("asyncio", program, seed, habits)
    assert (one.journal, one.known, one.activations) == (two.journal, two.known, two.activations)
    assert run_on("asyncio", seed + 1, partial(replay, Performance(program), one.journal)) == one.known


@many
@given(programs, seeds)
def test_r14_a_program_that_is_cut_at_any_row_goes_on_from_there(program: Block, seed: int) -> None:
    whole = lived("asyncio", program, seed)
    for cut in range(len(whole.journal)):
        backend: Backend = "trio" if (seed + cut) % 2 else "asyncio"
        prefix = whole.journal[:cut]
        rest = lived(backend, program, seed + cut + 1, journal=prefix)
        assert rest.journal[:cut] == prefix
        assert rest.known[: cut + 1] == whole.known[: cut + 1]
        accepted = {row.call for row in prefix if isinstance(row, OutcomeRow)}
        assert accepted.isdisjoint(rest.sent), "an accepted operation was sent again"
        assert len(rest.sent) == len(set(rest.sent)), "an operation was sent twice by one activation"
        outcomes = [row.call for row in rest.journal if isinstance(row, OutcomeRow)]
        assert len(outcomes) == len(set(outcomes))


@many
@given(programs, blocks(1), seeds)
def test_k08_a_program_beside_handlers_of_signals_has_one_history(program: Block, handler: Block, seed: int) -> None:
    habits = Habits(evicts=0.2, kills=0.1, signals=10)
    one = lived("trio", program, seed, habits, handler=handler)
    two = lived("asyncio", program, seed, habits, handler=handler)
    assert (one.journal, one.known, one.activations) == (two.journal, two.known, two.activations)
    perform = Performance(program, handler)
    assert run_on("asyncio", seed + 1, partial(replay, perform, one.journal)) == one.known
    cut = seed % (len(one.journal) + 1)
    rest = lived("trio", program, seed + 2, journal=one.journal[:cut], handler=handler)
    assert rest.known[: cut + 1] == one.known[: cut + 1]


# ---------------------------------------------------------------------------------------------------- mutants


@frozen
class Traced:
    """A replay: the calls that were made, how many of them after each row, and where it diverged."""

    calls: list[str]
    counts: list[int]
    diverged: Diverged | None


async def traced(program: Block, journal: Sequence[JournalRow]) -> Traced:
    perform = Performance(program)
    counts: list[int] = []
    async with Engine(perform, start(), CODEC, Recorded.of(journal)) as engine:
        await engine.process()
        counts.append(len(perform.calls))
        for row in journal:
            try:
                await engine.process(row)
            except Diverged as diverged:
                return Traced(perform.calls, counts, diverged)
            counts.append(len(perform.calls))
    return Traced(perform.calls, counts, None)


@many
@given(programs, seeds)
def test_t25_a_program_that_was_changed_diverges_exactly_where_it_does_something_else(
    program: Block, seed: int
) -> None:
    journal = lived("asyncio", program, seed).journal
    bases = [row.stamp.basis for row in journal if isinstance(row, (OutcomeRow, TimeRow))]
    if not bases:
        return

    async def compare() -> None:
        original = await traced(program, journal)
        assert original.diverged is None
        changed = list(mutants(program))
        Random(seed).shuffle(changed)
        for mutant in changed[:20]:
            found = await traced(mutant, journal)
            if found.diverged is None:
                # What it had done at the last comparison is what the original had done.
                last = max(bases)
                assert found.calls[: found.counts[last]] == original.calls[: original.counts[last]]
            else:
                done = len(found.counts) - 1
                same = found.calls[: found.counts[done]] == original.calls[: original.counts[done]]
                assert not same or "other parameters" in found.diverged.found

    run_on("asyncio", seed, compare)


# ------------------------------------------------------------------------------------------------------ marks


@many
@given(programs, seeds)
def test_c06_a_marked_change_can_be_deployed_at_any_row(program: Block, seed: int) -> None:
    old = lived("trio", program, seed)
    new = Random(seed).choice(list(marked(program)))
    cut = seed % (len(old.journal) + 1)
    rest = lived("asyncio", new, seed + 1, Habits(evicts=0.2, kills=0.05), old.journal[:cut])
    assert rest.journal[:cut] == old.journal[:cut]
    assert run_on("trio", seed + 2, partial(replay, Performance(new), rest.journal)) == rest.known


# ------------------------------------------------------------------------------------------------- the generator


def test_the_generator_makes_programs_in_which_something_happens() -> None:
    """A guard over the properties above: their programs have rows, cancellations, races lost, and failures."""
    rows: list[JournalRow] = []
    ends: set[str] = set()
    statuses: set[str] = set()

    @settings(max_examples=60, database=None, suppress_health_check=list(HealthCheck))
    @given(programs, seeds)
    def look(program: Block, seed: int) -> None:
        world = lived("asyncio", program, seed)
        rows.extend(world.journal)
        statuses.update(row.status.value for row in world.journal if isinstance(row, OutcomeRow))
        ends.add(world.known[-1].ended.split(" at ")[0])

    look()
    assert len(rows) > 200
    assert {type(row).__name__ for row in rows} == {"OutcomeRow", "TimeRow", "SignalRow", "ControlRow"}
    assert statuses == {"succeeded", "failed", "cancelled"}
    assert ends == {"returned", "raised", "cancelled"}
