"""A run: the control code of one segment, driven turn by turn over its journal.

What has come since the last turn (messages, outcomes of operations, the time of a timer) is made into rows, and the rows are shown to
control code before they are durable; what follows from them is gathered, and all of it is ONE commit (T26). Only then is anything sent.
A commit that is refused means that the task is somebody else's: the run is dropped, with all that it did since.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from datetime import datetime
from typing import TYPE_CHECKING

import anyio
from attrs import evolve

from greenroom.logs import logger_named
from greenroom.runtime.replay import (
    BranchWait,
    ControlKind,
    ControlRow,
    Engine,
    Finish,
    Idle,
    JournalRow,
    Notice,
    Recorded,
    Send,
    SignalReply,
    Start,
    Stopped,
    TimeRow,
    Withdraw,
    WriteTime,
)
from greenroom.runtime.tasks.callbacks import Callbacks
from greenroom.runtime.tasks.committing import Commits
from greenroom.runtime.tasks.endings import OVERDUE, Oversize, overdue_id
from greenroom.runtime.tasks.express import Express
from greenroom.runtime.tasks.finishing import finish
from greenroom.runtime.tasks.flight import Flight, Landed, News, Tried
from greenroom.runtime.tasks.length import is_too_long
from greenroom.runtime.tasks.mail import Mail
from greenroom.runtime.tasks.notes import Notes
from greenroom.runtime.tasks.on_signal import signal_handlers
from greenroom.runtime.tasks.operations import Operations
from greenroom.runtime.tasks.resting import Left, Resting
from greenroom.runtime.tasks.turn import Place, Turn
from greenroom.runtime.tasks.vigil import Vigil

if TYPE_CHECKING:
    from greenroom.runtime.replay import End, Task
    from greenroom.runtime.tasks.activation import Activation
    from greenroom.runtime.tasks.agent import Agent
    from greenroom.runtime.tasks.loading import Segment

logger = logger_named("greenroom.tasks")


class Run:
    """See the module. For the event loop's thread."""

    __slots__ = (
        "_agent",
        "_begun",
        "_mail",
        "_news",
        "_owed",
        "_waits",
        "activation",
        "callbacks",
        "commits",
        "engine",
        "express",
        "failure",
        "is_cut_off",
        "loop",
        "notes",
        "operations",
        "patience",
        "place",
        "resting",
        "segment",
        "storage",
        "vigil",
    )

    def __init__(self, activation: Activation, agent: Agent[object, object], segment: Segment) -> None:
        task = segment.task
        self.activation = activation
        self.segment = segment
        """Without what it began with, when that is done."""
        self._agent = agent
        self.loop = activation.loop
        self.storage = activation.storage
        self.place = Place(task.journal_seq, task.last_at)
        self.commits = Commits(self)
        self.operations = Operations(self)
        self.callbacks = Callbacks(self)
        self.notes = Notes(self)
        start = Start(
            at=task.segment_started_at,
            seed=task.seed,
            task_id=task.task_id,
            attempt=task.attempt,
            segment=task.segment,
            execution=activation.owner.execution_id,
            deadline=task.deadline,
        )
        self.engine = Engine(
            self._perform,
            start,
            activation.codec,
            Recorded.of(segment.rows),
            self._told,
            handlers=signal_handlers(agent, activation.codec),
            loop=self.loop,
            spawn=activation.spawn_branch,
            context=activation.pool.control_context.copy(),
        )
        self._owed: tuple[SignalReply, ...] = ()
        """What became of signals with the last row that is on record: it may not be."""
        self._news: list[News] = []
        """In the order in which it came."""
        self._mail = Mail(self)
        self.express = Express(self)
        self._begun = False
        self.resting = Resting(self)
        self.failure: BaseException | None = None
        """What has struck beside control code: it is raised where that goes on."""
        self._waits: tuple[BranchWait, ...] = ()
        self.patience = activation.pool.patience
        self.vigil = Vigil(self)
        overdue = overdue_id(task)
        self.is_cut_off = any(isinstance(row, ControlRow) and row.command_id == overdue for row in segment.rows)
        """Its deadline has passed, and its control code has been told."""

    # --------------------------------------------------------------------------------------------- from outside

    def look(self) -> None:
        """There may be a message."""
        self._mail.has_come = True
        self.wake()

    def cut_short(self) -> None:
        """It ends now, by the event loop's cancellation: what control code does from here on means nothing (T23)."""
        self.engine.close()
        self.operations.drop()
        if self.resting.rests:  # a driver that is there must not be woken, but struck by the cancellation that follows
            self.resume()

    def dispose(self) -> None:
        """Undo the cycles among its parts (see `Engine.dispose`). Only when it has come to its end, and nothing of it is in flight."""
        self.engine.dispose()
        for name in self.__slots__:
            delattr(self, name)

    def abandon(self) -> None:
        """Its event-loop tasks have ended without it: nothing wakes it any more."""
        self.resting.rests = False
        self.cut_short()
        self.notes.stop()
        self.resting.stop()

    @property
    def until(self) -> datetime | None:
        """When its earliest timer is due, or the time of a callback is up that it waits for."""
        earliest = self.engine.machine.earliest
        return _sooner(None if earliest is None else earliest.due, self.callbacks.until)

    @property
    def wakes_at(self) -> datetime | None:
        """When it has something to do again, whatever comes: as `until`, and its deadline."""
        return _sooner(self.until, None if self.is_cut_off else self.activation.deadline)

    @property
    def waits(self) -> tuple[BranchWait, ...]:
        """What its branches wait for."""
        return self._waits

    @property
    def phase(self) -> str | None:
        """What control code says it is at."""
        return self.engine.machine.phase

    def wake(self) -> None:
        """Let the driver go on; not in the middle of a turn that is taken without it."""
        if self.express.has_turn:
            self.express.wanted = True
        else:
            self.resume()

    def resume(self) -> None:
        """Let the driver go on."""
        self.express.open = False
        self.resting.end()

    def _told(self, notice: Notice) -> None:
        # Why it has stopped is said by whoever deals with that.
        stopped = isinstance(notice, Stopped)
        logger.log(logging.INFO if stopped else logging.WARNING, "%s: %s", self.activation.address, notice)
        if stopped:  # a stranger may have struck it, while nothing was in hand
            self.wake()

    # -------------------------------------------------------------------------------------------- from flights

    def tried(self, tried: Tried) -> None:
        """An invocation has failed, and another waits for that to be on record."""
        self._news.append(tried)
        self.wake()

    def flight_ended(self, flight: Flight, landed: Landed | None) -> None:
        self.operations.flights.pop(flight.call, None)
        self.notes.landed(flight.call)
        if landed is not None:
            if self.express.landed(landed):
                return
            self._news.append(landed)
        self.wake()

    def flight_failed(self, flight: Flight, error: BaseException) -> None:
        """A defect of ours, or the end of the event loop."""
        self.operations.flights.pop(flight.call, None)
        self.failure = error
        self.wake()

    # -------------------------------------------------------------------------------------------------- the run

    async def main(self) -> End | Left:
        """Run until the segment ends, or is left, or rests: then it is called again when there is something new.

        Raises what `Engine.process` raises; `NotOurs`; `Undecodable` for a message.
        """
        how: End | Left | None = None
        try:
            if self._begun:
                how = await (self._leave() if self.activation.cancelled else self.resting.rise())
            else:
                self._begun = True
                await self._begin()
            if how is None:
                how = await self._drive()
            return how
        finally:
            if how is not Left.RESTING:
                await self._end()

    def _perform(self, task: Task) -> Awaitable[object]:
        return self._agent.perform(task, self.segment.request)

    async def _begin(self) -> None:
        """Let control code come back to where the journal ends."""
        engine = self.engine
        engine.open()
        await self._process(None, *self.segment.rows)
        engine.confirm(self.segment.intents)
        if self.segment.rows:
            self.segment = evolve(self.segment, rows=(), intents=())
        self._owed = tuple(reply for reply in self._take_replies() if reply.seq == engine.machine.seq)

    async def _end(self) -> None:
        """Nothing of it runs any more, and nothing is in flight."""
        engine = self.engine
        try:
            self._waits = engine.waits()
            self.notes.stop()
            self.resting.stop()
            self.vigil.end()  # a turn that was taken without the driver may be in hand: behind the gate nobody says that it is over
            engine.close()
            await self._ground()
            if self.vigil.stalled is not None:
                self.activation.let_stalled_go(self.segment.task, self.vigil.stalled)
        finally:
            await engine.end()

    async def _process(self, turn: Turn | None, *rows: JournalRow) -> None:
        """Let control code go on."""
        self.vigil.begin(turn)
        try:
            await self.engine.process(*rows)
        finally:
            self.gone_on(turn)

    def add(self, turn: Turn, row: JournalRow) -> None:
        """Put a row into the turn in hand."""
        turn.rows.append(row)
        self.place.passed(row)

    def gone_on(self, turn: Turn | None) -> None:
        """Control code has gone on, and waits again or has ended."""
        self.vigil.end()
        if turn is not None and self.engine.machine.replies:
            turn.replies += tuple(self._take_replies())

    def _take_replies(self) -> list[SignalReply]:
        machine = self.engine.machine
        replies, machine.replies = machine.replies, []
        return replies

    async def _drive(self) -> End | Left:
        activation = self.activation
        while True:
            turn, begun = self.express.take()
            is_shown = turn is not None
            if turn is None:
                turn = Turn(replies=self._owed)
                self._owed = ()
            if begun is None:
                try:
                    if is_shown:
                        await self._see(self.engine.check())
                    await self._take(turn)
                    await self._settle(turn)
                    if turn.end is not None:
                        return await finish(self, turn, turn.end)
                except Exception:
                    await self._keep(turn)
                    raise
            await self.commits.commit(turn, begun=begun)
            if self.is_too_long(self.commits.rows):
                await self._leave()
                limit = activation.pool.spec.journal_limit
                raise Oversize(
                    f"its journal has {self.commits.rows:,} rows in segment {self.segment.task.segment}, and {limit:,} are the most: "
                    "a task that goes on for long begins a new segment, by `task.continue_as(request)`"
                )
            if turn.unresolved:
                await self._leave()
                return await activation.park_unresolved(turn.unresolved)
            if activation.stopping:
                return await self._leave()
            self.send(turn)
            if self.nothing_new:
                if not self.is_idle:
                    await self.resting.wait()
                elif (how := await self.resting.rest()) is not None:
                    return how

    def is_too_long(self, rows: int) -> bool:
        """Whether a journal of so many rows has come to its limit with what this activation has added."""
        return is_too_long(self.segment.task.journal_seq, rows, self.activation.pool.spec.journal_limit)

    async def _take(self, turn: Turn) -> None:
        """Make rows of what has come, and show them."""
        self._check()
        if self.engine.reason is not None:
            await self.engine.check()
        while self._news:
            news = self._news.pop(0)
            if isinstance(news, Tried):
                self.operations.note_try(turn, news)
            elif news.unknown:
                self.operations.note_end(turn, news)
                turn.unresolved += (news.flight.call,)
            else:
                await self.show(turn, self.operations.landed(turn, news))
        if self._mail.has_come:
            await self._mail.take(turn)

    async def _settle(self, turn: Turn) -> None:
        """Go on until something has to be sent or waited for, or the segment has ended."""
        while True:
            if self._is_overdue:
                await self.show(turn, self._cut_off())
            timed = self.engine.machine.earliest is not None  # else it is all one what time it is
            step = self.engine.next_step(self.storage.now() if timed else self.place.at)
            if self.callbacks.are_awaited and isinstance(step, (Send, Idle)) and await self.callbacks.look(turn):
                continue
            match step:
                case Send(calls, cancellations):
                    decided = await self.operations.first_decided(turn, calls)
                    if decided is None:
                        turn.send, turn.tell = self.operations.within_limit(calls), cancellations
                        self.operations.intend(turn)
                        return
                    await self.show(turn, decided)
                case Idle():
                    return
                case Finish(end):
                    turn.end = end
                    return
                case WriteTime() if await self._mail.take_in_time(turn):
                    continue
                case WriteTime(timer, stamp):
                    at = max(self.place.next_at(self.storage.now()), timer.due)
                    await self.show(turn, TimeRow(seq=self.place.seq + 1, at=at, stamp=stamp, timer=timer.call))
                case Withdraw(calls, _):
                    await self.show(turn, self.operations.withdrawn(turn, calls[0]))

    async def show(self, turn: Turn, row: JournalRow) -> None:
        """Let control code see a row that is not durable yet (T26)."""
        self.add(turn, row)
        await self._see(self._process(turn, row))

    async def _see(self, going: Awaitable[None]) -> None:
        """Control code was shown a row, and goes on."""
        await going
        if self.commits.saving or self.failure is not None:
            await self._saved()

    async def _keep(self, turn: Turn) -> None:
        """What has happened has happened, whatever control code makes of it, and whatever else cannot be done in its turn."""
        await self._saved()
        await self.commits.commit(turn.take())

    async def _saved(self) -> None:
        await self.commits.saved()
        self._check()

    @property
    def _is_overdue(self) -> bool:
        deadline = self.activation.deadline
        return (
            deadline is not None
            and not self.is_cut_off
            and deadline <= self.storage.now()
            and self.engine.machine.end is None
        )

    def _cut_off(self) -> ControlRow:
        """The deadline has passed: the task is cancelled, as by a command."""
        self.is_cut_off = True
        now = self.place.next_at(self.storage.now())
        command_id = overdue_id(self.segment.task)
        return ControlRow(
            seq=self.place.seq + 1, at=now, command_id=command_id, kind=ControlKind.CANCEL, reason=OVERDUE
        )

    @property
    def nothing_new(self) -> bool:
        """Nothing waits for the driver."""
        return not (self._news or self._mail.has_come or self.failure or self.activation.stopping)

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def send(self, turn: Turn) -> None:
        """All is durable: let it out."""
        for flight in turn.again:
            flight.go_on()
        for call in turn.send:
            self.engine.machine.sent(call)
            self.operations.send(call)
        for call in turn.tell:
            self.engine.machine.told(call)
            self.operations.tell(call)

    @property
    def is_idle(self) -> bool:
        """Nothing of it is in flight."""
        return not self.operations.flights and not self.engine.machine.in_flight

    # ---------------------------------------------------------------------------------------------------- leaving it

    async def _leave(self) -> Left:
        """Nothing more is sent; what is in flight lands, and is accepted without control code seeing it (T23)."""
        self.engine.close()
        self.operations.land()
        while self.operations.flights or self._news:
            turn = Turn()
            while self._news:
                news = self._news.pop(0)
                if isinstance(news, Landed) and not news.unknown:
                    self.add(turn, self.operations.landed(turn, news))
                else:
                    self.operations.note_end(turn, news)
            await self.commits.commit(turn)
            self._check()
            if self.operations.flights and not self._news:
                await self.resting.park()
        # Operations that are open to control code have landed, or are to be sent, or to be sent again: it has something to do.
        return Left.STOPPED if self.engine.machine.open or self._mail.has_come else Left.EVICTED

    async def _ground(self) -> None:
        """Nothing of it is in flight when it is over, however it was cut short: until then nobody else may have the task."""
        self.operations.drop()
        with anyio.CancelScope(shield=True):
            await self.express.ground()
            while self.operations.flights:
                await self.resting.park()


def _sooner(one: datetime | None, other: datetime | None) -> datetime | None:
    """The earlier of two moments, of which each may never come."""
    if one is None or other is None:
        return one or other
    return min(one, other)
