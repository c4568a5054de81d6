"""Concurrent handlers: they run in the actor's nursery, at most so many at once; messages beyond that wait, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import define, field

from greenroom.actors.bodies import Perform
from greenroom.actors.exits import suspended_stack
from greenroom.actors.handlers import Handler
from greenroom.mailbox import Envelope, Slot

if TYPE_CHECKING:
    from greenroom.actors.life import ActorLife
    from greenroom.actors.message_loop import MessageLoop


@define(eq=False)
class Gate:
    """One concurrent handler, for all the types of message it takes: how many of it run, and what waits for a place."""

    handler: Handler
    running: int = 0
    deferred: deque[tuple[int, Envelope, Perform | None]] = field(factory=deque)
    """With their order of arrival among all that is deferred."""


@define(eq=False)
class Run:
    """A message in the hands of a concurrent handler."""

    number: int
    """Its place among all that was taken."""
    envelope: Envelope
    since: float
    """When it was taken in hand, by the stopwatch."""
    perform: Perform | None = None
    """What to do with it, when that is not just to call the handler."""
    turn: Slot | None = None
    begun: bool = False
    stashed: bool = False
    """It was given to the stash: its asker goes on waiting."""
    task: object = None
    coroutine: Any = None
    reported_slow: bool = False

    def stack(self) -> str:
        """Where the handler waits just now."""
        return suspended_stack(self.coroutine)


class ConcurrentHandlers:
    """The concurrent handlers of one incarnation."""

    __slots__ = ("_held", "_life", "_messages", "_taken", "_to_begin", "gates", "runs")

    def __init__(self, life: ActorLife, messages: MessageLoop) -> None:
        self._life = life
        self._messages = messages
        gates: dict[Callable[..., Any], Gate] = {}
        self.gates: dict[type, Gate] = {
            message: gates.setdefault(handler.function, Gate(handler))
            for message, handler in life.body.concurrent.items()
        }
        self.runs: dict[Run, None] = {}
        """What runs, the oldest first."""
        self._to_begin: deque[Run] = deque()
        """Those of them whose event-loop tasks have not begun yet."""
        self._taken = 0
        self._held = 0

    def take(self, gate: Gate, envelope: Envelope, perform: Perform | None = None) -> None:
        """Start the handler, or put its message aside until one of its places is free.

        Or for the next incarnation: a failure in the nursery closes it, and may do so before the message loop is cancelled.
        """
        self._taken += 1
        if gate.running < gate.handler.concurrency and not self._life.nursery.closed:
            self._start(gate, self._taken, envelope, perform)
        else:
            gate.deferred.append((self._taken, envelope, perform))
            self._hold(1)

    def _hold(self, count: int) -> None:
        self._held += count
        self._life.mailbox.hold(count)

    def _start(self, gate: Gate, number: int, envelope: Envelope, perform: Perform | None) -> None:
        gate.running += 1
        run = Run(number, envelope, self._life.loop.stopwatch(), perform)
        if not self.runs:
            self._life.services.busy.enter_beside(self._life)
        self.runs[run] = None
        self._to_begin.append(run)
        self._life.nursery.start_soon(self._main, gate, run)

    async def _main(self, gate: Gate, run: Run) -> None:
        try:
            await self._begin(run)
            if self._life.nursery.closed:
                return
            run.begun = True
            await self._handle(gate.handler, run)
        finally:
            del self.runs[run]
            gate.running -= 1
            if not self.runs:
                self._life.services.busy.leave_beside(self._life)
            if not run.begun:
                gate.deferred.append((run.number, run.envelope, run.perform))
        # Not after a crash or a cancellation: what waits for a place is for the next incarnation then.
        if gate.deferred and self._messages.goes_on and not self._life.nursery.closed:
            self._hold(-1)
            self._start(gate, *gate.deferred.popleft())
        elif self._messages.stopping:
            self._life.mailbox.look_up()

    async def _begin(self, run: Run) -> None:
        """Wait until all that were started before have begun: trio runs new tasks in no particular order."""
        try:
            while self._to_begin[0] is not run:
                run.turn = self._life.loop.slot()
                await run.turn
        finally:
            self._to_begin.remove(run)
            turn = self._to_begin[0].turn if self._to_begin else None
            if turn is not None and not turn.done():
                turn.set_result(None)

    async def _handle(self, handler: Handler, run: Run) -> None:
        message, _, reply = run.envelope
        run.task = self._life.loop.current_task()
        try:
            run.coroutine = (run.perform or handler.function)(self._life.body.target, message)
            result = await run.coroutine
            if not run.stashed and reply is not None and not reply.done():
                reply.set_result(result)
        except BaseException as error:
            if run.stashed:
                self._life.context.forget_stashed(run.envelope)
            if not self._messages.survives(error, run.envelope):
                raise

    def find(self, message: object) -> Run | None:
        """The run that has this message in hand: the calling one if it can be, since one object may be sent many times."""
        task = self._life.loop.current_task()
        found = [run for run in self.runs if run.envelope[0] is message and run.begun and not run.stashed]
        return next((run for run in found if run.task is task), found[0] if found else None)

    def take_deferred(self) -> list[Envelope]:
        """What still waits for a place, or had got one and not begun, in order of arrival."""
        gates = {id(gate): gate for gate in self.gates.values()}.values()
        entries = sorted((entry for gate in gates for entry in gate.deferred), key=lambda entry: entry[0])
        return [envelope for _, envelope, _ in entries]

    def give_room_back(self) -> None:
        """What `take_deferred` returned is in the mailbox again, and counts there."""
        self._hold(-self._held)
