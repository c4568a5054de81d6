"""What control code asks of the machine: the calls of the branch whose turn it is, and the end of one.

Each call takes the next number of its branch and goes into the trace, whatever comes of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import copy_context
from datetime import datetime
from typing import Final
from uuid import UUID

from greenroom.actors import Rejected
from greenroom.errors import (
    BranchCancelled,
    Cancelled,
    NotEncodable,
    NurseryEnded,
    ScopeLeftOpen,
    ScopeOutOfOrder,
    SegmentBusy,
    StrayCancelled,
)
from greenroom.runtime.replay.branch_state import (
    Asking,
    BranchState,
    Joining,
    NurseryState,
    OperationCall,
    OperationKind,
    Receiving,
    Sleeping,
)
from greenroom.runtime.replay.draws import drawn_float, drawn_uuid
from greenroom.runtime.replay.endings import Ending
from greenroom.runtime.replay.machine import Machine
from greenroom.runtime.replay.paths import CallId
from greenroom.runtime.replay.replies import interrupted, rejected
from greenroom.runtime.replay.rows import EndKind
from greenroom.runtime.replay.scopes import Scope, ScopeKind, cancelled_in, is_cancelled
from greenroom.runtime.replay.timers import Timer, after

GRACE: Final = 60.0
"""Seconds that handlers of signals have to end when `perform` has returned."""

BLOCKED: Final = object()
"""What a call gives that has to wait. Its value comes with the branch's next turn."""


class Calls:
    """The calls on one machine."""

    __slots__ = ("_machine",)

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    # ------------------------------------------------------------------------------ calls that may have to wait

    def operation(self, branch: BranchState, kind: OperationKind, name: str, params: bytes, target: object) -> object:
        number = self._waiting(branch, f"{kind.value} {name!r}")
        call = OperationCall(
            id=CallId(branch.label, number), branch=branch, kind=kind, name=name, params=params, target=target
        )
        self._machine.open[call.id] = call
        self._machine.called.append(call)
        branch.wait = call
        return BLOCKED

    def sleep(self, branch: BranchState, until: float | datetime) -> object:
        number = self._waiting(branch, f"sleep {_shown(until)}")
        branch.wait = Sleeping(timer=self._arm(branch, number, until, branch))
        return BLOCKED

    def receive(self, branch: BranchState, types: tuple[str, ...], shown: str, timeout: float | None) -> object:
        """The first unread signal of one of these types, decoded; else wait for one."""
        number = self._waiting(branch, f"{shown} {timeout!r}")
        row = self._machine.signals.read(types)
        if row is not None:
            return self._machine.read(row, shown)[0]
        wait = Receiving(branch=branch, types=types, timeout=timeout, shown=shown)
        self._machine.signals.receivers.add(types, wait)
        if timeout is not None:
            wait.timer = self._arm(branch, number, timeout, wait)
        branch.wait = wait
        return BLOCKED

    def ask(self, branch: BranchState, key: str, shown: str, timeout: float | None) -> object:
        """The answer under a key, decoded; else wait for it."""
        number = self._waiting(branch, f"{shown} {timeout!r}")
        row = self._machine.signals.answer(key)
        if row is not None:
            value, error = self._machine.read(row, shown)
            if error is not None:
                raise error
            return value
        wait = Asking(branch=branch, key=key, timeout=timeout, shown=shown)
        self._machine.signals.askers.add((key,), wait)
        if timeout is not None:
            wait.timer = self._arm(branch, number, timeout, wait)
        branch.wait = wait
        return BLOCKED

    def continue_as(self, branch: BranchState, request: bytes) -> object:
        """End the segment; the branch gets no further turn.

        Raises:
            SegmentBusy: not in the root branch, with a nursery open, or with handlers of signals running.
        """
        self._waiting(branch, "continue_as")
        busy = [f"branch {branch.label}"] if branch is not self._machine.root else []
        busy += [str(scope) for scope in branch.scopes if scope.kind is ScopeKind.NURSERY]
        busy += [f"handler {member.label}" for scope in branch.scopes[1:2] for member in _handlers_in(scope)]
        if busy:
            raise SegmentBusy(tuple(busy))
        self._machine.finish(EndKind.CONTINUED, body=request)
        return BLOCKED

    # ------------------------------------------------------------------------------------- calls that do not wait

    def enter_limit(self, branch: BranchState, seconds: float, kind: ScopeKind) -> Scope:
        number = self._note(branch, f"{kind.value} {seconds!r}")
        scope = Scope(kind, branch, number)
        scope.timer = self._arm(branch, number, seconds, scope)
        return branch.enter(scope)

    def leave_limit(self, branch: BranchState, scope: Scope, *, cancelled: bool) -> bool:
        """Leave a limit or a cleanup by its end, by an error, or by `Cancelled`. True: it takes that in (T16)."""
        self._leave(branch, scope)
        return cancelled and scope.cancelled

    def enter_nursery(self, branch: BranchState) -> NurseryState:
        number = self._note(branch, "nursery")
        return NurseryState(branch.enter(Scope(ScopeKind.NURSERY, branch, number)))

    def enter_handlers(self, branch: BranchState) -> NurseryState:
        """Signals are handled as they come, from now on. It is no call of control code, and has no number of one."""
        self._machine.handling = NurseryState(branch.enter(Scope(ScopeKind.HANDLERS, branch, 0)))
        return self._machine.handling

    def start_branch(
        self, branch: BranchState, nursery: NurseryState, main: Callable[[], Awaitable[object]]
    ) -> BranchState:
        if nursery.ended:
            raise NurseryEnded(str(nursery))
        nursery.starts += 1
        scope = nursery.scope
        started = BranchState((*scope.owner.path, (scope.number, nursery.starts)), nursery, main, copy_context())
        self._note(branch, f"start {started.label}")
        scope.members[nursery.starts] = started
        self._machine.ready.append(started)
        return started

    def cancel_nursery(self, branch: BranchState, nursery: NurseryState) -> None:
        self._note(branch, f"cancel {nursery}")
        if not nursery.ended:
            self._machine.cancel(nursery.scope, f"{nursery} was cancelled")

    def join(self, branch: BranchState, nursery: NurseryState, ending: Ending) -> object:
        """The body has ended: wait for the branches. Any end but a good one, or the nursery's own cancellation, cancels them."""
        self._innermost(branch, nursery.scope)
        nursery.body_ended = True
        if nursery.scope.kind is ScopeKind.HANDLERS:
            return self._join_handlers(branch, nursery, ending)
        if isinstance(ending, Cancelled) and not is_cancelled(nursery.scope):
            ending = _stray(branch, ending)
        if isinstance(ending, Exception):
            nursery.failures.insert(0, ending)
        if ending is not None and not isinstance(ending, Cancelled):
            self._machine.cancel(nursery.scope, f"the block of {nursery} has failed")
        if nursery.scope.members:
            branch.wait = Joining(nursery=nursery)
            return BLOCKED
        nursery.ended = True
        return None

    def _join_handlers(self, branch: BranchState, nursery: NurseryState, ending: Ending) -> object:
        """`perform` has ended: no handler begins any more. Those that run have a while to end, unless it has failed (K08)."""
        self._machine.handling = None
        if not nursery.scope.members:
            nursery.ended = True
            return None
        if ending is None:
            nursery.scope.timer = self._arm(branch, nursery.scope.number, GRACE, nursery.scope)
        else:
            self._machine.cancel(nursery.scope, "the task is ending")
        branch.wait = Joining(nursery=nursery)
        return BLOCKED

    def leave_nursery(self, branch: BranchState, nursery: NurseryState, ending: Ending) -> bool:
        """Body and branches have ended. True: it takes in the body's `Cancelled` (T16).

        Raises:
            ExceptionGroup: of what failed (T17).
            Cancelled: branches were cancelled from around it.
        """
        self._leave(branch, nursery.scope)
        if nursery.scope.kind is ScopeKind.HANDLERS:
            if nursery.failures:
                failures = [*([ending] if isinstance(ending, Exception) else []), *nursery.failures]
                raise ExceptionGroup(f"handlers of signals to task {self._machine.start.task_id} failed", failures)
            return False
        if nursery.failures:
            raise ExceptionGroup(f"{nursery} of task {self._machine.start.task_id} failed", nursery.failures)
        if nursery.scope.cancelled:
            return isinstance(ending, Cancelled)
        if nursery.saw_cancelled and ending is None:
            raise cancelled_in(branch.scope)
        return False

    def version(self, name: str) -> bool:
        return self._machine.marks.ask(name, self._machine.seq)

    def random(self, branch: BranchState) -> float:
        branch.draws += 1
        return drawn_float(self._machine.start, branch.label, branch.draws)

    def uuid(self, branch: BranchState) -> UUID:
        branch.draws += 1
        return drawn_uuid(self._machine.start, branch.label, branch.draws)

    def end_branch(self, branch: BranchState, value: object, error: Exception | Cancelled | None) -> None:
        """A branch's code has returned, or raised an `Exception` or `Cancelled`.

        Raises:
            ScopeLeftOpen: inside something that it had entered.
        """
        nursery = branch.nursery
        if len(branch.scopes) > (nursery is None):
            raise ScopeLeftOpen(branch.label, str(branch.scopes[-1])) from error
        if isinstance(error, Cancelled) and not is_cancelled(branch.scope):
            error = _stray(branch, error)
        branch.ended = True
        if branch.message_id is not None:
            error = self._end_handler(branch, value, error)
        if nursery is None:
            self._end_root(value, error)
            return
        members = nursery.scope.members
        del members[branch.path[-1][1]]
        branch.value, branch.error = value, error
        if isinstance(error, Cancelled):
            nursery.saw_cancelled = True
            branch.error = BranchCancelled(branch.label)
        elif error is not None:
            nursery.failures.append(error)
            self._machine.cancel(nursery.scope, f"branch {branch.label} has failed")
        if nursery.body_ended and not members:
            nursery.ended = True
            self._machine.resume(nursery.scope.owner)

    def _end_handler(
        self, branch: BranchState, value: object, error: Exception | Cancelled | None
    ) -> Exception | Cancelled | None:
        """Say what a handler has come to. Gives what it has failed by: a rejection is an answer."""
        machine = self._machine
        if error is None:
            try:
                machine.reply(branch, body=machine.codec.encode(value))
            except NotEncodable as unfit:
                return unfit
        elif isinstance(error, Rejected):
            machine.reply(branch, fault=rejected(error))
            return None
        elif isinstance(error, Cancelled):
            machine.reply(branch, fault=interrupted(error.reason), cancelled=True)
        return error

    # -------------------------------------------------------------------------------------------------- inside

    def _note(self, branch: BranchState, call: str) -> int:
        branch.calls += 1
        self._machine.trace.add(branch.label, branch.calls, call)
        return branch.calls

    def _waiting(self, branch: BranchState, call: str) -> int:
        """Number a call that may wait. In a cancelled scope it raises, and has used its number all the same (T14)."""
        number = self._note(branch, call)
        if is_cancelled(branch.scope):
            branch.refused += 1
            raise cancelled_in(branch.scope)
        return number

    def _arm(self, branch: BranchState, number: int, until: float | datetime, subject: object) -> Timer:
        due = until if isinstance(until, datetime) else after(self._machine.at, until)
        timer = Timer(due, branch.path, CallId(branch.label, number), subject)
        self._machine.timers.arm(timer)
        return timer

    def _innermost(self, branch: BranchState, scope: Scope) -> None:
        if not branch.scopes or branch.scopes[-1] is not scope:
            raise ScopeOutOfOrder(branch.label, str(scope))

    def _leave(self, branch: BranchState, scope: Scope) -> None:
        self._innermost(branch, scope)
        self._machine.trace.add(branch.label, scope.number, "leave")
        if scope.timer is not None:
            self._machine.timers.disarm(scope.timer)
        branch.scopes.pop()
        branch.scope = scope.parent

    def _end_root(self, value: object, error: Exception | Cancelled | None) -> None:
        body = b""
        if error is None:
            try:
                body = self._machine.codec.encode(value)
            except NotEncodable as unfit:
                error = unfit
        if error is None:
            self._machine.finish(EndKind.RETURNED, body=body)
        elif isinstance(error, Cancelled):
            self._machine.finish(EndKind.CANCELLED, error=error)
        else:
            self._machine.finish(EndKind.RAISED, error=error)


def _stray(branch: BranchState, error: BaseException) -> StrayCancelled:
    stray = StrayCancelled(branch.label)
    stray.__cause__ = error
    return stray


def _shown(until: float | datetime) -> str:
    return until.isoformat() if isinstance(until, datetime) else repr(until)


def _handlers_in(scope: Scope) -> tuple[BranchState, ...]:
    return tuple(scope.members.values()) if scope.kind is ScopeKind.HANDLERS else ()
