"""The unit of work: one batch in one transaction, for all that is decided in Python.

Its addresses were locked and read by the batch's first call; what items change is written back once. Observations and content
are gathered, and written in one order, at the end: content is a lock that no address stands for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import asyncpg

from greenroom.persistence.answers import encode_transition
from greenroom.persistence.content import CHUNK, INLINE_LIMIT, Content, Payload, digest_of
from greenroom.persistence.observations import ObservationKind
from greenroom.persistence.postgres.rows import COLUMNS, PLAIN, STATE, AddressRow, ExecutionView, columns_of
from greenroom.persistence.postgres.session import Connection
from greenroom.persistence.transitions import OwnerWrite, RefusalReason, Refused

# Addresses that are locked already, as they are now.
SELECT_ADDRESSES = (
    f"SELECT a.* FROM unnest($1::text[]) wanted(address) CROSS JOIN LATERAL ("
    f"SELECT {', '.join(COLUMNS)} FROM addresses x WHERE x.address = wanted.address LIMIT 1) a"
)
# A new address.
INSERT_ADDRESS = (
    f"INSERT INTO addresses ({', '.join(COLUMNS)}) VALUES ({', '.join(f'${n}' for n in range(1, len(COLUMNS) + 1))})"
)
# An address's numbers and owner.
UPDATE_PLAIN = (
    f"UPDATE addresses SET {', '.join(f'{name} = ${n}' for n, name in enumerate(PLAIN, 2))} WHERE address = $1"
)
# A durable actor's state.
UPDATE_STATE = (
    f"UPDATE addresses SET {', '.join(f'{name} = ${n}' for n, name in enumerate(STATE, 2))} WHERE address = $1"
)
# One execution, to see whether it may write.
SELECT_EXECUTION = "SELECT state, lease_until FROM executions WHERE execution_id = $1"
# Something that was refused, came late or matched nothing.
INSERT_OBSERVATION = (
    "INSERT INTO observations (at, kind, what, address, message_id, sender, execution_id, generation, detail, "
    "body, body_content, body_size) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
)
# One piece of content; what is there already is kept for longer.
UPSERT_CONTENT = (
    "INSERT INTO content (digest, chunk, kept_at, bytes) VALUES ($1, $2, $3, $4) "
    "ON CONFLICT (digest, chunk) DO UPDATE SET kept_at = greatest(content.kept_at, excluded.kept_at)"
)


class Unit:
    """One transaction.

    Args:
        now: the store's time, read once, after the locks were had (R13).
        own: executions of this process, whose work needs no call to other processes.
    """

    def __init__(self, connection: Connection, now: int, own: frozenset[str]) -> None:
        self.connection = connection
        self.now = now
        self.own = own
        self.woken: set[str] = set()
        """Addresses that have something new to do when this is committed."""
        self.news = False
        """Something of it concerns other processes."""
        self._addresses: dict[str, AddressRow | None] = {}
        self._stored: dict[str, AddressRow] = {}
        self._executions: dict[str, ExecutionView | None] = {}
        self._observations: list[tuple[Any, ...]] = []
        self._content: dict[str, bytes] = {}

    # ----------------------------------------------------------------------------------------------------- statements

    async def all(self, sql: str, *arguments: object) -> list[asyncpg.Record]:
        return await self.connection.fetch(sql, *arguments)

    async def one(self, sql: str, *arguments: object) -> asyncpg.Record | None:
        return await self.connection.fetchrow(sql, *arguments)

    async def change(self, sql: str, *arguments: object) -> int:
        """Run a statement that changes rows. Returns how many."""
        tag = await self.connection.execute(sql, *arguments)
        return int(tag.rpartition(" ")[2])

    async def time(self) -> int:
        """The store's time, once more: after a wait for a lock that the batch's first call could not take."""
        now: int = await self.connection.fetchval("SELECT greenroom_now()")
        return now

    # ------------------------------------------------------------------------------------------------------ addresses

    def take(self, wanted: Iterable[str], records: Iterable[asyncpg.Record]) -> None:
        """Take locked addresses in hand as they were read."""
        for address in wanted:
            self._addresses[address] = None
            self._stored.pop(address, None)
        for record in records:
            row = AddressRow.of(record)
            self._addresses[row.address] = row
            self._stored[row.address] = AddressRow.of(record)

    async def load(self, wanted: Iterable[str]) -> None:
        """Read addresses that are locked and not in hand."""
        absent = [address for address in dict.fromkeys(wanted) if address not in self._addresses]
        if absent:
            self.take(absent, await self.all(SELECT_ADDRESSES, absent))

    def address(self, address: str) -> AddressRow | None:
        """The row of an address in hand; None when there is none."""
        return self._addresses[address]

    def new_address(self, address: str) -> AddressRow:
        """A row for an address that has none."""
        row = self._addresses[address] = AddressRow(address)
        return row

    def wake(self, address: str) -> None:
        """An address has something new to do."""
        self.woken.add(address)
        row = self._addresses.get(address)
        if row is None or row.owner is None or row.owner not in self.own:
            self.news = True

    async def flush(self) -> None:
        """Write back what has changed, in the order of locks."""
        new: list[AddressRow] = []
        plain: list[AddressRow] = []
        states: list[AddressRow] = []
        for address in sorted(self._addresses):
            row, stored = self._addresses[address], self._stored.get(address)
            if row is None:
                continue
            if stored is None:
                new.append(row)
                continue
            if row.values(PLAIN) != stored.values(PLAIN):
                plain.append(row)
            if row.values(STATE) != stored.values(STATE):
                states.append(row)
        await self._many(INSERT_ADDRESS, [row.values(COLUMNS) for row in new])
        await self._many(UPDATE_PLAIN, [(row.address, *row.values(PLAIN)) for row in plain])
        await self._many(UPDATE_STATE, [(row.address, *row.values(STATE)) for row in states])
        for row in (*new, *plain, *states):
            self._stored[row.address] = AddressRow(*row.values(COLUMNS))

    async def _many(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if len(rows) == 1:
            await self.connection.execute(sql, *rows[0])
        elif rows:
            await self.connection.executemany(sql, rows)

    def drop(self, addresses: Iterable[str]) -> None:
        """Have addresses in hand no more: others change them past this unit. They must have been flushed."""
        for address in addresses:
            self._addresses.pop(address, None)
            self._stored.pop(address, None)

    async def finish(self) -> None:
        """Write what has been gathered."""
        await self.flush()
        await self._many(INSERT_OBSERVATION, self._observations)
        pieces = [
            (digest, chunk, self.now, data[start : start + CHUNK])
            for digest, data in sorted(self._content.items())
            for chunk, start in enumerate(range(0, max(len(data), 1), CHUNK))
        ]
        await self._many(UPSERT_CONTENT, pieces)

    # ----------------------------------------------------------------------------------------------------- executions

    async def execution(self, execution_id: str) -> ExecutionView | None:
        """The execution, with what is left of its lease, read once a batch; None when it is unknown."""
        if execution_id not in self._executions:
            record = await self.one(SELECT_EXECUTION, execution_id)
            view = None
            if record is not None:
                lasts = record["state"] != "ended"
                view = ExecutionView(record["state"], (record["lease_until"] - self.now) / 1e6 if lasts else 0.0)
            self._executions[execution_id] = view
        return self._executions[execution_id]

    def forget_executions(self) -> None:
        """Read executions again at their next use."""
        self._executions.clear()

    async def seconds_alive(self, execution_id: str) -> float:
        """For how long nobody may take an execution's place: 0 when its lease has passed or it has ended."""
        view = await self.execution(execution_id)
        return 0.0 if view is None else max(0.0, view.seconds_left)

    # ----------------------------------------------------------------------------------------------------- the fence

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
        whose = (message_id, sender, execution_id, generation)
        self._observations.append((self.now, kind.value, what, address, *whose, detail, *columns_of(body)))

    def keep(self, data: bytes) -> Payload:
        """A payload of bytes, kept as content in this transaction when they are large."""
        return data if len(data) <= INLINE_LIMIT else self.put_content(data)

    def put_content(self, data: bytes) -> Content:
        digest = digest_of(data)
        self._content[digest] = data
        return Content(digest, len(data))
