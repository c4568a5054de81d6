"""The unit of work: one batch, in one transaction, under the database's write lock.

An item decides before it changes anything; if applying it raises all the same, the whole transaction is rolled back and the
unit is dropped, with all rows in hand.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from attrs import frozen

from greenroom.persistence.addresses import StateWrite
from greenroom.persistence.answers import encode_transition
from greenroom.persistence.clock import StoreClock
from greenroom.persistence.content import CHUNK, INLINE_LIMIT, Content, Payload, digest_of
from greenroom.persistence.observations import ObservationKind
from greenroom.persistence.sqlite.liveness import LockFiles
from greenroom.persistence.sqlite.rows import SELECT_STATE, UPDATE_STATE, AddressRow, AddressRows, columns_of
from greenroom.persistence.transitions import OwnerWrite, RefusalReason, Refused

# One execution, to see whether it may write.
SELECT_EXECUTION = "SELECT state, lease_until, boot_id, locked FROM executions WHERE execution_id = ?"
# Something that was refused, came late or matched nothing.
INSERT_OBSERVATION = (
    "INSERT INTO observations (at, kind, what, address, message_id, sender, execution_id, generation, detail, "
    "body, body_content, body_size) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
# Content that is there already is kept for longer.
TOUCH_CONTENT = "UPDATE content SET kept_at = ? WHERE digest = ?"
# One piece of new content.
INSERT_CONTENT = "INSERT INTO content (digest, chunk, kept_at, bytes) VALUES (?, ?, ?, ?)"


@frozen
class ExecutionView:
    """An execution, as far as it matters to those that write in its name or want to take its place."""

    state: str
    seconds_left: float
    """Of its lease, on the clock that counts since the boot; not above 0 when the lease counts no more."""
    locked: bool


class Unit:
    """One transaction. `now` is the store's time, read once, after the lock was had (R13)."""

    def __init__(
        self, connection: sqlite3.Connection, clock: StoreClock, locks: LockFiles | None, rows: AddressRows
    ) -> None:
        self._cursor = connection.cursor()
        self.execute = self._cursor.execute
        self.clock = clock
        self.now = clock.now()
        self.boot = clock.boot()
        self.woken: set[str] = set()
        """Addresses that have something new to do when this is committed."""
        self.locks = locks
        """Proofs of life; None where there are none."""
        self._rows = rows
        self._executions: dict[str, ExecutionView | None] = {}
        rows.begin(self._cursor)

    # ------------------------------------------------------------------------------------------------------ addresses

    def address(self, address: str) -> AddressRow | None:
        """The address's row; None when there is none."""
        return self._rows.get(self._cursor, address)

    def new_address(self, address: str) -> AddressRow:
        """A row for an address that has none."""
        return self._rows.add(address)

    def flush(self) -> None:
        """Write back what has changed."""
        self._rows.flush(self._cursor)

    def state(self, row: AddressRow) -> tuple[Any, ...]:
        """A durable actor's state: three columns of its payload, its type and its version."""
        if row.new:
            return (None,) * 5
        values: tuple[Any, ...] = self.execute(SELECT_STATE, (row.address,)).fetchone()
        return values

    def write_state(self, row: AddressRow, state: StateWrite) -> None:
        if row.new:
            self.flush()
        self.execute(UPDATE_STATE, (*columns_of(state.payload), state.type, state.version, row.address))

    # ----------------------------------------------------------------------------------------------------- executions

    def execution(self, execution_id: str) -> ExecutionView | None:
        """The execution, with what is left of its lease, read once a batch; None when it is unknown."""
        try:
            return self._executions[execution_id]
        except KeyError:
            values = self.execute(SELECT_EXECUTION, (execution_id,)).fetchone()
            view = None if values is None else self._view(*values)
            self._executions[execution_id] = view
            return view

    def forget_execution(self, execution_id: str) -> None:
        """Its row was changed past this unit."""
        self._executions.pop(execution_id, None)

    def _view(self, state: str, lease_until: int, boot_id: str, locked: int) -> ExecutionView:
        lasts = state != "ended" and boot_id == self.clock.boot_id
        return ExecutionView(state, lease_until / 1e6 - self.boot if lasts else 0.0, bool(locked))

    def seconds_alive(self, execution_id: str) -> float:
        """For how long nobody may take an execution's place: 0 when it is dead, by its lease, its end, or its file (R11)."""
        view = self.execution(execution_id)
        if view is None or view.seconds_left <= 0:
            return 0.0
        if view.locked and self.locks is not None and self.locks.prove_dead(execution_id):
            return 0.0
        return view.seconds_left

    # ----------------------------------------------------------------------------------------------------- the fence

    def fenced(self, item: OwnerWrite[Any]) -> AddressRow | Refused:
        """The address's row, if the item comes from its owner (R2, R3). What is refused is kept as an observation."""
        row = self.address(item.address)
        if row is None:
            return self.refuse(item, RefusalReason.UNKNOWN_ADDRESS, f"there is no address {item.address!r}")
        if row.generation != item.generation:
            return self.refuse(
                item,
                RefusalReason.STALE_GENERATION,
                f"{item.address!r} is at generation {row.generation}, and this came from generation {item.generation}",
            )
        if row.owner != item.execution_id:
            return self.refuse(
                item,
                RefusalReason.NOT_OWNER,
                f"{item.address!r} is owned by {row.owner or 'nobody'}, and this came from {item.execution_id}",
            )
        view = self.execution(item.execution_id)
        if view is None or view.seconds_left <= 0:
            return self.refuse(
                item, RefusalReason.LEASE_EXPIRED, f"the lease of the execution {item.execution_id} has passed"
            )
        return row

    def refuse(self, item: OwnerWrite[Any], reason: RefusalReason, detail: str) -> Refused:
        """Turn an owner's write down, and keep it."""
        self.observe(
            ObservationKind.REFUSED,
            type(item).__name__,
            item.address,
            execution_id=item.execution_id,
            generation=item.generation,
            detail=f"{reason.value}: {detail}",
            body=self.keep(encode_transition(item)),
        )
        return Refused(reason, detail)

    # ------------------------------------------------------------------------------------------ observations, content

    def observe(
        self,
        kind: ObservationKind,
        what: str,
        address: str,
        *,
        message_id: str | None = None,
        sender: str | None = None,
        execution_id: str | None = None,
        generation: int | None = None,
        detail: str,
        body: Payload | None = None,
    ) -> None:
        self.execute(
            INSERT_OBSERVATION,
            (
                self.now,
                kind.value,
                what,
                address,
                message_id,
                sender,
                execution_id,
                generation,
                detail,
                *columns_of(body),
            ),
        )

    def keep(self, data: bytes) -> Payload:
        """A payload of bytes, kept as content in this transaction when they are large."""
        return data if len(data) <= INLINE_LIMIT else self.put_content(data)

    def put_content(self, data: bytes) -> Content:
        digest = digest_of(data)
        if self.execute(TOUCH_CONTENT, (self.now, digest)).rowcount == 0:
            for chunk, start in enumerate(range(0, max(len(data), 1), CHUNK)):
                self.execute(INSERT_CONTENT, (digest, chunk, self.now, data[start : start + CHUNK]))
        return Content(digest, len(data))
