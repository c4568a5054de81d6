"""What a database must be able to do, and how it may fail. SQLite and PostgreSQL each have a driver.

A driver's methods are coroutines that run in the store thread, and in no other. How they are run is the driver's own affair:
SQLite's never suspend, so its `run` just calls them; PostgreSQL's needs an asyncio loop in that thread. In both, one call
follows another: nothing runs beside `apply`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from enum import Enum
from typing import Any, Protocol

from attrs import frozen

from greenroom.persistence.transitions import Query, Transition


class Durability(Enum):
    """What an acknowledgement promises."""

    FULL = "full"
    """It survives the death of the process, of the operating system, and power loss where disks honour fsync."""
    REDUCED = "reduced"
    """It survives the death of the process; the last moments may be lost with the operating system or the power."""
    VOLATILE = "volatile"
    """Nothing survives the process."""


class NotReached(Exception):
    """The database cannot be worked with now; nothing was applied. It may pass: try again."""


class Contended(Exception):
    """The database broke the batch off in favour of another (deadlock, serialization); nothing was applied. Run it again."""


class OutcomeUnknown(Exception):
    """The connection broke at or after COMMIT: it may have committed. Nothing may be run again before `recover`."""


class StatementFailed(Exception):
    """The database, or applying itself, raised an error that is chained; the whole batch was rolled back for certain."""


@frozen
class Applied:
    """A batch that is durable."""

    answers: Sequence[Any]
    """In the order of the items."""
    woken: frozenset[str] = frozenset()
    """Addresses that have something new to do."""


@frozen
class News:
    """What happened without this store's doing."""

    elsewhere: bool = False
    """Another process has changed something."""
    due: frozenset[str] = frozenset()
    """Addresses with delayed messages whose time has come."""


class Inbox(Protocol):
    """The queue into the store thread."""

    def put(self, item: object) -> None:
        """From any thread, also before the store thread runs."""

    async def get(self, timeout: float | None) -> object | None:
        """In the store thread: the next item; None after `timeout` seconds."""

    def get_nowait(self) -> object | None:
        """In the store thread: the next item, or None."""


class Driver(Protocol):
    """One database, as the store thread uses it."""

    @property
    def name(self) -> str:
        """The database, for error texts, without passwords."""

    @property
    def durability(self) -> Durability:
        """What a commit promises. Known once `open` has returned."""

    @property
    def inbox(self) -> Inbox: ...

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run the store thread's coroutine to its end, in the calling thread."""

    async def pause(self, seconds: float) -> None:
        """Wait before trying again."""

    async def open(self) -> None:
        """Connect, check, and bring the schema up to date where that is automatic.

        Raises:
            NotReached: it may work later.
            IncompatibleStore: it will not.
        """

    async def apply(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        """Apply the items, in effect one after another, and keep their answers under `batch_id`, in one transaction.

        Raises:
            NotReached, Contended, StatementFailed: nothing was applied.
            OutcomeUnknown: call `recover`.
        """

    async def recover(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied | None:
        """Connect again after `OutcomeUnknown`, and tell whether the batch was committed.

        Returns:
            What it was answered, when it was committed. None: run the same call again, with the same `batch_id`.
        Raises:
            NotReached: it may work later.
        """

    async def read(self, query: Query[Any]) -> Any:
        """Answer a query from what is committed.

        Raises:
            NotReached, StatementFailed.
        """

    async def news(self) -> News:
        """What happened elsewhere, or came due, since the last call. A hint: raises nothing but `NotReached`."""

    async def close(self) -> None:
        """Let go of the database. Raises nothing."""

    def renewer(self) -> Renewer:
        """Something to renew leases with, which shares nothing with this driver. From any thread."""

    def hold(self, execution_id: str) -> Hold | None:
        """Take what proves that an execution lives, before it is registered; None where there is no such thing.

        From any thread. May touch the file system.
        """


class Renewer(Protocol):
    """Renews leases on a connection of its own, in the one thread that calls it (R10)."""

    def renew(self, execution_id: str, lease: float) -> bool:
        """Let the lease end `lease` seconds from now.

        Returns:
            False when it cannot be renewed any more: it has passed, or the execution has ended.
        Raises:
            NotReached: it may work later.
        """

    def close(self) -> None: ...


class Hold(Protocol):
    """Proves that an execution lives for as long as it is kept, and is let go by the system when its process dies."""

    def release(self) -> None:
        """Let go, after an orderly end. Safe to call twice."""

    def let_go(self) -> None:
        """Let go as the system does for a process that dies: it counts as dead from now on. Safe to call twice."""
