"""Questions to tasks: a signal whose handler answers. Accepted by the store, then by the handler, then answered: three moments.

What has become of one stands with its message in the store, so it is known whoever asks, and asked again under its identity it is
the same question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio

from greenroom.actors import Rejected
from greenroom.errors import AskTimeout, Interrupted, NotAccepted
from greenroom.mailbox import message_type
from greenroom.persistence import ListObservations, MessageStatus, ObservationKind, ReadMessage, fetch
from greenroom.persistence.tasks import Condition, ReadTask, task_address
from greenroom.runtime.replay import Fault

if TYPE_CHECKING:
    from greenroom.actors import Message
    from greenroom.mailbox import Receipt
    from greenroom.persistence import MessageRecord
    from greenroom.runtime.tasks.handle import Door

Until: TypeAlias = Literal["accepted", "answered"]


async def answer_to(
    door: Door, task_id: str, message: Message[Any], receipt: Receipt, *, until: Until, timeout: float | None
) -> Any:
    """Wait until a message that was sent to a task has been accepted by its handler, or answered. Raises as `TaskHandle.ask`."""
    address, shown = task_address(task_id), message_type(message)
    if receipt.disposition not in ("accepted", "duplicate"):
        raise NotAccepted(address, receipt.message_id, shown, receipt.disposition)
    with anyio.move_on_after(timeout), door.watch(address, rows=True) as watch:
        while True:
            # The end is looked for first: what was answered with it is on record then.
            task = await door.store.read(ReadTask(address=address))
            record = await door.store.read(ReadMessage(address=address, message_id=receipt.message_id))
            if record is not None and (record.reply is not None or record.error is not None):
                return await _given(door, record, shown)
            if until == "accepted" and record is not None and record.delivered_at is not None:
                return None
            if record is not None and record.status in (MessageStatus.DEAD, MessageStatus.DROPPED):
                raise NotAccepted(address, receipt.message_id, shown, "late")
            if task is None or task.condition is Condition.TERMINAL:
                if record is None or record.delivered_at is None:
                    raise NotAccepted(address, receipt.message_id, shown, "late")
                raise Interrupted(task_id, receipt.message_id, "the task has ended")
            await watch.news()
    late = AskTimeout(address, shown, timeout or 0.0)
    late.add_note(f"its answer is kept: ask again with message_id={receipt.message_id!r}")
    raise late


async def _given(door: Door, record: MessageRecord, shown: str) -> Any:
    source = f"the reply to message {record.message_id!r} of {record.address!r}"
    if record.error is None:
        assert record.reply is not None
        return door.codec.decode(await fetch(door.store, record.reply), source=source)
    fault = door.codec.decode(await fetch(door.store, record.error), source=source)
    assert isinstance(fault, Fault)
    if fault.kind == "rejected":
        raise Rejected(fault.message)
    if fault.kind == "late":
        raise NotAccepted(record.address, record.message_id, shown, "late")
    raise Interrupted(record.address.removeprefix(task_address("")), record.message_id, fault.message)


async def disposition_of(door: Door, task_id: str, message_id: str) -> str:
    """As `TaskHandle.disposition`."""
    address = task_address(task_id)
    task = await door.store.read(ReadTask(address=address))
    record = await door.store.read(ReadMessage(address=address, message_id=message_id))
    if record is None:
        return "late" if await _came_late(door, address, message_id) else "unmatched"
    if record.status in (MessageStatus.DEAD, MessageStatus.DROPPED):
        return "late"
    if record.error is not None:
        fault = door.codec.decode(
            await fetch(door.store, record.error), source=f"message {message_id!r} of {address!r}"
        )
        return fault.kind if isinstance(fault, Fault) else "delivered"
    if record.status is MessageStatus.HANDLED:
        return "delivered"
    return "late" if task is None or task.condition is Condition.TERMINAL else "accepted"


async def _came_late(door: Door, address: str, message_id: str) -> bool:
    before: int | None = None
    while True:
        page = await door.store.read(ListObservations(address=address, kind=ObservationKind.LATE, before=before))
        if any(seen.message_id == message_id for seen in page):
            return True
        if not page:
            return False
        before = page[-1].id
