"""The engine: control code in turns, on the running event loop (T1, T2, T8, T23, T24).

Each branch is an event-loop task in one flat nursery, parked on a slot whenever it is not its turn; which one runs next is the
machine's decision, and exactly one does. A turn begins when a branch's slot is filled and ends when it parks again or ends. Whoever
parks wakes the next; the last one wakes the driver, which waits in `process`. Between two calls of that no driver is needed.

The gate: once it is closed, nothing that branches do reaches the machine. A call then waits for the event loop's own cancellation,
and the end of a branch means nothing. It is closed before anything is cancelled for real, so that eviction, shutdown and errors of
ours are no events of the task.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextvars import Context, copy_context
from datetime import datetime
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, Final, NoReturn

import anyio

from greenroom.actors.exits import Contained, classify, is_cancellation, suspended_stack
from greenroom.errors import (
    Cancelled,
    ConcurrentBranchUse,
    Defect,
    ForeignCancellation,
    ForeignDeadline,
    OutsideBranch,
    ScopeLeftOpen,
    Undecodable,
)
from greenroom.mailbox import EventLoop, Slot, current_loop
from greenroom.mailbox.parking import CancelScope
from greenroom.runtime.replay.branch_state import BranchState, NurseryState
from greenroom.runtime.replay.branches import HandlersBlock
from greenroom.runtime.replay.calls import BLOCKED, Calls
from greenroom.runtime.replay.codec import ValueCodec
from greenroom.runtime.replay.endings import FOREIGN, meaning
from greenroom.runtime.replay.machine import UNBROKEN, Machine
from greenroom.runtime.replay.marks import NOTHING, Recorded
from greenroom.runtime.replay.matching import check_intents
from greenroom.runtime.replay.notices import CancellationIgnored, EndDiscarded, Stopped, Tell
from greenroom.runtime.replay.rows import Intent, JournalRow, Start
from greenroom.runtime.replay.steps import Step, next_step
from greenroom.runtime.replay.task import Task
from greenroom.runtime.replay.waits import BranchWait, Turn, wait_of

NO_HANDLERS: Final[Mapping[str, Any]] = MappingProxyType({})

PATIENCE: Final = 100
"""Calls that a cancelled branch makes in vain before it is reported."""

Spawn = Callable[[Callable[[], Coroutine[Any, Any, None]], str], object]


class Engine:
    """One activation of a task's control code. Used as `async with`; leaving the block ends it, without any event of the task.

    A driver whose event-loop task ends while the activation goes on says by `spawn` where branches run, and calls `open` and `end`.

    Args:
        perform: the control code; it is given the `Task`.
        start: what the segment begins with.
        codec: values to bytes and back.
        recorded: what the rows known by now say about version marks: `Recorded.of(rows)`.
        tell: is told what people should know. Must not raise.
        handlers: who takes signals as they come, by their type in the store.
        loop: the running event loop, to share one description of it. None: find out.
        context: what the root runs in, and no one else does. None: a copy of the running one.
        spawn: starts the event-loop task of a branch, under a name. None: a nursery of the engine's own does, and the block is needed.
    """

    __slots__ = (
        "_acting",
        "_block",
        "_deadline",
        "_drained",
        "_emptied",
        "_loop",
        "_running",
        "_spawn",
        "_tell",
        "_turns",
        "_unbroken",
        "calls",
        "closed",
        "machine",
        "reason",
    )

    def __init__(
        self,
        perform: Callable[[Task], Awaitable[object]],
        start: Start,
        codec: ValueCodec,
        recorded: Recorded = NOTHING,
        tell: Tell = lambda _: None,
        *,
        handlers: Mapping[str, Callable[[Task, Any], Awaitable[object]]] = NO_HANDLERS,
        loop: EventLoop | None = None,
        spawn: Spawn | None = None,
        context: Context | None = None,
    ) -> None:
        task = Task(self, start, codec)
        bound = {type_: partial(handler, task) for type_, handler in handlers.items()} if handlers else NO_HANDLERS
        main = partial(self._beside_handlers, perform, task) if handlers else partial(perform, task)
        self.machine = Machine(main, start, recorded, codec, tell, bound, context or copy_context())
        self.calls = Calls(self.machine)
        self.closed = False
        self._acting: BranchState | None = None
        """The branch whose turn it is."""
        self._tell = tell
        self._loop = current_loop() if loop is None else loop
        self._running: dict[BranchState, CancelScope] = {}
        """Those whose event-loop tasks have not ended, each with what cancels it: that is no event of the task."""
        self._emptied: Slot | None = None
        """Somebody waits until there are none."""
        self._drained: Callable[[], object] | None = None
        """Who is called when no turn is left."""
        self._deadline = math.inf
        self._turns = 0
        self._unbroken = 0
        self.reason: BaseException | None = None
        """Why the activation has stopped itself; `check` raises it."""
        self._spawn = spawn
        self._block = self._loop.open_nursery() if spawn is None else None

    async def __aenter__(self) -> Engine:
        self.open()
        if self._block is not None:
            nursery = await self._block.__aenter__()
            self._spawn = lambda main, name: nursery.start_soon(main, name=name)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.end()
        finally:
            if self._block is not None:
                # The error is the driver's own: the nursery would only wrap it in a group.
                await self._block.__aexit__(None, None, None)

    # ----------------------------------------------------------------------------------------- for the driver

    def open(self) -> None:
        """Before all else, in a driver around which there is nothing that is not around each of them."""
        self._deadline = anyio.current_effective_deadline()

    async def end(self) -> None:
        """End the activation: nothing of it runs any more when this returns, or raises."""
        self.close()
        if self._running:
            for scope in self._running.values():
                scope.cancel()
            with self._loop.cancel_scope() as scope:
                scope.shield = True
                while self._running:
                    self._emptied = self._loop.slot()
                    await self._emptied

    async def process(self, *rows: JournalRow) -> None:
        """Begin, if that has not been done, and process rows; returns when no turn is left.

        Whether a row is durable yet is the caller's affair (T26): it must not be seen outside, nor anything sent, before it is.

        Raises:
            Diverged: today's control code does not do what the journal says.
            Undecodable: a recorded value is none of today's types.
            Misuse: control code was cancelled from outside, or left a scope open.
            Contained: something that is no `Exception` came out of it.
            JournalBroken: rows do not follow each other.
            KeyboardInterrupt, SystemExit: out of control code.
        The gate is closed then.
        """
        if self.reason is not None:
            await self.check()
        self._check_free()
        self.machine.rows = [*reversed(rows)]
        try:
            await self._drain()
        except BaseException:
            self.close()
            raise
        finally:
            self._drained = None

    def begin(self, row: JournalRow, drained: Callable[[], object]) -> None:
        """As `process`, without waiting.

        Args:
            drained: called when no turn is left, in whatever event-loop task has had the last one; `reason` says by then whether the
                activation has stopped itself. Must not raise. Never called behind the closed gate.
        """
        self._check_free()
        self.machine.rows = [row]
        self._unbroken = 0
        self._drained = drained
        self._next_turn()

    def _check_free(self) -> None:
        if self.closed or self._drained is not None:
            raise Defect("an activation was driven on behind its closed gate, or by two at once")

    def confirm(self, intents: Iterable[Intent]) -> None:
        """Compare what was sent before, and has no outcome, with the operations that are open now that all known rows are processed.

        Raises:
            Diverged: today's control code does not call such an operation.
        """
        machine = self.machine
        check_intents(intents, machine.seq, machine.open, machine.trace, machine.codec)

    def next_step(self, now: datetime) -> Step:
        """What is to be done next, by the store's clock. Only when no turn is left."""
        return next_step(self.machine, now)

    def waits(self) -> tuple[BranchWait, ...]:
        """What each branch waits for."""
        return tuple(wait_of(branch) for branch in self.machine.branches())

    @property
    def turn(self) -> Turn | None:
        """The turn in hand; None when every branch waits."""
        return None if self._acting is None else Turn(self._turns, self._acting.label)

    @property
    def turns(self) -> int:
        """How many turns there have been."""
        return self._turns

    def stack(self) -> str:
        """Where the branch waits whose turn it is, if it waits; outermost first."""
        task: Any = None if self._acting is None else self._acting.body
        if task is None:
            return ""
        return suspended_stack(task.get_coro() if self._loop.backend == "asyncio" else task.coro)

    def give_up(self, reason: BaseException) -> None:
        """Close the gate because of something that its driver has seen; `process` raises that, though a turn may be in hand."""
        self._stop(reason)

    def dispose(self) -> None:
        """Undo the cycles among its parts: it is of no use any more. Left to the garbage collector, what thousands of short tasks leave
        behind would cost as much as a part of their work."""
        machine = self.machine
        del self.machine, self.calls
        machine.root.scopes.clear()
        machine.root.scope = None

    def close(self) -> None:
        """Close the gate. Nothing is written any more by what control code does."""
        self.closed = True

    async def check(self) -> None:
        """Raise the reason for which the activation has stopped itself, if it has. `Stopped` was told then."""
        if self.reason is None:
            return
        if anyio.current_effective_deadline() == -math.inf:
            # The driver itself is cancelled, and its branches were with it: that was no stranger.
            await anyio.sleep_forever()
        raise self.reason

    # ----------------------------------------------------------------------------------------- for control code

    def call(self, enter: Callable[..., object], *args: object) -> Coroutine[Any, Any, Any]:
        """Make a call that may have to wait: `enter(branch, *args)`, a method of `calls`. What it gives is awaited at once, for its value.

        It is no coroutine itself: branches that wait, and there are many, would have a frame more each.
        """
        if self.closed:
            return self._behind_the_gate()
        branch = self.caller()
        self._refuse_foreign_deadline(branch)
        try:
            value = enter(branch, *args)
        except Cancelled as refusal:
            return self._refused(branch, refusal)
        except (Undecodable, MemoryError) as error:  # of a signal that is read: it is not the branch's to deal with
            self._stop(error)
            return self._behind_the_gate()
        return self._park(branch) if value is BLOCKED else self._counted(branch, value)

    async def leave_nursery(self, nursery: NurseryState, error: BaseException | None) -> bool:
        """The block of a nursery has been left: wait for its branches. True: what it was left by is taken in."""
        ending = self.block_ending(error)
        if ending is FOREIGN:
            return False
        branch = await self.caller_in_turn()
        if self.calls.join(branch, nursery, ending) is BLOCKED:
            await self._park(branch)
        else:
            await self._count(branch)
        return self.calls.leave_nursery(branch, nursery, ending)

    def block_ending(self, error: BaseException | None) -> Any:
        """What leaving a block by this exception means. By a foreign one: the gate is closed before it goes on (T24)."""
        ending = meaning(error)
        if ending is FOREIGN and error is not None:
            self._stop_by(error, self._running_here())
        return ending

    async def caller_in_turn(self) -> BranchState:
        """The branch that makes this call; behind the closed gate it never returns."""
        if self.closed:
            await self._behind_the_gate()
        return self.caller()

    def caller(self) -> BranchState:
        """The branch that makes this call.

        Raises:
            OutsideBranch: the event-loop task is none.
            ConcurrentBranchUse: it waits already.
        """
        branch = self._acting
        if branch is None or branch.body is not self._loop.current_task():
            branch = self._running_here()
        if branch is None:
            raise OutsideBranch(self.machine.start.task_id)
        if branch.wait is not None:
            raise ConcurrentBranchUse(branch.label, str(branch.wait))
        return branch

    def _running_here(self) -> BranchState | None:
        """The branch whose event-loop task is the running one. Nearly always it is the one whose turn it is: so there is no table."""
        task = self._loop.current_task()
        return next((branch for branch in self._running if branch.body is task), None)

    # ------------------------------------------------------------------------------------------------- turns

    async def _drain(self) -> None:
        """Take turns and rows until none is left."""
        while True:
            drained = self._loop.slot()
            self._drained = partial(_fill, drained)
            self._next_turn()
            await drained
            if self.reason is not None:
                await self.check()
            self._unbroken += 1
            if self._unbroken >= UNBROKEN or self.machine.rows:
                self._unbroken = 0
                await self._loop.checkpoint()
            if not self.machine.rows:
                return

    def _next_turn(self) -> None:
        """No turn is in hand: give the next one, or wake the driver."""
        if self.closed:
            return
        try:
            ready = self.machine.advance()
        except Exception as error:  # noqa: BLE001 - it is the activation's, not that of the branch whose turn has just ended
            self._stop(error)
            return
        if not ready:
            self._acting = None
            self._wake_driver()
            return
        branch = self.machine.ready.pop(0)
        self._turns += 1
        self._acting = branch
        slot, branch.slot = branch.slot, None
        if slot is None:  # it has not run before
            name = f"{self.machine.start.task_id} {branch.label}"
            scope = self._running[branch] = self._loop.cancel_scope()
            assert self._spawn is not None
            branch.context.run(self._spawn, partial(self._main, branch, scope), name)
        elif not slot.done():  # if it is, the branch was cancelled for real, and will say so
            slot.set_result(None)

    def _wake_driver(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None:
            drained()

    async def _beside_handlers(self, perform: Callable[[Task], Awaitable[object]], task: Task) -> object:
        result = None
        async with HandlersBlock(self):
            result = await perform(task)
        return result

    async def _park(self, branch: BranchState) -> Any:
        """End the branch's turn. Returns or raises in its next one what the machine has put there."""
        slot = branch.slot = self._loop.slot()
        self._next_turn()
        at_once = slot.done()
        try:
            await slot
        except BaseException as error:
            branch.slot = None
            self._stop_by(error, branch)
            raise
        if self.closed:
            await self._behind_the_gate()
        if at_once:
            await self._count(branch)
        value, failure = branch.value, branch.error
        branch.value = branch.error = None
        if failure is not None:
            raise failure
        return value

    async def _main(self, branch: BranchState, scope: CancelScope) -> None:
        """The event-loop task of a branch."""
        value: object = None
        error: BaseException | None = None
        try:
            with scope:
                if not self.closed:
                    branch.body = self._loop.current_task()
                    try:
                        value = await branch.begin()
                    except BaseException as raised:  # noqa: BLE001 - each kind is dealt with
                        error = raised
                    branch.body = None
                    self._over(branch, value, error)
        finally:
            del self._running[branch]
            if not self._running and self._emptied is not None and not self._emptied.done():
                self._emptied.set_result(None)

    def _over(self, branch: BranchState, value: object, error: BaseException | None) -> None:
        """The code of a branch has returned that, or raised this."""
        ending = meaning(error)
        if ending is FOREIGN or isinstance(ending, GeneratorExit):
            assert error is not None
            self._stop_by(error, branch)
            return  # the driver raises it, or is cancelled itself: out of the nursery it would come as a group
        if self.closed:
            if isinstance(error, Exception):
                self._tell(EndDiscarded(branch.label, error))
            return
        try:
            self.calls.end_branch(branch, value, ending)
        except ScopeLeftOpen as left:
            self._stop(left)
            return
        self._next_turn()

    # ------------------------------------------------------------------------------------------- stops, strangers

    def _refuse_foreign_deadline(self, branch: BranchState) -> None:
        deadline = self._loop.effective_deadline()
        # Minus infinity is a scope that has been cancelled: the event loop's cancellation is on its way, and says more.
        if -math.inf < deadline < self._deadline:
            raise ForeignDeadline(branch.label)

    async def _counted(self, branch: BranchState, value: object) -> object:
        await self._count(branch)
        return value

    async def _refused(self, branch: BranchState, refusal: Cancelled) -> NoReturn:
        """A call was made in a cancelled scope."""
        if branch.refused == PATIENCE:
            self._tell(CancellationIgnored(branch.label, branch.refused))
        await self._let_others_run(branch)
        raise refusal

    async def _count(self, branch: BranchState) -> None:
        """A call had nothing to wait for. Many in a row must not keep the event loop to themselves."""
        self._unbroken += 1
        if self._unbroken >= UNBROKEN:
            await self._let_others_run(branch)

    async def _let_others_run(self, branch: BranchState) -> None:
        self._unbroken = 0
        try:
            await self._loop.checkpoint()
        except BaseException as error:
            self._stop_by(error, branch)
            raise

    async def _behind_the_gate(self) -> NoReturn:
        while True:  # on asyncio a wait may once return normally after its scope was cancelled
            await anyio.sleep_forever()

    def _stop_by(self, error: BaseException, branch: BranchState | None) -> None:
        """Control code was struck by something that is no event of the task."""
        fatal = classify(error, self._loop.cancelled).fatal
        if fatal is not None:
            self._stop(fatal)
        elif not (isinstance(error, GeneratorExit) or is_cancellation(error, self._loop.cancelled)):
            self._stop(Contained(error))  # no `Exception`, but it stops no more than one that is
        elif branch is None:
            self._stop(OutsideBranch(self.machine.start.task_id))
        else:
            self._stop(
                ForeignCancellation(branch.label, "nothing of the task" if branch.wait is None else str(branch.wait))
            )

    def _stop(self, reason: BaseException) -> None:
        if self.closed:
            return
        self.closed = True
        self.reason = reason
        self._tell(Stopped(reason))
        self._wake_driver()


def _fill(slot: Slot) -> None:
    if not slot.done():
        slot.set_result(None)
