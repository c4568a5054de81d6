"""How SQLite answers queries. Each is one or two statements in autocommit mode: no read transaction outlives its call (R34)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from attrs import frozen

from greenroom.persistence.addresses import (
    AddressKind,
    AddressRecord,
    DueAddress,
    DueAddresses,
    ListAddresses,
    OwnedReady,
    ParkReason,
    ReadAddress,
    StoreNow,
)
from greenroom.persistence.answers import AnswerTo, decode_answer
from greenroom.persistence.callbacks import CallbackRecord, CallbackStatus, ExpiredCallbacks, ReadCallback
from greenroom.persistence.clock import StoreClock, instant, maybe_instant, micros
from greenroom.persistence.content import Payload, ReadContent
from greenroom.persistence.executions import ExecutionRecord, ExecutionState, ListExecutions, ReadExecution
from greenroom.persistence.messages import (
    DeadLetters,
    DelayedMessages,
    ListMessages,
    MessageRecord,
    MessageStatus,
    NextMessages,
    ReadMessage,
)
from greenroom.persistence.observations import ListObservations, Observation, ObservationKind
from greenroom.persistence.outbox import DueOutbox, FlushableHeld, Held, OutboxRecord, OutboxStatus, ReadOutbox
from greenroom.persistence.pools import PoolRecord, ReadPool
from greenroom.persistence.sqlite.liveness import LockFiles
from greenroom.persistence.sqlite.rows import payload_of
from greenroom.persistence.transitions import Query

_ADDRESS = (
    "address, kind, generation, owner, capacity, last_seq, handled_seq, queued, ready, delayed, held, "
    "(SELECT count(*) FROM messages AS d WHERE d.status = 'dead' AND d.address = addresses.address), "
    "parked, parked_detail, due_at, closed_at, state, state_content, state_size, state_type, state_version"
)
_MESSAGE = (
    "m.address, m.seq, m.message_id, m.type, m.body, m.body_content, m.body_size, m.sender, m.timer, "
    "CASE WHEN m.status = 'queued' AND m.seq <= a.handled_seq THEN 'handled' ELSE m.status END, "
    "m.deliveries, m.accepted_at, m.deliver_at, m.delivered_at, m.reply, m.reply_content, m.reply_size, "
    "m.error, m.error_content, m.error_size, m.reason "
    "FROM messages AS m JOIN addresses AS a ON a.address = m.address"
)
_EXECUTION = "execution_id, host, pid, boot_id, locked, started_at, lease_until, state FROM executions"
_CALLBACK = (
    "callback_id, address, name, status, created_at, expires_at, answer, answer_content, answer_size FROM callbacks"
)
_OUTBOX = (
    "address, ordinal, destination, message_id, type, body, body_content, body_size, status, attempts, due_at, settled_at "
    "FROM outbox"
)

# One address with its state.
READ_ADDRESS = f"SELECT {_ADDRESS} FROM addresses WHERE address = ?"
# A page of addresses.
LIST_ADDRESSES = f"SELECT {_ADDRESS} FROM addresses WHERE address > ? ORDER BY address LIMIT ?"
# A page of addresses that wait for an operator.
LIST_PARKED = f"SELECT {_ADDRESS} FROM addresses WHERE parked IS NOT NULL AND address > ? ORDER BY address LIMIT ?"
# Addresses that somebody should claim.
DUE_ADDRESSES = "SELECT address, due_at FROM addresses WHERE due_at <= ? AND (due_at, address) > (?, ?) ORDER BY due_at, address LIMIT ?"
# A page of addresses where their owner could begin a delivery.
OWNED_READY = (
    "SELECT address FROM addresses WHERE owner = ? AND address > ? AND ready > 0 AND held = 0 ORDER BY address LIMIT ?"
)
# One pool.
READ_POOL = "SELECT pool, capacity, registered_at FROM pools WHERE pool = ?"
# Messages that wait for delivery: those behind the handled part of the mailbox.
NEXT_MESSAGES = f"SELECT {_MESSAGE} WHERE m.address = ? AND m.seq > max(?, a.handled_seq) AND m.status = 'queued' ORDER BY m.seq LIMIT ?"
# One message by its identity.
READ_MESSAGE = f"SELECT {_MESSAGE} WHERE m.message_id = ? AND m.address = ?"
# A page of an address's messages.
LIST_MESSAGES = f"SELECT {_MESSAGE} WHERE m.address = ? AND m.seq > ? ORDER BY m.seq LIMIT ?"
# Delayed messages of an address.
DELAYED_MESSAGES = f"SELECT {_MESSAGE} WHERE m.address = ? AND m.seq < 0 ORDER BY m.deliver_at, m.seq DESC LIMIT ?"
# A page of all dead letters.
DEAD_LETTERS = (
    f"SELECT {_MESSAGE} WHERE m.status = 'dead' AND (m.address, m.seq) > (?, ?) ORDER BY m.address, m.seq LIMIT ?"
)
# A page of an address's dead letters.
DEAD_LETTERS_OF = f"SELECT {_MESSAGE} WHERE m.status = 'dead' AND (m.address, m.seq) > (?, ?) AND m.address = ? ORDER BY m.seq LIMIT ?"
# Executions in work, and those that died in it.
LIST_EXECUTIONS = f"SELECT {_EXECUTION} WHERE state <> 'ended' ORDER BY started_at, execution_id"
# All executions on record.
LIST_ALL_EXECUTIONS = f"SELECT {_EXECUTION} ORDER BY started_at, execution_id"
# One execution.
READ_EXECUTION = f"SELECT {_EXECUTION} WHERE execution_id = ?"
# One callback.
READ_CALLBACK = f"SELECT {_CALLBACK} WHERE callback_id = ?"
# Open callbacks whose time has passed.
EXPIRED_CALLBACKS = f"SELECT {_CALLBACK} WHERE status = 'open' AND expires_at <= ? ORDER BY expires_at LIMIT ?"
# Outbox rows to be published.
DUE_OUTBOX = (
    f"SELECT {_OUTBOX} WHERE status = 'pending' AND held = 0 AND due_at <= ? ORDER BY due_at, address, ordinal LIMIT ?"
)
# A page of an address's outbox.
READ_OUTBOX = f"SELECT {_OUTBOX} WHERE address = ? AND held = 0 AND ordinal > ? ORDER BY ordinal LIMIT ?"
# Held messages whose recipients have room now, or are gone.
FLUSHABLE_HELD = (
    "SELECT DISTINCT o.address, o.destination FROM outbox AS o LEFT JOIN addresses AS a ON a.address = o.destination "
    "WHERE o.status = 'pending' AND o.held = 1 "
    "AND (a.capacity IS NULL OR a.queued < a.capacity OR a.closed_at IS NOT NULL) LIMIT ?"
)
# A page of observations, newest first; parameters that are NULL choose all.
LIST_OBSERVATIONS = (
    "SELECT id, at, kind, what, address, message_id, sender, execution_id, generation, detail, "
    "body, body_content, body_size FROM observations "
    "WHERE (?1 IS NULL OR address = ?1) AND (?2 IS NULL OR kind = ?2) AND (?3 IS NULL OR id < ?3) ORDER BY id DESC LIMIT ?4"
)
# The pieces of a content.
READ_CONTENT = "SELECT bytes FROM content WHERE digest = ? ORDER BY chunk"
# Batches that may hold the answer to a transition, newest first.
FIND_ANSWER = "SELECT answers FROM batches WHERE instr(answers, ?) > 0 ORDER BY at DESC"


@frozen
class Reader:
    """What answering a query needs."""

    connection: sqlite3.Connection
    clock: StoreClock
    locks: LockFiles | None

    def all(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, parameters).fetchall()

    def one(self, sql: str, *parameters: object) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self.connection.execute(sql, parameters).fetchone()
        return row


def address_record(row: tuple[Any, ...], *, with_state: bool) -> AddressRecord:
    (
        address,
        kind,
        generation,
        owner,
        capacity,
        last_seq,
        handled_seq,
        queued,
        ready,
        delayed,
        held,
        dead,
        parked,
        parked_detail,
        due_at,
        closed_at,
        *state,
        state_type,
        state_version,
    ) = row
    return AddressRecord(
        address=address,
        kind=AddressKind(kind),
        generation=generation,
        owner=owner,
        capacity=capacity,
        last_seq=last_seq,
        handled_seq=handled_seq,
        queued=queued,
        ready=ready,
        delayed=delayed,
        held=held,
        dead=dead,
        parked=None if parked is None else ParkReason(parked),
        parked_detail=parked_detail,
        due_at=maybe_instant(due_at),
        closed_at=maybe_instant(closed_at),
        state=payload_of(*state) if with_state else None,
        state_type=state_type,
        state_version=state_version,
    )


def body_of(data: bytes | None, digest: str | None, size: int | None) -> Payload:
    payload = payload_of(data, digest, size)
    assert payload is not None  # the schema has it so
    return payload


def message_record(row: tuple[Any, ...]) -> MessageRecord:
    (address, seq, message_id, type_name, body, body_content, body_size, sender, timer, status, *rest) = row
    deliveries, accepted_at, deliver_at, delivered_at, *payloads, reason = rest
    return MessageRecord(
        address=address,
        seq=seq if seq > 0 else None,
        message_id=message_id,
        type=type_name,
        body=body_of(body, body_content, body_size),
        sender=sender,
        timer=timer,
        status=MessageStatus(status),
        deliveries=deliveries,
        accepted_at=instant(accepted_at),
        deliver_at=maybe_instant(deliver_at),
        delivered_at=maybe_instant(delivered_at),
        reply=payload_of(*payloads[:3]),
        error=payload_of(*payloads[3:]),
        reason=reason,
    )


def execution_record(reader: Reader, row: tuple[Any, ...]) -> ExecutionRecord:
    execution_id, host, pid, boot_id, locked, started_at, lease_until, state = row
    lasts = state != "ended" and boot_id == reader.clock.boot_id
    seconds = max(0.0, lease_until / 1e6 - reader.clock.boot()) if lasts else 0.0
    dead = locked and reader.locks is not None and reader.locks.prove_dead(execution_id)
    return ExecutionRecord(
        execution_id=execution_id,
        host=host,
        pid=pid,
        boot_id=boot_id,
        started_at=instant(started_at),
        state=ExecutionState(state),
        alive=seconds > 0 and not dead,
        seconds_left=0.0 if dead else seconds,
    )


def callback_record(row: tuple[Any, ...]) -> CallbackRecord:
    callback_id, address, name, status, created_at, expires_at, *answer = row
    return CallbackRecord(
        callback_id=callback_id,
        address=address,
        name=name,
        status=CallbackStatus(status),
        created_at=instant(created_at),
        expires_at=maybe_instant(expires_at),
        answer=payload_of(*answer),
    )


def outbox_record(row: tuple[Any, ...]) -> OutboxRecord:
    address, ordinal, destination, message_id, type_name, body, content, size, status, attempts, due_at, sent_at = row
    return OutboxRecord(
        address=address,
        ordinal=ordinal,
        destination=destination,
        message_id=message_id,
        type=type_name,
        body=body_of(body, content, size),
        status=OutboxStatus(status),
        attempts=attempts,
        due_at=instant(due_at),
        sent_at=maybe_instant(sent_at) if status == "sent" else None,
    )


def observation(row: tuple[Any, ...]) -> Observation:
    number, at, kind, what, address, message_id, sender, execution_id, generation, detail, *body = row
    return Observation(
        id=number,
        at=instant(at),
        kind=ObservationKind(kind),
        what=what,
        address=address,
        message_id=message_id,
        sender=sender,
        execution_id=execution_id,
        generation=generation,
        detail=detail,
        body=payload_of(*body),
    )


def read_address(reader: Reader, query: ReadAddress) -> AddressRecord | None:
    row = reader.one(READ_ADDRESS, query.address)
    return None if row is None else address_record(row, with_state=True)


def list_addresses(reader: Reader, query: ListAddresses) -> tuple[AddressRecord, ...]:
    rows = reader.all(LIST_PARKED if query.parked else LIST_ADDRESSES, query.after, query.limit)
    return tuple(address_record(row, with_state=False) for row in rows)


def due_addresses(reader: Reader, query: DueAddresses) -> tuple[DueAddress, ...]:
    after = (0, "") if query.after is None else (micros(query.after.due_at), query.after.address)
    rows = reader.all(DUE_ADDRESSES, reader.clock.now(), *after, query.limit)
    return tuple(DueAddress(address, instant(due_at)) for address, due_at in rows)


def owned_ready(reader: Reader, query: OwnedReady) -> tuple[str, ...]:
    return tuple(address for (address,) in reader.all(OWNED_READY, query.execution_id, query.after, query.limit))


def read_pool(reader: Reader, query: ReadPool) -> PoolRecord | None:
    row = reader.one(READ_POOL, query.pool)
    return None if row is None else PoolRecord(pool=row[0], capacity=row[1], registered_at=instant(row[2]))


def next_messages(reader: Reader, query: NextMessages) -> tuple[MessageRecord, ...]:
    return tuple(map(message_record, reader.all(NEXT_MESSAGES, query.address, query.after, query.limit)))


def read_message(reader: Reader, query: ReadMessage) -> MessageRecord | None:
    row = reader.one(READ_MESSAGE, query.message_id, query.address)
    return None if row is None else message_record(row)


def list_messages(reader: Reader, query: ListMessages) -> tuple[MessageRecord, ...]:
    return tuple(map(message_record, reader.all(LIST_MESSAGES, query.address, max(0, query.after), query.limit)))


def delayed_messages(reader: Reader, query: DelayedMessages) -> tuple[MessageRecord, ...]:
    return tuple(map(message_record, reader.all(DELAYED_MESSAGES, query.address, query.limit)))


def dead_letters(reader: Reader, query: DeadLetters) -> tuple[MessageRecord, ...]:
    if query.address is None:
        rows = reader.all(DEAD_LETTERS, *query.after, query.limit)
    else:
        rows = reader.all(DEAD_LETTERS_OF, *query.after, query.address, query.limit)
    return tuple(map(message_record, rows))


def list_executions(reader: Reader, query: ListExecutions) -> tuple[ExecutionRecord, ...]:
    rows = reader.all(LIST_ALL_EXECUTIONS if query.ended else LIST_EXECUTIONS)
    return tuple(execution_record(reader, row) for row in rows)


def read_execution(reader: Reader, query: ReadExecution) -> ExecutionRecord | None:
    row = reader.one(READ_EXECUTION, query.execution_id)
    return None if row is None else execution_record(reader, row)


def read_callback(reader: Reader, query: ReadCallback) -> CallbackRecord | None:
    row = reader.one(READ_CALLBACK, query.callback_id)
    return None if row is None else callback_record(row)


def expired_callbacks(reader: Reader, query: ExpiredCallbacks) -> tuple[CallbackRecord, ...]:
    return tuple(map(callback_record, reader.all(EXPIRED_CALLBACKS, reader.clock.now(), query.limit)))


def due_outbox(reader: Reader, query: DueOutbox) -> tuple[OutboxRecord, ...]:
    return tuple(map(outbox_record, reader.all(DUE_OUTBOX, reader.clock.now(), query.limit)))


def read_outbox(reader: Reader, query: ReadOutbox) -> tuple[OutboxRecord, ...]:
    return tuple(map(outbox_record, reader.all(READ_OUTBOX, query.address, query.after, query.limit)))


def flushable_held(reader: Reader, query: FlushableHeld) -> tuple[Held, ...]:
    return tuple(Held(address, recipient) for address, recipient in reader.all(FLUSHABLE_HELD, query.limit))


def list_observations(reader: Reader, query: ListObservations) -> tuple[Observation, ...]:
    kind = None if query.kind is None else query.kind.value
    return tuple(map(observation, reader.all(LIST_OBSERVATIONS, query.address, kind, query.before, query.limit)))


def read_content(reader: Reader, query: ReadContent) -> bytes | None:
    pieces = [piece for (piece,) in reader.all(READ_CONTENT, query.digest)]
    return b"".join(pieces) if pieces else None


def answer_to(reader: Reader, query: AnswerTo) -> Any:
    for (answers,) in reader.connection.execute(FIND_ANSWER, (query.transition_id.encode(),)):
        answer = decode_answer(answers, query.transition_id)
        if answer is not None:
            return answer
    return None


def store_now(reader: Reader, _query: StoreNow) -> datetime:
    return instant(reader.clock.now())


READERS: Final[dict[type[Query[Any]], Callable[[Reader, Any], Any]]] = {
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
