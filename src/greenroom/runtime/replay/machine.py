"""The machine that turns are made with: rows go in, branches become ready. No event loop, no clock, no store.

Whoever drives it puts rows in, and lets it `advance` whenever no turn is in hand; what control code calls reaches it through `Calls`.
Live work and replay are one thing here: the machine sees rows, and never asks where they come from.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from functools import partial
from typing import Any, Final

from attrs import evolve

from greenroom.errors import Cancelled, Diverged, JournalBroken, OperationFailed, WaitTimeout
from greenroom.runtime.replay.branch_state import (
    Asking,
    BranchState,
    Joining,
    NurseryState,
    OperationCall,
    Receiving,
)
from greenroom.runtime.replay.codec import ValueCodec
from greenroom.runtime.replay.marks import Marks, Recorded
from greenroom.runtime.replay.matching import Passed, Past, check_outcome, check_time
from greenroom.runtime.replay.notices import CleanupCut, Tell
from greenroom.runtime.replay.paths import ROOT, CallId
from greenroom.runtime.replay.replies import SignalReply
from greenroom.runtime.replay.rows import (
    ControlRow,
    End,
    EndKind,
    Fault,
    JournalRow,
    OutcomeRow,
    OutcomeStatus,
    SignalRow,
    Stamp,
    Start,
    TimeRow,
)
from greenroom.runtime.replay.scopes import Scope, ScopeKind, cancelled_in, live, reached
from greenroom.runtime.replay.signals import Signals
from greenroom.runtime.replay.timers import Timer, Timers
from greenroom.runtime.replay.trace import Trace

UNBROKEN: Final = 64
"""Rows, or calls that wait for nothing, in a row, before the event loop's other tasks are let run."""


class Machine:
    """The state of one activation, as far as it follows from the journal."""

    __slots__ = (
        "_begun",
        "_in_hand",
        "_past",
        "_settled",
        "_tell",
        "adopted",
        "at",
        "called",
        "codec",
        "end",
        "handlers",
        "handling",
        "interrupted",
        "late",
        "marks",
        "open",
        "phase",
        "ready",
        "replies",
        "root",
        "rows",
        "seq",
        "signals",
        "start",
        "timers",
        "trace",
        "unsent",
        "untold",
    )

    def __init__(
        self,
        main: Callable[[], Awaitable[object]],
        start: Start,
        recorded: Recorded,
        codec: ValueCodec,
        tell: Tell,
        handlers: Mapping[str, Callable[[Any], Awaitable[object]]],
        context: Context,
    ) -> None:
        self.start = start
        self.codec = codec
        self.at = start.at
        """Logical time: the `at` of the row in hand, or of the last one."""
        self.seq = 0
        """The row in hand, or the last one."""
        self.rows: list[JournalRow] = []
        """Known rows that have not been taken, the next one last."""
        self.open: dict[CallId, OperationCall] = {}
        """Operations that were called and have no outcome."""
        self.called: list[OperationCall] = []
        """Those of them that were called in this row."""
        self.unsent: dict[CallId, OperationCall] = {}
        """Those admitted that this activation has not sent."""
        self.untold: dict[CallId, OperationCall] = {}
        """Those sent whose executor has not heard of the request to cancel."""
        self.end: End | None = None
        self.late: tuple[SignalRow | ControlRow, ...] = ()
        """Signals and commands that came after the end."""
        self.timers = Timers()
        self.signals: Signals[Receiving | Asking] = Signals()
        self.adopted: dict[str, None] = {}
        """Keys of children and callbacks of earlier segments, as it may be: what answers them may have come there."""
        self.trace = Trace()
        self.marks = Marks(recorded)
        self.root = BranchState(ROOT, None, main, context)
        self.root.enter(Scope(ScopeKind.ROOT, self.root, 0))
        self.phase: str | None = None
        """What control code says it is at, for people."""
        self.ready: list[BranchState] = [self.root]
        """Branches with a turn ahead, in the order of their turns. The root has the first. There are few, mostly one: a deque takes
        twelve times the memory of a list, empty or not."""
        self.handlers = handlers
        """Who takes signals as they come, by type."""
        self.handling: NurseryState | None = None
        """In which handlers run. None: none is begun (any more)."""
        self.replies: list[SignalReply] = []
        """What has become of signals that handlers took, for the driver to tell."""
        self.interrupted: tuple[SignalReply, ...] = ()
        """The same of those whose handlers were cancelled: to be told when the task ends by that. If it crashes they run again."""
        self._begun: tuple[BranchState, ...] = ()
        """Handlers that began in this row."""
        self._in_hand: JournalRow | None = None
        """The row that was taken and not delivered yet."""
        self._settled = False
        self._past = Past()
        self._tell = tell

    # ------------------------------------------------------------------------------------------------ rows

    def advance(self) -> bool:
        """Go on, with no turn in hand, until a branch is ready: timers that are due, the row in hand, the next row (T2).

        Returns: True if a branch is ready. False: nothing is, and either no known row is left, or so many were processed that others
        should run before it is called again.
        Raises:
            Diverged: a row is not what today's control code does.
            JournalBroken: it does not follow the row before it.
            Undecodable: what it carries is no value of a known type.
        """
        first = self.seq
        while not self.ready:
            if self._in_hand is not None:
                if self.end is not None or not self._fire():
                    self._deliver(self._in_hand)
                    self._in_hand, self._settled = None, False
                continue
            if not self._settled:
                self._settle()
            if not self.rows or self.seq - first >= UNBROKEN:
                return False
            self._take(self.rows.pop())
        return True

    def _take(self, row: JournalRow) -> None:
        """Take the next row in hand: it is compared with what was done, and its time is now the logical time."""
        if row.seq != self.seq + 1 or row.at < self.at:
            raise JournalBroken(
                f"row {row.seq} at {row.at.isoformat()} cannot follow row {self.seq} at {self.at.isoformat()}: "
                "rows are numbered without gaps, and their time never falls"
            )
        if isinstance(row, (OutcomeRow, TimeRow)):
            self._compare(row)
            self.marks.written(row.stamp.marks)
        self.seq, self.at, self._in_hand = row.seq, row.at, row

    def _compare(self, row: OutcomeRow | TimeRow) -> None:
        passed = self._past.at(row.stamp.basis)
        try:
            if isinstance(row, OutcomeRow):
                check_outcome(row, self.open.get(row.call), passed, self.trace, self.codec)
            else:
                check_time(row, passed, self.trace)
        except Diverged as diverged:
            # Where it has ended by an error, that is why nothing more is done: whoever knows what such an error means is to see it.
            raise diverged from (None if self.end is None else self.end.error)

    def _fire(self) -> bool:
        """Fire the earliest timer that is due at the logical time. False: there is none."""
        timer = self.timers.pop_due(self.at)
        if timer is None:
            return False
        subject = timer.subject
        if isinstance(subject, Scope):
            if subject.kind is ScopeKind.CLEANUP:
                self._tell(CleanupCut(subject.owner.label, str(subject)))
            self.cancel(subject, f"the time of {subject} is up")
        elif isinstance(subject, BranchState):
            self.resume(subject)
        else:
            self.resume(subject.branch, error=WaitTimeout(subject.shown, subject.timeout))
        return True

    def _deliver(self, row: JournalRow) -> None:
        """Give a row to whom it concerns."""
        if isinstance(row, OutcomeRow):
            self.resume(self.open[row.call].branch, *self._outcome(row))
        elif isinstance(row, (SignalRow, ControlRow)):
            if self.end is not None:
                self.late += (row,)
                if self.end.kind is EndKind.CONTINUED:  # too late for this segment: the next one gets it
                    self.end = evolve(self.end, unread=(*self.end.unread, row))
            elif isinstance(row, ControlRow):
                self.cancel(self.root.scopes[0], row.reason)
            elif row.answers is None and self.handling is not None and row.type in self.handlers:
                self._handle(row, self.handling)
            else:
                for wait in self.signals.arrive(row):
                    self.resume(wait.branch, *self.read(row, wait.shown))

    def _handle(self, row: SignalRow, handling: NurseryState) -> None:
        """Begin the handler of a signal, as a branch like any other."""
        message, _ = self.read(row, row.type)
        handling.starts += 1
        path = (*handling.scope.owner.path, (handling.scope.number, handling.starts))
        main = partial(self.handlers[row.type], message)
        branch = BranchState(path, handling, main, handling.scope.owner.context.copy())
        branch.message_id = row.message_id
        self.trace.add(self.root.label, handling.scope.number, f"handle {row.type} {branch.label}")
        handling.scope.members[handling.starts] = branch
        self._begun += (branch,)
        self.ready.append(branch)

    def reply(
        self, branch: BranchState, body: bytes | None = None, fault: Fault | None = None, *, cancelled: bool = False
    ) -> None:
        """A handler has come to that; to neither: it has accepted its signal."""
        assert branch.message_id is not None
        branch.accepted |= fault is None
        reply = SignalReply(
            seq=self.seq, message_id=branch.message_id, accepted=branch.accepted, body=body, fault=fault
        )
        if cancelled:
            self.interrupted += (reply,)
        else:
            self.replies.append(reply)

    def _settle(self) -> None:
        """No turn is left: operations that were called in this row, and are still open, are admitted (T3)."""
        for call in self.called:
            if call.id in self.open:
                call.admitted, call.admitted_by = True, self.seq
                self.unsent[call.id] = call
        self.called.clear()
        for branch in self._begun:
            if not branch.ended:
                self.reply(branch)
        self._begun = ()
        earliest = self.timers.earliest()
        self._past.add(Passed(self.trace.digest, None if earliest is None else earliest.call))
        self._settled = True

    # ----------------------------------------------------------------------------------------- waits and ends

    def cancel(self, scope: Scope, reason: str) -> None:
        """Cancel a scope: blocked branches are woken, or have their operation asked to stop (T10)."""
        if scope.cancelled:
            return
        scope.cancelled, scope.reason = True, reason
        for branch in reached(scope):
            wait = branch.wait
            if isinstance(wait, OperationCall) and wait.admitted:
                if not wait.cancel_requested:
                    wait.cancel_requested = True
                    if wait.id not in self.unsent:
                        self.untold[wait.id] = wait
            elif wait is not None and not isinstance(wait, Joining):
                self.resume(branch, error=Cancelled(reason))

    def resume(self, branch: BranchState, value: object = None, error: BaseException | None = None) -> None:
        """End a branch's wait and give it a turn."""
        wait = branch.wait
        if isinstance(wait, OperationCall):
            del self.open[wait.id]
            self.unsent.pop(wait.id, None)
            self.untold.pop(wait.id, None)
        elif isinstance(wait, Receiving):
            self.signals.receivers.remove(wait.types, wait)
        elif isinstance(wait, Asking):
            self.signals.askers.remove((wait.key,), wait)
        if wait is not None and wait.timer is not None:
            self.timers.disarm(wait.timer)
        branch.wait, branch.value, branch.error = None, value, error
        self.ready.append(branch)

    def _outcome(self, row: OutcomeRow) -> tuple[object, BaseException | None]:
        if row.status is OutcomeStatus.CANCELLED:
            return None, cancelled_in(self.open[row.call].branch.scope)
        failed = row.status is OutcomeStatus.FAILED
        return self._opened(row, row.body, row.name if failed else None, row.cause)

    def read(self, row: SignalRow, shown: str) -> tuple[object, BaseException | None]:
        return self._opened(row, row.body, shown if row.failed else None)

    def _opened(
        self, row: JournalRow, body: bytes, failed: str | None, cause: BaseException | None = None
    ) -> tuple[object, OperationFailed | None]:
        """What a row carries, decoded live and at replay alike: a value, or the failure of what it names (R17)."""
        value = self.codec.decode(body, source=f"journal row {row.seq} of task {self.start.task_id}")
        if failed is None:
            return value, None
        error = OperationFailed(failed, value.kind, value.type, value.message, value.details)
        error.__cause__ = cause
        return None, error

    def finish(self, kind: EndKind, body: bytes = b"", error: BaseException | None = None) -> None:
        """The control code has ended, in the row in hand (T7)."""
        unread = self.signals.unread()
        self.end = End(kind=kind, seq=self.seq, digest=self.trace.digest, body=body, error=error, unread=unread)

    # ------------------------------------------------------------------- what a driver asks, when no turn is left

    @property
    def earliest(self) -> Timer | None:
        """The timer that is due first."""
        return None if self.end is not None else self.timers.earliest()

    @property
    def in_flight(self) -> int:
        """Operations that this activation has sent and that have no outcome."""
        return len(self.open) - len(self.unsent)

    def stamp(self) -> Stamp:
        """What the owner's next row has to carry."""
        return Stamp(basis=self.seq, digest=self.trace.digest, marks=self.marks.pending)

    def sent(self, call: OperationCall) -> None:
        """An operation was handed to its executor."""
        del self.unsent[call.id]

    def told(self, call: OperationCall) -> None:
        """An operation's executor has heard that it is cancelled."""
        del self.untold[call.id]

    def rest(self) -> None:
        """Nothing is in hand, for a while. A table that was filled once keeps its size, though it is empty, until it is cleared."""
        for table in (self.open, self.unsent, self.untold):
            if not table:
                table.clear()
        self.trace.rest()

    def branches(self) -> list[BranchState]:
        """The live branches, openers before their children."""
        return [] if self.end is not None else live(self.root)
