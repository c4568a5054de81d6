"""Tasks from outside: submitted, looked at, told and steered, whether anybody performs them or not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, overload

import anyio

from greenroom.mailbox import current_loop
from greenroom.persistence.schedules import ListSchedules, ScheduleRecord
from greenroom.persistence.tasks import Condition, ListTasks, TaskRecord
from greenroom.runtime.client.opened import OpenedStore
from greenroom.runtime.listing import PAGE, Listing
from greenroom.runtime.tasks.codec import TaskCodec
from greenroom.runtime.tasks.handle import TaskHandle
from greenroom.runtime.tasks.ids import check_task_id
from greenroom.runtime.tasks.scheduled import ScheduleInfo, schedule_info
from greenroom.runtime.tasks.status import TaskStatus, status_of
from greenroom.runtime.tasks.submitting import SubmitOptions, submit

if TYPE_CHECKING:
    from greenroom.actors import Message
    from greenroom.persistence import Committer, Subscription
    from greenroom.runtime.durable.payloads import Payloads

R = TypeVar("R")

FIRST_LOOK: Final = 0.005
"""Seconds after which a task is looked at again. Each time it takes longer, unless the store tells of something new."""

LONGEST_PAUSE: Final = 0.5
VIRTUAL_PAUSE: Final = 3600.0
"""Seconds between two looks, at most; in virtual time, where months pass while somebody waits."""


class Tasks(OpenedStore):
    """See the module."""

    @overload
    async def submit(self, pool: str, request: Message[R], **options: Unpack[SubmitOptions]) -> TaskHandle[R]: ...
    @overload
    async def submit(self, pool: str, request: object, **options: Unpack[SubmitOptions]) -> TaskHandle[Any]: ...
    async def submit(self, pool: str, request: object, **options: Unpack[SubmitOptions]) -> TaskHandle[Any]:
        """Submit a task to a pool of agents, once. When this returns it is accepted: a service that has the pool will perform it.

        Args and raises: as `Runtime.submit`.
        """
        return await submit(self._door, pool, request, **options)

    def task(self, task_id: str) -> TaskHandle[Any]:
        """The handle of a task by its id, whoever has submitted it. Raises `InvalidTaskId`."""
        return TaskHandle(self._door, check_task_id(task_id))

    def tasks(
        self, *, pool: str | None = None, condition: Condition | None = None, parked: bool = False, after: str = ""
    ) -> AsyncIterator[TaskStatus]:
        """Tasks in the order of their ids, ended ones too, until retention forgets them.

        Args:
            pool: only those of this pool.
            condition: only those in this condition.
            parked: only those that wait for an operator.
            after: only those behind this id.
        """

        async def read(last: TaskRecord | None) -> Sequence[TaskRecord]:
            place = after if last is None else last.task_id
            return await self._store.read(
                ListTasks(pool=pool, condition=condition, parked=parked, after=place, limit=PAGE)
            )

        async def show(record: TaskRecord) -> TaskStatus:
            return status_of(record)

        return Listing(read, show)

    def schedules(self, *, after: str = "") -> AsyncIterator[ScheduleInfo]:
        """All schedules that were ever started on this store, in the order of their paths; those behind `after`."""

        async def read(last: ScheduleRecord | None) -> Sequence[ScheduleRecord]:
            return await self._store.read(ListSchedules(after=after if last is None else last.schedule, limit=PAGE))

        async def show(record: ScheduleRecord) -> ScheduleInfo:
            return schedule_info(record)

        return Listing(read, show)

    @property
    def _door(self) -> ClientDoor:
        return ClientDoor(self._store, self._payloads)


class ClientDoor:
    """How the handles of a client get at its store."""

    def __init__(self, store: Committer, payloads: Payloads) -> None:
        self.store = store
        self.codec = TaskCodec(payloads)

    def watch(self, address: str, *, rows: bool = False) -> Looks:
        """`rows` makes no difference: it looks at what there is anyway."""
        return Looks(self.store, address)

    def changed(self, address: str) -> None:
        """Those who wait for it look for themselves."""


class Looks:
    """A `Watch` that looks again and again: the store tells of most things, and not of all."""

    def __init__(self, store: Committer, address: str) -> None:
        self._store, self._address = store, address
        self._pause = FIRST_LOOK
        self._longest = LONGEST_PAUSE if current_loop().virtual_clock is None else VIRTUAL_PAUSE
        self._news: Subscription

    def __enter__(self) -> Looks:
        self._news = self._store.wakeups()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._news.close()

    async def news(self) -> None:
        with anyio.move_on_after(self._pause):
            while (wakeup := await self._news.wait()) is not None:
                if wakeup.elsewhere or self._address in wakeup.addresses:
                    break
            else:
                await anyio.sleep_forever()  # the store tells nothing more
        self._pause = min(1.5 * self._pause, self._longest)
