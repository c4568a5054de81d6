"""Tasks that do not go on, and never will by themselves (R21): found, named, and moved where that can be done. Always on.

One kind is seen from inside: control code that waits for something that is not the task's, so that its turn does not end; see
`Activation.stall`. The others are seen in the store, where the sweep looks through all tasks that have not ended, a page at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from greenroom.actors import Event
from greenroom.logs import logger_named
from greenroom.persistence import AcceptMessage
from greenroom.persistence.task_pools import ListTaskPools
from greenroom.persistence.tasks import ReadTask, WatchTasks, task_id_of
from greenroom.runtime.tasks.codec import CancelTask
from greenroom.runtime.tasks.handle import TaskHandle

if TYPE_CHECKING:
    from greenroom.runtime.tasks.desk import Desk

logger = logger_named("greenroom.tasks")

PROGRESS_LIMIT: Final = 60.0
"""Seconds that one turn of control code may take."""


@frozen(kw_only=True)
class TaskStalled(Event):
    """A task does not go on. `path` is that of its pool, or "" when it was seen in the store alone.

    With a `branch`, its control code has waited for so many seconds for something that is no call of the task's, and `stack` says where:
    it is broken off, as after a crash. Without one, nothing is on record that would ever wake the task.
    """

    task_id: str
    branch: str | None = None
    seconds: float = 0.0
    stack: str = ""


@frozen(kw_only=True)
class PoolUnserved(Event):
    """Tasks stand in the queue of a pool (`path`) that no living worker serves."""

    runnable: int


class Stalls:
    """The look through the store, as a duty of the sweep. Tells of each stall once."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._after = ""
        """Where the next page begins."""
        self._round: set[str] = set()
        """Addresses of tasks found in this round through all pages."""
        self._told: set[str] = set()
        """What the round before has found."""
        self._stopped: set[str] = set()
        self._unserved: set[str] = set()

    async def look(self) -> None:
        """Look at the next page of tasks, and at the pools. Raises `StoreUnavailable`."""
        if not self._desk.pools:
            return
        store = self._desk.store
        page = await store.read(WatchTasks(after=self._after))
        for task in page.idle:
            if not task.waits:
                self._tell(task.address)
        for orphan in page.orphans:
            await self._stop(orphan.address)
        self._after = page.after or ""
        if page.after is None:  # what is found no more may be told of again
            self._told, self._round = self._round, set()
            self._stopped &= self._told
        pools = await store.read(ListTaskPools())
        unserved = {pool.pool: pool.runnable for pool in pools if pool.runnable and not pool.served_by}
        for path in sorted(unserved.keys() - self._unserved):
            logger.warning("%s: %d tasks stand in its queue, and nobody serves it", path, unserved[path])
            self._desk.publish(PoolUnserved(at=self._desk.now(), path=path, runnable=unserved[path]))
        self._unserved = set(unserved)

    def _tell(self, address: str) -> None:
        known = address in self._told
        self._round.add(address)
        if known:
            return
        logger.error("%s is stalled: it waits for nothing, and nothing will ever wake it", address)
        self._desk.publish(TaskStalled(at=self._desk.now(), path="", task_id=task_id_of(address)))

    async def _terminated_with_its_parent(self, address: str) -> bool:
        """Whoever terminated its parent was to terminate it, too, and has died before (R24)."""
        store = self._desk.store
        task = await store.read(ReadTask(address=address))
        parent = None if task is None or task.parent is None else await store.read(ReadTask(address=task.parent))
        if parent is None or parent.reason is None:
            return False
        why = f"its parent {parent.task_id!r} was terminated"
        await TaskHandle[Any](self._desk, task_id_of(address)).terminate(why)
        return True

    async def _stop(self, address: str) -> None:
        """Its parent has ended without it. Mostly it has been told to stop, and is about to: it is told when that does not help."""
        if await self._terminated_with_its_parent(address):
            return
        known = address in self._told
        self._round.add(address)
        if not known or address in self._stopped:
            return
        self._stopped.add(address)
        logger.warning("%s should have ended with its parent: it is told to stop", address)
        message = self._desk.codec.message(CancelTask("its parent has ended"))
        await self._desk.store.commit(
            AcceptMessage(
                address=address,
                message_id=f"{address}|orphan",
                type=message.type,
                body=message.body,
                digest=message.digest,
            )
        )
