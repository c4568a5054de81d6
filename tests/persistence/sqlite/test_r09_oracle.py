"""R9: whatever the batches, answers and tables are those of the same transitions one by one."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.persistence.applying.appliers import APPLIERS
from greenroom.persistence.ids import new_id
from greenroom.persistence.packing import batches, pack
from greenroom.persistence.sqlite.driver import SqliteDriver
from greenroom.persistence.sqlite.hot import HOT
from greenroom.persistence.transitions import Refused, Transition
from greenroom.persistence.urls import parse_url
from tests.persistence.commands import ABOUT_ACTORS, ABOUT_TASKS, KINDS, becomes, beginning, commands
from tests.persistence.stores import SteeredClock, drive
from tests.persistence.world import Command, World

if TYPE_CHECKING:
    from greenroom.persistence.driver import Applied

Step = Transition[Any] | float
"""A transition, or seconds that pass."""


class Sqlite:
    """A database in memory, that applies batches and shows its tables."""

    def __init__(self) -> None:
        self.time = SteeredClock()
        connections: list[sqlite3.Connection] = []

        def connect(path: str, **options: Any) -> sqlite3.Connection:
            connections.append(sqlite3.connect(path, **options))
            return connections[-1]

        url = parse_url("sqlite://:memory:")
        self._driver = SqliteDriver(url, self.time.store_clock, bound=30.0, connect=connect)
        drive(self._driver, self._driver.open)
        (self.connection,) = connections

    def apply(self, items: Sequence[Transition[Any]]) -> list[Any]:
        async def apply() -> Applied:
            return await self._driver.apply(new_id(), items)

        return list(drive(self._driver, apply).answers)

    def tables(self) -> dict[str, list[Any]]:
        names = [name for (name,) in self.connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        tables: dict[str, list[Any]] = {}
        for name in set(names) - {"batches", "meta"}:
            cursor = self.connection.execute(f"SELECT * FROM {name}")
            skip = 1 if name == "observations" else 0  # the id counts in the order of applying
            tables[name] = sorted((row[skip:] for row in cursor), key=repr)
        return tables

    def close(self) -> None:
        drive(self._driver, self._driver.close)


def one_by_one(given_commands: Sequence[Command]) -> tuple[list[Step], list[Any], dict[str, list[Any]]]:
    """Play commands in the order given: the steps that they became, the answers, the tables at the end."""
    database = Sqlite()
    world = World(database.connection, database.time)
    steps: list[Step] = []
    answers: list[Any] = []
    for command in (*beginning(), *given_commands):
        if command.kind == "time":
            seconds = (1.0, 1.0, 6.0, 6.0, 12.0, 35.0)[command.numbers[0] % 6]
            database.time.pass_time(seconds)
            steps.append(seconds)
        else:
            item = becomes(command, world)
            steps.append(item)
            answers += database.apply([item])
    tables = database.tables()
    check_invariants(database.connection)
    database.close()
    return steps, answers, tables


def in_batches(
    steps: Sequence[Step], sizes: Sequence[int], order: Callable[[Sequence[Transition[Any]]], list[Transition[Any]]]
) -> tuple[list[Any], dict[str, list[Any]]]:
    """Play the same steps in batches of such sizes, each in an order of its own; the answers in the steps' order."""
    database = Sqlite()
    answers: dict[str, Any] = {}
    queue: list[Transition[Any]] = []
    left = cycle(sizes)

    def flush() -> None:
        for batch in batches(queue, 512):
            items = order(batch)
            for item, answer in zip(items, database.apply(items), strict=True):
                answers[item.transition_id] = answer
        queue.clear()

    room = next(left)
    for step in steps:
        if isinstance(step, float):
            flush()
            database.time.pass_time(step)
            continue
        queue.append(step)
        if len(queue) >= room:
            flush()
            room = next(left)
    flush()
    tables = database.tables()
    database.close()
    return [answers[step.transition_id] for step in steps if isinstance(step, Transition)], tables


def packed(items: Sequence[Transition[Any]]) -> list[Transition[Any]]:
    return [item for group in pack(items) for item in group.items]


def check_invariants(connection: sqlite3.Connection) -> None:
    """What the counters of every address must be, by counting. Retention forgets the journals of ended attempts from the front."""
    wrong = connection.execute(
        """
        SELECT address FROM addresses AS a WHERE
        ready <> (SELECT count(*) FROM messages AS m WHERE m.address = a.address AND m.status = 'queued'
                  AND m.seq > a.handled_seq)
        OR delayed <> (SELECT count(*) FROM messages AS m WHERE m.address = a.address AND m.status = 'delayed')
        OR queued <> (SELECT count(*) FROM messages AS m WHERE m.address = a.address AND m.timer IS NULL
                      AND (m.status = 'delayed' OR m.status = 'queued' AND m.seq > a.handled_seq))
        OR settled_ahead <> (SELECT count(*) FROM messages AS m WHERE m.address = a.address
                             AND m.status <> 'queued' AND m.seq > a.handled_seq)
        OR held <> (SELECT count(*) FROM outbox AS o WHERE o.address = a.address AND o.held = 1 AND o.status = 'pending')
        OR last_seq < (SELECT coalesce(max(seq), 0) FROM messages AS m WHERE m.address = a.address)
        OR (owner IS NULL AND parked IS NULL AND closed_at IS NULL AND (ready > 0 OR delayed > 0) AND due_at IS NULL
            AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.address = a.address AND t.runnable))
        """
    ).fetchall()
    assert wrong == []
    wrong = connection.execute(
        """
        SELECT 'address', address FROM tasks AS t JOIN addresses AS a USING (address) WHERE a.kind <> 'task'
        OR (a.closed_at IS NULL) <> (t.outcome IS NULL)
        OR t.runnable AND (a.owner IS NOT NULL OR a.parked IS NOT NULL OR a.closed_at IS NOT NULL)
        UNION ALL
        SELECT 'row', address FROM addresses AS a WHERE a.kind = 'task'
        AND NOT EXISTS (SELECT 1 FROM tasks AS t WHERE t.address = a.address)
        UNION ALL
        SELECT 'pool', pool FROM task_pools AS p
        WHERE runnable <> (SELECT count(*) FROM tasks AS t WHERE t.pool = p.pool AND t.runnable)
        UNION ALL
        SELECT 'journal', j.address FROM journal AS j JOIN tasks AS t USING (address) GROUP BY j.address, j.attempt, j.segment
        HAVING count(*) <> max(j.seq) - min(j.seq) + 1 OR min(j.seq) <> 1 AND t.outcome IS NULL AND j.attempt = t.attempt
        UNION ALL
        SELECT 'order', j.address FROM journal AS j JOIN journal AS k USING (address, attempt, segment)
        WHERE k.seq = j.seq + 1 AND k.at < j.at
        UNION ALL
        SELECT 'operation', o.address FROM operations AS o JOIN tasks AS t USING (address)
        WHERE (o.status = 'settled' OR o.status = 'pending') AND (t.outcome IS NULL AND t.attempt = o.attempt OR EXISTS (
        SELECT 1 FROM journal AS f WHERE f.seq = 1 AND f.address = o.address AND f.attempt = o.attempt AND f.segment = o.segment))
        AND (o.status = 'settled') <> EXISTS (SELECT 1 FROM journal AS j WHERE j.kind = 'outcome' AND j.call = o.call
        AND j.address = o.address AND j.attempt = o.attempt AND j.segment = o.segment)
        """
    ).fetchall()
    assert wrong == []


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(commands, st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_r09_batches_answer_and_end_as_the_items_one_by_one(given_commands: list[Command], sizes: list[int]) -> None:
    steps, answers, tables = one_by_one(given_commands)
    batch_answers, batch_tables = in_batches(steps, sizes, list)
    assert batch_answers == answers
    assert batch_tables == tables


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(commands, st.lists(st.integers(2, 12), min_size=1, max_size=6))
def test_r06_packed_batches_answer_and_end_as_the_items_one_by_one(
    given_commands: list[Command], sizes: list[int]
) -> None:
    steps, answers, tables = one_by_one(given_commands)
    packed_answers, packed_tables = in_batches(steps, sizes, packed)
    assert packed_answers == answers
    assert packed_tables == tables


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(commands, st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_r09_the_quick_ways_answer_and_end_as_the_general_ones(given_commands: list[Command], sizes: list[int]) -> None:
    steps, answers, tables = one_by_one(given_commands)
    with patch.dict(HOT, clear=True):
        general_answers, general_tables = in_batches(steps, sizes, list)
    assert general_answers == answers
    assert general_tables == tables


def random_commands(random: Random, count: int, kinds: Iterable[str] = KINDS) -> list[Command]:
    names = [name for name in kinds for _ in range(KINDS[name][0])]
    return [
        Command(random.choice([*names, "time", "time", "time"]), tuple(random.randrange(10_000) for _ in range(8)))
        for _ in range(count)
    ]


def test_the_commands_reach_every_kind_of_transition_and_mostly_succeed() -> None:
    """The oracle is only as good as its commands."""
    random = Random(5)
    reached: Counter[type[Transition[Any]]] = Counter()
    accepted: Counter[type[Transition[Any]]] = Counter()
    for number in range(120):
        kinds = ABOUT_TASKS if number % 2 else ABOUT_ACTORS
        steps, answers, _ = one_by_one(random_commands(random, 80, kinds))
        items = [step for step in steps if isinstance(step, Transition)]
        for item, answer in zip(items, answers, strict=True):
            reached[type(item)] += 1
            accepted[type(item)] += not isinstance(answer, Refused)
    assert set(reached) == set(APPLIERS)
    assert {kind.__name__ for kind in reached if not accepted[kind]} == set()
    assert accepted.total() > 0.4 * reached.total()


@pytest.mark.full
def test_r09_long_sequences_in_batches_and_packed() -> None:
    for seed in range(150):
        random = Random(seed)
        sizes = [random.randrange(1, 60) for _ in range(20)]
        kinds = (ABOUT_ACTORS, ABOUT_TASKS, tuple(KINDS))[seed % 3]
        steps, answers, tables = one_by_one(random_commands(random, 400, kinds))
        assert in_batches(steps, sizes, list) == (answers, tables)
        assert in_batches(steps, sizes, packed) == (answers, tables)
