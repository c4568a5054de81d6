"""Submitting a task: from the moment this returns, it is on record and will be performed."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from greenroom.errors import NoSuchPool, PoolFull, TaskConflict
from greenroom.persistence import RefusalReason, Refused, new_id, stow
from greenroom.persistence.tasks import NewTask, Submission, SubmitTask
from greenroom.runtime.tasks.handle import TaskHandle
from greenroom.runtime.tasks.ids import check_group, check_priority, check_task_id
from greenroom.runtime.tasks.outcomes import SEED_BYTES

if TYPE_CHECKING:
    from greenroom.runtime.tasks.handle import Door


class SubmitOptions(TypedDict, total=False):
    """What `submit` may be told besides: see `Runtime.submit`."""

    task_id: str | None
    group: str
    priority: int
    deadline: datetime | None
    not_before: datetime | None


async def submit(door: Door, pool: str, request: object, **options: Unpack[SubmitOptions]) -> TaskHandle[Any]:
    """Accept a task, once: the same request submitted again under the same id is the same task.

    Raises: as `Runtime.submit`.
    """
    task = await new_task(door, pool, request, **options)
    task_id = task.task_id
    answer = await door.store.commit(SubmitTask(task=task))
    if isinstance(answer, Refused):
        if answer.reason is RefusalReason.UNKNOWN_POOL:
            raise NoSuchPool(pool)
        if answer.reason is RefusalReason.FULL:
            raise PoolFull(pool, answer.seconds or 0.0)
        raise TaskConflict(task_id)
    if answer.disposition is Submission.CONFLICT:
        raise TaskConflict(task_id)
    return TaskHandle(door, task_id)


async def new_task(door: Door, pool: str, request: object, **options: Unpack[SubmitOptions]) -> NewTask:
    """A task as the store takes it, its request brought to the content store where it is large.

    Raises `InvalidTaskId`, `NotEncodable`, `StoreUnavailable`; `TypeError` and `ValueError` for options that cannot be.
    """
    unknown = options.keys() - SubmitOptions.__annotations__
    if unknown:
        raise TypeError(
            f"a task is submitted with no {min(unknown)!r}: there are {', '.join(SubmitOptions.__annotations__)}"
        )
    group, priority = check_group(options.get("group", "")), check_priority(options.get("priority", 0))
    wanted = options.get("task_id")
    task_id = new_id() if wanted is None else check_task_id(wanted)
    encoded = door.codec.message(request)
    return NewTask(
        task_id=task_id,
        pool=pool,
        request=await stow(door.store, encoded.body, name=f"the request of task {task_id!r}"),
        request_type=encoded.type,
        request_digest=encoded.digest,
        seed=secrets.token_bytes(SEED_BYTES),
        group=group,
        priority=priority,
        deadline=options.get("deadline"),
        not_before=options.get("not_before"),
    )
