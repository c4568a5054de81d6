"""`TaskHandle`: a task as those see it who have submitted it, or know its id. It works whether anybody performs the task or not."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast, overload

import anyio

from greenroom.errors import MailboxFull, NoSuchTask, StoreRefused, TaskCancelled, TaskFailed, WaitTimeout
from greenroom.mailbox import Receipt, message_type
from greenroom.persistence import (
    AcceptMessage,
    ListExecutions,
    ParkReason,
    RefusalReason,
    Refused,
    UnparkAddress,
    fetch,
    new_id,
    stow,
)
from greenroom.persistence.operations import DecideOperation, Decision, OperationRecord, OperationStatus, ReadOperations
from greenroom.persistence.task_pools import ReadTaskPool
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
from greenroom.runtime.tasks.callbacks import open_callbacks
from greenroom.runtime.tasks.codec import CancelTask, TaskCodec
from greenroom.runtime.tasks.events import Events, JournalEvent
from greenroom.runtime.tasks.ids import check_message_id
from greenroom.runtime.tasks.journal import stowed
from greenroom.runtime.tasks.operator import DecisionWord, OperationInfo, info_of, rows_before
from greenroom.runtime.tasks.outcomes import SEED_BYTES, to_parent
from greenroom.runtime.tasks.questions import Until, answer_to, disposition_of
from greenroom.runtime.tasks.saved import SavedJournal, saved_of
from greenroom.runtime.tasks.status import TaskStatus, explain, status_of

if TYPE_CHECKING:
    from greenroom.actors import Message
    from greenroom.persistence import Payload, Store
    from greenroom.runtime.tasks.watching import Watch

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Door(Protocol):
    """How handles get at the store. A runtime has one, and so has a client."""

    codec: TaskCodec

    @property
    def store(self) -> Store: ...
    def watch(self, address: str, *, rows: bool = False) -> Watch:
        """Wait for something to happen to a task; with `rows`, also for each row of its journal."""

    def changed(self, address: str) -> None:
        """Something has happened to a task."""


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

    async def explain(self) -> str:
        """Why it does not move, or that it does: one line, for people. Raises `NoSuchTask`."""
        record, store = await self._read(), self._door.store
        alive = {execution.execution_id for execution in await store.read(ListExecutions()) if execution.alive}
        return explain(
            status_of(record),
            await store.read(ReadTaskPool(pool=record.pool)),
            alive=record.owner in alive,
            unresolved=await self._unresolved(record),
        )

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

    def events(self, *, after: int = 0, follow: bool = True) -> AsyncIterator[JournalEvent]:
        """What is on record of the task, in order, and then what is added: `async for event in handle.events(after=cursor)`.

        Each event is shown once. The iteration ends with the task; it may be left at any time, and taken up by whoever has the cursor.
        What retention has forgotten is a `gap`.

        Args:
            after: the `cursor` of the last event that was seen. 0: from the beginning.
            follow: False: it ends with what is on record now.
        Raises:
            BadCursor: `after` is none of this task.
            NoSuchTask: there is none of that id, or retention has forgotten all of it.
        """
        return Events(self._door, self._id, after, follow=follow)

    async def export(self) -> SavedJournal:
        """The journal of the task's last segment, with all contents: for `greenroom.testing.replay`, which tells whether code still goes on
        with it. Raises `NoSuchTask`.
        """
        return await saved_of(self._door.store, await self._read())

    async def _end(self) -> TaskRecord:
        # Watched before it is looked at, so that an end that comes meanwhile is not missed.
        with self._door.watch(self._address) as watch:
            while (record := await self._read()).condition is not Condition.TERMINAL:
                await watch.news()
        return record

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
            InvalidMessageId: the id is blank, unprintable or longer than 200 characters.
        """
        return await self._send(message, _identity(message_id))

    @overload
    async def ask(self, message: Message[R], *, timeout: float | None = 5.0, message_id: str | None = None) -> R: ...
    @overload
    async def ask(
        self,
        message: Message[Any],
        *,
        until: Literal["accepted"],
        timeout: float | None = 5.0,
        message_id: str | None = None,
    ) -> None: ...
    async def ask(
        self,
        message: Message[Any],
        *,
        until: Until = "answered",
        timeout: float | None = 5.0,
        message_id: str | None = None,
    ) -> Any:
        """Send a message to the task and wait for what its handler (`on_signal`) returns.

        Asked again under the same `message_id` it is the same question: handled once, with one answer.

        Args:
            until: `"accepted"`: return as soon as the handler has not rejected it, though the answer may be long in coming.
            timeout: seconds, being accepted included. None: as long as it takes.
            message_id: its identity. None: a fresh one.
        Raises:
            Rejected: by the handler.
            Interrupted: the task has ended while it was being handled.
            NotAccepted: the task had ended, there is none, or another message has that id.
            AskTimeout: in the end. It may be answered yet, and the answer is kept.
            MailboxFull, NotEncodable: as `signal`.
        """
        receipt = await self._send(message, _identity(message_id))
        return await answer_to(self._door, self._id, message, receipt, until=until, timeout=timeout)

    async def disposition(self, message_id: str) -> str:
        """What has become of a message to the task: `accepted`, it waits; `delivered`, it has its place in the journal; `late`, the
        task had ended; `rejected`, `interrupted`, by its handler; `unmatched`, there is none of that id on record.
        """
        return await disposition_of(self._door, self._id, message_id)

    async def cancel(self, reason: str) -> None:
        """Tell the task to stop: its `task.*` calls raise `Cancelled`, and it ends when it has cleaned up.

        It is accepted however many signals wait, and obeyed in its turn behind them. Nothing happens when the task has ended. Raises
        `NoSuchTask`.
        """
        receipt = await self._send(CancelTask(reason), new_id(), urgent=True)
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
                callbacks=await open_callbacks(store, record.address),
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

    async def new_attempt(self, reason: str, *, from_operation: str | None = None) -> int:
        """Pursue the task once more, deliberately, when it has ended (R19). Its id, request and deadline stay.

        Args:
            reason: why, for people.
            from_operation: keep what was recorded up to the call of this operation, which is made again, with all that follows. Its
                place (`root#3`), or its name where the last segment has one of that name. None: from the beginning.
        Returns: the number of the attempt.
        Raises:
            StoreRefused: it has not ended, an operation of the last attempt is unresolved, or there is no such operation.
            NoSuchTask: there is none of that id.
        """
        record = await self._read()
        rows = 0 if from_operation is None else await rows_before(self._door.store, record, from_operation)
        answer = await self._door.store.commit(
            NewAttempt(
                address=self._address,
                seed=secrets.token_bytes(SEED_BYTES) if from_operation is None else record.seed,
                reason=reason,
                rows=rows,
                in_segment=from_operation is not None,
            )
        )
        if isinstance(answer, Refused):
            raise StoreRefused(answer.reason.value, answer.detail)
        self._door.changed(self._address)
        return answer.attempt

    async def unresolved(self) -> tuple[OperationInfo, ...]:
        """Operations of the attempt of which nobody knows whether they happened: they are for an operator to decide about (I8).

        Raises `NoSuchTask`.
        """
        return tuple(map(info_of, await self._unresolved(await self._read())))

    async def decide(self, operation: str, decision: DecisionWord, *, by: str, result: object = None) -> bool:
        """Say what is to become of an unresolved operation. When it was the last one, the task that was parked for it goes on.

        Args:
            operation: its place, as `unresolved()` says: `root#3`.
            decision: `repeat`: send it again, under the same key. `succeeded`: it happened, with this result. `failed`: it did not, and is
                not to be sent again.
            by: who says so.
        Returns: whether the task was parked for it, and may run again.
        Raises:
            StoreRefused: there is no such operation, or it is not unresolved.
            NoSuchTask: there is none of that id.
            NotEncodable: the result cannot be stored.
        """
        decided = Decision(decision)
        if result is not None and decided is not Decision.SUCCEEDED:
            raise ValueError(f"an operation that is to be {decision!r} has no result: give it with 'succeeded' only")
        record = await self._read()
        door, payload = self._door, None
        if decided is Decision.SUCCEEDED:
            payload = await stow(door.store, door.codec.encode(result), name=f"the result of operation {operation!r}")
        found = [each for each in await self._unresolved(record) if each.call == operation]
        answer = await door.store.commit(
            DecideOperation(
                address=record.address,
                call=operation,
                segment=found[0].segment if found else None,
                decision=decided,
                by=by,
                result=payload,
            )
        )
        if isinstance(answer, Refused):
            raise StoreRefused(answer.reason.value, answer.detail)
        return answer.released

    async def release(self) -> None:
        """Let the task run again that waits for an operator, when its cause has been mended.

        Raises:
            StoreRefused: it is not parked, or an operation is unresolved: `decide` about that.
            NoSuchTask: there is none of that id.
        """
        record = await self._read()
        open_ = await self._unresolved(record)
        if record.parked is ParkReason.UNRESOLVED and open_:
            names = ", ".join(f"{operation.name!r} ({operation.call})" for operation in open_)
            raise StoreRefused(
                "unresolved", f"task {self._id!r} has unresolved operations, decide about them first: {names}"
            )
        answer = await self._door.store.commit(UnparkAddress(address=record.address))
        if isinstance(answer, Refused):
            raise StoreRefused(answer.reason.value, answer.detail)

    async def _unresolved(self, record: TaskRecord) -> tuple[OperationRecord, ...]:
        query = ReadOperations(address=record.address, attempt=record.attempt, unsettled=True)
        found = await self._door.store.read(query)
        return tuple(operation for operation in found if operation.status is OperationStatus.UNRESOLVED)

    async def _send(self, message: object, message_id: str, *, urgent: bool = False) -> Receipt:
        door = self._door
        encoded = door.codec.message(message)
        answer = await door.store.commit(
            AcceptMessage(
                address=self._address,
                message_id=message_id,
                type=encoded.type,
                body=await stow(door.store, encoded.body, name=f"the message {message_type(message)}"),
                digest=encoded.digest,
                urgent=urgent,
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


def _identity(message_id: str | None) -> str:
    return new_id() if message_id is None else check_message_id(message_id)
