"""What PostgreSQL's and asyncpg's errors mean for a batch. By class and SQLSTATE, never by text."""

from __future__ import annotations

from typing import Final

import asyncpg

from greenroom.persistence.driver import Contended, NotReached, OutcomeUnknown, StatementFailed

CONNECTION_ERRORS: Final = (
    OSError, TimeoutError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.InternalClientError
)  # fmt: skip
"""Raised by asyncpg when the connection, not a statement, is at fault. An `InterfaceError` may also be a statement's. An
`InternalClientError` is what a session's end, told by the server out of turn, can come to: of a commit it says nothing."""

ERRORS: Final = (*CONNECTION_ERRORS, asyncpg.PostgresError)
"""Whatever talking to the server may raise."""

_PASSING_CLASSES = frozenset({"08", "53", "58"})
"""Connection exceptions, insufficient resources (disk and memory full, too many connections), system errors."""

_PASSING = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "25006"})
"""Shutting down, crashed, starting up, idle for too long; a server that has become a standby, which is read-only."""

_CONTENDED = frozenset({"40001", "40P01", "55P03", "57014"})
"""Serialization, deadlock, a lock not had in time, a statement cancelled (by its own time limit)."""

_REFUSED_CLASSES = frozenset({"28", "3D", "42", "0A"})
"""Wrong password, no such database, no right, no such feature: waiting does not help."""


def told(error: BaseException) -> str:
    """An error in words."""
    return f"{type(error).__name__}: {str(error) or 'there was no answer in time'}"


def sqlstate_of(error: BaseException) -> str:
    """An error's SQLSTATE, empty when it is none of the server's."""
    return getattr(error, "sqlstate", None) or ""


def is_passing(error: BaseException) -> bool:
    """The server as a whole cannot be worked with, or the way to it."""
    state = sqlstate_of(error)
    if state:
        return state in _PASSING or state[:2] in _PASSING_CLASSES
    if isinstance(error, asyncpg.DataError):  # an argument that cannot be encoded
        return False
    return isinstance(error, CONNECTION_ERRORS)


def is_refusal(error: BaseException) -> bool:
    """The server will not have us, now or later."""
    return sqlstate_of(error)[:2] in _REFUSED_CLASSES


def is_taken(error: BaseException, constraint: str) -> bool:
    """A unique key is taken."""
    return isinstance(error, asyncpg.UniqueViolationError) and error.constraint_name == constraint


def failure_of(error: Exception, *, at_commit: bool) -> NotReached | Contended | OutcomeUnknown | StatementFailed:
    """What an error says of the batch that met it.

    Args:
        at_commit: the server may have begun to commit: whatever is not its own word that it failed leaves that open.
    """
    why = told(error)
    state = sqlstate_of(error)
    if state in _CONTENDED or is_taken(error, "addresses_pkey"):
        return Contended(why)
    if is_passing(error):
        return OutcomeUnknown(why) if at_commit else NotReached(why)
    return StatementFailed(why)
