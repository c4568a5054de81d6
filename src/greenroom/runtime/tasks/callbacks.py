"""The callbacks of a run: opened, and looked at when control code waits for them (K05).

They are opened with the turn that has the rows which say so. The store decides whether an answer came in time, and nobody else. It gets
into the task's mailbox by itself, and from there to whoever waits. Here the store is asked once for each callback that is waited for, and
again when its time is up: what it says is then a row, so no wait is for something that has been, or that cannot come any more. Children of
earlier segments are looked at likewise.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from greenroom.errors import NoSuchTask
from greenroom.persistence import (
    CallbackStatus,
    Disposition,
    ExpireCallback,
    NewCallback,
    ReadCallback,
    Refused,
    new_id,
    split_token,
)
from greenroom.persistence.callbacks import ANSWER, AnsweredCallbacks, DeliverAnswer, OpenCallbacks
from greenroom.persistence.tasks import ReadTask, task_address
from greenroom.runtime.replay import CALLBACK_KEY, CHILD_KEY, NO_ANSWER, Fault, SignalRow, callback_token
from greenroom.runtime.tasks.journal import CHILD_ENDED

if TYPE_CHECKING:
    from greenroom.persistence import Store
    from greenroom.runtime.replay import OperationCall
    from greenroom.runtime.tasks.run import Run
    from greenroom.runtime.tasks.turn import Turn

PAGE = 100

SOON = timedelta(milliseconds=1)
"""Until a callback is looked at again whose time is up by the clock here, and not by the store's."""


async def open_callbacks(store: Store, address: str) -> tuple[str, ...]:
    """The identities of a task's open callbacks."""
    found: list[str] = []
    while True:
        page = await store.read(OpenCallbacks(address=address, after=found[-1] if found else "", limit=PAGE))
        found += page
        if len(page) < PAGE:
            return tuple(found)


async def bring_answer(store: Store, callback_id: str) -> bool:
    """A callback has its answer: let that get to the task that has opened it, if it was one. False: the task has ended."""
    record = await store.read(ReadCallback(callback_id=callback_id))
    if record is None or not record.address.startswith(task_address("")):
        return True
    receipt = await store.commit(DeliverAnswer(address=record.address, callback_id=callback_id))
    return isinstance(receipt, Refused) or receipt.disposition is not Disposition.LATE


async def bring_answers(store: Store) -> None:
    """The same for all whose answer was given and not brought, because whoever gave it died in between."""
    for record in await store.read(AnsweredCallbacks(limit=PAGE)):
        await store.commit(DeliverAnswer(address=record.address, callback_id=record.callback_id))


class Callbacks:
    """See the module. For the event loop's thread."""

    __slots__ = ("_look_at", "_run", "_unopened")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._look_at: dict[str, datetime | None] = {}
        """When to look again, of those that were looked at; None: the answer comes by itself, or has come."""
        self._unopened: dict[str, datetime | None] = {}
        """When those end that are of a turn which is not on record yet."""

    def open(self, turn: Turn, call: OperationCall) -> str:
        """Open the callback of a call with the turn, which has the row that says so, too. Gives its identity, which is the outcome."""
        run, seconds, identity = self._run, call.target, new_id()
        parts = split_token(callback_token(run.engine.machine.start, identity))
        assert parts is not None  # a token was made
        now = run.place.next_at(run.storage.now())
        expires_at = None if seconds is None else now + timedelta(seconds=seconds)
        turn.opens += (
            NewCallback(callback_id=identity, secret_digest=parts[1], name=call.name, expires_at=expires_at),
        )
        run.activation.has_open_callbacks = True
        self._unopened[CALLBACK_KEY + identity] = expires_at
        return identity

    def opened(self, callbacks: Iterable[NewCallback]) -> None:
        """These are on record."""
        for callback in callbacks:
            del self._unopened[CALLBACK_KEY + callback.callback_id]

    @property
    def are_awaited(self) -> bool:
        """Control code waits for some that have to be looked at."""
        return self._run.engine.machine.signals.askers.any and bool(self._awaited())

    @property
    def until(self) -> datetime | None:
        """When one that is waited for is to be looked at again."""
        if not self._run.engine.machine.signals.askers.any:
            return None
        return min((due for key in self._awaited() if (due := self._look_at.get(key)) is not None), default=None)

    async def look(self, turn: Turn) -> bool:
        """Look at one that is waited for, if it is time for that. True: a row was shown."""
        now = self._run.storage.now()
        for key in self._awaited():
            if key in self._unopened:  # the store does not know it yet: so it has no answer
                self._look_at.setdefault(key, self._unopened[key])
                continue
            due = self._look_at.get(key, now)
            settle = self._settle if key.startswith(CALLBACK_KEY) else self._settle_child
            if due is not None and due <= now and await settle(turn, key):
                return True
        return False

    def _awaited(self) -> list[str]:
        machine = self._run.engine.machine
        return [key for key in machine.signals.askers.names() if key.startswith(CALLBACK_KEY) or key in machine.adopted]

    async def _settle_child(self, turn: Turn, key: str) -> bool:
        run, child = self._run, key.removeprefix(CHILD_KEY)
        self._look_at[key] = None
        record = await run.storage.surely(run.storage.store.read, ReadTask(address=task_address(child)))
        if record is None or record.parent != run.activation.address:
            missing = Fault("unknown", NoSuchTask.__name__, f"{child!r} is on record as no child of this task")
            await run.show(
                turn, self._answer(key, CHILD_ENDED, child, run.activation.codec.encode(missing), failed=True)
            )
            return True
        payload = record.error if record.result is None else record.result
        if payload is None:  # it tells of its end when it comes to that
            return False
        body = await run.storage.fetch(payload)
        await run.show(turn, self._answer(key, CHILD_ENDED, child, body, failed=record.result is None))
        return True

    async def _settle(self, turn: Turn, key: str) -> bool:
        run, identity = self._run, key.removeprefix(CALLBACK_KEY)
        store = run.storage.store
        record = await run.storage.surely(store.read, ReadCallback(callback_id=identity))
        if record is not None and record.status is CallbackStatus.OPEN:
            if record.expires_at is None or run.storage.now() < record.expires_at:
                self._look_at[key] = record.expires_at
                return False
            answer = await run.storage.commit_surely(ExpireCallback(callback_id=identity))
            if isinstance(answer, Refused):  # it was answered in the last moment, or the store's clock is behind
                self._look_at[key] = run.storage.now() + SOON
                return False
        self._look_at[key] = None
        if record is not None and record.answer is not None:
            await run.show(turn, self._answer(key, ANSWER, identity, await run.storage.fetch(record.answer)))
            return True
        nothing = Fault("timeout", NO_ANSWER, "no answer came in time")
        if record is None and key in run.engine.machine.adopted:
            nothing = Fault("unknown", "Forgotten", "how it was settled has been forgotten by retention")
        await run.show(turn, self._answer(key, ANSWER, identity, run.activation.codec.encode(nothing), failed=True))
        return True

    def _answer(self, key: str, type: str, identity: str, body: bytes, *, failed: bool = False) -> SignalRow:
        """What the store says, as a row."""
        run = self._run
        at = run.place.next_at(run.storage.now())
        return SignalRow(
            seq=run.place.seq + 1, at=at, message_id=identity, type=type, body=body, answers=key, failed=failed
        )
