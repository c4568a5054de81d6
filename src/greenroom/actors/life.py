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

from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any, Protocol

from greenroom.actors.bodies import Body
from greenroom.actors.cell import Cell, State
from greenroom.actors.context import Context
from greenroom.actors.current import current_actor
from greenroom.actors.events import ActorAbandoned, ActorEnded, ActorStarted, ActorStuck
from greenroom.actors.exits import Contained, Verdict, classify, is_cancellation, suspended_stack
from greenroom.actors.message_loop import NOT_BEGUN, MessageLoop
from greenroom.actors.messages import Exit
from greenroom.actors.nursery import Nursery
from greenroom.actors.own_process import OwnProcess
from greenroom.actors.own_thread import OwnThread
from greenroom.actors.scopes import ScopePair
from greenroom.actors.services import Services
from greenroom.errors import Misuse
from greenroom.logs import logger_named
from greenroom.mailbox import MemoryMailbox, Slot

logger = logger_named("greenroom.actors")

TURNS = 10
"""Turns of the loop for which a stuck child's shield is lifted to try its cancellation again: some need it at more than one await."""


class Owner(Protocol):
    """The supervisor, as a life sees it."""

    def spawn(self, main: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run an event-loop task in the supervisor's nursery, under a name for debuggers. It never raises."""

    def life_started(self, life: Any, info: object) -> None: ...
    def life_ending(self, life: Any, exit: Exit) -> None:
        """A supervisor begins to end by itself: it gave up, could not start, or shuts down automatically."""

    def life_settled(self, life: Any) -> None:
        """Stuck: it may still run, and is not waited for."""

    def life_ended(self, life: Any, verdict: Verdict) -> None: ...


class Phase(Enum):
    STARTING = "starting"
    RUNNING = "running"
    FINISHING = "finishing"
    ENDED = "ended"


class ActorLife:
    """One incarnation of an actor of any isolation. See `Life` for what its supervisor may call."""

    __slots__ = (
        "_cancelled_at",
        "_companion",
        "_companion_over",
        "_crash",
        "_finish_timer",
        "_last_timer",
        "_main",
        "_nursery",
        "_overdue_at",
        "_owner",
        "_polite",
        "_scopes",
        "_told_at",
        "body",
        "cell",
        "context",
        "exit",
        "incarnation",
        "lingering",
        "loop",
        "mailbox",
        "messages",
        "phase",
        "services",
        "settled",
        "shutdown",
        "task",
    )

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
        self.phase = Phase.STARTING
        self.exit: Exit | None = None
        self.settled = False
        self.lingering = False
        self.task: object = None
        self._crash: Verdict | None = None
        self._polite = True
        self._told_at: float | None = None
        self._cancelled_at: float | None = None
        self._overdue_at = 0.0
        self._last_timer: Any = None
        self._finish_timer: Any = None
        self._scopes = ScopePair(self.loop.cancel_scope)
        self._nursery: Nursery | None = None
        self._companion: Slot | None = None
        self._companion_over = True
        self._main: Any = None
        cell.incarnation += 1
        self.incarnation = cell.incarnation
        cell.life = self
        cell.state = State.STARTING
        storage = self.services.storage if self.mailbox.custody is not None else None
        self.messages = MessageLoop(self, drain=drain) if storage is None else storage.message_loop(self, drain=drain)
        self.context = Context(self, cell.ref)
        self.body = make_body(self)

    def start(self) -> None:
        """Begin, as an event-loop task of the supervisor's nursery."""
        self._owner.spawn(self.main, self.cell.path)

    # ---------------------------------------------------------------------------------------- the supervisor's side

    @property
    def alive(self) -> bool:
        """Not yet ending: timers and notices still have somebody to go to."""
        return self.exit is None and self.phase is not Phase.ENDED

    @property
    def told_to_stop(self) -> bool:
        """Its supervisor has asked for its end, and waits for it."""
        return self._told_at is not None

    def request_stop(self) -> None:
        self._told()
        self.messages.stop()

    def cancel(self) -> None:
        if self.exit is not None or self._cancelled_at is not None:
            return
        self._told()
        self._cancelled_at = self.loop.now()
        self.messages.drain = False  # it has had its time
        self.messages.stop()
        if self.phase is Phase.FINISHING and not isinstance(self.body, OwnThread):
            self._last_chance_over()
            return
        if self.phase is not Phase.FINISHING:  # nothing interrupts a thread: all that it can be given is the kill time
            self._scopes.cancel()
        if self._nursery is not None:
            self._nursery.close()
        self._last_timer = self.services.timers.after(self.services.settings.kill_time, self._last_chance_over)

    def kill(self) -> None:
        was_polite, self._polite = self._polite, False
        if self._cancelled_at is None:
            self.cancel()
        elif was_polite and not self.settled:
            self._last_chance_over()
        if isinstance(self.body, OwnProcess):
            self.body.kill_process()

    def _told(self) -> None:
        if self._told_at is None:
            self._told_at = self.loop.now()

    def _last_chance_over(self) -> None:
        """The kill time has passed, or `on_stop` had begun: cancel whatever phase it is in, then see whether that helps."""
        if self._last_timer is not None:
            self._last_timer.cancel()
        if self.exit is None:
            self._overdue_at = self.loop.now()
            self._scopes.cancel()
            self._last_timer = self.services.timers.after(self.body.grace, self._found_stuck)

    def _found_stuck(self) -> None:
        if self.exit is not None:
            return
        if self.task is None:  # a native cancellation before its first step: nothing of it will ever run
            self._end(Verdict(Exit("killed")))
            return
        first = not self.settled
        self._rest(True)
        self.settled = True
        self.cell.state = State.STUCK
        now, kind, stack = self.loop.now(), self.messages.type_in_hand, self.stack()
        age = now - (self._told_at if self._told_at is not None else self._overdue_at)
        logger.error(
            "stuck: %s does not end, %.1f s after it was told to (message in hand: %s)\n%s",
            self.cell.path,
            age,
            kind,
            stack,
        )
        self.services.events.publish(
            ActorStuck(
                at=now,
                path=self.cell.path,
                incarnation=self.incarnation,
                message_type=kind,
                age=age,
                stack=stack,
            )
        )
        self.services.timers.after(self.services.settings.stuck_report, self._try_again)
        if first:
            self._owner.life_settled(self)

    def _try_again(self, turns: int = TURNS) -> None:
        self._rest(turns == 0)
        if self.exit is None:
            self.loop.post(self._found_stuck if turns == 0 else lambda: self._try_again(turns - 1))

    def _rest(self, shielded: bool) -> None:
        self._scopes.rest(shielded)
        if self._nursery is not None:
            self._nursery.scopes.rest(shielded)

    # --------------------------------------------------------------------------------------------------- the task

    async def main(self) -> None:
        """The event-loop task. Never raises."""
        self.task = self.loop.current_task()
        current_actor.set(self.cell)
        outcome = await self._guarded(self._work())
        self.services.busy.leave(self)
        verdict = self._judge(outcome)
        started = self.phase is Phase.RUNNING
        if verdict.ignored:
            # Out of a start it is a normal end (OTP: ignore); out of a handler it is an error like any other.
            verdict = Verdict(verdict.exit if started else Exit("normal"), verdict.fatal, ignored=not started)
        if self._nursery is not None and self._nursery.opened:
            verdict = await self._end_companion(self._nursery, verdict)
        polite = self._polite and started
        if self.body.must_finish or (polite and self.body.has_on_stop):
            verdict = await self._finish(verdict, polite)
        if self._cancelled_at is not None and verdict.exit.clean:
            verdict = Verdict(Exit("killed"), verdict.fatal)  # it has ended, but only after it was cancelled
        self._end(verdict)

    async def _guarded(self, work: Coroutine[Any, Any, Exit]) -> Exit | Verdict | None:
        """Run one phase inside the pair of scopes: what it returned, the verdict on what it raised, or None when it was cancelled."""
        outcome: Exit | Verdict | None = None
        try:
            with self._scopes:
                self._main = work
                outcome = await work
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
        info = await self.messages.begin()
        if info is NOT_BEGUN:
            return Exit("shutdown")
        self.phase = Phase.RUNNING
        if self.cell.state in (State.STARTING, State.STANDBY):
            self.cell.state = State.RUNNING
        if self.services.events.listened_to:
            now = self.loop.now()
            self.services.events.publish(ActorStarted(at=now, path=self.cell.path, incarnation=self.incarnation))
        self._owner.life_started(self, info)
        await self.messages.run()
        return self.messages.own_exit or Exit("shutdown")

    def explain(self, error: BaseException) -> tuple[bool, BaseException]:
        """Why a handler was ended by `error`: was the actor stopped, and what is the cause to name?"""
        if is_cancellation(error, self.loop.cancelled) and (self._scopes.cancelled or self.messages.stopping):
            crash = self._crash.exit if self._crash is not None else None
            if crash is None or crash.clean:
                return True, error
            return False, error if crash.cause is None else crash.cause
        return False, error.error if isinstance(error, Contained) else error

    def spawn(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """For a body: run an event-loop task in the supervisor's nursery. It must never raise, and end before the body does."""
        self._owner.spawn(main, self.cell.path)

    def fail(self, error: BaseException) -> None:
        """What a body runs outside this task has failed, and not with the message in hand: the actor's exit, after that message."""
        if self._crash is None and self._cancelled_at is None and self.phase in (Phase.STARTING, Phase.RUNNING):
            self._crash = classify(error, self.loop.cancelled)
            self.messages.stop_self()

    # --------------------------------------------------------------------------------------------- for the context

    @property
    def nursery(self) -> Nursery:
        if not self.body.offers_nursery:
            raise Misuse(f"{self.cell.path!r} runs on a thread or in a process: it has no nursery on the event loop")
        if self._nursery is None:
            self._nursery = Nursery(self, self.loop, self.cell.path)
            if self.phase not in (Phase.STARTING, Phase.RUNNING):
                self._nursery.close()  # nobody would await it
        return self._nursery

    # ------------------------------------------------------------------------------------------------ the companion

    def start_companion(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._companion_over = False
        self._owner.spawn(main, self.cell.path)

    def stand_by(self) -> None:
        """It waits to become the owner of its address: to its supervisor it has started. It is told again when it really has."""
        if self.cell.state is State.STARTING:
            self.cell.state = State.STANDBY
            self._owner.life_started(self, None)

    def break_off(self, error: BaseException) -> None:
        """What it depends on, or its nursery, has failed: whatever it does is cancelled, and the error is its exit."""
        if self._crash is None and self._cancelled_at is None:
            self._crash = classify(error, self.loop.cancelled)
            if self.phase in (Phase.STARTING, Phase.RUNNING):
                self._scopes.cancel()
            if isinstance(self.body, OwnProcess):
                self.body.kill_process()

    def companion_ended(self, verdict: Verdict | None) -> None:
        if verdict is not None and self._cancelled_at is None:
            self._crash = verdict  # of all that has failed in it
        self._companion_over = True
        if self._companion is not None and not self._companion.done():
            self._companion.set_result(None)

    async def _end_companion(self, nursery: Nursery, verdict: Verdict) -> Verdict:
        found = self._crash
        nursery.close()
        if not self._companion_over:
            if self._cancelled_at is None:
                # Nobody times a crash from outside: a nursery that swallows its cancellation must be found here.
                self._last_timer = self.services.timers.after(self.services.settings.kill_time, self._last_chance_over)
            await self._outwait(nursery)
            if self._cancelled_at is None:
                self._last_timer.cancel()
        if self._crash is not None and (verdict is found or verdict.exit.clean):
            return self._crash
        return verdict

    async def _outwait(self, nursery: Nursery) -> None:
        """Wait for the companion's end, through native cancellations: what runs there must have ended first all the same."""
        turns = 0
        while not self._companion_over:
            try:
                if nursery.began:
                    self._companion = self.loop.slot()
                    await self._companion
                elif turns < 2:
                    turns += 1
                    await self.loop.checkpoint()
                else:  # it was spawned more than a turn ago: a native cancellation before its first step has ended it
                    self._companion_over = True
            except self.loop.cancelled as error:
                self._absorb_native_cancellation(error)

    # ------------------------------------------------------------------------------------------------------ the end

    async def _finish(self, verdict: Verdict, polite: bool) -> Verdict:
        self.phase = Phase.FINISHING
        self._scopes = ScopePair(self.loop.cancel_scope)
        if self._told_at is None and self.shutdown is not None:
            self._finish_timer = self.services.timers.after(self.shutdown, self.cancel)
        outcome = await self._guarded(self._call_finish(verdict.exit, polite))
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
        self.messages.hand = None
        returned = self.context.close() + self.messages.take_deferred()
        if returned:
            self.mailbox.put_back(returned)
            self.messages.give_room_back()
        cell = self.cell
        cell.exit = exit
        if not exit.clean:
            cell.last_error = str(exit)
        if self.services.events.listened_to:
            now = self.loop.now()
            self.services.events.publish(ActorEnded(at=now, path=cell.path, incarnation=self.incarnation, exit=exit))
        self.services.watch.life_ended(cell.path, self._how_it_stopped(exit))
        if verdict.fatal is not None:
            self.services.watch.fatal(verdict.fatal)
        cell.tell_watchers(exit)
        self._owner.life_ended(self, verdict)

    def _how_it_stopped(self, exit: Exit) -> str:
        if exit.kind == "abandoned":
            return "abandoned"
        if exit.kind == "killed":
            return "killed" if self.body.must_finish and not isinstance(self.body, OwnThread) else "cancelled"
        return "stopped" if exit.clean else "failed"

    def thread_ended(self) -> None:
        """The thread of a life that was abandoned has ended after all."""
        if self.lingering:
            self.lingering = False
            assert self.exit is not None
            self.services.watch.thread_ended(self.cell.path)
            self._owner.life_ended(self, Verdict(self.exit))

    def abandoned(self, thread: str) -> None:
        """A body leaves its thread alone: it may still run."""
        self.lingering = True
        self.services.events.publish(
            ActorAbandoned(at=self.loop.now(), path=self.cell.path, incarnation=self.incarnation, thread=thread)
        )

    def stack(self) -> str:
        """Where its code waits just now, for reports; empty while it runs. Of a thread: where that is."""
        if isinstance(self.body, OwnThread):
            return self.body.stack()
        if self._main is not None:
            return suspended_stack(self._main)
        return self._nursery.stack() if self._nursery is not None else ""
