"""Leftovers: what an address has still to commit when nobody waits for it any more. For each address in order, beside the tree."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from greenroom.errors import GreenroomError
from greenroom.logs import logger_named
from greenroom.mailbox import Slot
from greenroom.persistence import Refused, Transition

if TYPE_CHECKING:
    from greenroom.runtime.durable.storage import Storage

logger = logger_named("greenroom.storage")


class _InVain(Exception):
    """To try it again would be."""


class Leftovers:
    """See the module. For the event loop's thread."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._queues: dict[str, deque[Transition[Any]]] = {}
        """By address. Invariant: each has a task that works it off."""
        self._waiting: dict[str, list[Slot]] = {}

    def add(self, address: str, transition: Transition[Any]) -> None:
        """Commit it, after what was added for the address before. It is lost when the storage has ended."""
        queue = self._queues.get(address)
        if queue is not None:
            queue.append(transition)
        elif self._storage.spawn(partial(self._work_off, address)):
            self._queues[address] = deque([transition])

    async def settled(self, address: str) -> None:
        """Wait until everything of an address has been tried."""
        while address in self._queues:
            slot = self._storage.loop.slot()
            self._waiting.setdefault(address, []).append(slot)
            await slot

    async def all_settled(self) -> None:
        """Wait until everything has been tried."""
        while self._queues:
            await self.settled(next(iter(self._queues)))

    async def _work_off(self, address: str) -> None:
        queue = self._queues[address]
        try:
            while queue:
                await self._try(address, queue[0])
                queue.popleft()
        finally:
            del self._queues[address]
            for slot in self._waiting.pop(address, ()):
                if not slot.done():
                    slot.set_result(None)

    def _check(self, transition: Transition[Any]) -> None:
        """While its lease holds nobody else finds out what it would have said, and it is tried for as long, unless all ends here."""
        execution = self._storage.living()
        if self._storage.closing or execution is None or execution.id != getattr(transition, "execution_id", None):
            raise _InVain("its execution is over")

    async def _try(self, address: str, transition: Transition[Any]) -> None:
        kind = type(transition).__name__
        try:
            answer = await self._storage.commit_surely(transition, partial(self._check, transition))
        except (GreenroomError, _InVain) as error:
            # What it would have said is found out by others: the lease lapses, a delivery stays counted.
            logger.warning("%s of %s was not committed: %s", kind, address, error)
        else:
            if isinstance(answer, Refused):
                logger.info("%s of %s: %s", kind, address, answer.detail)
