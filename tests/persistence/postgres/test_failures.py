"""What errors of PostgreSQL and of asyncpg say of the batch that met them. Pure."""

from __future__ import annotations

import asyncpg
import pytest

from greenroom.persistence.driver import Contended, NotReached, OutcomeUnknown, StatementFailed
from greenroom.persistence.postgres.failures import failure_of

OUT_OF_TURN = [
    OSError("connection reset"),
    TimeoutError(),
    asyncpg.ConnectionDoesNotExistError("the session is gone"),
    asyncpg.InterfaceError("the connection is closed"),
    asyncpg.InternalClientError("got result for unknown protocol state 0"),
    asyncpg.AdminShutdownError("terminating connection"),
    asyncpg.IdleInTransactionSessionTimeoutError("terminating connection"),
]


@pytest.mark.parametrize("error", OUT_OF_TURN, ids=lambda error: type(error).__name__)
def test_r05_what_ends_a_session_during_a_commit_leaves_open_whether_it_happened(error: Exception) -> None:
    assert type(failure_of(error, at_commit=True)) is OutcomeUnknown


@pytest.mark.parametrize("error", OUT_OF_TURN, ids=lambda error: type(error).__name__)
def test_r05_what_ends_a_session_before_a_commit_has_applied_nothing(error: Exception) -> None:
    assert type(failure_of(error, at_commit=False)) is NotReached


@pytest.mark.parametrize("at_commit", [False, True])
def test_what_the_server_says_of_a_statement_holds_also_at_the_commit(at_commit: bool) -> None:
    assert type(failure_of(asyncpg.CheckViolationError("no"), at_commit=at_commit)) is StatementFailed
    assert type(failure_of(asyncpg.DataError("cannot be encoded"), at_commit=at_commit)) is StatementFailed
    assert type(failure_of(asyncpg.SerializationError("again"), at_commit=at_commit)) is Contended
