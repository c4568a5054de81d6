"""Tasks make the moves of `TASK_MOVES` and no others, whatever is done in whatever order; the database refuses what its columns tell."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from random import Random
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings

from greenroom.persistence.ids import new_id
from greenroom.persistence.states import steps as moves_of
from greenroom.persistence.tasks import (
    TASK_MOVES,
    Condition,
    ListTasks,
    condition_of,
)
from tests.persistence.commands import ABOUT_TASKS, lists_of
from tests.persistence.postgres.database import PostgresDatabase
from tests.persistence.postgres.help import opened, run, session
from tests.persistence.postgres.servers import fresh_schema
from tests.persistence.sqlite.test_r09_oracle import Step, one_by_one, random_commands
from tests.persistence.stores import Database, SqliteDatabase, drive
from tests.persistence.test_states import database as empty_tables

if TYPE_CHECKING:
    from pathlib import Path

    from greenroom.persistence.driver import Driver
    from greenroom.persistence.transitions import Transition
    from tests.persistence.postgres.servers import Server
    from tests.persistence.world import Command

Move = tuple[Condition, Condition]

LEGAL = moves_of(TASK_MOVES)


async def conditions(driver: Driver) -> dict[str, Condition]:
    """The condition of every task; the database chooses by it as the records say it."""
    found = {record.address: record.condition for record in await driver.read(ListTasks(limit=100))}
    for condition in Condition:
        chosen = await driver.read(ListTasks(condition=condition, limit=100))
        assert [record.address for record in chosen] == [name for name, said in found.items() if said is condition]
    return found


async def moves_of_one(driver: Driver, step: Transition[Any]) -> set[Move]:
    """Apply one transition. Returns the moves that it has made, all of them in the table."""
    before = await conditions(driver)
    await driver.apply(new_id(), [step])
    after = await conditions(driver)
    made: set[Move] = set()
    for address in before.keys() | after.keys():
        old, new = before.get(address), after.get(address)
        if old is None:
            assert new in (Condition.RUNNABLE, Condition.WAITING), step
        elif new is None:
            assert old is Condition.TERMINAL, step
        elif old is not new:
            assert (old, new) in LEGAL, (address, step)
            made.add((old, new))
    return made


def moves_made(database: Database, steps: Sequence[Step]) -> set[Move]:
    """Play steps one by one. Returns the moves that transitions have made, and checks each."""
    driver = database.driver()
    made: set[Move] = set()

    async def main() -> None:
        await driver.open()
        try:
            for step in steps:
                if isinstance(step, float):
                    database.time.pass_time(step)
                else:
                    made.update(await moves_of_one(driver, step))
        finally:
            await driver.close()  # whoever drops the schema after a failure would wait for an open one

    drive(driver, main)
    return made


def history(seed: int, length: int = 120) -> list[Step]:
    steps, _, _ = one_by_one(random_commands(Random(seed), length, ABOUT_TASKS))
    return steps


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(lists_of(ABOUT_TASKS))
def test_no_transition_makes_another_move_than_the_table_has(tmp_path: Path, commands: list[Command]) -> None:
    steps, _, _ = one_by_one(commands)
    moves_made(SqliteDatabase(tmp_path / f"{new_id()}.db"), steps)


def test_every_move_of_the_table_is_made_and_no_other_on_sqlite(tmp_path: Path) -> None:
    made: set[Move] = set()
    for seed in range(8):
        made |= moves_made(SqliteDatabase(tmp_path / f"{seed}.db"), history(seed))
    assert made == {move for move in LEGAL if move[0] is not move[1]}


@pytest.mark.full
def test_no_transition_makes_another_move_in_long_histories(tmp_path: Path) -> None:
    for seed in range(1000, 1030):
        moves_made(SqliteDatabase(tmp_path / f"{seed}.db"), history(seed, 200))


def test_no_transition_makes_another_move_than_the_table_has_on_postgresql(postgres: Server) -> None:
    for seed in range(2):
        with fresh_schema(postgres) as url:
            moves_made(PostgresDatabase(url), history(seed))


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("parked", [False, True])
@pytest.mark.parametrize("runnable", [False, True])
def test_a_closed_task_is_terminal_whatever_else_is_said_of_it(owned: bool, parked: bool, runnable: bool) -> None:
    assert condition_of(closed=True, parked=parked, owned=owned, runnable=runnable) is Condition.TERMINAL


# --------------------------------------------------------------------------------------- what the database refuses

TASK = (
    "INSERT INTO tasks (address, pool, group_key, priority, turn, runnable, request, request_type, request_digest, submitted_at, "
    "parent_policy, attempt, attempt_at, seed, segment_at, outcome, ended_at) "
    "VALUES ('task:t', 'p', '', 0, 1, 0, x'00', 'T', 'd', 1, 'stop', 2, 1, x'00', 1, {outcome}, {ended_at})"
)
ADDRESS = "INSERT INTO addresses (address, kind, generation, owner) VALUES ('task:t', 'task', 1, NULL)"
ENDED = TASK.format(outcome="'failed'", ended_at="2")
OPEN = TASK.format(outcome="NULL", ended_at="NULL")


@pytest.mark.parametrize(
    ("task", "change", "complaint"),
    [
        (OPEN, "UPDATE tasks SET attempt = 1", "tasks: no such move"),
        (OPEN, "UPDATE tasks SET attempt = 3", "tasks: no such move"),
        (ENDED, "UPDATE tasks SET outcome = 'succeeded'", "tasks: no such move"),
        (ENDED, "UPDATE tasks SET outcome = NULL, ended_at = NULL", "tasks: no such move"),
        (ENDED, "UPDATE tasks SET outcome = NULL, ended_at = NULL, attempt = 4", "tasks: no such move"),
        (ENDED, "UPDATE addresses SET owner = 'e'", "addresses: no such move"),
        (OPEN, "UPDATE addresses SET kind = 'actor'", "addresses: no such move"),
        (ENDED, "UPDATE tasks SET runnable = 1", "CHECK constraint failed"),
        (OPEN, "UPDATE tasks SET outcome = 'failed'", "CHECK constraint failed"),
        (ENDED, "UPDATE tasks SET result = x'00'", "CHECK constraint failed"),
    ],
)
def test_sqlite_refuses_what_no_transition_does(task: str, change: str, complaint: str) -> None:
    with closing(empty_tables()) as connection:
        connection.execute(task)
        connection.execute(ADDRESS)
        with pytest.raises(sqlite3.IntegrityError, match=complaint):
            connection.execute(change)


@pytest.mark.parametrize(
    ("task", "change"),
    [
        (OPEN, "UPDATE tasks SET outcome = 'failed', ended_at = 2"),
        (ENDED, "UPDATE tasks SET outcome = NULL, ended_at = NULL, attempt = 3"),
        (OPEN, "UPDATE addresses SET owner = 'e'"),
    ],
)
def test_sqlite_allows_what_transitions_do(task: str, change: str) -> None:
    with closing(empty_tables()) as connection:
        connection.execute(task)
        connection.execute(ADDRESS)
        assert connection.execute(change).rowcount == 1


def test_postgresql_refuses_the_same(postgres: Server) -> None:
    forbidden = [
        (OPEN, "UPDATE tasks SET attempt = 1"),
        (OPEN, "UPDATE tasks SET attempt = 3"),
        (ENDED, "UPDATE tasks SET outcome = 'succeeded'"),
        (ENDED, "UPDATE tasks SET outcome = NULL, ended_at = NULL"),
        (ENDED, "UPDATE addresses SET owner = 'e'"),
        (OPEN, "UPDATE addresses SET kind = 'actor'"),
        (ENDED, "UPDATE tasks SET runnable = true"),
        (OPEN, "UPDATE tasks SET outcome = 'failed'"),
    ]

    async def main(url: str) -> None:
        async with opened(url), session(url) as connection:
            for task, change in forbidden:
                await connection.execute("DELETE FROM tasks")
                await connection.execute("DELETE FROM addresses")
                await connection.execute(task.replace("x'00'", r"'\x00'").replace("1, 0, ", "1, false, ", 1))
                await connection.execute(ADDRESS)
                with pytest.raises(asyncpg.CheckViolationError):
                    await connection.execute(change)

    with fresh_schema(postgres) as url:
        run(main(url))
