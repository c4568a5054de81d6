"""Callbacks: created, answered, expired, cancelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from greenroom.persistence.applying.mail import insert
from greenroom.persistence.applying.rows import TASK
from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.callbacks import (
    ANSWER,
    CALLBACK_MOVES,
    AnswerCallback,
    AnswerDisposition,
    CallbackAnswered,
    CallbackEvent,
    CallbackMoved,
    CallbackStatus,
    CallbackWrite,
    CancelCallback,
    CreateCallback,
    DeliverAnswer,
    ExpireCallback,
    NewCallback,
    opens,
    with_secret,
)
from greenroom.persistence.clock import maybe_micros
from greenroom.persistence.content import body_of, columns_of
from greenroom.persistence.messages import Disposition, Receipt
from greenroom.persistence.observations import ObservationKind
from greenroom.persistence.transitions import RefusalReason, Refused

OPEN: Final = CallbackStatus.OPEN.value

# A new callback, unless another address has just made it.
INSERT_CALLBACK = (
    "INSERT INTO callbacks (callback_id, address, secrets, name, created_at, expires_at, status) "
    "VALUES ($1, $2, $3, $4, $5, $6, 'open') ON CONFLICT (callback_id) DO NOTHING"
)
# One callback.
SELECT_CALLBACK = (
    "SELECT address, secrets, name, status, expires_at, answer_digest FROM callbacks WHERE callback_id = $1"
)
# One more token opens it.
UPDATE_SECRETS = "UPDATE callbacks SET secrets = $1 WHERE callback_id = $2"
# It has its answer.
UPDATE_ANSWERED = (
    "UPDATE callbacks SET status = 'answered', settled_at = $1, answer = $2, answer_size = $3, answer_digest = $4, "
    "undelivered = $5 WHERE callback_id = $6"
)
# What kind of address waits for an answer.
SELECT_KIND = "SELECT kind FROM addresses WHERE address = $1"
# An answer that may be to be delivered.
SELECT_ANSWER = (
    "SELECT address, name, undelivered, answer, answer_size, answer_digest FROM callbacks WHERE callback_id = $1"
)
# It is in the mailbox.
UPDATE_DELIVERED = "UPDATE callbacks SET undelivered = $1 WHERE callback_id = $2"
# The callback of a task that has ended.
UPDATE_ENDED = "UPDATE callbacks SET status = 'cancelled', settled_at = $1 WHERE callback_id = $2 AND address = $3 AND status = 'open'"
# It gets none.
UPDATE_CLOSED = "UPDATE callbacks SET status = $1, settled_at = $2 WHERE callback_id = $3"

NO_TOKEN: Final = "the token opens nothing"


async def create(unit: Unit, item: CreateCallback) -> CallbackMoved | Refused:
    row = await unit.fenced(item)
    if isinstance(row, Refused):
        return row
    found = await unit.tx.one(SELECT_CALLBACK, item.callback_id)
    if found is not None:
        address, secrets, _, status, _, _ = found
        if address != item.address:
            return _taken(item)
        if status == OPEN:
            await unit.tx.change(UPDATE_SECRETS, with_secret(secrets, item.secret_digest), item.callback_id)
        return CallbackMoved(CallbackStatus(status))
    inserted = await unit.tx.change(
        INSERT_CALLBACK,
        item.callback_id,
        item.address,
        item.secret_digest,
        item.name,
        unit.now,
        maybe_micros(item.expires_at),
    )
    return _taken(item) if inserted == 0 else CallbackMoved(CallbackStatus.OPEN)


async def refuse_open(unit: Unit, callbacks: Sequence[NewCallback]) -> Refused | None:
    """Why these cannot be opened; None: they can."""
    for callback in callbacks:
        if await unit.tx.one(SELECT_CALLBACK, callback.callback_id) is not None:
            detail = f"a callback {callback.callback_id!r} has been opened before: each has an identity of its own"
            return Refused(RefusalReason.CONFLICT, detail)
    return None


async def open_all(unit: Unit, address: str, callbacks: Sequence[NewCallback]) -> None:
    """Open callbacks of an address, which were not there before."""
    for callback in callbacks:
        inserted = await unit.tx.change(
            INSERT_CALLBACK,
            callback.callback_id,
            address,
            callback.secret_digest,
            callback.name,
            unit.now,
            maybe_micros(callback.expires_at),
        )
        if inserted == 0:  # the batch is rolled back, and the next try is told so
            raise ValueError(f"the callback {callback.callback_id!r} has been opened elsewhere meanwhile")


def _taken(item: CreateCallback) -> Refused:
    return Refused(RefusalReason.CONFLICT, f"another address has opened a callback {item.callback_id!r}")


async def answer(unit: Unit, item: AnswerCallback) -> CallbackAnswered | Refused:
    found = await unit.tx.one(SELECT_CALLBACK, item.callback_id)
    if found is None or not opens(found[1], item.secret_digest):
        return Refused(RefusalReason.UNKNOWN_TOKEN, NO_TOKEN)
    address, _, name, status, expires_at, digest = found
    if status == OPEN and (expires_at is None or unit.now < expires_at):
        waiting = await unit.tx.one(SELECT_KIND, address)
        undelivered = waiting is not None and waiting[0] == TASK
        await unit.tx.change(
            UPDATE_ANSWERED, unit.now, *columns_of(item.answer), item.digest, undelivered, item.callback_id
        )
        unit.wake(address)
        return CallbackAnswered(AnswerDisposition.ACCEPTED)
    if status == OPEN:
        await unit.tx.change(UPDATE_CLOSED, CallbackStatus.EXPIRED.value, unit.now, item.callback_id)
        unit.wake(address)
    if status == CallbackStatus.ANSWERED.value:
        same = digest == item.digest
        kind = ObservationKind.DUPLICATE if same else ObservationKind.CONFLICT
        disposition = AnswerDisposition.DUPLICATE if same else AnswerDisposition.CONFLICT
        detail = "it was answered before" + ("" if same else ", with something else")
    else:
        kind, disposition = ObservationKind.LATE, AnswerDisposition.LATE
        detail = "it was cancelled" if status == CallbackStatus.CANCELLED.value else "it had expired"
    body = None if disposition is AnswerDisposition.DUPLICATE else item.answer
    unit.observe(kind, "AnswerCallback", address, detail=f"the callback {name!r}: {detail}", body=body)
    return CallbackAnswered(disposition)


async def deliver(unit: Unit, item: DeliverAnswer) -> Receipt | Refused:
    found = await unit.tx.one(SELECT_ANSWER, item.callback_id)
    row = unit.address(item.address)
    if found is None or row is None or found[0] != item.address:
        return Refused(RefusalReason.UNKNOWN_CALLBACK, f"{item.address!r} has opened no callback {item.callback_id!r}")
    _, name, undelivered, data, size, digest = found
    if not undelivered:
        return Refused(RefusalReason.NOT_PENDING, f"the callback {name!r} has no answer that is to be delivered")
    await unit.tx.change(UPDATE_DELIVERED, False, item.callback_id)
    body = body_of(data, size)
    if row.closed_at is not None:
        kind, disposition, detail = ObservationKind.LATE, Disposition.LATE, "the task has ended"
    else:
        seq = await insert(unit, row, item.callback_id, digest, ANSWER, body, None, None, None)
        if seq is not None:
            return Receipt(item.callback_id, Disposition.ACCEPTED, seq)
        kind, disposition = ObservationKind.CONFLICT, Disposition.CONFLICT
        detail = "another message has its identity"
    unit.observe(
        kind,
        ANSWER,
        item.address,
        message_id=item.callback_id,
        detail=f"the answer of the callback {name!r} was not delivered: {detail}",
        body=body,
    )
    return Receipt(item.callback_id, disposition)


async def close_all(unit: Unit, address: str, callback_ids: Sequence[str]) -> None:
    """Cancel callbacks of an address, which the batch has locked, where they are open."""
    for callback_id in callback_ids:
        await unit.tx.change(UPDATE_ENDED, unit.now, callback_id, address)


async def _moved(
    unit: Unit, item: CallbackWrite[Any], event: CallbackEvent
) -> tuple[CallbackStatus, str, int | None] | Refused:
    """The state that the event leads to, the callback's address and its end."""
    found = await unit.tx.one(SELECT_CALLBACK, item.callback_id)
    if found is None:
        return Refused(RefusalReason.UNKNOWN_CALLBACK, f"there is no callback {item.callback_id!r}")
    address, _, name, status, expires_at, _ = found
    if status == CallbackStatus.ANSWERED.value:
        return Refused(RefusalReason.ALREADY_ANSWERED, f"the callback {name!r} has its answer")
    following = CALLBACK_MOVES.get((CallbackStatus(status), event))
    if following is None:
        return Refused(RefusalReason.NOT_PENDING, f"the callback {name!r} is {status}")
    return following, address, expires_at


async def expire(unit: Unit, item: ExpireCallback) -> CallbackMoved | Refused:
    found = await _moved(unit, item, CallbackEvent.EXPIRE)
    if isinstance(found, Refused):
        return found
    following, address, expires_at = found
    if expires_at is None or unit.now < expires_at:
        seconds = None if expires_at is None else (expires_at - unit.now) / 1e6
        return Refused(RefusalReason.NOT_PENDING, "the callback's time has not passed", seconds)
    await unit.tx.change(UPDATE_CLOSED, following.value, unit.now, item.callback_id)
    unit.wake(address)
    return CallbackMoved(following)


async def cancel(unit: Unit, item: CancelCallback) -> CallbackMoved | Refused:
    found = await _moved(unit, item, CallbackEvent.CANCEL)
    if isinstance(found, Refused):
        return found
    following = found[0]
    await unit.tx.change(UPDATE_CLOSED, following.value, unit.now, item.callback_id)
    return CallbackMoved(following)
