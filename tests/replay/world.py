"""A world in memory around an engine: it executes operations, sends signals, lets time pass, evicts and kills, all by a seed.

One step after the other, so that the whole of a run follows from the program, the seed and nothing else: the same seed gives the
same journal on either event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Protocol

from attrs import define, field, frozen

from greenroom.runtime.replay.branch_state import OperationCall
from greenroom.runtime.replay.engine import Engine
from greenroom.runtime.replay.marks import Recorded
from greenroom.runtime.replay.notices import Notice, Tell
from greenroom.runtime.replay.operations import Operation, unpacked
from greenroom.runtime.replay.paths import CallId
from greenroom.runtime.replay.rows import (
    ControlKind,
    ControlRow,
    EffectKnown,
    End,
    Fault,
    JournalRow,
    OutcomeRow,
    OutcomeStatus,
    SignalRow,
    Stamp,
    TimeRow,
)
from greenroom.runtime.replay.steps import Finish, Idle, Send, Withdraw, WriteTime
from greenroom.runtime.replay.task import Task
from greenroom.runtime.replay.timers import Timer
from tests.replay.values import BEGIN, CODEC, Hint, Nudge, Steer, start


class Noting(Protocol):
    """Control code that keeps notes of what its branches have seen."""

    notes: list[str]

    @property
    def handlers(self) -> dict[str, Callable[[Task, Any], Awaitable[object]]]: ...

    async def __call__(self, task: Task) -> object: ...


@frozen
class Seen:
    """All that is decided when a row has been processed, as text: what must be equal live and at replay."""

    seq: int
    digest: bytes
    open: tuple[str, ...]
    waits: tuple[str, ...]
    earliest: str
    ended: str
    noted: tuple[str, ...]
    replies: tuple[str, ...]
    """What has become of handled signals so far."""


def engine_for(perform: Noting, journal: Sequence[JournalRow], tell: Tell = lambda _: None) -> Engine:
    return Engine(perform, start(), CODEC, Recorded.of(journal), tell, handlers=perform.handlers)


def seen(engine: Engine, perform: Noting) -> Seen:
    machine = engine.machine
    stamp = machine.stamp()
    return Seen(
        stamp.basis,
        stamp.digest,
        tuple(sorted(f"{id} {call} {call.admitted} {call.cancel_requested}" for id, call in machine.open.items())),
        tuple(f"{branch.label}: {branch.wait}" for branch in machine.branches()),
        str(machine.earliest and (machine.earliest.due, machine.earliest.call)),
        "" if machine.end is None else described(machine.end),
        tuple(perform.notes),
        tuple(map(str, (*machine.replies, *machine.interrupted))),
    )


def described(end: End) -> str:
    return f"{end.kind.value} at {end.seq}: {end.body!r} {story(end.error)} {len(end.unread)} unread"


def story(error: BaseException | None) -> str:
    if isinstance(error, BaseExceptionGroup):
        return f"{error.message}: [{', '.join(story(part) for part in error.exceptions)}]"
    return repr(error)


class Gone(Exception):
    """The activation was evicted, or its execution killed."""


@frozen(kw_only=True)
class Habits:
    """How often the world does what it may."""

    evicts: float = 0.0
    kills: float = 0.0
    races: float = 0.3
    """Somebody else's row gets in before the owner's."""
    signals: int = 6
    cancels: float = 0.03


@define
class World:
    """One task in its world. `journal` and `sent` survive activations, the rest does not."""

    perform: Noting
    random: Random
    habits: Habits = field(factory=Habits)
    journal: list[JournalRow] = field(factory=list)
    known: list[Seen] = field(factory=list)
    """What was seen after the start and after each row."""
    sent: list[CallId] = field(factory=list)
    activations: int = 0
    notices: list[Notice] = field(factory=list)
    now: datetime = BEGIN
    _in_flight: dict[CallId, OperationCall] = field(factory=dict)
    _told: set[CallId] = field(factory=set)
    _signals: int = 0

    async def run(self, *, activations: int = 50) -> End:
        """Run the task to its end, through evictions and kills."""
        while True:
            self.activations += 1
            if self.activations > activations:
                self.habits = Habits(races=self.habits.races, signals=0, cancels=0.0)
            try:
                return await self._activation()
            except Gone:
                continue

    async def _activation(self) -> End:
        self._in_flight.clear()
        self._told.clear()
        async with engine_for(self.perform, self.journal, self.notices.append) as engine:
            await engine.process()
            self._see(engine)
            for row in list(self.journal):
                await self._process(engine, row)
            while True:
                if self.random.random() < self.habits.kills:
                    raise Gone
                step = engine.next_step(self.now)
                match step:
                    case Finish(end):
                        return end
                    case WriteTime(timer, stamp):
                        await self._accept(engine, partial(_time_row, timer, stamp))
                    case Withdraw(calls, stamp):
                        for call in calls:
                            effect = EffectKnown.POSSIBLE if call.id in self.sent else EffectKnown.NONE
                            await self._outcome(engine, call, stamp, OutcomeStatus.CANCELLED, b"", effect)
                            break  # the others may have changed by now
                    case Send(calls, cancellations):
                        for call in calls:
                            engine.machine.sent(call)
                            self.sent.append(call.id)
                            self._in_flight[call.id] = call
                        for call in cancellations:
                            engine.machine.told(call)
                            self._told.add(call.id)
                    case Idle(until, in_flight):
                        assert in_flight == len(self._in_flight)
                        if in_flight == 0 and self.random.random() < self.habits.evicts:
                            raise Gone
                        await self._something_happens(engine, until)

    async def _something_happens(self, engine: Engine, until: datetime | None) -> None:
        choices = ["outcome"] * min(3, len(self._in_flight))
        if until is not None:
            choices += ["time"]
        if self._signals < self.habits.signals:
            choices += ["signal"]
        if not choices or self.random.random() < self.habits.cancels:
            # Nothing else will ever wake it: a signal that it may wait for, and at some time a command to stop.
            choices = ["signal", "cancel"]
        match self.random.choice(choices):
            case "outcome":
                call = self._in_flight.pop(self.random.choice(list(self._in_flight)))
                await self._complete(engine, call)
            case "time":
                assert until is not None
                self.now = max(self.now, until + timedelta(seconds=self.random.choice([0, 0, 0, 1, 5])))
            case "signal":
                await self._process(engine, self._append(self._signal()))
            case _:
                await self._process(engine, self._append(self._cancel()))

    async def _complete(self, engine: Engine, call: OperationCall) -> None:
        args, kwargs = unpacked(CODEC.decode(call.params))
        raised = False
        if call.id in self._told and self.random.random() < 0.5:
            raised, body = True, b""
        else:
            try:
                body = CODEC.encode(
                    await call.target.invoke(Operation(key="k", id=str(call.id), invocation=1), args, kwargs)
                )
            except ValueError as error:
                raised = True
                body = CODEC.encode(Fault("error", type(error).__name__, str(error)))
        status = OutcomeStatus.of(raised=raised, cancel_requested=call.cancel_requested)
        await self._outcome(engine, call, engine.machine.stamp(), status, body, EffectKnown.POSSIBLE)

    async def _outcome(
        self, engine: Engine, call: OperationCall, stamp: Stamp, status: OutcomeStatus, body: bytes, effect: EffectKnown
    ) -> None:
        def row(seq: int, now: datetime) -> JournalRow:
            return OutcomeRow(
                seq=seq,
                at=now,
                stamp=stamp,
                call=call.id,
                name=call.name,
                params=call.params,
                status=status,
                body=body,
                effect=effect,
            )

        await self._accept(engine, row)

    async def _accept(self, engine: Engine, row: Callable[[int, datetime], JournalRow]) -> None:
        """Accept a row of the owner. Rows of others may get in before it (T6), or the row may be shown before it is durable (T26)."""
        fate = self.random.random()
        ahead: list[JournalRow] = []
        if fate < self.habits.races:
            cancels = self.habits.cancels > 0 and self.random.random() < 0.1
            ahead = [self._append(self._cancel() if cancels else self._signal())]
        elif fate > 1 - self.habits.kills:
            await engine.process(row(len(self.journal) + 1, self._tick()))
            raise Gone  # what it did is lost with it
        ahead.append(self._append(row))
        for taken in ahead:
            await self._process(engine, taken)

    def _append(self, row: Callable[[int, datetime], JournalRow]) -> JournalRow:
        made = row(len(self.journal) + 1, self._tick())
        self.journal.append(made)
        return made

    def _tick(self) -> datetime:
        last = self.journal[-1].at if self.journal else BEGIN
        self.now = max(self.now, last) + timedelta(seconds=self.random.choice([0, 0, 0.25, 1]))
        return self.now

    def _signal(self) -> Callable[[int, datetime], JournalRow]:
        self._signals += 1
        kind: Any = self.random.choice([Steer, Hint, *([Nudge] * 2 if self.perform.handlers else [])])
        message: Any = kind(f"message {self._signals}")
        return lambda seq, now: SignalRow(
            seq=seq, at=now, message_id=f"m{seq}", type=CODEC.tags(kind)[0], body=CODEC.encode(message)
        )

    def _cancel(self) -> Callable[[int, datetime], JournalRow]:
        return lambda seq, now: ControlRow(seq=seq, at=now, command_id=f"c{seq}", kind=ControlKind.CANCEL)

    async def _process(self, engine: Engine, row: JournalRow) -> None:
        await engine.process(row)
        self._see(engine)

    def _see(self, engine: Engine) -> None:
        """Each row is seen once by each activation, and always in the same way."""
        now = seen(engine, self.perform)
        if now.seq < len(self.known):
            assert now == self.known[now.seq]
        else:
            self.known.append(now)


def _time_row(timer: Timer, stamp: Stamp, seq: int, now: datetime) -> JournalRow:
    return TimeRow(seq=seq, at=max(now, timer.due), stamp=stamp, timer=timer.call)


async def replay(perform: Noting, journal: Sequence[JournalRow]) -> list[Seen]:
    """Process a journal and nothing else; what was seen after the start and after each row."""
    async with engine_for(perform, journal) as engine:
        await engine.process()
        states = [seen(engine, perform)]
        for row in journal:
            await engine.process(row)
            states.append(seen(engine, perform))
        return states
