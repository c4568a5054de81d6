"""State machines: one table each in Python, and the same once more in the database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from enum import Enum
from itertools import product
from typing import Any

import pytest

from greenroom.persistence.callbacks import CALLBACK_MOVES, CallbackStatus
from greenroom.persistence.executions import EXECUTION_MOVES, ExecutionState
from greenroom.persistence.messages import MESSAGE_MOVES, MessageStatus
from greenroom.persistence.operations import OPERATION_MOVES, OperationStatus
from greenroom.persistence.outbox import OUTBOX_MOVES, OutboxStatus
from greenroom.persistence.schema.migrations import MIGRATIONS, sql_of, statements
from greenroom.persistence.states import Moves, steps

CALLBACK = "INSERT INTO callbacks (callback_id, secrets, address, name, created_at, status, settled_at, answer, answer_digest) VALUES "
OUTBOX = "INSERT INTO outbox (address, ordinal, held, destination, message_id, type, body, status, due_at, settled_at) VALUES "
MESSAGE = (
    "INSERT INTO messages (address, seq, message_id, digest, type, body, deliver_at, status, accepted_at, settled_at, reason) "
    "VALUES "
)
EXECUTION = "INSERT INTO executions (execution_id, host, pid, boot_id, locked, started_at, lease_until, state, ended_at) VALUES "

OPERATION = (
    "INSERT INTO operations (address, attempt, segment, call, intended_at, name, effect, key, params, params_digest, status, version) "
    "VALUES ('task:t', 1, 1, 'root#1', 1, 'n', 'once', 'k', x'00', 'd', "
)

MACHINES: dict[type[Enum], tuple[Moves[Any, Any], str, str, dict[str, tuple[str, str]]]] = {
    ExecutionState: (
        EXECUTION_MOVES,
        "executions",
        "state",
        {
            "active": (EXECUTION + "('e', 'h', 1, 'b', 0, 1, 1, 'active', NULL)", "ended_at = NULL"),
            "draining": (EXECUTION + "('e', 'h', 1, 'b', 0, 1, 1, 'draining', NULL)", "ended_at = NULL"),
            "ended": (EXECUTION + "('e', 'h', 1, 'b', 0, 1, 1, 'ended', 2)", "ended_at = 2"),
        },
    ),
    MessageStatus: (
        MESSAGE_MOVES,
        "messages",
        "status",
        {
            "delayed": (
                MESSAGE + "('a', -1, 'm', 'd', 't', x'00', 5, 'delayed', 1, NULL, NULL)",
                "seq = -1, deliver_at = 5, settled_at = NULL",
            ),
            "queued": (
                MESSAGE + "('a', 1, 'm', 'd', 't', x'00', NULL, 'queued', 1, NULL, NULL)",
                "seq = 1, settled_at = NULL",
            ),
            "handled": (
                MESSAGE + "('a', 1, 'm', 'd', 't', x'00', NULL, 'handled', 1, 2, NULL)",
                "seq = 1, settled_at = 2",
            ),
            "dead": (
                MESSAGE + "('a', 1, 'm', 'd', 't', x'00', NULL, 'dead', 1, 2, 'r')",
                "seq = 1, settled_at = 2, reason = 'r'",
            ),
            "dropped": (
                MESSAGE + "('a', 1, 'm', 'd', 't', x'00', NULL, 'dropped', 1, 2, NULL)",
                "seq = 1, settled_at = 2",
            ),
        },
    ),
    CallbackStatus: (
        CALLBACK_MOVES,
        "callbacks",
        "status",
        {
            "open": (
                CALLBACK + "('t', 's', 'a', 'n', 1, 'open', NULL, NULL, NULL)",
                "settled_at = NULL, answer = NULL, answer_digest = NULL",
            ),
            "answered": (
                CALLBACK + "('t', 's', 'a', 'n', 1, 'answered', 2, x'00', 'd')",
                "settled_at = 2, answer = x'00', answer_digest = 'd'",
            ),
            "expired": (
                CALLBACK + "('t', 's', 'a', 'n', 1, 'expired', 2, NULL, NULL)",
                "settled_at = 2, answer = NULL, answer_digest = NULL",
            ),
            "cancelled": (
                CALLBACK + "('t', 's', 'a', 'n', 1, 'cancelled', 2, NULL, NULL)",
                "settled_at = 2, answer = NULL, answer_digest = NULL",
            ),
        },
    ),
    OperationStatus: (
        OPERATION_MOVES,
        "operations",
        "status",
        {state: (OPERATION + f"'{state}', 1)", "version = 1") for state in ("pending", "settled", "unresolved")},
    ),
    OutboxStatus: (
        OUTBOX_MOVES,
        "outbox",
        "status",
        {
            "pending": (OUTBOX + "('a', 1, 0, 'd', 'm', 't', x'00', 'pending', 1, NULL)", "settled_at = NULL"),
            "sent": (OUTBOX + "('a', 1, 0, 'd', 'm', 't', x'00', 'sent', 1, 2)", "settled_at = 2"),
            "dead": (OUTBOX + "('a', 1, 0, 'd', 'm', 't', x'00', 'dead', 1, 2)", "settled_at = 2"),
        },
    ),
}


def database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for migration in MIGRATIONS:
        for statement in statements(sql_of(migration, "sqlite")):
            connection.execute(statement)
    return connection


@pytest.mark.parametrize("states", MACHINES, ids=lambda states: states.__name__)
def test_sqlite_allows_exactly_the_moves_that_the_state_machine_has(states: type[Enum]) -> None:
    moves, table, column, rows = MACHINES[states]
    allowed, complaints = set(), set()
    with closing(database()) as connection:
        for old, new in product(states, repeat=2):
            if old is new:
                continue
            connection.execute(f"DELETE FROM {table}")
            connection.execute(rows[old.value][0])
            try:
                connection.execute(f"UPDATE {table} SET {column} = '{new.value}', {rows[new.value][1]}")
            except sqlite3.IntegrityError as error:
                complaints.add(str(error))
            else:
                allowed.add((old, new))
    assert allowed == steps(moves)
    assert complaints == {f"{table}: no such move"}


@pytest.mark.parametrize("states", MACHINES, ids=lambda states: states.__name__)
def test_sqlite_knows_every_state_and_no_other(states: type[Enum]) -> None:
    _, table, column, rows = MACHINES[states]
    assert set(rows) == {state.value for state in states}
    with closing(database()) as connection:
        for insert, _ in rows.values():
            connection.execute(f"DELETE FROM {table}")
            connection.execute(insert)
            connection.execute(f"DELETE FROM {table}")
        first, (insert, _) = next(iter(rows.items()))
        with pytest.raises(sqlite3.IntegrityError, match=f"CHECK constraint failed:\\s+{column} (IN|=) "):
            connection.execute(insert.replace(f"'{first}'", "'elsewhere'"))


@pytest.mark.parametrize("states", MACHINES, ids=lambda states: states.__name__)
def test_every_state_is_reached_or_is_a_beginning(states: type[Enum]) -> None:
    moves = MACHINES[states][0]
    reached = {following for _, following in steps(moves)}
    beginnings = {ExecutionState.ACTIVE, MessageStatus.DELAYED, CallbackStatus.OPEN, OperationStatus.PENDING}
    assert set(states) - reached <= beginnings
