"""The root of a running tree: what stands above the top supervisor. Starts it, moves its shutdown on, and keeps how it went.

Everything of the tree runs below `Root.run`, inside a shielded scope: nothing from outside tears through it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup

from greenroom.actors import (
    AskDeadlines,
    Cell,
    Directory,
    Event,
    Exit,
    Services,
    Settings,
    State,
    Timers,
    Verdict,
    described,
    text_of,
)
from greenroom.actors.busy import BusyLives
from greenroom.errors import RestartLimitExceeded, RuntimeNotRunning, StartFailed, TreeFailed
from greenroom.logs import logger_named
from greenroom.mailbox import Broadcast, DeadLetters, EventLoop, Slot
from greenroom.runtime.shutdown import Shutdown, ShutdownReport, Stage, StopRequested
from greenroom.runtime.snapshot import TreeNode, snapshot
from greenroom.supervisors import SupervisorLife, SupervisorSpec
from greenroom.supervisors.stray import StrayMailbox

if TYPE_CHECKING:
    from greenroom.runtime.runtime import Runtime

logger = logger_named("greenroom.runtime")


class Root:
    """The owner of the top supervisor. For the event loop's thread.

    Args:
        staged: called at each stage that the shutdown reaches.
        done: called when nothing of the tree runs any more, but for what is stuck.
    """

    def __init__(
        self,
        runtime: Runtime,
        spec: SupervisorSpec,
        settings: Settings,
        loop: EventLoop,
        events: Broadcast[Event],
        dead_letters: DeadLetters,
        *,
        staged: Callable[[Stage], object],
        done: Callable[[], object],
    ) -> None:
        timers = Timers(loop)
        self._store_failure: BaseException | None = None
        self.services = Services(
            loop=loop,
            timers=timers,
            asks=AskDeadlines(loop, timers),
            dead_letters=dead_letters,
            events=events,
            directory=Directory(),
            settings=settings,
            watch=_Watch(self),
            runtime=runtime,
            busy=BusyLives(loop, timers, events, settings.slow_handler),
        )
        self.spec = spec
        self.shutdown = Shutdown()
        self.started = False
        self.verdict: Verdict | None = None
        """How the tree ended; None while anything of it runs."""
        self.fatal: BaseException | None = None
        """The KeyboardInterrupt or SystemExit that came out of an actor, and ends the tree."""
        self._staged = staged
        self._done = done
        self._life: SupervisorLife | None = None
        self._nursery: TaskGroup | None = None
        self._begun = False
        self._over = False
        self._report: ShutdownReport | None = None
        self._failure: TreeFailed | None = None
        self._waiting: dict[Slot, None] = {}
        self.cell = Cell(spec.name, StrayMailbox(spec.name, loop, dead_letters), self.services)
        self.services.directory.add(self.cell)

    # ------------------------------------------------------------------------------------------------------ the task

    async def run(self) -> None:
        """The root task. Returns when the tree has ended."""
        self._begun = True
        try:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as nursery:
                    self._nursery = nursery
                    nursery.start_soon(self.services.timers.run)
                    self._life = SupervisorLife(self.cell, self, self.spec)
                    self._apply(self.shutdown.stage)
                    await self._life.main()
                    self._nursery = None  # from here on nothing more is started, though the block is not left yet
                    nursery.cancel_scope.cancel()
        finally:
            self._nursery = None
            self._over = True
            self._announce()

    def start(self, group: TaskGroup) -> None:
        """Begin, as an event-loop task of this group."""
        group.start_soon(self.run)
        # A native cancellation before its first step would end it without a trace. Two turns later it has had that step. Trio has no
        # such cancellation, and there what is posted may well come before a task's first step.
        if self.services.loop.backend == "asyncio":
            post = self.services.loop.post
            post(lambda: post(self._see_that_it_began))

    def _see_that_it_began(self) -> None:
        if not self._begun:
            self._over = True
            self._announce()

    @property
    def over(self) -> bool:
        """Nothing of the tree runs, and nothing is about to."""
        return self.verdict is not None or self._over

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until something holds of the root. No checkpoint when it does."""
        while not reached():
            slot = self.services.loop.slot()
            self._waiting[slot] = None
            try:
                await slot
            finally:
                del self._waiting[slot]

    def _announce(self) -> None:
        for slot in self._waiting:
            if not slot.done():
                slot.set_result(None)

    # -------------------------------------------------------------------------------------------------- the shutdown

    def request_stop(self, why: str) -> None:
        """Begin the shutdown, or move it one stage on. Does nothing when the tree has ended."""
        if self.verdict is None:
            self._enter_next_stage(why)
            self._apply(self.shutdown.stage)
            self._announce()

    def _enter_next_stage(self, why: str) -> None:
        now = self.services.loop.now()
        stage = self.shutdown.advance(now)
        logger.info("%s: %s (stage %s)", self.spec.name, why, stage.name.lower())
        self.services.events.publish(StopRequested(at=now, path=self.spec.name, stage=stage, why=why))
        self._staged(stage)

    def _apply(self, stage: Stage) -> None:
        life = self._life
        if life is None or stage is Stage.NONE:
            return
        if stage is Stage.REQUESTED:
            life.request_stop()
        elif stage is Stage.CANCELLED:
            life.cancel()
        else:
            life.kill()

    # ------------------------------------------------------------------------------- the owner of the top supervisor

    def spawn(self, main: Callable[[], Coroutine[Any, Any, None]], name: str | None = None) -> None:
        """Run an event-loop task beside the tree. Raises `RuntimeNotRunning` when the tree has ended."""
        if self._nursery is None:
            raise RuntimeNotRunning("a task of the runtime")
        self._nursery.start_soon(main, name=name)

    def life_started(self, life: Any, info: object) -> None:
        """The whole tree has started."""
        self.started = True
        self._announce()

    def life_ending(self, life: Any, exit: Exit) -> None:
        """The tree begins to end by itself: from here it is a shutdown like any other."""
        if not self.shutdown.begun:
            why = (
                "it could not start"
                if not self.started
                else "it gave up"
                if exit.cause is not None
                else "it shuts down"
            )
            self._enter_next_stage(why)
            self._announce()

    def life_settled(self, life: Any) -> None:
        """The shutdown is done but for what is stuck."""
        logger.warning("%s: waiting for what is stuck. %s", self.spec.name, self.report())
        self._announce()
        self._done()

    def life_ended(self, life: Any, verdict: Verdict) -> None:
        """The tree has ended."""
        self.verdict = verdict
        self.cell.state = State.DOWN
        self.cell.mailbox.close("the tree has ended")
        self._report = self.report()
        self._announce()
        self._done()

    # ------------------------------------------------------------------------------------------------- how it stands

    def tree(self) -> TreeNode:
        """The tree as it is now."""
        return snapshot(self.cell, self.spec, 0, self.services.loop.stopwatch())

    def report(self) -> ShutdownReport:
        """How the shutdown stands, or how it went."""
        if self._report is not None:
            return self._report
        nodes = self.tree().walk() if self.verdict is None else ()
        return self.shutdown.report(nodes, self.services.loop.now())

    def failure(self) -> TreeFailed | None:
        """What the tree failed with, when it gave up (or was torn down, unasked): always the same exception."""
        verdict = self.verdict
        if self._failure is not None or verdict is None:
            return self._failure
        exit, cause = verdict.exit, verdict.exit.cause
        if self._store_failure is not None:
            self._failure = TreeFailed(self.spec.name, text_of(self._store_failure))
            self._failure.__cause__ = self._store_failure
            return self._failure
        torn = exit.kind == "killed" and not self.shutdown.begun  # by whoever cancels the tasks of the asyncio loop
        if exit.kind == "error" or isinstance(cause, RestartLimitExceeded) or torn:
            why = "" if cause is None else text_of(cause)
            self._failure = TreeFailed(self.spec.name, "its tasks were cancelled from outside" if torn else why)
            self._failure.__cause__ = cause
        return self._failure

    def start_failure(self) -> StartFailed:
        """Why it has ended before it had started."""
        cause = self.verdict.exit.cause if self.verdict is not None else None
        if isinstance(cause, StartFailed):
            return cause
        why = "a stop was requested before it had started" if cause is None else described(cause)
        failed = StartFailed(self.spec.name, why)
        failed.__cause__ = cause
        return failed

    def store_failed(self, error: BaseException) -> None:
        """The store is gone for good: nothing durable can be done any more."""
        self._store_failure = error
        if self.verdict is None:
            self.request_stop(f"the store failed: {text_of(error)}")

    def never_started(self) -> None:
        """The tree will not be started."""
        self._over = True

    def note_fatal(self, error: BaseException) -> None:
        """KeyboardInterrupt or SystemExit came out of an actor."""
        if self.fatal is None:
            self.fatal = error
            if not self.shutdown.begun:
                self.request_stop(f"{type(error).__qualname__} was raised in it")
            self._done()


class _Watch:
    """The root as the lives see it."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def life_ended(self, path: str, how: str) -> None:
        cell = self._root.services.directory.get(path)
        brutal = cell is not None and getattr(cell.life, "shutdown", None) == 0
        self._root.shutdown.note_end(path, how, brutal=brutal)

    def thread_ended(self, path: str) -> None:
        self._root.shutdown.note_thread_ended(path)

    def fatal(self, error: BaseException) -> None:
        self._root.note_fatal(error)
