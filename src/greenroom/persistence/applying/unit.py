"""The unit of work: one batch in one transaction, with the rows that are in hand.

An item decides before it changes anything. If applying it raises all the same, the whole transaction is rolled back, and the
unit is dropped with its rows. Addresses are written back once, however many items touched them; observations and content are
gathered and written at the end, in one order: content is a lock that no address stands for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from attrs import frozen

from greenroom.persistence.addresses import StateWrite
from greenroom.persistence.answers import encode_transition
from greenroom.persistence.applying.queues import Queues
from greenroom.persistence.applying.rows import COUNTERS, NONE, OWNERSHIP, PLAIN, STATE, TASK, AddressRow, State
from greenroom.persistence.applying.task_rows import SELECT_FIXED, SELECT_TASK, UPDATE_ENDED, UPDATE_TASK, TaskRow
from greenroom.persistence.content import CHUNK, INLINE_LIMIT, Content, Payload, columns_of, digest_of
from greenroom.persistence.observations import ObservationKind
from greenroom.persistence.transitions import OwnerWrite, RefusalReason, Refused


def _assign(names: Sequence[str], first: int = 1) -> str:
    return ", ".join(f"{name} = ${number}" for number, name in enumerate(names, first))


# A new address.
INSERT_ADDRESS: Final = f"INSERT INTO addresses (address, {', '.join(PLAIN)}) VALUES ({', '.join(f'${n}' for n in range(1, len(PLAIN) + 2))})"
# An address's numbers.
UPDATE_COUNTERS: Final = f"UPDATE addresses SET {_assign(COUNTERS, 2)} WHERE address = $1"
# What a claim changes: by itself, for it is indexed.
UPDATE_OWNERSHIP: Final = f"UPDATE addresses SET {_assign(OWNERSHIP, 2)} WHERE address = $1"
# A durable actor's state.
SELECT_STATE: Final = f"SELECT {', '.join(STATE)} FROM addresses WHERE address = $1"
# The state that a handled message left behind.
UPDATE_STATE: Final = f"UPDATE addresses SET {_assign(STATE, 2)} WHERE address = $1"
# One execution, to see whether it may write.
SELECT_EXECUTION: Final = "SELECT state, lease_until, boot_id, locked FROM executions WHERE execution_id = $1"
# Something that was refused, came late or matched nothing.
INSERT_OBSERVATION: Final = (
    "INSERT INTO observations (at, kind, what, address, message_id, sender, execution_id, generation, detail, "
    "body, body_size) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
)
# One piece of content; what is there already is kept for longer.
UPSERT_CONTENT: Final = (
    "INSERT INTO content (digest, chunk, size, kept_at, bytes) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (digest, chunk) "
    "DO UPDATE SET kept_at = CASE WHEN content.kept_at < excluded.kept_at THEN excluded.kept_at ELSE content.kept_at END"
)

Record = Sequence[Any]
"""A row of a result."""


class Tx(Protocol):
    """The statements of one transaction."""

    async def all(self, sql: str, *arguments: object) -> Sequence[Record]:
        """The rows of a query."""

    async def one(self, sql: str, *arguments: object) -> Record | None:
        """The first row of a query; None when it has none."""

    async def change(self, sql: str, *arguments: object) -> int:
        """Change rows. Returns how many."""

    async def many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Run a statement once for each of the rows of arguments."""


@frozen
class ExecutionView:
    """An execution, as far as it matters to those that write in its name or want to take its place."""

    state: str
    seconds_left: float
    """Of its lease; not above 0 when the lease counts no more."""
    locked: bool
    """It holds a file whose release would prove its death."""


class Unit(ABC):
    """One transaction. What the databases do each in its own way is left open here.

    Args:
        now: the store's time, read once, after the locks were had (R13).
    """

    def __init__(self, tx: Tx, now: int) -> None:
        self.tx = tx
        self.now = now
        self.woken: set[str] = set()
        """Addresses that have something new to do when this is committed."""
        self._rows: dict[str, AddressRow | None] = {}
        """Addresses in hand, those that are not there too."""
        self._fixed: dict[str, Record] = {}
        """What was read beforehand of tasks that are going to be claimed."""
        self._executions: dict[str, ExecutionView | None] = {}
        self.queues = Queues(tx)
        """The pools of tasks in hand."""
        self._later: dict[str, list[tuple[Any, ...]]] = {}
        """New rows, by the statements that write them."""
        self._behind: set[str] = set()
        """Addresses of tasks of which the tables do not say all."""
        self._observations: list[tuple[Any, ...]] = []
        self._content: dict[str, bytes] = {}

    # ------------------------------------------------------------------------------------------- each database's own

    @abstractmethod
    async def load(self, addresses: Iterable[str]) -> None:
        """Take addresses in hand that are locked, and were not named by the batch."""

    @abstractmethod
    async def load_tasks(self, addresses: Iterable[str], *, whole: bool = False) -> None:
        """Take the rows of tasks in hand whose addresses are; `whole`: with all that a claimer wants to know."""

    @abstractmethod
    def view(self, record: Record) -> ExecutionView:
        """What the columns of `SELECT_EXECUTION` say."""

    @abstractmethod
    def lease_until(self, seconds: float) -> int:
        """The end of a lease that lasts so long from now on, as it is stored."""

    @abstractmethod
    async def seconds_alive(self, execution_id: str) -> float:
        """For how long nobody may take an execution's place: 0 when it is dead."""

    @abstractmethod
    async def read_time(self) -> None:
        """Let `now` be the store's time once more, after a wait for a lock."""

    @abstractmethod
    def forget_address(self, address: str) -> None:
        """An address's row has been deleted."""

    @abstractmethod
    def forget_proof(self, execution_id: str) -> None:
        """An execution that has ended is forgotten: so may be what proved that it lived."""

    # ------------------------------------------------------------------------------------------------------ addresses

    def address(self, address: str) -> AddressRow | None:
        """The row of an address in hand; None when there is none."""
        return self._rows[address]

    def new_address(self, address: str) -> AddressRow:
        """A row for an address that has none."""
        row = self._rows[address] = AddressRow(address, None, NONE)
        return row

    async def state(self, row: AddressRow) -> State:
        """A durable actor's state."""
        if row.state is None:
            row.state = await self._read_state(row.address)
        return row.state

    async def _read_state(self, address: str) -> State:
        record = await self.tx.one(SELECT_STATE, address)
        assert record is not None  # its row is in hand
        data, size, type_name, version = record
        return data, size, type_name, version

    def write_state(self, row: AddressRow, state: StateWrite) -> None:
        row.state = (*columns_of(state.payload), state.type, state.version)
        row.state_changed = True

    async def task(self, row: AddressRow | None) -> TaskRow | None:
        """The task at an address; None when there is none."""
        if row is None or row.kind != TASK:
            return None
        if row.task is None:
            await self.catch_up(row.address)
            record = await self.tx.one(SELECT_TASK, row.address)
            assert record is not None  # an address of that kind is made with its row
            row.task = TaskRow(record)
        return row.task

    async def fixed(self, address: str) -> Record:
        """The columns `FIXED` of a task's row."""
        record = self._fixed.pop(address, None) or await self.tx.one(SELECT_FIXED, address)
        assert record is not None  # the task is in hand
        return record

    def wake(self, address: str) -> None:
        """An address has something new to do."""
        self.woken.add(address)

    @abstractmethod
    def tell_others(self) -> None:
        """Something has happened that nobody here has to be told of; other processes may wait for it."""

    async def flush(self) -> None:
        """Write back what has changed, in the order of locks. Rows stay in hand, and may go on changing."""
        for sql, rows in self._later.items():
            await self.tx.many(sql, rows)
        self._later.clear()
        self._behind.clear()
        await self.queues.flush()
        new: list[tuple[Any, ...]] = []
        counters: list[tuple[Any, ...]] = []
        ownership: list[tuple[Any, ...]] = []
        states: list[tuple[Any, ...]] = []
        tasks: list[tuple[Any, ...]] = []
        ended: list[tuple[Any, ...]] = []
        for address in sorted(self._rows):
            row = self._rows[address]
            if row is None:
                continue
            values, stored = row.values(), row.stored
            if stored is None:
                new.append((address, *values))
            elif values != stored:
                if values[: len(COUNTERS)] != stored[: len(COUNTERS)]:
                    counters.append((address, *values[: len(COUNTERS)]))
                if values[len(COUNTERS) :] != stored[len(COUNTERS) :]:
                    ownership.append((address, *values[len(COUNTERS) :]))
            if row.state_changed:
                assert row.state is not None  # that is what was changed
                states.append((address, *row.state))
                row.state_changed = False
            row.stored = values
            task = row.task
            if task is not None and ((changing := task.values()) != task.stored or task.ended is not None):
                if task.ended is None:
                    tasks.append((address, *changing))
                else:
                    ended.append((address, *changing, *task.ended))
                task.stored, task.ended = changing, None
        for sql, rows in (
            (INSERT_ADDRESS, new),
            (UPDATE_COUNTERS, counters),
            (UPDATE_OWNERSHIP, ownership),
            (UPDATE_STATE, states),
            (UPDATE_TASK, tasks),
            (UPDATE_ENDED, ended),
        ):
            if rows:
                await self.tx.many(sql, rows)

    def write_later(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write new rows with those of other items. Their first column is an address."""
        self._later.setdefault(sql, []).extend(rows)
        self._behind.update(row[0] for row in rows)

    def fall_behind(self, address: str) -> None:
        """What is in hand of a task is not what its row says: whoever reads that catches up before."""
        self._behind.add(address)

    async def catch_up(self, address: str) -> None:
        """Let the tables say all that is known of a task, before they are read."""
        if address in self._behind:
            await self.flush()

    async def finish(self) -> None:
        """Write everything that has been gathered."""
        await self.flush()
        if self._observations:
            await self.tx.many(INSERT_OBSERVATION, self._observations)
        if self._content:
            pieces = [
                (digest.encode(), chunk, len(data), self.now, data[start : start + CHUNK])
                for digest, data in sorted(self._content.items())
                for chunk, start in enumerate(range(0, max(len(data), 1), CHUNK))
            ]
            await self.tx.many(UPSERT_CONTENT, pieces)

    # ----------------------------------------------------------------------------------------------------- executions

    async def execution(self, execution_id: str) -> ExecutionView | None:
        """The execution, with what is left of its lease, read once a batch; None when it is unknown."""
        if execution_id not in self._executions:
            record = await self.tx.one(SELECT_EXECUTION, execution_id)
            self._executions[execution_id] = None if record is None else self.view(record)
        return self._executions[execution_id]

    def forget_executions(self) -> None:
        """Read executions again at their next use."""
        self._executions.clear()

    # ------------------------------------------------------------------------------------------------------ the fence

    async def fenced(self, item: OwnerWrite[Any]) -> AddressRow | Refused:
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
        view = await self.execution(item.execution_id)
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

    # ------------------------------------------------------------------------------------------- observations, content

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
        """Keep what changed nothing, to be looked at."""
        whose = (message_id, sender, execution_id, generation)
        self._observations.append((self.now, kind.value, what, address, *whose, detail, *columns_of(body)))

    def keep(self, data: bytes) -> Payload:
        """A payload of bytes, kept as content in this transaction when they are large."""
        return data if len(data) <= INLINE_LIMIT else self.put_content(data)

    def put_content(self, data: bytes) -> Content:
        """Keep bytes under their digest."""
        digest = digest_of(data)
        self._content[digest] = data
        return Content(digest, len(data))
