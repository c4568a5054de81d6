"""Answers as bytes: each batch keeps those of its transitions for a while, beside what they changed (R5, R8).

They are this package's own attrs values, written by msgspec with their class's name, so that keeping them costs little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from attrs import frozen

from greenroom.persistence.addresses import Claimed, Closed, Opened, Parked, Released, Unparked
from greenroom.persistence.callbacks import CallbackAnswered, CallbackMoved
from greenroom.persistence.content import Content
from greenroom.persistence.deliveries import DeadLettered, Delivery, Handled
from greenroom.persistence.executions import ExecutionMoved, LostReleased
from greenroom.persistence.journal import TurnCommitted
from greenroom.persistence.messages import Admitted, Receipt, Settled
from greenroom.persistence.operations import Decided
from greenroom.persistence.outbox import Flushed, OutboxMoved, Sending
from greenroom.persistence.pools import PoolRegistered
from greenroom.persistence.retention import Pruned
from greenroom.persistence.schedules import MomentPassed, ScheduleAt
from greenroom.persistence.task_pools import TaskPoolRegistered
from greenroom.persistence.tasks import AttemptBegun, ClaimedTask, Submitted, TaskReleased, Terminated, Woken
from greenroom.persistence.transitions import Query, Refused, Transition

_CLASSES: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        Admitted,
        AttemptBegun,
        CallbackAnswered,
        CallbackMoved,
        Claimed,
        ClaimedTask,
        Closed,
        Content,
        DeadLettered,
        Decided,
        Delivery,
        ExecutionMoved,
        Flushed,
        Handled,
        LostReleased,
        MomentPassed,
        Opened,
        OutboxMoved,
        Parked,
        PoolRegistered,
        Pruned,
        Receipt,
        Refused,
        Released,
        ScheduleAt,
        Sending,
        Settled,
        Submitted,
        TaskPoolRegistered,
        TaskReleased,
        Terminated,
        TurnCommitted,
        Unparked,
        Woken,
    )
}

_Stored = dict[str, tuple[str, msgspec.Raw]]
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Stored)
_decoders = {name: msgspec.json.Decoder(cls) for name, cls in _CLASSES.items()}


@frozen(kw_only=True)
class AnswerTo(Query[Any]):
    """The answer that a transition got, by its id; None when none was committed, or it is too long ago (`Retention.batches`).

    For whoever could not wait: a caller that was cancelled natively, or got `StoreUnavailable` with `unknown` set.
    """

    transition_id: str


def encode_answers(items: Sequence[Transition[Any]], answers: Sequence[object]) -> bytes:
    """The answers of a batch, by transition."""
    return _encoder.encode(
        {item.transition_id: (type(answer).__name__, answer) for item, answer in zip(items, answers, strict=True)}
    )


def decode_answers(data: bytes, items: Sequence[Transition[Any]]) -> list[Any]:
    """The answers to these transitions, in their order. Raises `KeyError` for one that the batch does not hold."""
    stored = _decoder.decode(data)
    return [_decode(*stored[item.transition_id]) for item in items]


def decode_answer(data: bytes, transition_id: str) -> Any:
    """The answer to one transition; None when the batch does not hold it."""
    stored = _decoder.decode(data).get(transition_id)
    return None if stored is None else _decode(*stored)


def _decode(name: str, data: msgspec.Raw) -> Any:
    return _decoders[name].decode(data)


def encode_transition(item: Transition[Any]) -> bytes:
    """A whole transition for an observation, to be read by people and tools."""
    return _encoder.encode(item)
