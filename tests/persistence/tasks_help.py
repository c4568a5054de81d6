"""Short words for what tests about tasks say again and again."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from attrs import define

from greenroom.persistence.content import message_digest
from greenroom.persistence.journal import CommitTurn, EntryKind, JournalEntry, OutcomeKind, ReadJournal, TurnCommitted
from greenroom.persistence.operations import Dispatch, EffectKind, Intent
from greenroom.persistence.store import Store
from greenroom.persistence.task_pools import RegisterTaskPool
from greenroom.persistence.tasks import (
    ClaimTask,
    Ending,
    NewTask,
    ReadTask,
    ReleaseTask,
    SubmitTask,
    Submitted,
    TaskOutcome,
    TaskRecord,
    TaskReleased,
    WakeTask,
    task_address,
)
from tests.persistence.stores import done, register

POOL = "reviewers"


def new(task_id: str, body: bytes = b"{}", **options: Any) -> NewTask:
    options = {"pool": POOL, "seed": b"seed", **options}
    return NewTask(
        task_id=task_id,
        request=body,
        request_type="Review",
        request_digest=message_digest("Review", body),
        **options,
    )


def submit(task_id: str, body: bytes = b"{}", **options: Any) -> SubmitTask:
    return SubmitTask(task=new(task_id, body, **options))


async def open_pool(store: Store, pool: str = POOL, *, queue_limit: int | None = None) -> None:
    await done(store, RegisterTaskPool(pool=pool, queue_limit=queue_limit))


def claim(task_id: str, execution_id: str = "e1", *, pool: str = POOL, version: str = "1") -> ClaimTask:
    return ClaimTask(address=task_address(task_id), pool=pool, execution_id=execution_id, version=version)


def wake(task_id: str, pool: str = POOL) -> WakeTask:
    return WakeTask(address=task_address(task_id), pool=pool)


async def read(store: Store, task_id: str) -> TaskRecord:
    record = await store.read(ReadTask(address=task_address(task_id)))
    assert record is not None
    return record


def outcome(
    seq: int,
    at: datetime,
    *,
    call: str | None = None,
    body: bytes = b"r",
    status: OutcomeKind = OutcomeKind.SUCCEEDED,
    version: int | None = None,
    unresolved: bool = False,
) -> JournalEntry:
    """The row of an operation that has ended."""
    return JournalEntry(
        seq=seq,
        at=at,
        kind=EntryKind.OUTCOME,
        call=call or f"root#{seq}",
        name="look",
        status=status,
        version=version,
        unresolved=unresolved,
        params=b"p",
        body=body,
        basis=seq - 1,
        digest=b"d",
    )


def signal(seq: int, at: datetime, message_id: str, body: bytes = b"{}") -> JournalEntry:
    return JournalEntry(seq=seq, at=at, kind=EntryKind.SIGNAL, message_id=message_id, type="Note", body=body)


def control(seq: int, at: datetime, message_id: str) -> JournalEntry:
    return JournalEntry(seq=seq, at=at, kind=EntryKind.CONTROL, message_id=message_id, type="cancel")


def intent(call: str, effect: EffectKind = EffectKind.KEYED) -> Intent:
    return Intent(call=call, name="send", effect=effect, key=f"key of {call}", params=b"p", params_digest="d")


def sent(call: str, invocation: int = 1, *, intended: bool = True) -> Dispatch:
    return Dispatch(call=call, invocation=invocation, intended=intended)


@define
class TaskOwner:
    """An execution that owns a task."""

    store: Store
    task_id: str
    execution_id: str
    claimed: TaskRecord

    @property
    def address(self) -> str:
        return task_address(self.task_id)

    @property
    def fence(self) -> dict[str, Any]:
        return {
            "address": self.address,
            "execution_id": self.execution_id,
            "generation": self.claimed.generation,
        }

    def turn(self, after: int = 0, *rows: JournalEntry, **what: Any) -> CommitTurn:
        return CommitTurn(**self.fence, after=after, rows=rows, **what)

    async def commit(self, after: int = 0, *rows: JournalEntry, **what: Any) -> TurnCommitted:
        return await done(self.store, self.turn(after, *rows, **what))

    def release(self, **what: Any) -> ReleaseTask:
        return ReleaseTask(**self.fence, **what)

    async def let_go(self, **what: Any) -> TaskReleased:
        return await done(self.store, self.release(**what))

    async def finish(self, outcome: TaskOutcome = TaskOutcome.SUCCEEDED, **what: Any) -> TurnCommitted:
        """End the task, whatever its journal holds."""
        seq = (await read(self.store, self.task_id)).journal_seq
        return await self.commit(seq, ending=Ending(outcome=outcome, **what))

    async def read(self) -> TaskRecord:
        return await read(self.store, self.task_id)

    async def journal(self, attempt: int = 1, segment: int = 1) -> tuple[JournalEntry, ...]:
        return await self.store.read(ReadJournal(address=self.address, attempt=attempt, segment=segment))


async def submitted(store: Store, task_id: str = "t1", **options: Any) -> Submitted:
    """A task in a pool that is open to all."""
    await open_pool(store, options.get("pool", POOL))
    return await done(store, submit(task_id, **options))


async def owned(
    store: Store, task_id: str = "t1", *, execution_id: str = "e1", lease: float = 30.0, **options: Any
) -> TaskOwner:
    """A task that an execution has claimed; submitted, and registered, where they are not."""
    await store.commit(register(execution_id, lease=lease))
    await submitted(store, task_id, **options)
    return await claimed(store, task_id, execution_id=execution_id, pool=options.get("pool", POOL))


async def claimed(store: Store, task_id: str, *, execution_id: str = "e1", pool: str = POOL) -> TaskOwner:
    answer = await done(store, claim(task_id, execution_id, pool=pool))
    return TaskOwner(store, task_id, execution_id, answer.task)
