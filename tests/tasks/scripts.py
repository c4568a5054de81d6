"""What the tests of tasks are made with: requests, signals, and a pool whose agents follow a script."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

import greenroom as gr
from greenroom.persistence import Committer
from greenroom.persistence.journal import JournalEntry, ReadJournal
from greenroom.persistence.tasks import ReadTask, TaskRecord, task_address

if TYPE_CHECKING:
    from greenroom.testing import StoreSource
    from tests.durable.helpers import Shared

POOL = "service/agents"

Script = Callable[[gr.Task, "Job"], Awaitable[Any]]


@frozen
class Job(gr.Message[Any]):
    """Do this."""

    text: str = ""


@frozen
class Steer(gr.Message[None]):
    """Go that way."""

    text: str


def agents(script: Script, *, version: str = "1", **options: Any) -> gr.Agents[Any, Any]:
    """A pool of agents that follow a script. Each has room for eight tasks, if nothing else is said."""
    name = version

    class Scripted(gr.Agent[Job, Any]):
        version = name

        async def perform(self, task: gr.Task, request: Job) -> Any:
            return await script(task, request)

    return gr.Agents("agents", Scripted, **{"max_running": 8, **options})


@define(eq=False)
class Calls:
    """What operations were invoked with, in their order, also beyond the deaths of their processes."""

    made: list[str] = field(factory=list)

    def safe(self, **options: Any) -> gr.OperationDef[[str], str]:
        """An operation that notes its argument, and returns it in capitals."""

        @gr.operation(effect=gr.Effect.SAFE, name="note", **options)
        async def note(text: str) -> str:
            self.made.append(text)
            return text.upper()

        return note


def patient(database: Shared) -> StoreSource:
    """For a runtime in which much time passes: its lease lasts for years, and nothing else happens there."""
    return database.source(lease=1e9, sweep=6 * 3600.0)


async def task_of(store: Committer, task_id: str) -> TaskRecord:
    """The task's record. It must be there."""
    record = await store.read(ReadTask(address=task_address(task_id)))
    assert record is not None
    return record


async def journal_of(store: Committer, task_id: str) -> tuple[JournalEntry, ...]:
    """The rows of the task's current segment."""
    task = await task_of(store, task_id)
    return await store.read(ReadJournal(address=task.address, attempt=task.attempt, segment=task.segment))
