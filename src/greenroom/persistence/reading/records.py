"""Rows as the records that queries answer with. Each takes its columns in the order of its list here."""

from __future__ import annotations

from typing import Final

from greenroom.persistence.addresses import AddressKind, AddressRecord, ParkReason
from greenroom.persistence.applying.unit import Record
from greenroom.persistence.callbacks import CallbackRecord, CallbackStatus
from greenroom.persistence.clock import instant, maybe_instant
from greenroom.persistence.content import body_of, payload_of
from greenroom.persistence.executions import ExecutionRecord, ExecutionState
from greenroom.persistence.messages import MessageRecord, MessageStatus
from greenroom.persistence.observations import Observation, ObservationKind
from greenroom.persistence.outbox import OutboxRecord, OutboxStatus
from greenroom.persistence.pools import PoolRecord

ADDRESS: Final = (
    "address, kind, generation, owner, capacity, last_seq, handled_seq, queued, ready, delayed, held, "
    "(SELECT count(*) FROM messages AS d WHERE d.status = 'dead' AND d.address = addresses.address), "
    "parked, parked_detail, due_at, closed_at, state, state_size, state_type, state_version"
)
MESSAGE: Final = (
    "m.address, m.seq, m.message_id, m.type, m.body, m.body_size, m.sender, m.timer, "
    "CASE WHEN m.status = 'queued' AND m.seq <= a.handled_seq THEN 'handled' ELSE m.status END, "
    "m.deliveries, m.accepted_at, m.deliver_at, m.delivered_at, m.reply, m.reply_size, "
    "m.error, m.error_size, m.reason"
)
EXECUTION: Final = "execution_id, host, pid, boot_id, locked, started_at, lease_until, state, (SELECT greenroom_now())"
CALLBACK: Final = "callback_id, address, name, status, created_at, expires_at, answer, answer_size"
OUTBOX: Final = "address, ordinal, destination, message_id, type, body, body_size, status, attempts, due_at, settled_at"
OBSERVATION: Final = (
    "id, at, kind, what, address, message_id, sender, execution_id, generation, detail, body, body_size"
)


def address_record(row: Record, *, with_state: bool) -> AddressRecord:
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
        state,
        state_size,
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
        state=payload_of(state, state_size) if with_state else None,
        state_type=state_type,
        state_version=state_version,
    )


def message_record(row: Record) -> MessageRecord:
    (address, seq, message_id, type_name, body, body_size, sender, timer, status, *rest) = row
    deliveries, accepted_at, deliver_at, delivered_at, reply, reply_size, error, error_size, reason = rest
    return MessageRecord(
        address=address,
        seq=seq if seq > 0 else None,
        message_id=message_id,
        type=type_name,
        body=body_of(body, body_size),
        sender=sender,
        timer=timer,
        status=MessageStatus(status),
        deliveries=deliveries,
        accepted_at=instant(accepted_at),
        deliver_at=maybe_instant(deliver_at),
        delivered_at=maybe_instant(delivered_at),
        reply=payload_of(reply, reply_size),
        error=payload_of(error, error_size),
        reason=reason,
    )


def execution_record(row: Record, seconds_left: float) -> ExecutionRecord:
    """How long its lease lasts, and whether that counts, each database tells in its own way."""
    execution_id, host, pid, boot_id, _, started_at, _, state, _ = row
    return ExecutionRecord(
        execution_id=execution_id,
        host=host,
        pid=pid,
        boot_id=boot_id,
        started_at=instant(started_at),
        state=ExecutionState(state),
        alive=seconds_left > 0,
        seconds_left=seconds_left,
    )


def pool_record(row: Record) -> PoolRecord:
    pool, capacity, registered_at = row
    return PoolRecord(pool=pool, capacity=capacity, registered_at=instant(registered_at))


def callback_record(row: Record) -> CallbackRecord:
    callback_id, address, name, status, created_at, expires_at, answer, answer_size = row
    return CallbackRecord(
        callback_id=callback_id,
        address=address,
        name=name,
        status=CallbackStatus(status),
        created_at=instant(created_at),
        expires_at=maybe_instant(expires_at),
        answer=payload_of(answer, answer_size),
    )


def outbox_record(row: Record) -> OutboxRecord:
    address, ordinal, destination, message_id, type_name, body, size, status, attempts, due_at, sent_at = row
    return OutboxRecord(
        address=address,
        ordinal=ordinal,
        destination=destination,
        message_id=message_id,
        type=type_name,
        body=body_of(body, size),
        status=OutboxStatus(status),
        attempts=attempts,
        due_at=instant(due_at),
        sent_at=maybe_instant(sent_at) if status == "sent" else None,
    )


def observation(row: Record) -> Observation:
    number, at, kind, what, address, message_id, sender, execution_id, generation, detail, body, size = row
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
        body=payload_of(body, size),
    )
