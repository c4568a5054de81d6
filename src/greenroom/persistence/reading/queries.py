"""Each query's SQL and how it is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

from greenroom.persistence.addresses import (
    AddressRecord,
    DueAddress,
    DueAddresses,
    ListAddresses,
    NextDue,
    OwnedReady,
    ReadAddress,
    StoreNow,
)
from greenroom.persistence.answers import AnswerTo
from greenroom.persistence.applying.unit import Record, Tx
from greenroom.persistence.callbacks import CallbackRecord, ExpiredCallbacks, ReadCallback
from greenroom.persistence.clock import instant, maybe_instant, micros
from greenroom.persistence.content import ReadContent
from greenroom.persistence.executions import ExecutionRecord, ListExecutions, ReadExecution
from greenroom.persistence.messages import (
    DeadLetters,
    DelayedMessages,
    ListMessages,
    MessageRecord,
    NextMessages,
    ReadMessage,
)
from greenroom.persistence.observations import ListObservations, Observation
from greenroom.persistence.outbox import DueOutbox, FlushableHeld, Held, HeldForHolders, OutboxRecord, ReadOutbox
from greenroom.persistence.pools import PoolRecord, ReadPool
from greenroom.persistence.reading import schedules, segments, tasks
from greenroom.persistence.reading.records import (
    ADDRESS,
    CALLBACK,
    EXECUTION,
    MESSAGE,
    OBSERVATION,
    OUTBOX,
    address_record,
    callback_record,
    execution_record,
    message_record,
    observation,
    outbox_record,
    pool_record,
)
from greenroom.persistence.segments import ReadSegment, SegmentRecord
from greenroom.persistence.transitions import Query

T = TypeVar("T")


class Reader(Protocol):
    """What answering queries needs of a database."""

    @property
    def tx(self) -> Tx: ...

    def seconds_left(self, execution: Record) -> float:
        """How long an execution's lease lasts, 0 when it counts no more. The columns are those of `EXECUTION`."""

    async def answer_to(self, transition_id: str) -> Any:
        """The answer that some batch's row keeps."""

    async def segments(self, queries: Sequence[ReadSegment]) -> Sequence[SegmentRecord]:
        """What each of these asks for, in their order."""


def _messages(where: str) -> str:
    """Messages that a condition with its order and limit chooses, with the number that marks handled ones."""
    order = where[where.index("ORDER BY") : where.index("LIMIT")]
    return (
        f"SELECT {MESSAGE} FROM (SELECT * FROM messages WHERE {where}) m "
        f"JOIN addresses a ON a.address = m.address {order}"
    )


_NOW: Final = "(SELECT greenroom_now())"  # as a subquery: once, and an index can be searched with it

# One address with its state.
READ_ADDRESS: Final = f"SELECT {ADDRESS} FROM addresses WHERE address = $1"
# A page of addresses.
LIST_ADDRESSES: Final = f"SELECT {ADDRESS} FROM addresses WHERE address > $1 ORDER BY address LIMIT $2"
# A page of addresses that wait for an operator.
LIST_PARKED: Final = (
    f"SELECT {ADDRESS} FROM addresses WHERE parked IS NOT NULL AND address > $1 ORDER BY address LIMIT $2"
)
# Addresses that somebody should claim.
DUE_ADDRESSES: Final = (
    f"SELECT address, due_at FROM addresses WHERE kind <> 'task' AND due_at <= {_NOW} AND (due_at, address) > ($1, $2) "
    "ORDER BY due_at, address LIMIT $3"
)
# A page of addresses where their owner could begin a delivery.
OWNED_READY: Final = "SELECT address FROM addresses WHERE owner = $1 AND address > $2 AND ready > 0 AND held = 0 ORDER BY address LIMIT $3"
# When the first of the others will be.
NEXT_DUE: Final = f"SELECT min(due_at) FROM addresses WHERE kind <> 'task' AND due_at > {_NOW}"
# One pool.
READ_POOL: Final = "SELECT pool, capacity, registered_at FROM pools WHERE pool = $1"
# Messages that wait for delivery: those behind the handled part of the mailbox.
NEXT_MESSAGES: Final = _messages(
    "address = $1 AND seq > (SELECT CASE WHEN handled_seq > $2 THEN handled_seq ELSE $2 END FROM addresses WHERE address = $1) "
    "AND status = 'queued' ORDER BY seq LIMIT $3"
)
# One message by its identity.
READ_MESSAGE: Final = _messages("message_id = $1 AND address = $2 ORDER BY seq LIMIT 1")
# A page of an address's messages.
LIST_MESSAGES: Final = _messages("address = $1 AND seq > $2 ORDER BY seq LIMIT $3")
# A page of an address's delayed messages.
DELAYED_MESSAGES: Final = _messages(
    "address = $1 AND seq < 0 AND (deliver_at, message_id) > ($2, $3) ORDER BY deliver_at, message_id LIMIT $4"
)
# A page of all dead letters.
DEAD_LETTERS: Final = (
    f"SELECT {MESSAGE} FROM (SELECT * FROM messages WHERE status = 'dead' AND (address, seq) > ($1, $2) "
    "ORDER BY address, seq LIMIT $3) m JOIN addresses a ON a.address = m.address ORDER BY m.address, m.seq"
)
# A page of an address's dead letters.
DEAD_LETTERS_OF: Final = (
    f"SELECT {MESSAGE} FROM (SELECT * FROM messages WHERE status = 'dead' AND (address, seq) > ($1, $2) "
    "AND address = $3 ORDER BY seq LIMIT $4) m JOIN addresses a ON a.address = m.address ORDER BY m.seq"
)
# Executions in work, and those that died in it.
LIST_EXECUTIONS: Final = f"SELECT {EXECUTION} FROM executions WHERE state <> 'ended' ORDER BY started_at, execution_id"
# All executions on record.
LIST_ALL_EXECUTIONS: Final = f"SELECT {EXECUTION} FROM executions ORDER BY started_at, execution_id"
# One execution.
READ_EXECUTION: Final = f"SELECT {EXECUTION} FROM executions WHERE execution_id = $1"
# One callback.
READ_CALLBACK: Final = f"SELECT {CALLBACK} FROM callbacks WHERE callback_id = $1"
# Open callbacks whose time has passed.
EXPIRED_CALLBACKS: Final = (
    f"SELECT {CALLBACK} FROM callbacks WHERE status = 'open' AND expires_at <= {_NOW} ORDER BY expires_at LIMIT $1"
)
# Outbox rows to be published.
DUE_OUTBOX: Final = (
    f"SELECT {OUTBOX} FROM outbox WHERE destination = $1 AND status = 'pending' AND NOT held AND due_at <= {_NOW} "
    "ORDER BY due_at, address, ordinal LIMIT $2"
)
# A page of an address's outbox.
READ_OUTBOX: Final = (
    f"SELECT {OUTBOX} FROM outbox WHERE address = $1 AND NOT held AND ordinal > $2 ORDER BY ordinal LIMIT $3"
)
# Held messages whose recipients have room now, or are gone.
FLUSHABLE_HELD: Final = (
    "SELECT DISTINCT o.address, o.destination FROM outbox o LEFT JOIN addresses a ON a.address = o.destination "
    "WHERE o.status = 'pending' AND o.held "
    "AND (a.capacity IS NULL OR a.queued < a.capacity OR a.closed_at IS NOT NULL) LIMIT $1"
)
# A page of who holds messages for whom without room now, where the recipient holds messages, too.
HELD_FOR_HOLDERS: Final = (
    "SELECT DISTINCT o.address, o.destination FROM outbox o JOIN addresses a ON a.address = o.destination "
    "WHERE o.status = 'pending' AND o.held AND a.held > 0 AND a.queued >= a.capacity AND a.closed_at IS NULL "
    "AND (o.address, o.destination) > ($1, $2) ORDER BY o.address, o.destination LIMIT $3"
)
# A page of observations, newest first; arguments that are NULL choose all.
LIST_OBSERVATIONS: Final = (
    f"SELECT {OBSERVATION} FROM observations WHERE (CAST($1 AS text) IS NULL OR kind = $1) "
    "AND (CAST($2 AS bigint) IS NULL OR id < $2) ORDER BY id DESC LIMIT $3"
)
# The same of one address.
LIST_OBSERVATIONS_OF: Final = (
    f"SELECT {OBSERVATION} FROM observations WHERE address = $4 AND (CAST($1 AS text) IS NULL OR kind = $1) "
    "AND (CAST($2 AS bigint) IS NULL OR id < $2) ORDER BY id DESC LIMIT $3"
)
# The pieces of a content.
READ_CONTENT: Final = "SELECT bytes FROM content WHERE digest = $1 ORDER BY chunk"


async def _one(reader: Reader, record: Callable[[Record], T], sql: str, *arguments: object) -> T | None:
    row = await reader.tx.one(sql, *arguments)
    return None if row is None else record(row)


async def _all(reader: Reader, record: Callable[[Record], T], sql: str, *arguments: object) -> tuple[T, ...]:
    return tuple(map(record, await reader.tx.all(sql, *arguments)))


async def read_address(reader: Reader, query: ReadAddress) -> AddressRecord | None:
    return await _one(reader, lambda row: address_record(row, with_state=True), READ_ADDRESS, query.address)


async def list_addresses(reader: Reader, query: ListAddresses) -> tuple[AddressRecord, ...]:
    sql = LIST_PARKED if query.parked else LIST_ADDRESSES
    return await _all(reader, lambda row: address_record(row, with_state=False), sql, query.after, query.limit)


async def due_addresses(reader: Reader, query: DueAddresses) -> tuple[DueAddress, ...]:
    after = (0, "") if query.after is None else (micros(query.after.due_at), query.after.address)
    return await _all(reader, lambda row: DueAddress(row[0], instant(row[1])), DUE_ADDRESSES, *after, query.limit)


async def next_due(reader: Reader, _query: NextDue) -> datetime | None:
    row = await reader.tx.one(NEXT_DUE)
    assert row is not None  # an aggregate of the whole table
    return maybe_instant(row[0])


async def owned_ready(reader: Reader, query: OwnedReady) -> tuple[str, ...]:
    return await _all(reader, lambda row: row[0], OWNED_READY, query.execution_id, query.after, query.limit)


async def read_pool(reader: Reader, query: ReadPool) -> PoolRecord | None:
    return await _one(reader, pool_record, READ_POOL, query.pool)


async def next_messages(reader: Reader, query: NextMessages) -> tuple[MessageRecord, ...]:
    return await _all(reader, message_record, NEXT_MESSAGES, query.address, query.after, query.limit)


async def read_message(reader: Reader, query: ReadMessage) -> MessageRecord | None:
    return await _one(reader, message_record, READ_MESSAGE, query.message_id, query.address)


async def list_messages(reader: Reader, query: ListMessages) -> tuple[MessageRecord, ...]:
    return await _all(reader, message_record, LIST_MESSAGES, query.address, max(0, query.after), query.limit)


async def delayed_messages(reader: Reader, query: DelayedMessages) -> tuple[MessageRecord, ...]:
    after = (-1, "") if query.after is None else (micros(query.after[0]), query.after[1])
    return await _all(reader, message_record, DELAYED_MESSAGES, query.address, *after, query.limit)


async def dead_letters(reader: Reader, query: DeadLetters) -> tuple[MessageRecord, ...]:
    if query.address is None:
        return await _all(reader, message_record, DEAD_LETTERS, *query.after, query.limit)
    return await _all(reader, message_record, DEAD_LETTERS_OF, *query.after, query.address, query.limit)


async def list_executions(reader: Reader, query: ListExecutions) -> tuple[ExecutionRecord, ...]:
    sql = LIST_ALL_EXECUTIONS if query.ended else LIST_EXECUTIONS
    return await _all(reader, lambda row: execution_record(row, reader.seconds_left(row)), sql)


async def read_execution(reader: Reader, query: ReadExecution) -> ExecutionRecord | None:
    return await _one(
        reader, lambda row: execution_record(row, reader.seconds_left(row)), READ_EXECUTION, query.execution_id
    )


async def read_callback(reader: Reader, query: ReadCallback) -> CallbackRecord | None:
    return await _one(reader, callback_record, READ_CALLBACK, query.callback_id)


async def expired_callbacks(reader: Reader, query: ExpiredCallbacks) -> tuple[CallbackRecord, ...]:
    return await _all(reader, callback_record, EXPIRED_CALLBACKS, query.limit)


async def due_outbox(reader: Reader, query: DueOutbox) -> tuple[OutboxRecord, ...]:
    return await _all(reader, outbox_record, DUE_OUTBOX, query.destination, query.limit)


async def read_outbox(reader: Reader, query: ReadOutbox) -> tuple[OutboxRecord, ...]:
    return await _all(reader, outbox_record, READ_OUTBOX, query.address, query.after, query.limit)


async def flushable_held(reader: Reader, query: FlushableHeld) -> tuple[Held, ...]:
    return await _all(reader, lambda row: Held(*row), FLUSHABLE_HELD, query.limit)


async def held_for_holders(reader: Reader, query: HeldForHolders) -> tuple[Held, ...]:
    after = (query.after.address, query.after.recipient)
    return await _all(reader, lambda row: Held(*row), HELD_FOR_HOLDERS, *after, query.limit)


async def list_observations(reader: Reader, query: ListObservations) -> tuple[Observation, ...]:
    kind = None if query.kind is None else query.kind.value
    if query.address is None:
        return await _all(reader, observation, LIST_OBSERVATIONS, kind, query.before, query.limit)
    return await _all(reader, observation, LIST_OBSERVATIONS_OF, kind, query.before, query.limit, query.address)


async def read_content(reader: Reader, query: ReadContent) -> bytes | None:
    pieces = await _all(reader, lambda row: bytes(row[0]), READ_CONTENT, query.digest.encode())
    return b"".join(pieces) if pieces else None


async def answer_to(reader: Reader, query: AnswerTo) -> Any:
    return await reader.answer_to(query.transition_id)


async def store_now(reader: Reader, _query: StoreNow) -> datetime:
    row = await reader.tx.one("SELECT greenroom_now()")
    assert row is not None  # a SELECT without a table
    return instant(row[0])


READERS: Final[dict[type[Query[Any]], Callable[[Reader, Any], Awaitable[Any]]]] = {
    AnswerTo: answer_to,
    DeadLetters: dead_letters,
    DelayedMessages: delayed_messages,
    DueAddresses: due_addresses,
    DueOutbox: due_outbox,
    ExpiredCallbacks: expired_callbacks,
    FlushableHeld: flushable_held,
    HeldForHolders: held_for_holders,
    ListAddresses: list_addresses,
    ListExecutions: list_executions,
    ListMessages: list_messages,
    ListObservations: list_observations,
    NextDue: next_due,
    NextMessages: next_messages,
    OwnedReady: owned_ready,
    ReadAddress: read_address,
    ReadCallback: read_callback,
    ReadContent: read_content,
    ReadExecution: read_execution,
    ReadMessage: read_message,
    ReadOutbox: read_outbox,
    ReadPool: read_pool,
    StoreNow: store_now,
    **schedules.READERS,
    **segments.READERS,
    **tasks.READERS,
}
