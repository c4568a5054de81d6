"""R9, for tasks: PostgreSQL, in whatever batches, answers and ends as SQLite does one by one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest

from greenroom.persistence.ids import new_id
from greenroom.persistence.packing import batches
from greenroom.persistence.task_pools import RegisterTaskPool
from greenroom.persistence.transitions import Refused, Transition
from tests.persistence.commands import ABOUT_TASKS, KINDS
from tests.persistence.postgres.database import PostgresDatabase
from tests.persistence.postgres.servers import fresh_schema
from tests.persistence.sqlite.test_r09_oracle import Step, one_by_one, random_commands
from tests.persistence.sqlite.test_r09_oracle import in_batches as sqlite_in_batches
from tests.persistence.stores import SteeredClock, drive
from tests.persistence.tasks_help import POOL, submit

if TYPE_CHECKING:
    from tests.persistence.postgres.servers import Server
    from tests.persistence.stores import Tables

LENGTH: Final = 80


def in_batches(
    url: str, steps: Sequence[Step], random: Random | None, *, often: float = 0.2
) -> tuple[list[Any], Tables]:
    """Play steps on PostgreSQL, in batches of any size, or as large as time allows. `often`: how often a step ends its batch."""
    database = PostgresDatabase(url)
    driver = database.driver()
    answers: list[Any] = []
    queue: list[Transition[Any]] = []

    async def flush() -> None:
        for batch in batches(queue, 512):
            answers.extend((await driver.apply(new_id(), batch)).answers)
        queue.clear()

    async def main() -> None:
        await driver.open()
        for step in steps:
            if isinstance(step, float):
                await flush()
                database.time.pass_time(step)
                continue
            queue.append(step)
            if random is not None and random.random() < often:
                await flush()
        await flush()
        await driver.close()

    drive(driver, main)
    return answers, database.tables()


def comparable(answers: Sequence[Any]) -> list[Any]:
    """Seconds come from two kinds of clock."""
    return [
        attrs.evolve(answer, seconds=None if answer.seconds is None else round(answer.seconds, 3))
        if isinstance(answer, Refused)
        else answer
        for answer in answers
    ]


def difference(server: Server, seed: int) -> str | None:
    """The first difference of one random run."""
    random = Random(seed)
    steps, expected, tables = one_by_one(random_commands(random, LENGTH, KINDS if seed % 4 == 0 else ABOUT_TASKS))
    with fresh_schema(server) as url:
        answers, found = in_batches(url, steps, random, often=random.choice((0.2, 0.9)))
    items = [step for step in steps if isinstance(step, Transition)]
    for number, (item, one, other) in enumerate(zip(items, comparable(expected), comparable(answers), strict=True)):
        if one != other:
            return f"seed {seed}, item {number}: {item}\n  SQLite: {one}\n  PostgreSQL: {other}"
    for name in sorted(tables.keys() - {"executions"}):  # whose leases are told by two clocks
        if tables[name] != found[name]:
            return f"seed {seed}, table {name}: " + "\n".join(map(repr, set(tables[name]) ^ set(found[name])))
    return None


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_r09_postgresql_in_batches_does_to_tasks_what_sqlite_does_one_by_one(postgres: Server, start: int) -> None:
    for seed in range(start, start + 10):
        assert difference(postgres, seed) is None


def test_r09_tasks_that_are_submitted_together_get_their_turns_in_order_though_some_are_to_wait(
    postgres: Server,
) -> None:
    later = SteeredClock().at(5)
    steps: list[Step] = [
        RegisterTaskPool(pool=POOL, queue_limit=3),
        submit("known"),
        1.0,
        submit("later", not_before=later),
        submit("first", group="g"),
        submit("known"),
        submit("second"),
        submit("third", group="g"),
        1.0,
    ]
    expected, tables = sqlite_in_batches(steps, [1], list)
    with fresh_schema(postgres) as url:
        answers, found = in_batches(url, steps, None)
    assert comparable(answers) == comparable(expected)
    for name in ("tasks", "task_groups", "task_pools"):
        assert found[name] == tables[name]


@pytest.mark.full
def test_r09_many_more_runs_with_tasks_do_the_same(postgres: Server) -> None:
    for seed in range(1000, 1300):
        assert difference(postgres, seed) is None
