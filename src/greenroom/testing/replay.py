"""`replay`: does today's code still go on with a saved journal?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from attrs import evolve, frozen

from greenroom.errors import Diverged, GreenroomError
from greenroom.runtime import Agent, SavedJournal
from greenroom.runtime.durable.payloads import Payloads
from greenroom.runtime.replay import End, EndKind, Engine, Recorded, Start
from greenroom.runtime.tasks.codec import TaskCodec
from greenroom.runtime.tasks.endings import failure_of
from greenroom.runtime.tasks.migrating import past_of
from greenroom.runtime.tasks.notes import lines_of
from greenroom.runtime.tasks.on_signal import signal_handlers
from greenroom.runtime.tasks.saved import content_of, intents_of, rows_of


class OtherVersion(GreenroomError):
    """The agent does not go on with this journal of another `version`: such a task is parked as `incompatible`.

    It refuses them (`other_versions = "refuse"`), or would migrate it and an operation of the old code is open.
    """

    def __init__(self, recorded: str, version: str) -> None:
        self.recorded, self.version = recorded, version
        super().__init__(
            f"the journal is of version {recorded!r} of the agent, which is version {version!r} and refuses others"
        )


@frozen(kw_only=True)
class Replayed:
    """Where today's code is at the end of a journal."""

    rows: int
    ended: bool
    """It has ended there."""
    waits: tuple[str, ...]
    """What its branches wait for, a line each."""


async def replay(
    agent: Agent[Any, Any] | Callable[[], Agent[Any, Any]],
    journal: SavedJournal | Path | bytes,
    *,
    classes: tuple[type[Any], ...] = (),
) -> Replayed:
    """Run an agent's control code over a saved journal, as a recovery would. No operation is invoked, and there is no store.

    An agent that migrates tasks of another version (`other_versions = "migrate"`) begins with what it makes of the journal.

    Args:
        agent: the agent, or what makes one.
        journal: as `greenroom export` wrote it: its file, its bytes, or what `TaskHandle.export()` gave.
        classes: classes in it that have a name of their own (`greenroom.wire(tag=...)`); others are found where their modules are loaded.
    Raises:
        Diverged: names the first step at which today's code does something else.
        Undecodable: something in the journal is of no class that is known here.
        OtherVersion: the agent does not go on with journals of other versions.
        BadJournal: it is no saved journal.
        Exception: what control code raises that is no recorded failure, and would be a crash.
    """
    if isinstance(journal, Path):
        journal = await anyio.Path(journal).read_bytes()
    if isinstance(journal, bytes):
        journal = SavedJournal.from_json(journal)
    agent = agent if isinstance(agent, Agent) else agent()
    other = journal.version not in (None, agent.version)
    if other and (agent.other_versions == "refuse" or (agent.other_versions == "migrate" and journal.operations)):
        raise OtherVersion(str(journal.version), agent.version)
    payloads = Payloads()
    payloads.register(*classes)
    codec = TaskCodec(payloads)
    request = codec.decode(content_of(journal.request) or b"", source=f"the request of task {journal.task_id!r}")
    start = Start(
        at=journal.started_at,
        seed=journal.seed,
        task_id=journal.task_id,
        attempt=journal.attempt,
        segment=journal.segment,
        execution="replay",
        deadline=journal.deadline,
    )
    rows = await rows_of(journal)
    if other and agent.other_versions == "migrate":
        request = agent.migrate(past_of(journal.version, request, rows, codec, f"the journal of {journal.task_id!r}"))
        start = evolve(start, at=rows[-1].at if rows else start.at, segment=start.segment + 1)
        journal, rows = evolve(journal, outcome=None), ()
    handlers = signal_handlers(agent, codec)
    recorded = Recorded.of(rows)
    async with Engine(lambda task: agent.perform(task, request), start, codec, recorded, handlers=handlers) as engine:
        await engine.process(*rows)
        engine.confirm(intents_of(journal))
        end, waits = engine.machine.end, lines_of(engine.waits())
    if end is not None and end.error is not None and failure_of(end.error) is None:
        raise end.error
    _compare(journal, end, waits)
    return Replayed(rows=len(rows), ended=end is not None, waits=waits)


def _compare(journal: SavedJournal, end: End | None, waits: tuple[str, ...]) -> None:
    """Raise `Diverged` where the task has ended by itself, and today's code does not, or comes to something else."""
    if journal.outcome == "succeeded":
        if end is None:
            raise Diverged(len(journal.rows), "the end", "the task's end", f"today's code waits: {'; '.join(waits)}")
        if end.kind is not EndKind.RETURNED:
            raise Diverged(len(journal.rows), "the end", "a result", f"today's code ends otherwise ({end.kind.value})")
        if end.body != content_of(journal.result):
            raise Diverged(len(journal.rows), "the end", "the task's result", "today's code returns another")
