"""An engine under a test's hand: it is given one row after the other, and says what it would do next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from greenroom.actors import Message
from greenroom.runtime.replay.branch_state import OperationCall
from greenroom.runtime.replay.engine import Engine
from greenroom.runtime.replay.marks import Recorded
from greenroom.runtime.replay.notices import Notice
from greenroom.runtime.replay.paths import CallId
from greenroom.runtime.replay.rows import (
    ControlKind,
    ControlRow,
    End,
    EndKind,
    Fault,
    JournalRow,
    OutcomeRow,
    OutcomeStatus,
    SignalRow,
    Stamp,
    TimeRow,
)
from greenroom.runtime.replay.steps import Send, Step
from greenroom.runtime.replay.task import Task
from tests.replay.values import BEGIN, CODEC, start


class Stage:
    """Rows by hand. Without a time of its own, a row has the time of the one before it."""

    def __init__(self, engine: Engine, journal: Sequence[JournalRow], notices: list[Notice]) -> None:
        self.engine = engine
        self.journal = list(journal)
        self.notices = notices
        self.now = journal[-1].at if journal else BEGIN

    # ------------------------------------------------------------------------------------------------- rows

    async def succeed(self, call: str, value: object, *, stamp: Stamp | None = None) -> None:
        await self.process(self.outcome_row(call, OutcomeStatus.SUCCEEDED, CODEC.encode(value), stamp=stamp))

    async def fail(self, call: str, message: str = "no", *, cause: BaseException | None = None) -> None:
        body = CODEC.encode(Fault("error", "ValueError", message))
        await self.process(self.outcome_row(call, OutcomeStatus.FAILED, body, cause=cause))

    async def cancelled(self, call: str) -> None:
        await self.process(self.outcome_row(call, OutcomeStatus.CANCELLED, b""))

    async def signal(self, message: Message[Any]) -> None:
        type_ = CODEC.tags(type(message))[0]
        body = CODEC.encode(message)
        await self.process(SignalRow(seq=self.next, at=self.now, message_id=f"m{self.next}", type=type_, body=body))

    async def answer(self, key: str, value: object) -> None:
        failed = isinstance(value, Fault)
        await self.process(
            SignalRow(
                seq=self.next,
                at=self.now,
                message_id=f"m{self.next}",
                type="",
                body=CODEC.encode(value),
                answers=key,
                failed=failed,
            )
        )

    async def time(self) -> None:
        """The earliest timer comes due."""
        earliest = self.engine.machine.earliest
        assert earliest is not None
        self.now = max(self.now, earliest.due)
        await self.process(TimeRow(seq=self.next, at=self.now, stamp=self.engine.machine.stamp(), timer=earliest.call))

    async def cancel(self) -> None:
        await self.process(ControlRow(seq=self.next, at=self.now, command_id=f"c{self.next}", kind=ControlKind.CANCEL))

    def outcome_row(
        self,
        call: str,
        status: OutcomeStatus,
        body: bytes,
        *,
        stamp: Stamp | None = None,
        cause: BaseException | None = None,
    ) -> OutcomeRow:
        open_ = self.call(call)
        return OutcomeRow(
            seq=self.next,
            at=self.now,
            stamp=self.engine.machine.stamp() if stamp is None else stamp,
            call=open_.id,
            name=open_.name,
            params=open_.params,
            status=status,
            body=body,
            cause=cause,
        )

    async def process(self, row: JournalRow) -> None:
        self.journal.append(row)
        await self.engine.process(row)

    @property
    def next(self) -> int:
        return len(self.journal) + 1

    def later(self, seconds: float) -> None:
        """Rows have this time from now on."""
        self.now += timedelta(seconds=seconds)

    # ------------------------------------------------------------------------------------------------- looking

    def step(self, now: datetime | None = None) -> Step:
        return self.engine.next_step(self.now if now is None else now)

    def send(self) -> list[str]:
        """Send what is to be sent, and tell whom is to be told; gives the calls sent."""
        step = self.step()
        if not isinstance(step, Send):
            return []
        for call in step.calls:
            self.engine.machine.sent(call)
        for call in step.cancellations:
            self.engine.machine.told(call)
        return [str(call.id) for call in step.calls]

    def call(self, place: str) -> OperationCall:
        branch, _, number = place.partition("#")
        return self.engine.machine.open[CallId(branch, int(number))]

    @property
    def open(self) -> list[str]:
        return [str(id) for id in self.engine.machine.open]

    @property
    def end(self) -> End | None:
        return self.engine.machine.end

    @property
    def result(self) -> Any:
        """What the control code returned. It must have ended well."""
        assert self.end is not None
        assert self.end.kind is EndKind.RETURNED, self.end
        return CODEC.decode(self.end.body)

    @property
    def error(self) -> BaseException | None:
        """What it raised. It must have ended."""
        assert self.end is not None
        return self.end.error


@asynccontextmanager
async def staged(
    perform: Callable[[Task], Awaitable[object]], journal: Sequence[JournalRow] = ()
) -> AsyncIterator[Stage]:
    """Run control code until it waits, over a journal if there is one."""
    notices: list[Notice] = []
    async with Engine(perform, start(), CODEC, Recorded.of(journal), notices.append) as engine:
        await engine.process(*journal)
        yield Stage(engine, journal, notices)
