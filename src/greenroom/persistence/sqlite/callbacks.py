"""How SQLite applies the transitions of callbacks."""

from __future__ import annotations

from typing import Final

from greenroom.persistence.callbacks import (
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
    ExpireCallback,
    opens,
    with_secret,
)
from greenroom.persistence.clock import maybe_micros
from greenroom.persistence.observations import ObservationKind
from greenroom.persistence.sqlite.rows import columns_of
from greenroom.persistence.sqlite.unit import Unit
from greenroom.persistence.transitions import RefusalReason, Refused

OPEN: Final = CallbackStatus.OPEN.value

# A new callback, unless another address has just made it.
INSERT_CALLBACK = (
    "INSERT INTO callbacks (callback_id, address, secrets, name, created_at, expires_at, status) "
    "VALUES (?, ?, ?, ?, ?, ?, 'open') ON CONFLICT (callback_id) DO NOTHING"
)
# One callback.
SELECT_CALLBACK = (
    "SELECT address, secrets, name, status, expires_at, answer_digest FROM callbacks WHERE callback_id = ?"
)
# One more token opens it.
UPDATE_SECRETS = "UPDATE callbacks SET secrets = ? WHERE callback_id = ?"
# It has its answer.
UPDATE_ANSWERED = (
    "UPDATE callbacks SET status = 'answered', settled_at = ?, answer = ?, answer_content = ?, answer_size = ?, "
    "answer_digest = ? WHERE callback_id = ?"
)
# It gets none.
UPDATE_CLOSED = "UPDATE callbacks SET status = ?, settled_at = ? WHERE callback_id = ?"

NO_TOKEN: Final = "the token opens nothing"


def create(unit: Unit, item: CreateCallback) -> CallbackMoved | Refused:
    row = unit.fenced(item)
    if isinstance(row, Refused):
        return row
    found = unit.execute(SELECT_CALLBACK, (item.callback_id,)).fetchone()
    if found is not None:
        address, secrets, _, status, _, _ = found
        if address != item.address:
            return _taken(item)
        if status == OPEN:
            unit.execute(UPDATE_SECRETS, (with_secret(secrets, item.secret_digest), item.callback_id))
        return CallbackMoved(CallbackStatus(status))
    inserted = unit.execute(
        INSERT_CALLBACK,
        (item.callback_id, item.address, item.secret_digest, item.name, unit.now, maybe_micros(item.expires_at)),
    ).rowcount
    return _taken(item) if inserted == 0 else CallbackMoved(CallbackStatus.OPEN)


def _taken(item: CreateCallback) -> Refused:
    return Refused(RefusalReason.CONFLICT, f"another address has opened a callback {item.callback_id!r}")


def answer(unit: Unit, item: AnswerCallback) -> CallbackAnswered | Refused:
    found = unit.execute(SELECT_CALLBACK, (item.callback_id,)).fetchone()
    if found is None or not opens(found[1], item.secret_digest):
        return Refused(RefusalReason.UNKNOWN_TOKEN, NO_TOKEN)
    address, _, name, status, expires_at, digest = found
    if status == OPEN and (expires_at is None or unit.now < expires_at):
        unit.execute(UPDATE_ANSWERED, (unit.now, *columns_of(item.answer), item.digest, item.callback_id))
        unit.woken.add(address)
        return CallbackAnswered(AnswerDisposition.ACCEPTED)
    if status == OPEN:
        unit.execute(UPDATE_CLOSED, (CallbackStatus.EXPIRED.value, unit.now, item.callback_id))
        unit.woken.add(address)
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


def _moved(unit: Unit, item: CallbackWrite, event: CallbackEvent) -> tuple[CallbackStatus, str, int | None] | Refused:
    """The state that the event leads to, the callback's address and its end."""
    found = unit.execute(SELECT_CALLBACK, (item.callback_id,)).fetchone()
    if found is None:
        return Refused(RefusalReason.UNKNOWN_CALLBACK, f"there is no callback {item.callback_id!r}")
    address, _, name, status, expires_at, _ = found
    if status == CallbackStatus.ANSWERED.value:
        return Refused(RefusalReason.ALREADY_ANSWERED, f"the callback {name!r} has its answer")
    following = CALLBACK_MOVES.get((CallbackStatus(status), event))
    if following is None:
        return Refused(RefusalReason.NOT_PENDING, f"the callback {name!r} is {status}")
    return following, address, expires_at


def expire(unit: Unit, item: ExpireCallback) -> CallbackMoved | Refused:
    found = _moved(unit, item, CallbackEvent.EXPIRE)
    if isinstance(found, Refused):
        return found
    following, address, expires_at = found
    if expires_at is None or unit.now < expires_at:
        seconds = None if expires_at is None else (expires_at - unit.now) / 1e6
        return Refused(RefusalReason.NOT_PENDING, "the callback's time has not passed", seconds)
    unit.execute(UPDATE_CLOSED, (following.value, unit.now, item.callback_id))
    unit.woken.add(address)
    return CallbackMoved(following)


def cancel(unit: Unit, item: CancelCallback) -> CallbackMoved | Refused:
    found = _moved(unit, item, CallbackEvent.CANCEL)
    if isinstance(found, Refused):
        return found
    following = found[0]
    unit.execute(UPDATE_CLOSED, (following.value, unit.now, item.callback_id))
    return CallbackMoved(following)
