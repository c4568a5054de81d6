"""Rows of PostgreSQL as the records that queries answer with. Each takes its columns in the order of its list here."""

from __future__ import annotations

from typing import Any, Final

from greenroom.persistence.addresses import AddressKind, AddressRecord, ParkReason
from greenroom.persistence.callbacks import CallbackRecord, CallbackStatus
from greenroom.persistence.clock import instant, maybe_instant
from greenroom.persistence.executions import ExecutionRecord, ExecutionState
from greenroom.persistence.messages import MessageRecord, MessageStatus
from greenroom.persistence.observations import Observation, ObservationKind
from greenroom.persistence.outbox import OutboxRecord, OutboxStatus
from greenroom.persistence.postgres.rows import body_of, payload_of

ADDRESS: Final = (
    "address, kind, generation, owner, capacity, last_seq, handled_seq, queued, ready, delayed, held, "
    "(SELECT count(*) FROM messages AS d WHERE d.status = 'dead' AND d.address = addresses.address), "
    "parked, parked_detail, due_at, closed_at, state, state_content, state_size, state_type, state_version"
)
MESSAGE: Final = (
    "m.address, m.seq, m.message_id, m.type, m.body, m.body_content, m.body_size, m.sender, m.timer, "
    "CASE WHEN m.status = 'queued' AND m.seq <= a.handled_seq THEN 'handled' ELSE m.status END, "
    "m.deliveries, m.accepted_at, m.deliver_at, m.delivered_at, m.reply, m.reply_content, m.reply_size, "
    "m.error, m.error_content, m.error_size, m.reason"
)
EXECUTION: Final = "execution_id, host, pid, boot_id, started_at, lease_until, state, greenroom_now()"
CALLBACK: Final = "callback_id, address, name, status, created_at, expires_at, answer, answer_content, answer_size"
OUTBOX: Final = "address, ordinal, destination, message_id, type, body, body_content, body_size, status, attempts, due_at, settled_at"
OBSERVATION: Final = (
    "id, at, kind, what, address, message_id, sender, execution_id, generation, detail, body, body_content, body_size"
)


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


def execution_record(row: tuple[Any, ...]) -> ExecutionRecord:
    execution_id, host, pid, boot_id, started_at, lease_until, state, now = row
    seconds = max(0.0, (lease_until - now) / 1e6) if state != "ended" else 0.0
    return ExecutionRecord(
        execution_id=execution_id,
        host=host,
        pid=pid,
        boot_id=boot_id,
        started_at=instant(started_at),
        state=ExecutionState(state),
        alive=seconds > 0,
        seconds_left=seconds,
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
