"""`Runtime`: runs a tree inside an `async with` block.

The tree hangs in a root task inside a shielded scope, so that cancellation of the host (its scope, a native `Task.cancel()`, Ctrl-C)
does not tear through it: an unshielded watcher turns it into a stop request, and the ordered ladder runs. The block's body stays
cancellable all the while, and is cancelled when the tree ends by itself.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Literal

import anyio
from anyio.abc import TaskGroup

from greenroom.actors import AskDeadlines, Cell, Directory, Event, Exit, Ref, Services, Settings, State, Timers, Verdict
from greenroom.actors.busy import BusyLives
from greenroom.errors import BadSpec, Misuse, RestartLimitExceeded, RuntimeNotRunning, StartFailed, TreeFailed
from greenroom.mailbox import (
    Broadcast,
    DeadLetter,
    DeadLetterReason,
    DeadLetters,
    EventLoop,
    Slot,
    Subscription,
    current_loop,
)
from greenroom.runtime.from_thread import FromThread
from greenroom.runtime.shutdown import ShutdownReport, Stage, StopRequested
from greenroom.runtime.snapshot import TreeNode, snapshot
from greenroom.runtime.watchdog import LoopBlocked, Watchdog
from greenroom.supervisors import SupervisorLife, SupervisorSpec
from greenroom.supervisors.stray import StrayMailbox

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Runtime:
    """Runs a tree: `async with Runtime(tree) as runtime: ...`, on asyncio or trio. The tree stops, in order, when the block ends.

    Args:
        tree: the top supervisor.
        store: not offered yet; must be None.
        final_deadline: seconds from the first stop request after which the process is ended by force (exit status 70). None: the
            block waits for as long as anything runs, and says what.
        signals: SIGINT and SIGTERM start the shutdown, each further one moves it a stage on. Needs the main thread. False: the
            embedding program owns its signals.
        kill_time: seconds from cancellation to `stuck`; `on_stop` gets them once when it has not begun.
        slow_handler: seconds after which a handler is reported as slow.

    Raises, from the block:
        StartFailed: a child did not start; what had started is stopped again.
        TreeFailed: the top supervisor gave up. The body was cancelled.
        The body's own exception, bare. When the tree ends by automatic shutdown, the body is cancelled and the block ends normally.
    """

    def __init__(
        self,
        tree: SupervisorSpec,
        *,
        store: str | None = None,
        final_deadline: float | None = None,
        signals: bool = False,
        kill_time: float = 2.0,
        slow_handler: float = 30.0,
    ) -> None:
        if not isinstance(tree, SupervisorSpec):
            raise BadSpec(f"Runtime({tree!r}): the top of a tree is a supervisor; wrap it in gr.Supervisor(name, ...)")
        if store is not None:
            raise BadSpec(f"store={store!r}: this version keeps everything in memory; leave `store` out")
        if final_deadline is not None and not final_deadline > 0:
            raise BadSpec(f"final_deadline={final_deadline!r}: seconds above 0, or None to wait without limit")
        self._spec = tree
        self._settings = Settings(kill_time=kill_time, slow_handler=slow_handler)
        self._final_deadline = final_deadline
        self._own_signals = signals
        self._entered = False
        self._services: Services | None = None
        self._group: TaskGroup | None = None
        self._nursery: TaskGroup | None = None
        self._body: anyio.CancelScope | None = None
        self._root: SupervisorLife | None = None
        self._cell: Cell | None = None
        self._verdict: Verdict | None = None
        self._started = False
        self._changed: dict[Slot, None] = {}
        self._stage = Stage.NONE
        self._stopped_at = 0.0
        self._ended_by: dict[str, list[str]] = {}
        self._report: ShutdownReport | None = None
        self._fatal: BaseException | None = None
        self._watchdog: Watchdog | None = None
        self._old_handlers: dict[int, Any] = {}
        self._from_thread: FromThread | None = None

    # ------------------------------------------------------------------------------------------------- what users call

    def ref(self, path: str) -> Ref:
        """The address of an actor or supervisor. Raises `NoSuchActor`, naming near misses."""
        return self._running("runtime.ref").directory.find(path)

    def tree(self) -> TreeNode:
        """The whole tree as it is now, frozen: states, incarnations, mailboxes, messages in hand (types only)."""
        services = self._running("runtime.tree")
        assert self._cell is not None
        return snapshot(self._cell, self._spec, 0, services.loop.stopwatch())

    def events(self, *, buffer: int = 10_000) -> Subscription[Event]:
        """An async iterator over what happens in the tree from now on. A reader more than `buffer` behind misses the oldest."""
        return self._running("runtime.events").events.subscribe(buffer=buffer)

    def dead_letters(self, *, buffer: int = 10_000) -> Subscription[DeadLetter]:
        """An async iterator over dead letters from now on."""
        return self._running("runtime.dead_letters").dead_letters.subscribe(buffer=buffer)

    def dead_letter_counts(self) -> dict[tuple[str, DeadLetterReason], int]:
        """Dead letters so far, by (recipient's path, reason)."""
        return self._running("runtime.dead_letter_counts").dead_letters.counts()

    @property
    def from_thread(self) -> FromThread:
        """Blocking `tell`, `ask` and `call` for other threads."""
        if self._from_thread is None:
            raise RuntimeNotRunning("runtime.from_thread")
        return self._from_thread

    @property
    def report(self) -> ShutdownReport | None:
        """How the shutdown is going, or went; None while nobody has asked for one and the tree stands."""
        if self._report is not None or self._stage is Stage.NONE:
            return self._report
        return self._make_report()

    @property
    def stopping(self) -> bool:
        """Has a shutdown begun?"""
        return self._stage is not Stage.NONE

    def request_stop(self, why: str = "the program asked for it") -> None:
        """Begin the shutdown; called again, move it one stage on: ordered, then cancelled, then forced.

        After the last stage the next call ends the process if `final_deadline` is set or the runtime owns the signals.
        """
        services = self._running("runtime.request_stop")
        if self._verdict is not None:
            return
        first = self._stage is Stage.NONE
        self._stage = Stage(min(self._stage + 1, Stage.EXIT))
        services.events.publish(StopRequested(at=services.loop.now(), path=self._spec.name, stage=self._stage, why=why))
        if first:
            self._stopped_at = services.loop.now()
            if self._watchdog is not None and self._final_deadline is not None:
                self._watchdog.set_deadline(self._final_deadline)
        root = self._root
        if root is not None:
            {Stage.REQUESTED: root.request_stop, Stage.CANCELLED: root.cancel}.get(self._stage, root.kill)()
        if (
            self._stage is Stage.EXIT
            and self._watchdog is not None
            and (self._own_signals or self._final_deadline is not None)
        ):
            self._watchdog.exit_now()
        self._announce()

    async def stop(self) -> ShutdownReport:
        """Begin the shutdown if nobody has, and wait for the tree's end. Safe twice, and from any task outside the tree's actors."""
        if self._stage is Stage.NONE:
            self.request_stop()
        await self._until(lambda: self._verdict is not None)
        return self._report or self._make_report()

    async def wait(self) -> None:
        """Wait until the tree has ended by itself: returns after an automatic shutdown, raises `TreeFailed` when it gave up.

        Returns, too, when a stop was requested and the tree has stopped.
        """
        await self._until(lambda: self._verdict is not None)
        failure = self._failure()
        if failure is not None:
            raise failure

    async def wait_stopping(self) -> None:
        """Wait until a shutdown has begun, or the tree has ended by itself."""
        await self._until(lambda: self._stage is not Stage.NONE or self._verdict is not None)

    # ------------------------------------------------------------------------------------------------------ the block

    async def __aenter__(self) -> Runtime:
        if self._entered:
            raise Misuse("this Runtime has been entered before: make a new one for each run")
        self._entered = True
        loop = current_loop()
        self._services = services = self._make_services(loop)
        self._cell = Cell(self._spec.name, StrayMailbox(self._spec.name, loop, services.dead_letters), services)
        services.directory.add(self._cell)
        self._from_thread = FromThread(loop, self._spawn)
        self._start_watchdog(loop)
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._main)
        self._group.start_soon(self._watch_host)
        interrupted = await self._settle(lambda: self._started or self._verdict is not None)
        if interrupted is not None or not self._started:
            await self._close()
            if interrupted is not None:
                raise interrupted
            if self._fatal is not None:
                raise self._fatal
            raise self._start_failure()
        self._body = anyio.CancelScope()
        self._body.__enter__()
        if self._verdict is not None:
            self._body.cancel()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        assert self._body is not None
        swallowed = bool(self._body.__exit__(kind, error, trace))
        if self._stage is Stage.NONE and self._verdict is None:
            self.request_stop(
                "the block has ended" if error is None else f"the block was left by {type(error).__qualname__}"
            )
        interrupted = await self._settle(lambda: self._verdict is not None)
        await self._close()
        failure = self._failure()
        if error is not None and not swallowed:
            if failure is not None:
                error.add_note(f"greenroom: besides, {failure}")
            return False
        if self._fatal is not None:
            raise self._fatal
        if failure is not None:
            raise failure
        if interrupted is not None:
            raise interrupted
        return swallowed

    async def _settle(self, reached: Callable[[], bool]) -> BaseException | None:
        """Wait for the tree though the host is cancelled; a cancellation met on the way is a stop request, and returned."""
        met: BaseException | None = None
        assert self._services is not None
        cancelled = self._services.loop.cancelled
        while not reached():
            try:
                # The shield holds against the host's scopes; a native asyncio cancellation pierces it, hence the loop.
                with anyio.CancelScope(shield=met is not None):
                    await self._until(reached)
            except cancelled as error:
                if met is not None or self._stage is Stage.NONE:
                    self.request_stop("the host was cancelled")
                met = error
                reached = lambda: self._verdict is not None  # noqa: E731 - from now on the end is what to wait for
        return met

    async def _close(self) -> None:
        """The tree has ended: end what serves it."""
        assert self._group is not None
        assert self._services is not None
        assert self._from_thread is not None
        self._report = self._make_report() if self._stage is not Stage.NONE else self._report
        if self._watchdog is not None:
            self._watchdog.close()
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        self._old_handlers.clear()
        self._from_thread.close()
        self._group.cancel_scope.cancel()
        try:
            await self._group.__aexit__(None, None, None)
        finally:
            self._services.events.close()
            self._services.dead_letters.close()

    # --------------------------------------------------------------------------------------------------- the root task

    async def _main(self) -> None:
        """The root task: everything of the tree runs below it, shielded from the host."""
        assert self._services is not None
        assert self._cell is not None
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as self._nursery:
                self._nursery.start_soon(self._services.timers.run)
                self._root = SupervisorLife(self._cell, self, self._spec)
                self._root.start()
                if self._stage is not Stage.NONE:
                    self._root.request_stop()
                await self._until(lambda: self._verdict is not None)
                self._nursery.cancel_scope.cancel()

    async def _watch_host(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            if self._stage is Stage.NONE and self._verdict is None:
                self.request_stop("the host was cancelled")

    def _spawn(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(main)

    # The root supervisor's owner:

    def spawn(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """For Greenroom's own use."""
        self._spawn(main)

    def life_started(self, life: Any, info: object) -> None:
        """For Greenroom's own use: the whole tree has started."""
        self._started = True
        self._announce()

    def life_settled(self, life: Any) -> None:
        """For Greenroom's own use: the shutdown is done but for what is stuck."""
        self._report = self._make_report()
        self._announce()

    def life_ended(self, life: Any, verdict: Verdict) -> None:
        """For Greenroom's own use: the tree has ended."""
        self._verdict = verdict
        if self._cell is not None:
            self._cell.state = State.DOWN
            self._cell.mailbox.close("the tree has ended")
        if self._stage is not Stage.NONE:
            self._report = self._make_report()
        elif self._body is not None:
            self._body.cancel()
        self._announce()

    # ------------------------------------------------------------------------------------------- reports and failures

    def note_end(self, path: str, how: str) -> None:
        """For Greenroom's own use: a life has ended."""
        if self._stage is not Stage.NONE:
            self._ended_by.setdefault(how, []).append(path)

    def note_fatal(self, error: BaseException) -> None:
        """For Greenroom's own use: KeyboardInterrupt or SystemExit came out of a child."""
        if self._fatal is None:
            self._fatal = error
        if self._stage is Stage.NONE:
            self.request_stop(f"{type(error).__qualname__} was raised in the tree")
        if self._body is not None:
            self._body.cancel()

    def _make_report(self) -> ShutdownReport:
        assert self._services is not None
        assert self._cell is not None
        root = self._cell.life
        nodes = (
            [] if root is None or self._verdict is not None else list(snapshot(self._cell, self._spec, 0, 0.0).walk())
        )
        workers = [node for node in nodes if node.kind == "worker"]
        stuck = tuple(node.path for node in workers if node.state is State.STUCK)
        unknown = tuple(node.path for node in workers if node.state in (State.RUNNING, State.STARTING, State.STOPPING))
        return ShutdownReport(
            stopped=tuple(self._ended_by.get("stopped", ())),
            cancelled=tuple(self._ended_by.get("cancelled", ())),
            killed=tuple(self._ended_by.get("killed", ())),
            abandoned=tuple(self._ended_by.get("abandoned", ())),
            stuck=stuck,
            unknown=unknown,
            seconds=self._services.loop.now() - self._stopped_at,
            stage=self._stage,
        )

    def _failure(self) -> TreeFailed | None:
        verdict = self._verdict
        if verdict is None:
            return None
        cause = verdict.exit.cause
        if verdict.exit.kind != "error" and not isinstance(cause, RestartLimitExceeded):
            return None
        failure = TreeFailed(self._spec.name, str(cause) if cause is not None else "")
        failure.__cause__ = cause
        return failure

    def _start_failure(self) -> BaseException:
        cause = self._verdict.exit.cause if self._verdict is not None else None
        if isinstance(cause, StartFailed):
            return cause
        failed = StartFailed(
            self._spec.name, "a stop was requested before it had started" if cause is None else str(cause)
        )
        failed.__cause__ = cause
        return failed

    # ----------------------------------------------------------------------------------------------------- machinery

    def _make_services(self, loop: EventLoop) -> Services:
        timers = Timers(loop)
        events: Broadcast[Event] = Broadcast()
        return Services(
            loop=loop,
            timers=timers,
            asks=AskDeadlines(loop, timers),
            dead_letters=DeadLetters(),
            events=events,
            directory=Directory(),
            settings=self._settings,
            watch=_Watch(self),
            runtime=self,
            busy=BusyLives(loop, timers, events, self._settings.slow_handler),
        )

    def _start_watchdog(self, loop: EventLoop) -> None:
        if self._own_signals and threading.current_thread() is not threading.main_thread():
            raise Misuse("Runtime(signals=True) needs the main thread: only there does Python deliver OS signals")
        if loop.virtual_clock is not None and self._final_deadline is None and not self._own_signals:
            return  # real seconds mean nothing under a virtual clock
        self._watchdog = Watchdog(loop.post, loop.thread, self._loop_was_blocked, self._describe)
        self._watchdog.start()
        if self._own_signals:
            for number in _SIGNALS:
                self._old_handlers[number] = signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: object) -> None:
        """OS signal handler: runs between two bytecodes of the main thread, so it only posts."""
        assert self._watchdog is not None
        assert self._services is not None
        self._watchdog.signal_arrived()
        self._services.loop.post(lambda: self._take_signal(number))

    def _take_signal(self, number: int) -> None:
        assert self._watchdog is not None
        self._watchdog.signals_taken()
        self.request_stop(f"{signal.Signals(number).name} arrived")

    def _loop_was_blocked(self, path: str, message_type: str | None, seconds: float, stack: str) -> None:
        assert self._services is not None
        now = self._services.loop.now()
        self._services.events.publish(
            LoopBlocked(at=now, path=path, message_type=message_type, seconds=seconds, stack=stack)
        )

    def _describe(self) -> str:
        return str(self._make_report())

    def _announce(self) -> None:
        for slot in tuple(self._changed):
            if not slot.done():
                slot.set_result(None)

    async def _until(self, reached: Callable[[], bool]) -> None:
        assert self._services is not None
        while not reached():
            slot = self._services.loop.slot()
            self._changed[slot] = None
            try:
                await slot
            finally:
                del self._changed[slot]

    def _running(self, what: str) -> Services:
        if self._services is None:
            raise RuntimeNotRunning(what)
        return self._services

    @property
    def exit(self) -> Exit | None:
        """How the tree ended; None while it stands."""
        return self._verdict.exit if self._verdict is not None else None


class _Watch:
    """The runtime as the lives see it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def life_ended(self, path: str, how: str) -> None:
        self._runtime.note_end(path, how)

    def fatal(self, error: BaseException) -> None:
        self._runtime.note_fatal(error)


Backend = Literal["asyncio", "trio"]
