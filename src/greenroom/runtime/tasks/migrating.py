"""Taking a task over into code that cannot go on by replay (C06): what the old code has done is told, and the new code begins with it.

That is a new segment: what `Agent.migrate` made of the past is its request, on record before anything of the new code runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from greenroom.persistence import ParkReason
from greenroom.runtime.replay import Fault, JournalRow, OutcomeRow, OutcomeStatus, SignalRow
from greenroom.runtime.tasks.continuing import continued
from greenroom.runtime.tasks.endings import Park

if TYPE_CHECKING:
    from greenroom.persistence.journal import ContinueAs
    from greenroom.persistence.tasks import TaskRecord
    from greenroom.runtime.tasks.agent import Agent
    from greenroom.runtime.tasks.codec import TaskCodec
    from greenroom.runtime.tasks.journal import Stow
    from greenroom.runtime.tasks.loading import Segment


@frozen(kw_only=True)
class PastOperation:
    """An operation that has ended."""

    call: str
    """Its place in the code that called it: `root#3`."""
    name: str
    succeeded: bool
    value: Any = field(repr=False)
    """What it returned; how it failed, as text, when it has not succeeded."""


@frozen(kw_only=True)
class Past:
    """What other code has done of a task: its last segment, as it is on record."""

    version: str
    """Of that code."""
    request: Any = field(repr=False)
    """With which the segment began."""
    operations: tuple[PastOperation, ...]
    """In the order of their ends. Child tasks that were submitted are among them, with their ids."""
    signals: tuple[Any, ...] = field(repr=False)
    """Messages that had come, received or not; those that come from now on are for the new code."""


def is_of_other_code(task: TaskRecord, version: str) -> bool:
    """The task's attempt was begun by another version of the agent."""
    return task.version not in (None, version)


async def migrated(agent: Agent[Any, Any], segment: Segment, codec: TaskCodec, stow: Stow) -> ContinueAs | Park:
    """What the task goes on with; or why it cannot, as long as an operation of the old code is open.

    Raises whatever `agent.migrate` raises; `Undecodable`, `NotEncodable`.
    """
    task = segment.task
    if segment.operations:
        names = ", ".join(f"{record.name!r} ({call})" for call, record in segment.operations.items())
        return Park(
            ParkReason.INCOMPATIBLE,
            f"version {task.version!r} of the agent has sent {names}, and there is no outcome: let that version end it",
        )
    past = past_of(task.version, segment.request, segment.rows, codec, f"the journal of task {task.task_id!r}")
    request = codec.message(agent.migrate(past))
    # Answers to what was asked outside belong to the attempt, and stay there for whoever asks for them.
    answers = [row for row in segment.rows if isinstance(row, SignalRow) and row.answers is not None]
    name = f"the migrated request of task {task.task_id!r}"
    return await continued(request, answers, task.last_at, stow, name, version=agent.version)


def past_of(version: str | None, request: object, rows: Sequence[JournalRow], codec: TaskCodec, source: str) -> Past:
    """What a segment's rows tell of it. Raises `Undecodable`, naming `source`."""
    signals = [row for row in rows if isinstance(row, SignalRow) and row.answers is None]
    return Past(
        version=version or "",
        request=request,
        operations=tuple(_operation(row, codec, source) for row in rows if isinstance(row, OutcomeRow)),
        signals=tuple(codec.decode(row.body, source=source) for row in signals),
    )


def _operation(row: OutcomeRow, codec: TaskCodec, source: str) -> PastOperation:
    value = codec.decode(row.body, source=source) if row.body else None
    succeeded = row.status is OutcomeStatus.SUCCEEDED
    if not succeeded:
        value = f"{value.type}: {value.message}" if isinstance(value, Fault) else row.status.value
    return PastOperation(call=str(row.call), name=row.name, succeeded=succeeded, value=value)
