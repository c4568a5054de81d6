"""Standing recovery: a loop, not an event at start-up. What is due, lost, late or held up is looked for as long as the runtime runs.

Wake-ups from the store make things quick; the sweep makes them sure. Each of its duties may fail for itself: that is logged, shown as an
event, and tried again with the next round (K01).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import TYPE_CHECKING

import anyio
from attrs import define, frozen

from greenroom.actors import Event, Timer, described
from greenroom.logs import logger_named
from greenroom.persistence import (
    DueAddress,
    DueAddresses,
    ExpireCallback,
    ExpiredCallbacks,
    FlushableHeld,
    FlushHeld,
    ListExecutions,
    NextDue,
    OwnedReady,
    ReadAddress,
    Refused,
    ReleaseLost,
    Retention,
    prune,
)
from greenroom.runtime.durable.relay import Relay
from greenroom.runtime.durable.standstill import Standstills
from greenroom.runtime.tasks.callbacks import bring_answers

if TYPE_CHECKING:
    from greenroom.runtime.durable.relay import Destination
    from greenroom.runtime.durable.storage import Storage

logger = logger_named("greenroom.storage")

PAGE = 100

FIRST_PRUNE = 60.0
"""Seconds after the start before anything is forgotten: whoever starts has better things to do."""

JUST_PAST = 0.02
"""Seconds after the end of somebody's lease, for a look whether it has ended."""

PAGES = 10
"""Pages of due addresses that one round looks at while there is no room for more of them."""


@frozen(kw_only=True)
class SweepFailed(Event):
    """One duty of the standing recovery failed. It is tried again with its next turn."""

    duty: str
    why: str


@define(eq=False)
class Duty:
    """Something that the sweep does every so many seconds."""

    name: str
    period: float
    do: Callable[[], Awaitable[object]]
    due: float = 0.0


class Sweep:
    """See the module."""

    def __init__(self, storage: Storage, destinations: Mapping[str, Destination]) -> None:
        self._storage = storage
        relay = Relay(storage, destinations, self._attempt)
        self._round = round_ = storage.source.sweep_for(storage.loop)
        self._flush = Duty("bring messages to recipients that have room again", round_, self._flush_held)
        lease = storage.source.lease_for(storage.loop)
        lost = max(round_, min(lease / 3, 10.0))
        self._lost = Duty("give back what lost executions owned", lost, self._release_lost)
        self._duties = (
            Duty("wake what is due", round_, self._wake_due),
            Duty("wake tasks that are due", round_, storage.tasks.wake_due),
            self._flush,
            Duty("end callbacks whose time has passed", round_, self._expire_callbacks),
            Duty("bring answers to the tasks that wait for them", round_, self._bring_answers),
            Duty("look for tasks that do not go on", round_, storage.tasks.stalls.look),
            Duty("publish the outbox", round_, relay.look),
            self._lost,
            Duty("look for replies that come from elsewhere", round_, self._look_for_replies),
            Duty("look for missed messages", 5 * round_, self.look_for_missed),
            Duty("look for tasks that were terminated elsewhere", 5 * round_, storage.tasks.look_for_taken),
            Duty("name those who wait for each other's room", 5 * round_, Standstills(storage).look),
            Duty("forget what is past its retention", 600.0, self._prune, due=storage.loop.now() + FIRST_PRUNE),
        )
        self._due_after: DueAddress | None = None
        """Where the look at what is due goes on. None: at the start."""
        self._next_due: Timer | None = None
        """In virtual time: when something is due that is nobody's."""
        self._now = anyio.Event()

    async def run(self) -> None:
        """Go round until cancelled."""
        loop, pause = self._storage.loop, self._round
        while True:
            self._storage.living()  # a lease that has passed is noticed though nothing is being done under it
            for duty in self._duties:
                if duty.due <= loop.now():
                    duty.due = loop.now() + duty.period
                    await self._attempt(duty.name, duty.do)
            with anyio.move_on_after(pause):
                await self._now.wait()
            self._now = anyio.Event()

    def hurry(self) -> None:
        """Something that the frequent duties look for has come: do not wait for the round."""
        for duty in self._duties:
            if duty.period <= self._round:
                duty.due = 0.0
        self._now.set()

    def flush(self) -> None:
        """Somewhere there may be room again for messages that are held."""
        self._flush.due = 0.0
        self._now.set()

    def _look_for_lost(self) -> None:
        """The lease of another execution has passed, unless it was renewed meanwhile."""
        self._lost.due = 0.0
        self._now.set()

    async def _attempt(self, what: str, do: Callable[[], Awaitable[object]]) -> None:
        storage = self._storage
        try:
            await do()
        except Exception as error:  # noqa: BLE001 - whatever it is, the other duties are done all the same
            logger.warning("the sweep could not %s, trying again: %s", what, described(error))
            storage.services.events.publish(
                SweepFailed(at=storage.loop.now(), path="", duty=what, why=described(error))
            )

    async def _wake_due(self) -> None:
        storage = self._storage
        if storage.draining or not (storage.standing_by or storage.pools.any):
            return
        await self._wake_what_is_due()
        if storage.loop.virtual_clock is not None:  # in real time the next round is soon enough
            next_due = await storage.store.read(NextDue())
            if self._next_due is not None:
                self._next_due.cancel()
            if next_due is not None:
                self._next_due = storage.services.timers.at(storage.deadline_of(next_due), self.hurry)

    async def _wake_what_is_due(self) -> None:
        storage = self._storage
        from_the_start = self._due_after is None
        pages = 0
        while True:
            page = await storage.store.read(DueAddresses(limit=PAGE, after=self._due_after))
            for due in page:
                storage.woken(due.address)
            self._due_after = page[-1] if len(page) == PAGE else None
            pages += 1
            if self._due_after is None and from_the_start:
                return
            from_the_start |= self._due_after is None
            if pages >= PAGES and storage.pools.crowded:
                return  # the next round goes on there

    async def look_for_missed(self) -> None:
        """Owned addresses in which something waits that nobody told of."""
        storage = self._storage
        execution = storage.execution
        if execution is None:
            return
        after = ""
        while True:
            page = await storage.store.read(OwnedReady(execution_id=execution.id, after=after, limit=PAGE))
            for address in page:
                storage.woken(address)
            if len(page) < PAGE:
                return
            after = page[-1]

    async def _look_for_replies(self) -> None:
        self._storage.replies.look()

    async def _flush_held(self) -> None:
        store = self._storage.store
        by_sender: dict[str, set[str]] = {}
        for held in await store.read(FlushableHeld(limit=PAGE)):
            by_sender.setdefault(held.address, set()).add(held.recipient)
        for address, recipients in by_sender.items():
            await store.commit(FlushHeld(address=address, recipients=tuple(sorted(recipients))))
        holders = self._storage.holders
        for address in tuple(holders):
            record = await store.read(ReadAddress(address=address))
            if record is None or not record.held:
                holders.discard(address)

    async def _expire_callbacks(self) -> None:
        store = self._storage.store
        for record in await store.read(ExpiredCallbacks(limit=PAGE)):
            await store.commit(ExpireCallback(callback_id=record.callback_id))
            self._storage.callbacks.look(frozenset((record.address,)))

    async def _bring_answers(self) -> None:
        await bring_answers(self._storage.store)

    async def _release_lost(self) -> None:
        storage, store = self._storage, self._storage.store
        records = await store.read(ListExecutions())
        own = None if storage.execution is None else storage.execution.id
        left = min(
            (record.seconds_left for record in records if record.alive and record.execution_id != own), default=inf
        )
        if left < self._lost.period:  # whoever lives renews it long before: so this one is likely to be lost
            storage.services.timers.after(left + JUST_PAST, self._look_for_lost)
        for record in records:
            while not record.alive:
                suspect = record.execution_id not in self._storage.fenced
                answer = await store.commit(ReleaseLost(execution_id=record.execution_id, suspect=suspect))
                if isinstance(answer, Refused):
                    break
                logger.warning(
                    "execution %s (process %d on %s) is lost: %d addresses were given back",
                    record.execution_id,
                    record.pid,
                    record.host,
                    answer.addresses,
                )
                if not answer.more:
                    break

    async def _prune(self) -> None:
        await prune(self._storage.store, Retention())
