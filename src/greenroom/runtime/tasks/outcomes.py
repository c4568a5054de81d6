"""What a task's control code has come to, as the store takes it: its end, its children, what they and its parent are told."""

from __future__ import annotations

import secrets
from typing import Final

from attrs import evolve

from greenroom.actors import storable
from greenroom.errors import NotEncodable
from greenroom.persistence import Outgoing
from greenroom.persistence.messages import MessageReply
from greenroom.persistence.tasks import Ending, NewTask, ParentPolicy, TaskOutcome, TaskRecord
from greenroom.runtime.replay import Fault, OperationCall, SignalReply, SignalRow
from greenroom.runtime.tasks.codec import CancelTask, ChildEnded, TaskCodec
from greenroom.runtime.tasks.ids import child_id
from greenroom.runtime.tasks.journal import Stow, stowed

SEED_BYTES: Final = 16


async def ending_of(task: TaskRecord, outcome: TaskOutcome, body: bytes, codec: TaskCodec, stow: Stow) -> Ending:
    """How an attempt ends: `body` is its encoded result when it has succeeded, else an encoded `Fault`."""
    succeeded = outcome is TaskOutcome.SUCCEEDED
    payload = await stowed(body, stow, f"the {'result' if succeeded else 'failure'} of task {task.task_id!r}")
    return Ending(
        outcome=outcome,
        result=payload if succeeded else None,
        error=None if succeeded else payload,
        to_parent=await to_parent(task, body, codec, stow, failed=not succeeded),
    )


async def to_parent(task: TaskRecord, body: bytes, codec: TaskCodec, stow: Stow, *, failed: bool) -> Outgoing | None:
    """What a task's parent is told of its end; None when it has none."""
    if task.parent is None:
        return None
    ended = ChildEnded(task.task_id, failed, body)
    try:
        return await outgoing(task.parent, f"{task.address}|{task.attempt}|end", ended, codec, stow)
    except NotEncodable as error:
        why = f"it takes {len(body):,} bytes, which are too many for the message by which a parent gets it"
        raise NotEncodable(f"the result of child task {task.task_id!r}", (why,)) from error


async def cancel_of(task: TaskRecord, child: str, codec: TaskCodec, stow: Stow) -> Outgoing:
    """What a child is told whose parent ends before it."""
    cancel = CancelTask(f"its parent {task.task_id!r} has ended")
    return await outgoing(child, f"{task.address}|{task.attempt}|parent", cancel, codec, stow)


async def outgoing(recipient: str, message_id: str, message: object, codec: TaskCodec, stow: Stow) -> Outgoing:
    """A message of a task to another address."""
    encoded = codec.message(message)
    return Outgoing(
        recipient=recipient,
        message_id=message_id,
        type=encoded.type,
        body=await stowed(encoded.body, stow, f"a message to {recipient!r}"),
        digest=encoded.digest,
    )


async def child_of(task: TaskRecord, call: OperationCall, codec: TaskCodec, stow: Stow) -> NewTask:
    """The task that a call submits: its priority, deadline and group are those of the one that submits it."""
    child = child_id(task.task_id, task.attempt, task.segment, call.id)
    request = codec.message(codec.decode(call.params, source=f"the request of {call}"))
    return NewTask(
        task_id=child,
        pool=call.name,
        request=await stowed(request.body, stow, f"the request of task {child!r}"),
        request_type=request.type,
        request_digest=request.digest,
        seed=secrets.token_bytes(SEED_BYTES),
        group=task.group,
        priority=task.priority,
        deadline=task.deadline,
        parent=task.address,
        parent_policy=ParentPolicy(call.target),
    )


async def reply_of(reply: SignalReply, codec: TaskCodec, stow: Stow) -> MessageReply:
    """What has become of a signal, for whoever has asked."""
    what = f"the reply to {reply.message_id!r}"
    fault = None if reply.fault is None else codec.encode(reply.fault)
    return MessageReply(
        message_id=reply.message_id,
        accepted=reply.accepted,
        reply=None if reply.body is None else await stowed(reply.body, stow, what),
        error=None if fault is None else await stowed(fault, stow, what),
    )


def never_received(row: SignalRow) -> SignalReply:
    """What becomes of a signal that lay unread when its task ended."""
    fault = Fault("late", "TaskEnded", "the task ended before it was received")
    return SignalReply(seq=row.seq, message_id=row.message_id, accepted=False, fault=fault)


def encoded_fault(fault: Fault, codec: TaskCodec) -> bytes:
    """A failure, without its details where those cannot be stored: they must not hide the failure itself."""
    fault = evolve(fault, message=storable(fault.message))
    try:
        return codec.encode(fault)
    except NotEncodable:
        return codec.encode(evolve(fault, details=None))
