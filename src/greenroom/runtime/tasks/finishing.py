"""The end of a segment as it is committed: with the turn it belongs to, and with what has to be told to children, callbacks and askers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from greenroom.errors import Cancelled
from greenroom.persistence.journal import CommitTurn
from greenroom.persistence.tasks import ChildrenOf, TaskOutcome, TaskRecord
from greenroom.runtime.replay import End, EndKind, Fault, OutcomeRow, OutcomeStatus, SignalRow
from greenroom.runtime.tasks.callbacks import open_callbacks
from greenroom.runtime.tasks.continuing import continued
from greenroom.runtime.tasks.endings import OVERDUE, failure_of
from greenroom.runtime.tasks.outcomes import cancel_of, encoded_fault, ending_of, never_received

if TYPE_CHECKING:
    from greenroom.runtime.tasks.activation import Activation
    from greenroom.runtime.tasks.run import Run
    from greenroom.runtime.tasks.turn import Turn

CHILDREN = 100


async def finish(run: Run, turn: Turn, end: End) -> End:
    """The control code of the segment has ended: commit that with the turn it belongs to.

    Raises what control code has crashed by. What it was told is left in the turn then, to be kept.
    """
    activation, task = run.activation, run.segment.task
    codec, stow = activation.codec, run.storage.stow
    if end.kind is EndKind.CONTINUED:
        request = codec.message(codec.decode(end.body, source=f"the next request of {activation.address}"))
        name = f"the request of {activation.address!r}"
        following = await continued(request, end.unread, run.place.at, stow, name)
        await run.commits.commit(turn, continue_as=following)
        return end
    outcome, body = TaskOutcome.SUCCEEDED, end.body
    if end.kind is EndKind.CANCELLED:
        outcome = TaskOutcome.CANCELLED
        reason = end.error.reason if isinstance(end.error, Cancelled) else ""
        body = codec.encode(Fault("cancelled", "Cancelled", reason))
        if run.is_cut_off and reason == OVERDUE:
            outcome, body = TaskOutcome.FAILED, codec.encode(Fault("deadline", "DeadlinePassed", OVERDUE))
    elif end.error is not None:
        fault = failure_of(end.error)
        if fault is None:
            _forget_cancelled(turn)
            raise end.error
        outcome, body = TaskOutcome.FAILED, encoded_fault(fault, codec)
    if turn.submits or turn.opens:  # they have to be there before they can be told, and closed
        await run.commits.commit(turn.take())
    turn.outgoing += tuple([await cancel_of(task, child, codec, stow) for child in await _open_children(activation)])
    turn.replies += run.engine.machine.interrupted
    turn.replies += tuple(never_received(row) for row in end.unread if isinstance(row, SignalRow))
    ending = await ending_of(task, outcome, body, codec, stow)
    await run.commits.commit(turn, ending=evolve(ending, callbacks=await _open_callbacks(activation)))
    activation.has_ended()
    return end


async def end_unbegun(activation: Activation, task: TaskRecord) -> None:
    """Its deadline has passed before it had anything done: it is not begun any more."""
    fault = activation.codec.encode(Fault("deadline", "DeadlinePassed", "its deadline had passed before it was begun"))
    ending = await ending_of(task, TaskOutcome.FAILED, fault, activation.codec, activation.storage.stow)
    await activation.owner.commit(CommitTurn(**activation.owner.fields, after=task.journal_seq, ending=ending))
    activation.has_ended()


async def _open_children(activation: Activation) -> list[str]:
    """Children that do not outlive the task (C15)."""
    children: list[str] = []
    while activation.has_children:
        after = children[-1] if children else ""
        query = ChildrenOf(address=activation.address, stopping=True, after=after, limit=CHILDREN)
        page = await activation.storage.surely(activation.storage.store.read, query)
        children += [child.address for child in page]
        if len(page) < CHILDREN:
            break
    return children


async def _open_callbacks(activation: Activation) -> tuple[str, ...]:
    """Callbacks whose answers are late from now on."""
    return await open_callbacks(activation.storage.store, activation.address) if activation.has_open_callbacks else ()


def _forget_cancelled(turn: Turn) -> None:
    """Control code has crashed: what was cancelled for that, and may be sent again, is not on record. The next run may not crash."""
    while turn.rows:
        row = turn.rows[-1]
        if not isinstance(row, OutcomeRow) or row.status is not OutcomeStatus.CANCELLED or turn.versions.get(row.seq):
            return
        turn.rows.pop()
        turn.replies = tuple(reply for reply in turn.replies if reply.seq < row.seq)
