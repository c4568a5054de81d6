"""One incarnation of an actor: start, the message loop, stop. The loop's scheduling is all here; what it runs is a `Body`.

Phases, in one event-loop task of the supervisor's nursery:

1. *work*, inside a pair of cancel scopes: construct, `on_start`, then messages until a stop, a crash or a cancellation;
2. the companion (the actor's nursery) is cancelled and awaited;
3. *finish*, inside another pair: `on_stop`, bounded; for a thread or a process also its end;
4. the end is made known: watchers, the supervisor, the stream of events.

Nothing ever leaves `main`: whatever the actor's code raises becomes its `Exit`. The supervisor steers by `request_stop`, `cancel`
and `kill`; after the latter two the life settles in bounded time, ended or `stuck`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any, Protocol

from attrs import define, field

from greenroom.actors.bodies import Body
from greenroom.actors.cell import Cell, State
from greenroom.actors.context import Context
from greenroom.actors.current import current_actor
from greenroom.actors.events import ActorAbandoned, ActorEnded, ActorStarted, ActorStuck
from greenroom.actors.exits import Verdict, classify, suspended_stack
from greenroom.actors.handlers import Handler
from greenroom.actors.messages import Exit, Rejected, Stop
from greenroom.actors.nursery import Nursery
from greenroom.actors.scopes import ScopePair
from greenroom.actors.services import Services
from greenroom.errors import ActorCrashed, ActorStopped, Misuse, UnhandledMessage
from greenroom.mailbox import DeadLetterReason, Envelope, MemoryMailbox, Slot, message_type

BATCH = 64
"""Messages handled in a row before a real checkpoint: a flooded actor must stay cancellable, and let others run."""
MOMENT = 0.05
"""Seconds for which a stuck child's shield is lifted to try its cancellation again."""


class Owner(Protocol):
    """The supervisor, as a life sees it."""

    def spawn(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run an event-loop task in the supervisor's nursery. It never raises."""

    def life_started(self, life: Any, info: object) -> None: ...
    def life_settled(self, life: Any) -> None:
        """Stuck: it may still run, and is not waited for."""

    def life_ended(self, life: Any, verdict: Verdict) -> None: ...


class Phase(Enum):
    STARTING = "starting"
    RUNNING = "running"
    FINISHING = "finishing"
    ENDED = "ended"


@define(eq=False)
class Gate:
    """A concurrent handler: how many of it run, and what waits for a place."""

    handler: Handler
    running: int = 0
    deferred: deque[tuple[int, Envelope]] = field(factory=deque)


class ActorLife:
    """One incarnation of an actor of any isolation. See `Life` for what its supervisor may call."""

    __slots__ = (
        "_cancelled_at", "_companion", "_concurrent", "_crash", "_deferrals", "_finish_timer", "_gates", "_last_timer", "_main",
        "_nursery", "_own_exit", "_owner", "_polite", "_scopes", "_stopping", "_told_at", "body", "cell", "context", "drain", "exit",
        "hand", "incarnation", "lingering", "loop", "mailbox", "phase", "reported_slow", "services", "settled", "shutdown", "since", "task",
    )  # fmt: skip

    def __init__(
        self,
        cell: Cell,
        owner: Owner,
        make_body: Callable[[ActorLife], Body],
        *,
        shutdown: float | None,
        drain: bool,
    ) -> None:
        self.cell = cell
        self.services: Services = cell.services
        self.loop = self.services.loop
        self.mailbox: MemoryMailbox = cell.mailbox
        self._owner = owner
        self.shutdown = shutdown
        """Bound of `on_stop` after a crash or a normal end, seconds; None: no bound."""
        self.drain = drain
        self.phase = Phase.STARTING
        self.exit: Exit | None = None
        self.settled = False
        self.lingering = False
        self.task: object = None
        self.hand: Envelope | None = None
        self.since = 0.0
        self.reported_slow: object = None
        self._stopping = False
        self._own_exit: Exit | None = None
        self._crash: Verdict | None = None
        self._polite = True
        self._told_at: float | None = None
        self._cancelled_at: float | None = None
        self._last_timer: Any = None
        self._finish_timer: Any = None
        self._scopes = ScopePair()
        self._nursery: Nursery | None = None
        self._companion: Slot | None = None
        self._gates: dict[type, Gate] | None = None
        self._concurrent: dict[int, Envelope] = _NOTHING
        self._deferrals = 0
        self._main: Any = None
        cell.incarnation += 1
        self.incarnation = cell.incarnation
        cell.life = self
        cell.state = State.STARTING
        self.context = Context(self, cell.ref)
        self.body = make_body(self)

    def start(self) -> None:
        """Begin, as an event-loop task of the supervisor's nursery."""
        self._owner.spawn(self.main)

    # ---------------------------------------------------------------------------------------- the supervisor's side

    @property
    def alive(self) -> bool:
        """Not yet ending: timers and notices still have somebody to go to."""
        return self.exit is None and self.phase is not Phase.ENDED

    def request_stop(self) -> None:
        self._told()
        self._stopping = True
        self.mailbox.wake()

    def cancel(self) -> None:
        if self.exit is not None or self._cancelled_at is not None:
            return
        self._told()
        self._cancelled_at = self.loop.now()
        self._stopping = True
        if self.phase is Phase.FINISHING:
            self._last_chance_over()
            return
        self._scopes.cancel()
        if self._nursery is not None:
            self._nursery.close()
        self._last_timer = self.services.timers.after(self.services.settings.kill_time, self._last_chance_over)

    def kill(self) -> None:
        self._polite = False
        if self._cancelled_at is None:
            self.cancel()
        elif self.exit is None:
            self._last_chance_over()

    def _told(self) -> None:
        if self._told_at is None:
            self._told_at = self.loop.now()

    def _last_chance_over(self) -> None:
        """The kill time has passed, or `on_stop` had begun: cancel whatever phase it is in, then see whether that helps."""
        if self._last_timer is not None:
            self._last_timer.cancel()
        if self.exit is None:
            self._scopes.cancel()
            self._last_timer = self.services.timers.after(self.body.grace, self._found_stuck)

    def _found_stuck(self) -> None:
        if self.exit is not None:
            return
        first = not self.settled
        self._rest(True)
        self.settled = True
        self.cell.state = State.STUCK
        now = self.loop.now()
        self.services.events.publish(
            ActorStuck(
                at=now,
                path=self.cell.path,
                incarnation=self.incarnation,
                message_type=self.message_type_in_hand,
                age=now - (self._told_at if self._told_at is not None else now),
                stack=self.stack(),
            )
        )
        self.services.timers.after(self.services.settings.stuck_report, self._try_again)
        if first:
            self._owner.life_settled(self)

    def _try_again(self) -> None:
        if self.exit is None:
            self._rest(False)
            self.services.timers.after(MOMENT, self._found_stuck)

    def _rest(self, shielded: bool) -> None:
        self._scopes.rest(shielded)
        if self._nursery is not None:
            self._nursery.scopes.rest(shielded)

    # --------------------------------------------------------------------------------------------------- the task

    async def main(self) -> None:
        """The event-loop task. Never raises."""
        self.task = self.loop.current_task()
        current_actor.set(self.cell)
        verdict = self._judge(await self._guarded(self._work))
        started = self.phase is Phase.RUNNING
        verdict = await self._end_companion(verdict)
        verdict = await self._finish(verdict, started)
        self._end(verdict)

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, Exit]]) -> Exit | Verdict | None:
        """Run one phase inside the pair of scopes: what it returned, the verdict on what it raised, or None when it was cancelled."""
        outcome: Exit | Verdict | None = None
        try:
            with self._scopes:
                self._main = work()
                outcome = await self._main
        except BaseException as error:  # noqa: BLE001
            # The one place where everything is caught: what an actor raises is its exit, and goes to its supervisor.
            outcome = classify(error, self.loop.cancelled)
            self._absorb_native_cancellation(error)
        self._main = None
        return outcome

    def _judge(self, outcome: Exit | Verdict | None) -> Verdict:
        """How the work phase ended, by who ended it."""
        verdict = Verdict(outcome) if isinstance(outcome, Exit) else outcome
        if self._crash is not None:
            return self._crash
        if self._cancelled_at is not None or verdict is None:
            fatal = verdict.fatal if verdict is not None else None
            return Verdict(Exit("killed", verdict.exit.cause if verdict is not None else None), fatal)
        return verdict

    def _absorb_native_cancellation(self, error: BaseException) -> None:
        """A native `asyncio.Task.cancel()` has been turned into an exit: the request is used up, or `on_stop` could not wait."""
        uncancel = getattr(self.task, "uncancel", None)
        if uncancel is not None and isinstance(error, self.loop.cancelled):
            while uncancel() > 0:
                pass

    async def _work(self) -> Exit:
        info = await self.body.start()
        self.phase = Phase.RUNNING
        if self.cell.state is State.STARTING:
            self.cell.state = State.RUNNING
        self.services.events.publish(
            ActorStarted(at=self.loop.now(), path=self.cell.path, incarnation=self.incarnation)
        )
        self._owner.life_started(self, info)
        if self.body.concurrent:
            self._gates = {message: Gate(handler) for message, handler in self.body.concurrent.items()}
            self._concurrent = {}
            self.nursery.open()
        try:
            await self._serve()
            while self._concurrent:
                await self.mailbox.wait()
        finally:
            self.services.busy.leave(self)
        return self._own_exit or Exit("shutdown")

    async def _serve(self) -> None:
        """Handle messages, one at a time, until it is time to stop. The hot path: see `benchmarks/actors.py`."""
        mailbox, table, target = self.mailbox, self.body.table, self.body.target
        queue, now, busy = mailbox.queue, self.loop.now, self.services.busy
        busy.enter(self)
        gates = self._gates
        while True:
            for _ in range(BATCH):
                if self._stopping and (not self.drain or not queue or self._own_exit is not None):
                    return
                if not queue:
                    break
                item = queue.popleft()
                if mailbox.waiting:
                    mailbox.admit_waiting()
                if isinstance(item, tuple):
                    envelope = item
                else:
                    opened = mailbox.open_notice(item)
                    if opened is None:
                        continue
                    envelope = opened
                message, _, reply = envelope
                handler = table.get(message.__class__) or self.body.resolve(message.__class__)
                if handler is None:
                    self._unhandled(envelope)
                    continue
                if gates is not None and self._passed_to_nursery(gates, envelope):
                    continue
                self.hand = envelope
                self.since = now()
                try:
                    result = await handler(target, message)
                except BaseException as error:
                    if not self._survives(error, envelope):
                        raise
                    continue
                if self.hand is envelope:  # otherwise it was stashed, and its asker goes on waiting
                    self.hand = None
                    if reply is not None and not reply.done():
                        reply.set_result(result)
            else:
                await self.loop.checkpoint()
                continue
            busy.leave(self)
            await mailbox.wait()
            busy.enter(self)

    def _survives(self, error: BaseException, envelope: Envelope) -> bool:
        """A handler raised. Tell the asker what happened; True when the actor goes on (or ends by its own will)."""
        message, sender, reply = envelope
        self.hand = None
        waiting = reply if reply is not None and not reply.done() else None
        if isinstance(error, Rejected):
            if waiting is not None:
                waiting.set_exception(error)
            elif reply is None:
                self.services.dead_letters.publish(
                    message, self.cell.path, sender.path if sender else None, DeadLetterReason.REJECTED
                )
            return True
        if isinstance(error, Stop):
            if waiting is not None:
                waiting.set_exception(ActorStopped(self.cell.path, message_type(message), "it stopped itself instead"))
            self.stop_self(error.exit)
            return True
        if waiting is not None:
            ours = isinstance(error, self.loop.cancelled) and (self._scopes.cancelled or self._stopping)
            crash = ActorCrashed(
                self.cell.path,
                message_type(message),
                self.incarnation,
                "was stopped" if ours and self._crash is None else "",
            )
            crash.__cause__ = self._crash.exit.cause if ours and self._crash is not None else error
            waiting.set_exception(crash)
        return False

    def _unhandled(self, envelope: Envelope) -> None:
        message, sender, reply = envelope
        if reply is None:
            self.services.dead_letters.publish(
                message, self.cell.path, sender.path if sender else None, DeadLetterReason.UNHANDLED
            )
        elif not reply.done():
            reply.set_exception(UnhandledMessage(self.cell.path, message_type(message), self.body.handled_types()))

    def stop_self(self, exit: Exit | None = None) -> None:
        """The actor ends by its own will, after the message in hand."""
        if self._own_exit is None:
            self._own_exit = exit or Exit("normal")
        self._stopping = True
        self.mailbox.wake()

    # --------------------------------------------------------------------------------------- concurrent handlers

    def _passed_to_nursery(self, gates: dict[type, Gate], envelope: Envelope) -> bool:
        """Start a concurrent handler, or put its message aside until one of its places is free."""
        gate = next((gates[base] for base in type(envelope[0]).__mro__ if base in gates), None)
        if gate is None or self.body.table[type(envelope[0])] is not gate.handler.function:
            return False
        if gate.running < gate.handler.concurrency:
            self._start_concurrent(gate, envelope)
        else:
            self._deferrals += 1
            gate.deferred.append((self._deferrals, envelope))
            self.mailbox.hold(1)
        return True

    def _start_concurrent(self, gate: Gate, envelope: Envelope) -> None:
        gate.running += 1
        self._concurrent[id(envelope)] = envelope
        self.since = self.loop.now()
        self.nursery.start_soon(self._run_concurrent, gate, envelope)

    async def _run_concurrent(self, gate: Gate, envelope: Envelope) -> None:
        message, _, reply = envelope
        try:
            result = await gate.handler.function(self.body.target, message)
            if id(envelope) in self._concurrent and reply is not None and not reply.done():
                reply.set_result(result)
        except BaseException as error:
            if not self._survives(error, envelope):
                raise
        finally:
            self._concurrent.pop(id(envelope), None)
            gate.running -= 1
            if gate.deferred and (not self._stopping or self.drain):
                self.mailbox.hold(-1)
                self._start_concurrent(gate, gate.deferred.popleft()[1])
            elif self._stopping:
                self.mailbox.wake()

    # --------------------------------------------------------------------------------------------- for the context

    @property
    def nursery(self) -> Nursery:
        if not self.body.offers_nursery:
            raise Misuse(f"{self.cell.path!r} runs on a thread or in a process: it has no nursery on the event loop")
        if self._nursery is None:
            self._nursery = Nursery(self, self.loop, self.cell.path)
        return self._nursery

    def take_in_hand(self, message: object) -> Envelope | None:
        """Take the envelope of a message in hand away from its handler."""
        if self.hand is not None and self.hand[0] is message:
            envelope, self.hand = self.hand, None
            return envelope
        for key, envelope in self._concurrent.items():
            if envelope[0] is message:
                del self._concurrent[key]
                return envelope
        return None

    def return_to_hand(self, envelope: Envelope) -> None:
        """Undo `take_in_hand`."""
        self.hand = envelope

    # ------------------------------------------------------------------------------------------------ the companion

    def start_companion(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._companion = self.loop.slot()
        self._owner.spawn(main)

    def companion_ended(self, verdict: Verdict | None) -> None:
        assert self._companion is not None
        if verdict is not None and self._crash is None and self._cancelled_at is None:
            self._crash = verdict
            if self.phase in (Phase.STARTING, Phase.RUNNING):
                self._scopes.cancel()
        self._companion.set_result(None)

    async def _end_companion(self, verdict: Verdict) -> Verdict:
        companion = self._companion
        if companion is None or self._nursery is None:
            return verdict
        self._nursery.close()
        if not companion.done():
            if self._cancelled_at is None:
                # Nobody times a crash from outside: a nursery that swallows its cancellation must be found here.
                self._last_timer = self.services.timers.after(self.services.settings.kill_time, self._last_chance_over)
            await companion
            if self._cancelled_at is None:
                self._last_timer.cancel()
        if self._crash is not None and verdict.exit.clean:
            return self._crash
        return verdict

    # ------------------------------------------------------------------------------------------------------ the end

    async def _finish(self, verdict: Verdict, started: bool) -> Verdict:
        polite = self._polite and started
        if not polite and not self.body.must_finish:
            return verdict
        self.phase = Phase.FINISHING
        self._scopes = ScopePair()
        if self._told_at is None and self.shutdown is not None:
            self._finish_timer = self.services.timers.after(self.shutdown, self.cancel)
        outcome = await self._guarded(lambda: self._call_finish(verdict.exit, polite))
        if isinstance(outcome, Exit):
            return Verdict(outcome, verdict.fatal, verdict.ignored)
        if not verdict.exit.clean:
            # The first failure is the exit; a failing on_stop after it changes nothing but a fatal one.
            return Verdict(
                verdict.exit, verdict.fatal or (outcome.fatal if outcome is not None else None), verdict.ignored
            )
        return outcome if outcome is not None else Verdict(Exit("killed"), verdict.fatal)

    async def _call_finish(self, exit: Exit, polite: bool) -> Exit:
        return await self.body.finish(exit, polite=polite) or exit

    def _end(self, verdict: Verdict) -> None:
        for timer in (self._last_timer, self._finish_timer):
            if timer is not None:
                timer.cancel()
        self.phase = Phase.ENDED
        self.exit = exit = verdict.exit
        self.settled = True
        self.hand = None
        returned = self.context.close()
        if self._gates is not None:
            deferred = sorted(entry for gate in self._gates.values() for entry in gate.deferred)
            self.mailbox.hold(-len(deferred))
            returned += [envelope for _, envelope in deferred]
        self.mailbox.put_back(returned)
        cell = self.cell
        cell.exit = exit
        if not exit.clean:
            cell.last_error = str(exit)
        self.services.events.publish(
            ActorEnded(at=self.loop.now(), path=cell.path, incarnation=self.incarnation, exit=exit)
        )
        self.services.watch.life_ended(cell.path, self._how_it_stopped(exit))
        if verdict.fatal is not None:
            self.services.watch.fatal(verdict.fatal)
        cell.tell_watchers(exit)
        self._owner.life_ended(self, verdict)

    def _how_it_stopped(self, exit: Exit) -> str:
        if exit.kind == "abandoned":
            return "abandoned"
        if exit.kind == "killed":
            return "killed" if self.body.must_finish else "cancelled"
        return "stopped"

    def thread_ended(self) -> None:
        """The thread of a life that was abandoned has ended after all."""
        if self.lingering:
            self.lingering = False
            assert self.exit is not None
            self._owner.life_ended(self, Verdict(self.exit))

    def abandoned(self, thread: str) -> None:
        """A body leaves its thread alone: it may still run."""
        self.lingering = True
        self.services.events.publish(
            ActorAbandoned(at=self.loop.now(), path=self.cell.path, incarnation=self.incarnation, thread=thread)
        )

    # --------------------------------------------------------------------------------------------- for people to see

    @property
    def in_hand(self) -> Envelope | None:
        """The message in hand; with concurrent handlers the oldest."""
        return self.hand or next(iter(self._concurrent.values()), None)

    @property
    def message_type_in_hand(self) -> str | None:
        envelope = self.in_hand
        return message_type(envelope[0]) if envelope is not None else None

    def stack(self) -> str:
        """Where its code waits just now; empty while it runs."""
        return suspended_stack(self._main) if self._main is not None else ""


_NOTHING: dict[int, Envelope] = {}
