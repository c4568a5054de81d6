"""Identities of tasks and of what is in them. Pure."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from greenroom.errors import InvalidMessageId, InvalidTaskId
from greenroom.runtime.replay import CallId

if TYPE_CHECKING:
    from greenroom.persistence.tasks import TaskRecord

LONGEST: Final = 200

HIGHEST: Final = 2**31 - 1
"""Priority; the lowest is one further below 0."""


def check_task_id(task_id: object) -> str:
    """The id, if it can be one. Raises `InvalidTaskId`."""
    if not _can_be_id(task_id):
        raise InvalidTaskId(task_id)
    return str(task_id)


def check_message_id(message_id: object) -> str:
    """The same of a message. Raises `InvalidMessageId`."""
    if not _can_be_id(message_id):
        raise InvalidMessageId(message_id)
    return str(message_id)


def check_group(group: object) -> str:
    """The group, if it can be one: an identity, or empty. Raises `TypeError`, `ValueError`."""
    if not isinstance(group, str):
        raise TypeError(f"group={group!r} is no str")
    if group and not _can_be_id(group):
        raise ValueError(f"group={group!r}: give 1 to {LONGEST} printable characters, not blank, or none at all")
    return group


def check_priority(priority: object) -> int:
    """The priority, if it can be one. Raises `TypeError`, `ValueError`."""
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise TypeError(f"priority={priority!r} is no int: higher goes first, and 0 is what most have")
    if not ~HIGHEST <= priority <= HIGHEST:
        raise ValueError(f"priority={priority!r} does not lie between {~HIGHEST} and {HIGHEST}")
    return priority


def _can_be_id(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable() and len(value) <= LONGEST


def operation_key(task_id: str, attempt: int, segment: int, call: CallId) -> str:
    """The idempotency key of an operation: the same at each of its invocations, and no other operation's."""
    return _digest(f"{task_id}\n{attempt}\n{segment}\n{call}")


def child_id(task_id: str, attempt: int, segment: int, call: CallId) -> str:
    """The id of the task that a call submits: the same whenever the call is made again."""
    digest = _digest(f"child {task_id}\n{attempt}\n{segment}\n{call}")
    return f"{task_id[: LONGEST - len(digest) - 1]}.{digest}"


def message_id(task: TaskRecord, call: CallId) -> str:
    """The identity of the message that a call sends: likewise."""
    return f"{task.address}|{task.attempt}.{task.segment}|{call}"


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
