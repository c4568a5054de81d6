"""`TaskHandle`: a task as those see it who have submitted it, or know its id. It works whether anybody performs the task or not."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import anyio
from attrs import frozen

from greenroom.errors import MailboxFull, NoSuchTask, StoreRefused, TaskCancelled, TaskFailed, WaitTimeout
from greenroom.mailbox import Receipt, message_type
from greenroom.persistence import AcceptMessage, ParkReason, RefusalReason, Refused, fetch, new_id, stow
from greenroom.persistence.tasks import (
    Condition,
    NewAttempt,
    ReadTask,
    TaskOutcome,
    TaskRecord,
    Terminated,
    TerminateTask,
    task_address,
)
from greenroom.runtime.replay import Fault
from greenroom.runtime.tasks.codec import CancelTask, TaskCodec
from greenroom.runtime.tasks.journal import stowed
from greenroom.runtime.tasks.outcomes import SEED_BYTES, to_parent

if TYPE_CHECKING:
    from greenroom.actors import Message
    from greenroom.mailbox import Slot
    from greenroom.persistence import Payload, Store

R_co = TypeVar("R_co", covariant=True)


class Door(Protocol):
    """How handles get at the store. A runtime has one, and so has a client."""

    codec: TaskCodec

    @property
    def store(self) -> Store: ...
    @property
    def patience(self) -> float:
        """Seconds between two looks at a task that is waited for, whatever was heard of it."""

    def listen(self, address: str) -> Slot:
        """A slot that gets a result when something has happened to a task."""

    def forget(self, address: str, slot: Slot) -> None:
        """Nobody waits on this slot any more."""

    def changed(self, address: str) -> None:
        """Something has happened to a task."""


@frozen(kw_only=True)
class TaskStatus:
    """A task, as it was at the moment `at`."""

    task_id: str
    pool: str
    condition: Condition
    outcome: TaskOutcome | None
    """How it has ended; None while it has not."""
    attempt: int
    execution: str | None
    """The execution that performs it just now."""
    phase: str | None
    waits: tuple[str, ...]
    """What it waits for, as whoever last let it go said."""
    next_due: datetime | None
    """When its earliest timer is due."""
    parked: ParkReason | None
    """Why it waits for an operator."""
    parked_detail: str | None
    reason: str | None
    """Why it was terminated."""
    state_version: int
    submitted_at: datetime
    deadline: datetime | None
    ended_at: datetime | None
    last_contact_at: datetime | None
    at: datetime
    """The store's time of this observation."""


class TaskHandle(Generic[R_co]):
    """A task. Got from `submit`, or by its id. All methods raise `StoreUnavailable` when the store does not answer."""

    __slots__ = ("_door", "_id")

    def __init__(self, door: Door, task_id: str) -> None:
        self._door = door
        self._id = task_id

    def __repr__(self) -> str:
        return f"<TaskHandle {self._id!r}>"

    @property
    def id(self) -> str:
        """The task's `task_id`."""
        return self._id

    @property
    def _address(self) -> str:
        return task_address(self._id)

    async def status(self) -> TaskStatus:
        """How the task stands. Raises `NoSuchTask`."""
        return status_of(await self._read())

    async def result(self, *, timeout: float | None = None) -> R_co:
        """Wait for the task's end and return its result.

        Args:
            timeout: seconds. None: as long as it takes.
        Raises:
            TaskFailed: it has failed. TaskCancelled: it was cancelled or terminated.
            WaitTimeout: it has not ended in time; that changes nothing for the task.
            NoSuchTask: there is none of that id.
            Undecodable: its result is of a class that is not known here.
        """
        with anyio.move_on_after(timeout):
            return cast("R_co", await self._result(await self._end()))
        raise WaitTimeout(f"the end of task {self._id!r}", timeout)

    async def wait(self) -> TaskStatus:
        """Wait for the task's end, however it ends. Raises `NoSuchTask`."""
        return status_of(await self._end())

    async def _end(self) -> TaskRecord:
        door, address = self._door, self._address
        while True:
            slot = door.listen(address)  # before the look, so that an end that comes meanwhile is not missed
            try:
                record = await self._read()
                if record.condition is Condition.TERMINAL:
                    return record
                with anyio.move_on_after(door.patience):
                    await slot
            finally:
                door.forget(address, slot)

    async def _result(self, record: TaskRecord) -> Any:
        if record.outcome is TaskOutcome.SUCCEEDED:
            return await self._decoded(record.result, "the result")
        fault = await self._decoded(record.error, "the failure")
        if not isinstance(fault, Fault):
            fault = Fault("unknown", "", "nothing is recorded of how it failed")
        if record.outcome is TaskOutcome.CANCELLED:
            raise TaskCancelled(self._id, record.reason or fault.message)
        raise TaskFailed(self._id, fault.kind, fault.type, fault.message, fault.details)

    async def _decoded(self, payload: Payload | None, what: str) -> Any:
        if payload is None:
            return None
        return self._door.codec.decode(await fetch(self._door.store, payload), source=f"{what} of task {self._id!r}")

    async def signal(self, message: Message[Any], *, message_id: str | None = None) -> Receipt:
        """Send a message to the task, durably: `task.receive(type(message))` gets it.

        Args:
            message_id: its identity: sent again under it, the same message counts once. None: a fresh one.
        Returns: what became of it: `accepted`, `duplicate`, `conflict` (another message has that id), `late` (the task has ended),
            `unmatched` (there is no such task).
        Raises:
            MailboxFull: too many wait already.
            NotEncodable: it cannot be stored.
        """
        return await self._send(message, message_id or new_id())

    async def cancel(self, reason: str) -> None:
        """Tell the task to stop: its `task.*` calls raise `Cancelled`, and it ends when it has cleaned up.

        Nothing happens when it has ended. Raises `NoSuchTask`.
        """
        receipt = await self._send(CancelTask(reason), new_id())
        if receipt.disposition == "unmatched":
            raise NoSuchTask(self._id)

    async def terminate(self, reason: str) -> None:
        """End the task as `cancelled`, now, by the store alone, whether anybody performs it or not; its children with it (R24).

        Its control code does not get to clean up. What it has in flight may still happen; what comes of it is refused.
        Nothing happens when it has ended. Raises `NoSuchTask`.
        """
        record = await self._read()
        codec, store = self._door.codec, self._door.store

        async def keep(data: bytes, *, name: str) -> Payload:
            return await stow(store, data, name=name)

        fault = codec.encode(Fault("terminated", "Terminated", reason))
        answer = await store.commit(
            TerminateTask(
                address=record.address,
                pool=record.pool,
                reason=reason,
                error=await stowed(fault, keep, "the reason"),
                to_parent=await to_parent(record, fault, codec, keep, failed=True),
            )
        )
        self._door.changed(record.address)
        if isinstance(answer, Terminated):
            for child in answer.children:
                await TaskHandle[Any](self._door, child.removeprefix("task:")).terminate(
                    f"its parent {self._id!r} was terminated"
                )
        elif answer.reason is not RefusalReason.NOT_PENDING:
            raise NoSuchTask(self._id)

    async def new_attempt(self, reason: str) -> int:
        """Pursue the task once more, from the beginning, deliberately, when it has ended (R19). Its id, request and deadline stay.

        Args:
            reason: why, for people.
        Returns: the number of the attempt.
        Raises:
            StoreRefused: it has not ended, or an operation of the last attempt is unresolved.
            NoSuchTask: there is none of that id.
        """
        answer = await self._door.store.commit(
            NewAttempt(address=self._address, seed=secrets.token_bytes(SEED_BYTES), reason=reason)
        )
        if isinstance(answer, Refused):
            if answer.reason is RefusalReason.UNKNOWN_ADDRESS:
                raise NoSuchTask(self._id)
            raise StoreRefused(answer.reason.value, answer.detail)
        return answer.attempt

    async def _send(self, message: object, message_id: str) -> Receipt:
        door = self._door
        encoded = door.codec.message(message)
        answer = await door.store.commit(
            AcceptMessage(
                address=self._address,
                message_id=message_id,
                type=encoded.type,
                body=await stow(door.store, encoded.body, name=f"the message {message_type(message)}"),
                digest=encoded.digest,
            )
        )
        if isinstance(answer, Refused):
            raise MailboxFull(self._address, None, message_type(message), persistent=True)
        return Receipt(message_id, answer.disposition.value)  # type: ignore[arg-type]

    async def _read(self) -> TaskRecord:
        record = await self._door.store.read(ReadTask(address=self._address))
        if record is None:
            raise NoSuchTask(self._id)
        return record


def status_of(record: TaskRecord) -> TaskStatus:
    """What a record says of a task, for people."""
    return TaskStatus(
        task_id=record.task_id,
        pool=record.pool,
        condition=record.condition,
        outcome=record.outcome,
        attempt=record.attempt,
        execution=record.owner,
        phase=record.phase,
        waits=record.waits,
        next_due=record.next_due,
        parked=record.parked,
        parked_detail=record.parked_detail,
        reason=record.reason,
        state_version=record.state_version,
        submitted_at=record.submitted_at,
        deadline=record.deadline,
        ended_at=record.ended_at,
        last_contact_at=record.last_contact_at,
        at=record.read_at,
    )
