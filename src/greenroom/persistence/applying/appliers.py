"""Which function applies which transition."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from greenroom.persistence.addresses import (
    ClaimAddress,
    CloseAddress,
    OpenAddress,
    ParkAddress,
    ReleaseAddress,
    UnparkAddress,
)
from greenroom.persistence.applying import (
    addresses,
    attempts,
    callbacks,
    deliveries,
    executions,
    messages,
    operations,
    outbox,
    pools,
    retention,
    schedules,
    task_pools,
    tasks,
    turns,
)
from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.callbacks import (
    AnswerCallback,
    CancelCallback,
    CreateCallback,
    DeliverAnswer,
    ExpireCallback,
)
from greenroom.persistence.content import Content, PutContent
from greenroom.persistence.deliveries import BeginDelivery, BuryMessage, FinishDelivery, UndoDelivery
from greenroom.persistence.executions import DrainExecution, EndExecution, RegisterExecution, ReleaseLost
from greenroom.persistence.journal import CommitTurn
from greenroom.persistence.messages import AcceptMessage, AdmitDue, DropDead, RequeueDead
from greenroom.persistence.operations import DecideOperation
from greenroom.persistence.outbox import BeginSend, FailSend, FinishSend, FlushHeld, RequeueSend
from greenroom.persistence.pools import RegisterPool
from greenroom.persistence.retention import Prune
from greenroom.persistence.schedules import PassMoment, RegisterSchedule
from greenroom.persistence.task_pools import RegisterTaskPool
from greenroom.persistence.tasks import (
    ClaimTask,
    NewAttempt,
    ParkTask,
    QuarantineTask,
    ReleaseTask,
    SubmitTask,
    TerminateTask,
    WakeTask,
)
from greenroom.persistence.transitions import Transition


async def _put_content(unit: Unit, item: PutContent) -> Content:
    return unit.put_content(item.data)


APPLIERS: Final[dict[type[Transition[Any]], Callable[[Unit, Any], Awaitable[Any]]]] = {
    AcceptMessage: messages.accept,
    AdmitDue: messages.admit_due,
    AnswerCallback: callbacks.answer,
    BeginDelivery: deliveries.begin,
    BeginSend: outbox.begin_send,
    BuryMessage: deliveries.bury,
    CancelCallback: callbacks.cancel,
    ClaimAddress: addresses.claim,
    ClaimTask: tasks.claim,
    CloseAddress: addresses.close,
    CommitTurn: turns.commit,
    CreateCallback: callbacks.create,
    DecideOperation: operations.decide,
    DeliverAnswer: callbacks.deliver,
    DrainExecution: executions.drain,
    DropDead: messages.drop,
    EndExecution: executions.end,
    ExpireCallback: callbacks.expire,
    FailSend: outbox.fail_send,
    FinishDelivery: deliveries.finish,
    FinishSend: outbox.finish_send,
    FlushHeld: outbox.flush_held,
    NewAttempt: attempts.begin_again,
    OpenAddress: addresses.open,
    ParkAddress: addresses.park,
    ParkTask: tasks.park,
    PassMoment: schedules.pass_moment,
    Prune: retention.prune,
    PutContent: _put_content,
    QuarantineTask: tasks.quarantine,
    RegisterExecution: executions.register,
    RegisterPool: pools.register,
    RegisterSchedule: schedules.register,
    RegisterTaskPool: task_pools.register,
    ReleaseAddress: addresses.release,
    ReleaseLost: executions.release_lost,
    ReleaseTask: tasks.release,
    RequeueDead: messages.requeue,
    RequeueSend: outbox.requeue_send,
    SubmitTask: tasks.submit,
    TerminateTask: attempts.terminate,
    UndoDelivery: deliveries.undo,
    UnparkAddress: addresses.unpark,
    WakeTask: tasks.wake,
}
