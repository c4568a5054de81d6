"""How PostgreSQL answers queries. Each is one statement in autocommit mode: no read transaction outlives its call (R34).

Lists are cut inside, before anything is joined to them, so that a page costs a page whatever plan is chosen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final

from greenroom.persistence.addresses import (
    AddressRecord,
    DueAddress,
    DueAddresses,
    ListAddresses,
    OwnedReady,
    ReadAddress,
    StoreNow,
)
from greenroom.persistence.answers import AnswerTo
from greenroom.persistence.callbacks import CallbackRecord, ExpiredCallbacks, ReadCallback
from greenroom.persistence.clock import instant, micros
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
from greenroom.persistence.outbox import DueOutbox, FlushableHeld, Held, OutboxRecord, ReadOutbox
from greenroom.persistence.pools import PoolRecord, ReadPool
from greenroom.persistence.postgres.records import (
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
)
from greenroom.persistence.postgres.session import Connection
from greenroom.persistence.postgres.verdicts import BATCH, stored_answer
from greenroom.persistence.transitions import Query


def _messages(where: str) -> str:
    """Messages that a condition with its order and limit chooses, with the number that marks handled ones."""
    order = where[where.index("ORDER BY") : where.index("LIMIT")]
    return (
        f"SELECT {MESSAGE} FROM (SELECT * FROM messages WHERE {where}) m "
        f"JOIN addresses a ON a.address = m.address {order}"
    )


_NOW = "(SELECT greenroom_now())"  # as a subquery: once, and an index can be searched with it

# One address with its state.
READ_ADDRESS = f"SELECT {ADDRESS} FROM addresses WHERE address = $1"
# A page of addresses.
LIST_ADDRESSES = f"SELECT {ADDRESS} FROM addresses WHERE address > $1 ORDER BY address LIMIT $2"
# A page of addresses that wait for an operator.
LIST_PARKED = f"SELECT {ADDRESS} FROM addresses WHERE parked IS NOT NULL AND address > $1 ORDER BY address LIMIT $2"
# Addresses that somebody should claim.
DUE_ADDRESSES = (
    f"SELECT address, due_at FROM addresses WHERE due_at <= {_NOW} AND (due_at, address) > ($1, $2) "
    "ORDER BY due_at, address LIMIT $3"
)
# A page of addresses where their owner could begin a delivery.
OWNED_READY = "SELECT address FROM addresses WHERE owner = $1 AND address > $2 AND ready > 0 AND held = 0 ORDER BY address LIMIT $3"
# One pool.
READ_POOL = "SELECT pool, capacity, registered_at FROM pools WHERE pool = $1"
# Messages that wait for delivery: those behind the handled part of the mailbox.
NEXT_MESSAGES = (
    f"SELECT {MESSAGE} FROM addresses a CROSS JOIN LATERAL (SELECT * FROM messages x WHERE x.address = a.address "
    "AND x.seq > greatest($2, a.handled_seq) AND x.status = 'queued' ORDER BY x.seq LIMIT $3) m "
    "WHERE a.address = $1 ORDER BY m.seq"
)
# One message by its identity.
READ_MESSAGE = _messages("message_id = $1 AND address = $2 ORDER BY seq LIMIT 1")
# A page of an address's messages.
LIST_MESSAGES = _messages("address = $1 AND seq > $2 ORDER BY seq LIMIT $3")
# Delayed messages of an address.
DELAYED_MESSAGES = _messages("address = $1 AND seq < 0 ORDER BY deliver_at, seq DESC LIMIT $2")
# A page of all dead letters.
DEAD_LETTERS = (
    f"SELECT {MESSAGE} FROM (SELECT * FROM messages WHERE status = 'dead' AND (address, seq) > ($1, $2) "
    "ORDER BY address, seq LIMIT $3) m JOIN addresses a ON a.address = m.address ORDER BY m.address, m.seq"
)
# A page of an address's dead letters.
DEAD_LETTERS_OF = (
    f"SELECT {MESSAGE} FROM (SELECT * FROM messages WHERE status = 'dead' AND (address, seq) > ($1, $2) "
    "AND address = $3 ORDER BY seq LIMIT $4) m JOIN addresses a ON a.address = m.address ORDER BY m.seq"
)
# Executions in work, and those that died in it.
LIST_EXECUTIONS = f"SELECT {EXECUTION} FROM executions WHERE state <> 'ended' ORDER BY started_at, execution_id"
# All executions on record.
LIST_ALL_EXECUTIONS = f"SELECT {EXECUTION} FROM executions ORDER BY started_at, execution_id"
# One execution.
READ_EXECUTION = f"SELECT {EXECUTION} FROM executions WHERE execution_id = $1"
# One callback.
READ_CALLBACK = f"SELECT {CALLBACK} FROM callbacks WHERE callback_id = $1"
# Open callbacks whose time has passed.
EXPIRED_CALLBACKS = (
    f"SELECT {CALLBACK} FROM callbacks WHERE status = 'open' AND expires_at <= {_NOW} ORDER BY expires_at LIMIT $1"
)
# Outbox rows to be published.
DUE_OUTBOX = (
    f"SELECT {OUTBOX} FROM outbox WHERE status = 'pending' AND NOT held AND due_at <= {_NOW} "
    "ORDER BY due_at, address, ordinal LIMIT $1"
)
# A page of an address's outbox.
READ_OUTBOX = f"SELECT {OUTBOX} FROM outbox WHERE address = $1 AND NOT held AND ordinal > $2 ORDER BY ordinal LIMIT $3"
# Held messages whose recipients have room now, or are gone.
FLUSHABLE_HELD = (
    "SELECT DISTINCT o.address, o.destination FROM outbox o LEFT JOIN addresses a ON a.address = o.destination "
    "WHERE o.status = 'pending' AND o.held "
    "AND (a.capacity IS NULL OR a.queued < a.capacity OR a.closed_at IS NOT NULL) LIMIT $1"
)
# A page of observations, newest first; arguments that are NULL choose all.
LIST_OBSERVATIONS = (
    f"SELECT {OBSERVATION} FROM observations WHERE ($1::text IS NULL OR kind = $1) "
    "AND ($2::bigint IS NULL OR id < $2) ORDER BY id DESC LIMIT $3"
)
# The same of one address.
LIST_OBSERVATIONS_OF = (
    f"SELECT {OBSERVATION} FROM observations WHERE address = $4 AND ($1::text IS NULL OR kind = $1) "
    "AND ($2::bigint IS NULL OR id < $2) ORDER BY id DESC LIMIT $3"
)
# The pieces of a content.
READ_CONTENT = "SELECT bytes FROM content WHERE digest = $1 ORDER BY chunk"
# The batch that holds the answer to a transition. It reads them all: this is rarely asked, and they are kept for minutes.
FIND_ANSWER = f"SELECT {BATCH} FROM batches WHERE $1 = ANY (transition_ids) ORDER BY at DESC LIMIT 1"


async def read_address(connection: Connection, query: ReadAddress) -> AddressRecord | None:
    row = await connection.fetchrow(READ_ADDRESS, query.address)
    return None if row is None else address_record(tuple(row), with_state=True)


async def list_addresses(connection: Connection, query: ListAddresses) -> tuple[AddressRecord, ...]:
    rows = await connection.fetch(LIST_PARKED if query.parked else LIST_ADDRESSES, query.after, query.limit)
    return tuple(address_record(tuple(row), with_state=False) for row in rows)


async def due_addresses(connection: Connection, query: DueAddresses) -> tuple[DueAddress, ...]:
    after = (0, "") if query.after is None else (micros(query.after.due_at), query.after.address)
    rows = await connection.fetch(DUE_ADDRESSES, *after, query.limit)
    return tuple(DueAddress(address, instant(due_at)) for address, due_at in rows)


async def owned_ready(connection: Connection, query: OwnedReady) -> tuple[str, ...]:
    rows = await connection.fetch(OWNED_READY, query.execution_id, query.after, query.limit)
    return tuple(address for (address,) in rows)


async def read_pool(connection: Connection, query: ReadPool) -> PoolRecord | None:
    row = await connection.fetchrow(READ_POOL, query.pool)
    return None if row is None else PoolRecord(pool=row[0], capacity=row[1], registered_at=instant(row[2]))


async def _records(connection: Connection, sql: str, *arguments: object) -> tuple[MessageRecord, ...]:
    return tuple(message_record(tuple(row)) for row in await connection.fetch(sql, *arguments))


async def next_messages(connection: Connection, query: NextMessages) -> tuple[MessageRecord, ...]:
    return await _records(connection, NEXT_MESSAGES, query.address, query.after, query.limit)


async def read_message(connection: Connection, query: ReadMessage) -> MessageRecord | None:
    found = await _records(connection, READ_MESSAGE, query.message_id, query.address)
    return found[0] if found else None


async def list_messages(connection: Connection, query: ListMessages) -> tuple[MessageRecord, ...]:
    return await _records(connection, LIST_MESSAGES, query.address, max(0, query.after), query.limit)


async def delayed_messages(connection: Connection, query: DelayedMessages) -> tuple[MessageRecord, ...]:
    return await _records(connection, DELAYED_MESSAGES, query.address, query.limit)


async def dead_letters(connection: Connection, query: DeadLetters) -> tuple[MessageRecord, ...]:
    if query.address is None:
        return await _records(connection, DEAD_LETTERS, *query.after, query.limit)
    return await _records(connection, DEAD_LETTERS_OF, *query.after, query.address, query.limit)


async def list_executions(connection: Connection, query: ListExecutions) -> tuple[ExecutionRecord, ...]:
    rows = await connection.fetch(LIST_ALL_EXECUTIONS if query.ended else LIST_EXECUTIONS)
    return tuple(execution_record(tuple(row)) for row in rows)


async def read_execution(connection: Connection, query: ReadExecution) -> ExecutionRecord | None:
    row = await connection.fetchrow(READ_EXECUTION, query.execution_id)
    return None if row is None else execution_record(tuple(row))


async def read_callback(connection: Connection, query: ReadCallback) -> CallbackRecord | None:
    row = await connection.fetchrow(READ_CALLBACK, query.callback_id)
    return None if row is None else callback_record(tuple(row))


async def expired_callbacks(connection: Connection, query: ExpiredCallbacks) -> tuple[CallbackRecord, ...]:
    return tuple(callback_record(tuple(row)) for row in await connection.fetch(EXPIRED_CALLBACKS, query.limit))


async def due_outbox(connection: Connection, query: DueOutbox) -> tuple[OutboxRecord, ...]:
    return tuple(outbox_record(tuple(row)) for row in await connection.fetch(DUE_OUTBOX, query.limit))


async def read_outbox(connection: Connection, query: ReadOutbox) -> tuple[OutboxRecord, ...]:
    rows = await connection.fetch(READ_OUTBOX, query.address, query.after, query.limit)
    return tuple(outbox_record(tuple(row)) for row in rows)


async def flushable_held(connection: Connection, query: FlushableHeld) -> tuple[Held, ...]:
    return tuple(Held(address, recipient) for address, recipient in await connection.fetch(FLUSHABLE_HELD, query.limit))


async def list_observations(connection: Connection, query: ListObservations) -> tuple[Observation, ...]:
    kind = None if query.kind is None else query.kind.value
    if query.address is None:
        rows = await connection.fetch(LIST_OBSERVATIONS, kind, query.before, query.limit)
    else:
        rows = await connection.fetch(LIST_OBSERVATIONS_OF, kind, query.before, query.limit, query.address)
    return tuple(observation(tuple(row)) for row in rows)


async def read_content(connection: Connection, query: ReadContent) -> bytes | None:
    pieces = [piece for (piece,) in await connection.fetch(READ_CONTENT, query.digest)]
    return b"".join(pieces) if pieces else None


async def answer_to(connection: Connection, query: AnswerTo) -> Any:
    row = await connection.fetchrow(FIND_ANSWER, query.transition_id)
    return None if row is None else stored_answer(row, query.transition_id)


async def store_now(connection: Connection, _query: StoreNow) -> datetime:
    return instant(await connection.fetchval("SELECT greenroom_now()"))


READERS: Final[dict[type[Query[Any]], Callable[[Connection, Any], Awaitable[Any]]]] = {
    AnswerTo: answer_to,
    DeadLetters: dead_letters,
    DelayedMessages: delayed_messages,
    DueAddresses: due_addresses,
    DueOutbox: due_outbox,
    ExpiredCallbacks: expired_callbacks,
    FlushableHeld: flushable_held,
    ListAddresses: list_addresses,
    ListExecutions: list_executions,
    ListMessages: list_messages,
    ListObservations: list_observations,
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
}
