"""`Commits`: what a run has come to, made durable: each turn as ONE transition (T26), and what stands for long, for people."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from greenroom.persistence.journal import CommitTurn
from greenroom.runtime.tasks.journal import entry_of
from greenroom.runtime.tasks.outcomes import child_of, reply_of
from greenroom.runtime.tasks.posting import note_dispositions

if TYPE_CHECKING:
    from greenroom.mailbox import Slot
    from greenroom.persistence.journal import ContinueAs
    from greenroom.persistence.tasks import Ending
    from greenroom.runtime.tasks.run import Run
    from greenroom.runtime.tasks.turn import Turn


class Commits:
    """See the module. For the event loop's thread."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.rows = run.segment.task.journal_seq
        """Rows of the segment that are durable."""
        self._saving: Slot | None = None

    async def commit(self, turn: Turn, *, ending: Ending | None = None, continue_as: ContinueAs | None = None) -> None:
        """Commit a turn, and how the segment ends if it does. Raises `NotOurs`."""
        if turn.is_empty and ending is None and continue_as is None:
            return
        run, activation = self._run, self._run.activation
        answer = await activation.owner.commit(await self._transition(turn, ending, continue_as))
        before, self.rows = self.rows, answer.seq
        activation.progressed(before, answer.seq)
        if turn.outgoing:
            note_dispositions(activation.address, turn.outgoing, answer.outgoing)
        for tell in turn.afterwards:
            tell()
        activation.pool.desk.written(activation.address)
        if turn.dispatches:
            run.operations.dispatched(turn.dispatches, answer.versions)

    async def _transition(self, turn: Turn, ending: Ending | None, continue_as: ContinueAs | None) -> CommitTurn:
        """A turn as the store takes it. Most have a row, and nothing else."""
        run = self._run
        task, stow, codec, owner = run.segment.task, run.storage.stow, run.activation.codec, run.activation.owner
        intents = [await run.operations.intent(call) for call in turn.intents] if turn.intents else ()
        replies = [await reply_of(reply, codec, stow) for reply in turn.replies] if turn.replies else ()
        submits = [await child_of(task, call, codec, stow) for call in turn.submits] if turn.submits else ()
        return CommitTurn(
            address=owner.address,
            execution_id=owner.execution_id,
            generation=owner.generation,
            after=self.rows,
            rows=tuple([await entry_of(row, stow, turn.versions.get(row.seq)) for row in turn.rows]),
            consumed_seq=turn.consumed_seq,
            intents=tuple(intents),
            dispatches=turn.dispatches,
            invocations=turn.invocations,
            outgoing=turn.outgoing,
            replies=tuple(replies),
            submits=tuple(submits),
            next_due=run.until,
            phase=run.phase,
            waits=run.notes.overtaken(),
            ending=ending,
            continue_as=continue_as,
        )

    async def note(self) -> None:
        """Tell people what the task waits for. Nothing of it waits to be committed."""
        run, owner = self._run, self._run.activation.owner
        waits = run.notes.take()
        if waits is not None:
            await owner.commit(
                CommitTurn(**owner.fields, after=self.rows, waits=waits, next_due=run.until, phase=run.phase)
            )

    # ------------------------------------------------------------------------------------------ a turn that takes long

    @property
    def saving(self) -> bool:
        """Something is being saved early."""
        return self._saving is not None

    def save_early(self, turn: Turn) -> None:
        """A turn takes long: what it was shown must not be lost with it."""
        run = self._run
        if run.activation.owner.held and self._saving is None:
            self._saving = run.loop.slot()
            run.activation.spawn(partial(self._save, turn, self._saving), "saves its rows")

    async def _save(self, turn: Turn, saving: Slot) -> None:
        try:
            await self.commit(turn.take())
        except Exception as error:  # noqa: BLE001 - it is raised where the turn goes on
            self._run.failure = error
        finally:
            self._saving = None
            if not saving.done():
                saving.set_result(None)

    async def saved(self) -> None:
        """Wait until nothing is being saved early."""
        if self._saving is not None:
            await self._saving
