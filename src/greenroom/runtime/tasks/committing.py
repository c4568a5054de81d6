"""`Commits`: what a run has come to, made durable: each turn as ONE transition (T26), and what stands for long, for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from greenroom.persistence import INLINE_LIMIT
from greenroom.persistence.journal import CommitTurn
from greenroom.runtime.replay import OutcomeRow
from greenroom.runtime.tasks.journal import entry_of, outcome_entry, stowed
from greenroom.runtime.tasks.outcomes import child_of, reply_of
from greenroom.runtime.tasks.posting import note_dispositions

if TYPE_CHECKING:
    from greenroom.mailbox import Slot
    from greenroom.persistence.journal import ContinueAs, JournalEntry, TurnCommitted
    from greenroom.persistence.messages import MessageReply
    from greenroom.persistence.operations import Intent
    from greenroom.persistence.pending import Pending
    from greenroom.persistence.tasks import Ending, NewTask
    from greenroom.runtime.replay import OperationCall
    from greenroom.runtime.tasks.run import Run
    from greenroom.runtime.tasks.turn import Turn


class Commits:
    """See the module. For the event loop's thread."""

    __slots__ = ("_run", "_saving", "rows")

    def __init__(self, run: Run) -> None:
        self._run = run
        self.rows = run.segment.task.journal_seq
        """Rows of the segment that are durable."""
        self._saving: Slot | None = None

    async def commit(
        self,
        turn: Turn,
        *,
        begun: Pending | None = None,
        ending: Ending | None = None,
        continue_as: ContinueAs | None = None,
    ) -> None:
        """Commit a turn, and how the segment ends if it does. Raises `NotOurs`.

        Args:
            begun: what `begin` has given for it.
        """
        owner = self._run.activation.owner
        if begun is not None:
            answer = await owner.finish(begun)
        elif turn.is_empty and ending is None and continue_as is None:
            return
        else:
            answer = await owner.commit(await self._transition(turn, ending, continue_as))
        self.done(turn, answer)

    def is_usual(self, turn: Turn) -> bool:
        """It can be committed as it stands, and nothing else has to be done for that."""
        return (
            bool(turn.rows)
            and not turn.replies
            and self._run.activation.owner.may_act()
            and all(
                isinstance(row, OutcomeRow) and len(row.params) <= INLINE_LIMIT and len(row.body) <= INLINE_LIMIT
                for row in turn.rows
            )
        )

    def begin(self, turn: Turn, told: Callable[[], object]) -> Pending:
        """Begin to commit a usual turn, without waiting; `done` or `commit` ends that.

        Args:
            told: as for `Committer.begin`.
        """
        operations = self._run.operations
        entries = [
            outcome_entry(row, row.params, row.body, turn.versions.get(row.seq))
            for row in turn.rows
            if isinstance(row, OutcomeRow)
        ]
        intents = [operations.intent(call, call.params) for call in turn.intents] if turn.intents else ()
        return self._run.storage.store.begin(self._commit_turn(turn, entries, intents), told)

    def done(self, turn: Turn, answer: TurnCommitted) -> None:
        """A turn is durable."""
        run, activation = self._run, self._run.activation
        before, self.rows = self.rows, answer.seq
        activation.progressed(before, answer.seq)
        if turn.outgoing:
            note_dispositions(activation.address, turn.outgoing, answer.outgoing)
        if turn.opens:
            run.callbacks.opened(turn.opens)
        for tell in turn.afterwards:
            tell()
        activation.pool.desk.written(activation.address)
        if turn.dispatches:
            run.operations.dispatched(turn.dispatches, answer.versions)

    async def _transition(self, turn: Turn, ending: Ending | None, continue_as: ContinueAs | None) -> CommitTurn:
        """A turn as the store takes it. Most have a row, and nothing else."""
        run = self._run
        task, stow, codec = run.segment.task, run.storage.stow, run.activation.codec
        entries = [await entry_of(row, stow, turn.versions.get(row.seq)) for row in turn.rows]
        intents = [await self._intent(call) for call in turn.intents] if turn.intents else ()
        replies = [await reply_of(reply, codec, stow) for reply in turn.replies] if turn.replies else ()
        submits = [await child_of(task, call, codec, stow) for call in turn.submits] if turn.submits else ()
        return self._commit_turn(
            turn, entries, intents, tuple(replies), tuple(submits), ending=ending, continue_as=continue_as
        )

    async def _intent(self, call: OperationCall) -> Intent:
        run = self._run
        name = f"the arguments of operation {call.name!r}"
        return run.operations.intent(call, await stowed(call.params, run.storage.stow, name))

    def _commit_turn(
        self,
        turn: Turn,
        entries: Sequence[JournalEntry],
        intents: Sequence[Intent],
        replies: tuple[MessageReply, ...] = (),
        submits: tuple[NewTask, ...] = (),
        *,
        ending: Ending | None = None,
        continue_as: ContinueAs | None = None,
    ) -> CommitTurn:
        run, owner = self._run, self._run.activation.owner
        return CommitTurn(
            address=owner.address,
            execution_id=owner.execution_id,
            generation=owner.generation,
            after=self.rows,
            rows=tuple(entries),
            consumed_seq=turn.consumed_seq,
            intents=tuple(intents),
            dispatches=turn.dispatches,
            invocations=turn.invocations,
            outgoing=turn.outgoing,
            replies=replies,
            submits=submits,
            opens=turn.opens,
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
