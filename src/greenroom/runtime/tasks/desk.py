"""`Desk`: the tasks of one runtime. Which pools and activations are here, who waits for a task's end, and what is due."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from greenroom.errors import StoreRefused, StoreUnavailable
from greenroom.logs import logger_named
from greenroom.persistence import Committer, RefusalReason
from greenroom.persistence.task_pools import ReadTaskPool
from greenroom.persistence.tasks import DueTasks, NextTaskDue, OwnedTasks, WakeTask
from greenroom.runtime.tasks.codec import TaskCodec
from greenroom.runtime.tasks.pool import AgentsLife
from greenroom.runtime.tasks.solitude import Solitude
from greenroom.runtime.tasks.stalls import Stalls
from greenroom.runtime.tasks.watching import Watch, Watchers

if TYPE_CHECKING:
    from greenroom.actors import Event, Timer
    from greenroom.runtime.durable.storage import Storage

logger = logger_named("greenroom.tasks")

PAGE: Final = 500
"""Tasks that are woken at once: as many as go into one commit."""

PATIENCE: Final = 1.0
VIRTUAL_PATIENCE: Final = 3600.0


class Desk:
    """See the module. For the event loop's thread."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.codec = TaskCodec(storage.payloads)
        self._pools: dict[str, AgentsLife] = {}
        self._registered: set[str] = set()
        """Paths of pools, served here or elsewhere, to which children may be submitted."""
        self._watchers = Watchers(storage.loop, PATIENCE if storage.loop.virtual_clock is None else VIRTUAL_PATIENCE)
        self._timer: Timer | None = None
        """When the next waiting task is due, as far as it is known here."""
        self._waking = False
        self.solitude = Solitude(self)
        self.stalls = Stalls(self)

    # ------------------------------------------------------------------------------------------------------ the pools

    @property
    def pools(self) -> tuple[AgentsLife, ...]:
        """Those that are up here."""
        return tuple(self._pools.values())

    def add(self, pool: AgentsLife) -> None:
        """A pool is up."""
        self._pools[pool.path] = pool
        pool.look()
        self._storage.hurry()

    def remove(self, pool: AgentsLife) -> None:
        if self._pools.get(pool.path) is pool:
            del self._pools[pool.path]

    def look(self) -> None:
        """Something has changed elsewhere."""
        for pool in self._pools.values():
            pool.look()
        self._watchers.look()

    def woken(self, address: str) -> bool:
        """Something has happened at this address, or under this name. False: it is no affair of tasks."""
        pool = self._pools.get(address)
        if pool is not None:
            pool.look()
            return True
        if not address.startswith("task:"):
            return False
        for pool in self._pools.values():
            activation = pool.activation(address)
            if activation is not None:
                activation.look()
                break
        else:
            self.wake_soon()
        self.changed(address)
        return True

    async def look_for_taken(self) -> None:
        """Tasks that are in hand here, and were terminated elsewhere: they are looked at again. Raises `StoreUnavailable`."""
        execution = self._storage.execution
        held = {address: activation for pool in self._pools.values() for address, activation in pool.held()}
        if execution is None or not held:
            return
        page: tuple[str, ...] = ("",)
        while page:
            page = await self._storage.store.read(OwnedTasks(execution_id=execution.id, after=page[-1]))
            for address in page:
                held.pop(address, None)
        for activation in held.values():  # those that have just been let go here, too: it costs them nothing
            activation.look()

    def lease_lost(self) -> None:
        for pool in self._pools.values():
            pool.lease_lost()

    # -------------------------------------------------------------------------------------------------- what is due

    def released(self, address: str, due_at: datetime | None) -> None:
        """A task is being let go, and is due at that moment."""
        self._storage.spawn(partial(self._released, address, due_at))

    async def _released(self, address: str, due_at: datetime | None) -> None:
        await self._storage.leftovers.settled(address)
        if due_at is not None:
            self.due(due_at)

    def due(self, moment: datetime) -> None:
        """A waiting task is due at that moment."""
        storage = self._storage
        deadline = storage.loop.now() + max(0.0, (moment - storage.now()).total_seconds())
        if self._timer is not None and not self._timer.cancelled:
            if self._timer.deadline <= deadline:
                return
            self._timer.cancel()
        self._timer = storage.services.timers.at(deadline, self.wake_soon)

    def wake_soon(self) -> None:
        """There may be tasks that are due."""
        if self._pools and not self._waking:
            self._waking = self._storage.spawn(self._wake_now)

    async def _wake_now(self) -> None:
        self._waking = False  # what becomes due from here on is not necessarily seen
        try:
            await self.wake_due()
        except StoreUnavailable as error:  # the sweep will
            logger.warning("tasks that are due could not be woken, trying again: %s", error)

    async def wake_due(self) -> None:
        """Put tasks whose time has come into their pools' queues. Raises `StoreUnavailable`."""
        store = self._storage.store
        if not self._pools or self._storage.draining:
            return
        while True:
            page = await store.read(DueTasks(limit=PAGE))
            async with anyio.create_task_group() as group:
                for due in page:
                    group.start_soon(store.commit, WakeTask(address=due.address, pool=due.pool))
            if len(page) < PAGE:
                break
        moment = await store.read(NextTaskDue())
        if moment is not None:
            self.due(moment)

    async def check_pool(self, path: str) -> None:
        """Raise `StoreRefused` unless a pool of that path was ever registered. That is for good."""
        if path in self._registered:
            return
        if await self._storage.surely(self._storage.store.read, ReadTaskPool(pool=path)) is None:
            raise StoreRefused(
                RefusalReason.UNKNOWN_POOL.value,
                f"no pool of tasks {path!r} was ever registered, and a child task is submitted to it",
            )
        self._registered.add(path)

    # ------------------------------------------------------------------------------------------------- what happens

    def publish(self, event: Event) -> None:
        """Tell those who read the runtime's events."""
        self._storage.services.events.publish(event)

    def now(self) -> float:
        """The loop's time, for events."""
        return self._storage.loop.now()

    # ------------------------------------------------------------------------------------------- who waits for tasks

    @property
    def store(self) -> Committer:
        return self._storage.store

    def watch(self, address: str, *, rows: bool = False) -> Watch:
        """Wait for something to happen to a task; with `rows`, also for each row of its journal."""
        return self._watchers.watch(address, rows=rows)

    def changed(self, address: str) -> None:
        """Something has happened to a task."""
        self._watchers.changed(address)

    def written(self, address: str) -> None:
        """The journal of a task has grown."""
        self._watchers.written(address)
