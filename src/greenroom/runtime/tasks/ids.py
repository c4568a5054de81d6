"""Identities of tasks and of what is in them. Pure."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from greenroom.errors import InvalidTaskId
from greenroom.runtime.replay import CallId

LONGEST: Final = 200


def check_task_id(task_id: object) -> str:
    """The id, if it can be one. Raises `InvalidTaskId`."""
    if not isinstance(task_id, str) or not task_id.strip() or not task_id.isprintable() or len(task_id) > LONGEST:
        raise InvalidTaskId(task_id)
    return task_id


def call_id(text: str) -> CallId:
    """A call by its text: `root/1.2#3`."""
    branch, _, number = text.rpartition("#")
    return CallId(branch, int(number))


def operation_key(task_id: str, attempt: int, segment: int, call: CallId) -> str:
    """The idempotency key of an operation: the same at each of its invocations, and no other operation's."""
    return _digest(f"{task_id}\n{attempt}\n{segment}\n{call}")


def child_id(task_id: str, attempt: int, segment: int, call: CallId) -> str:
    """The id of the task that a call submits: the same whenever the call is made again."""
    digest = _digest(f"child {task_id}\n{attempt}\n{segment}\n{call}")
    return f"{task_id[: LONGEST - len(digest) - 1]}.{digest}"


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
