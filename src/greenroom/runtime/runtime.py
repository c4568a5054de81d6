"""`Runtime`: a tree inside an `async with` block of an async program.

The tree hangs in a root task inside a shielded scope, so that cancellation of the host (its scope, a native `Task.cancel()`, Ctrl-C)
does not tear through it: it becomes a stop request, and the ordered ladder runs. An unshielded watcher notices it even while the body
is busy with its own end. The block's body stays cancellable all the while, and is cancelled when the tree has ended without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from signal import Signals as OSSignal
from types import TracebackType
from typing import Any, Literal, TypeVar, Unpack, overload

import anyio
from anyio.abc import TaskGroup

from greenroom.actors import Event, Exit, Message, Ref, Settings, current_actor
from greenroom.errors import BadSpec, Misuse, NoSuchActor, RuntimeNotRunning, WouldDeadlock
from greenroom.mailbox import (
    Broadcast,
    DeadLetter,
    DeadLetterReason,
    DeadLetters,
    EventLoop,
    Subscription,
    current_loop,
    is_seconds,
)
from greenroom.persistence import Durability
from greenroom.runtime.durable.opening import StoreSource
from greenroom.runtime.durable.relay import Destination
from greenroom.runtime.durable.storage import Storage
from greenroom.runtime.from_thread import FromThread
from greenroom.runtime.leaving import what_leaves
from greenroom.runtime.root import Root
from greenroom.runtime.shutdown import ShutdownReport, Stage
from greenroom.runtime.signals import Signals
from greenroom.runtime.snapshot import TreeNode
from greenroom.runtime.tasks.agents import Agents
from greenroom.runtime.tasks.handle import TaskHandle
from greenroom.runtime.tasks.ids import check_task_id
from greenroom.runtime.tasks.submitting import SubmitOptions, submit
from greenroom.runtime.watchdog import LoopBlocked, Watchdog
from greenroom.supervisors import SupervisorSpec, in_the_store, path_of, specifies
from greenroom.supervisors.specs import WITH_A_STORE

R = TypeVar("R")
Req = TypeVar("Req")
Res = TypeVar("Res")


class Runtime:
    """Runs a tree: `async with Runtime(tree) as runtime: ...`, on asyncio or trio. The tree stops, in order, when the block ends.

    Args:
        tree: the top supervisor.
        store: URL of the database in which persistent mailboxes and durable actors are kept: `"sqlite:///service.db"`,
            `"postgresql://user@host/database"` (extra `postgres`). None: everything is in memory.
        volatile: what is in the store may be lost with the process; only so may `"sqlite://:memory:"` hold persistent mailboxes.
        destinations: functions that bring what durable actors publish (`context.publish`) to the outside, by name.
        final_deadline: seconds from the first stop request after which the process is ended by force (exit status 70). None: the
            block waits for as long as anything runs, and says what.
        signals: SIGINT and SIGTERM start the shutdown, each further one moves it a stage on. Needs the main thread. False: the
            embedding program owns its signals.
        kill_time: seconds from cancellation to `stuck`; `on_stop` gets them once when it has not begun.
        slow_handler: seconds after which a handler is reported as slow.

    Whatever ends the tree while the body runs (giving up, automatic shutdown, a signal, a stop requested by somebody else), the body
    is cancelled when nothing of the tree runs any more, but for what is stuck. A stop that the body itself asked for leaves it alone.

    Raises, from the block:
        StartFailed: a child did not start; what had started is stopped again.
        BadStoreUrl, IncompatibleStore, StoreUnavailable: the store cannot be opened; nothing of the tree was started.
        TreeFailed: the top supervisor gave up.
        KeyboardInterrupt, SystemExit: when an actor raised it; the tree is stopped first.
        The body's own exception, bare; a failure of the tree besides is a note on it.
    """

    def __init__(
        self,
        tree: SupervisorSpec,
        *,
        store: str | StoreSource | None = None,
        volatile: bool = False,
        destinations: Mapping[str, Destination] | None = None,
        final_deadline: float | None = None,
        signals: bool = False,
        kill_time: float = 2.0,
        slow_handler: float = 30.0,
    ) -> None:
        if not isinstance(tree, SupervisorSpec):
            raise BadSpec(f"Runtime({tree!r}): the top of a tree is a supervisor; wrap it in gr.Supervisor(name, ...)")
        source = StoreSource(store) if isinstance(store, str) else store
        if source is not None and not isinstance(source, StoreSource):
            raise BadSpec(f"store={store!r}: the URL of a database, for example 'sqlite:///service.db', or None")
        stored = in_the_store(tree)
        if stored is not None and source is None:
            raise BadSpec(f"{stored!r} keeps its messages in a store, and this runtime has none: {WITH_A_STORE}")
        if stored is not None and source is not None and source.in_memory and not volatile:
            raise BadSpec(
                f"{stored!r} is meant to outlive the process, and {source.url!r} does not: give the runtime a database file, "
                "or volatile=True when that is what you want"
            )
        if final_deadline is not None and not is_seconds(final_deadline):
            raise BadSpec(f"final_deadline={final_deadline!r}: seconds above 0, or None to wait without limit")
        self._spec = tree
        self._settings = Settings(kill_time=kill_time, slow_handler=slow_handler)
        self._source = source
        self._destinations = dict(destinations or {})
        self._storage: Storage | None = None
        self._final_deadline = final_deadline
        self._own_signals = signals
        self._events: Broadcast[Event] = Broadcast()
        self._dead_letters = DeadLetters()
        self._entered = False
        self._root: Root | None = None
        self._from_thread: FromThread | None = None
        self._guards = ExitStack()
        self._watchdog: Watchdog | None = None
        self._signals: Signals | None = None
        self._signals_taken = 0
        self._host: object = None
        self._group: TaskGroup | None = None
        self._body: anyio.CancelScope | None = None
        self._body_asked = False

    # ------------------------------------------------------------------------------------------------- what users call

    def ref(self, path: str) -> Ref:
        """The address of an actor or supervisor; of an actor in a `DurableActors` pool also while it is not in memory.

        Raises `NoSuchActor`, naming near misses, or why it may not be there just now; `BadSpec` for an impossible key of a pool.
        """
        directory = self._running("runtime.ref").services.directory
        if self._storage is not None and directory.get(path) is None:
            pooled = self._storage.pools.ref(path)
            if pooled is not None:
                return pooled
        try:
            return directory.find(path)
        except NoSuchActor as error:
            if not specifies(self._spec, path):
                raise
            raise NoSuchActor(path, error.near, specified=True) from None

    @overload
    async def submit(self, pool: str, request: Message[R], **options: Unpack[SubmitOptions]) -> TaskHandle[R]: ...
    @overload
    async def submit(
        self, pool: Agents[Req, Res], request: Req, **options: Unpack[SubmitOptions]
    ) -> TaskHandle[Res]: ...
    @overload
    async def submit(self, pool: str, request: object, **options: Unpack[SubmitOptions]) -> TaskHandle[Any]: ...
    async def submit(
        self, pool: str | Agents[Any, Any], request: object, **options: Unpack[SubmitOptions]
    ) -> TaskHandle[Any]:
        """Submit a task to a pool of agents, once. When this returns it is accepted: it will be performed.

        Args:
            pool: its path, also that of another service on the same store; or its `gr.Agents` in this tree.
            request: what is asked for; it is given to `perform`.
            task_id: the same request under the same id is the same task. None: a fresh id.
            group: whose it is (up to 200 printable characters): groups have their turns in the pool's queue, however much each submits.
            priority: higher first; of 32 bits.
            deadline: an aware instant. A task that has not begun by then is not begun.
            not_before: an aware instant before which it is not begun.
        Raises:
            InvalidTaskId: blank, unprintable or longer than 200 characters.
            TypeError, ValueError: another option that cannot be.
            NoSuchPool: nothing has ever run a pool of that path on this store.
            PoolFull: its queue is full; says when to try again.
            TaskConflict: another request has that id.
            NotEncodable: the request cannot be stored.
            StoreUnavailable: whether it was accepted is not known, if it says so; submit it again under the same `task_id`.
        """
        root = self._running("runtime.submit")
        if self._storage is None:
            raise Misuse(f"runtime.submit: tasks are kept in a store, and this runtime has none: {WITH_A_STORE}")
        root.services.loop.check_thread()
        return await submit(self._storage.tasks, self.path_of_pool(pool), request, **options)

    def task(self, task_id: str) -> TaskHandle[Any]:
        """The handle of a task by its id, whoever has submitted it. Raises `InvalidTaskId`."""
        self._running("runtime.task")
        if self._storage is None:
            raise Misuse(f"runtime.task: tasks are kept in a store, and this runtime has none: {WITH_A_STORE}")
        return TaskHandle(self._storage.tasks, check_task_id(task_id))

    def tree(self) -> TreeNode:
        """The whole tree as it is now, frozen: states, incarnations, mailboxes, messages in hand (types only)."""
        return self._running("runtime.tree").tree()

    def events(self, *, buffer: int = 10_000) -> Subscription[Event]:
        """An async iterator over what happens in the tree from now on. Asked for before the block, it shows the start, too.

        A reader more than `buffer` behind misses the oldest. The iteration ends with the runtime.
        """
        return self._events.subscribe(buffer=buffer)

    def dead_letters(self, *, buffer: int = 10_000) -> Subscription[DeadLetter]:
        """An async iterator over dead letters from now on; as `events`."""
        return self._dead_letters.subscribe(buffer=buffer)

    def dead_letter_counts(self) -> dict[tuple[str, DeadLetterReason], int]:
        """Dead letters so far, by (recipient's path, reason)."""
        return self._dead_letters.counts()

    @property
    def durability(self) -> Durability | None:
        """What an acknowledgement of the store promises; None without a store, and before the block."""
        return self._storage.durability if self._storage is not None else None

    @property
    def from_thread(self) -> FromThread:
        """Blocking `tell`, `ask` and `call` for other threads."""
        if self._from_thread is None:
            raise RuntimeNotRunning("runtime.from_thread")
        return self._from_thread

    @property
    def report(self) -> ShutdownReport | None:
        """How the shutdown stands, or went; None while the tree stands and nobody has asked it to stop."""
        root = self._root
        return root.report() if root is not None and root.shutdown.begun else None

    @property
    def stopping(self) -> bool:
        """Has a shutdown begun? A tree that ends by itself begins one, too."""
        return self._root is not None and self._root.shutdown.begun

    @property
    def exit(self) -> Exit | None:
        """How the tree ended; None while anything of it runs."""
        return self._root.verdict.exit if self._root is not None and self._root.verdict is not None else None

    @property
    def fatal(self) -> BaseException | None:
        """The KeyboardInterrupt or SystemExit that an actor raised, which ends the tree; None without one."""
        return self._root.fatal if self._root is not None else None

    def request_stop(self, why: str = "the program asked for it") -> None:
        """Begin the shutdown; called again, move it one stage on: ordered, then cancelled, then forced.

        After the last stage the next call ends the process if `final_deadline` is set or the runtime owns the signals. Nothing
        happens when the tree has ended. Raises `WrongThread` off the event loop's thread.
        """
        root = self._running("runtime.request_stop")
        root.services.loop.check_thread()
        self._note_who_asks(root)
        root.request_stop(why)

    async def stop(self) -> ShutdownReport:
        """Begin the shutdown if nobody has, and wait for the tree's end. Safe twice, and from any task outside the tree's actors.

        Raises `WouldDeadlock` in an actor's handler: the tree ends after that has returned. `request_stop()` does not wait.
        """
        root = self._running("runtime.stop")
        await self._wait_from_outside(root)
        if not root.shutdown.begun:
            self._note_who_asks(root)
            root.request_stop("the program asked for it")
        await root.until(lambda: root.over)
        return root.report()

    async def wait(self) -> None:
        """Wait until the tree has ended: returns after a stop or an automatic shutdown, raises `TreeFailed` when it gave up.

        Raises `WouldDeadlock` in an actor's handler.
        """
        root = self._running("runtime.wait")
        await self._wait_from_outside(root)
        await root.until(lambda: root.over)
        failure = root.failure()
        if failure is not None:
            raise failure

    async def wait_stopping(self) -> None:
        """Wait until a shutdown has begun, also by the tree itself."""
        root = self._running("runtime.wait_stopping")
        root.services.loop.check_thread()
        await root.services.loop.checkpoint()
        await root.until(lambda: root.shutdown.begun)

    def _running(self, what: str) -> Root:
        if self._root is None:
            raise RuntimeNotRunning(what)
        return self._root

    def _note_who_asks(self, root: Root) -> None:
        if root.services.loop.current_task() is self._host:
            self._body_asked = True

    @property
    def storage(self) -> Storage | None:
        """For Greenroom's own use: the store's side of the tree; None without a store."""
        return self._storage

    def path_of_pool(self, pool: str | Agents[Any, Any]) -> str:
        """For Greenroom's own use: where tasks are submitted to. Raises `BadSpec` for a pool that is not in this tree."""
        path = pool if isinstance(pool, str) else path_of(self._spec, pool)
        if path is None:
            raise BadSpec(f"{pool!r} is not in the tree of this runtime: give its path, or a gr.Agents that is")
        return path

    @staticmethod
    async def _wait_from_outside(root: Root) -> None:
        root.services.loop.check_thread()
        actor = current_actor.get()
        if actor is not None and actor.services is root.services and actor.in_own_handler():
            raise WouldDeadlock(
                f"{actor.path!r} waits for the end of its own tree, which waits for it: call `runtime.request_stop()` there instead"
            )
        await root.services.loop.checkpoint()

    # ------------------------------------------------------------------------------------------------------ the block

    async def __aenter__(self) -> Runtime:
        if self._entered:
            raise Misuse("this Runtime has been entered before: make a new one for each run")
        self._entered = True
        loop = current_loop()
        self._host = loop.current_task()
        self._root = root = Root(
            self,
            self._spec,
            self._settings,
            loop,
            self._events,
            self._dead_letters,
            staged=self._stage_reached,
            done=self._tree_done,
        )
        self._events.belong_to(loop.thread)
        self._dead_letters.belong_to(loop.thread)
        self._begin_watching(loop, root)
        self._from_thread = FromThread(loop, root.spawn)
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        if self._source is not None:
            await self._open_store(self._source, loop, root)
        root.start(self._group)
        self._group.start_soon(self._watch_host, root)
        met = await self._settle(root, lambda: root.started or root.over, None)
        if met is None and root.started and root.fatal is None:
            self._body = anyio.CancelScope()
            self._body.__enter__()
            if root.over:
                self._body.cancel()
            return self
        if met is None:  # a stop from elsewhere, or a fatal exception, has come first: the end is what to wait for
            met = await self._settle(root, lambda: root.over, None)
        met = await self._close(root) or met
        raise self._what_leaves(root, None, met) or root.start_failure()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Absorbs our own cancellation of the body, and so answers a bool; said to be None, since a type checker would otherwise
        # think that any exception may end here, and ask for a `return` behind every block that returns.
        root = self._root
        assert root is not None
        assert self._body is not None
        left = error
        try:
            if self._body.__exit__(kind, error, trace):
                left = None
        except BaseException as rest:  # noqa: BLE001
            # What remains of a group when our own cancellation is taken out of it. It leaves below, when the tree has ended.
            left = rest
        if not root.shutdown.begun:
            how = "has ended" if left is None else f"was left by {type(left).__qualname__}"
            root.request_stop(f"the block {how}")
        # A cancellation (or Ctrl-C) that has brought us here was the first: one that comes while the tree stops moves it on.
        met = left if isinstance(left, (root.services.loop.cancelled, KeyboardInterrupt)) else None
        met = await self._settle(root, lambda: root.over, met)
        met = await self._close(root) or met
        leaving = self._what_leaves(root, left, met)
        if leaving is error:
            return False  # type: ignore[return-value]
        if leaving is not None:
            raise leaving
        return True  # type: ignore[return-value]

    async def _open_store(self, source: StoreSource, loop: EventLoop, root: Root) -> None:
        """Before anything of the tree starts. When it fails, the block is not entered."""
        assert self._group is not None
        storage = Storage(source, loop, lambda: root.services, self.ref, self._destinations, failed=root.store_failed)
        self._group.start_soon(storage.run)
        try:
            await storage.opened()
        except BaseException:
            storage.request_close(clean=True)  # it may have just come so far that nothing else ends it
            root.never_started()
            await self._close(root)
            raise
        self._storage = root.services.storage = storage

    @staticmethod
    def _what_leaves(root: Root, left: BaseException | None, met: BaseException | None) -> BaseException | None:
        failure = root.failure() if root.started else None
        return what_leaves(left, met, fatal=root.fatal, failure=failure, cancelled=root.services.loop.cancelled)

    async def _settle(self, root: Root, reached: Callable[[], bool], met: BaseException | None) -> BaseException | None:
        """Wait though the host is cancelled. Returns the last cancellation that was met; from the first on, the tree's end is awaited."""
        while not reached():
            try:
                # Once it has come, the shield holds against the host's scopes; a native asyncio cancellation pierces it.
                with anyio.CancelScope(shield=met is not None):
                    await root.until(reached)
            except (root.services.loop.cancelled, KeyboardInterrupt) as error:  # trio raises Ctrl-C in the main task
                if met is not None or not root.shutdown.begun:
                    root.request_stop("the host was cancelled")
                met = error
                reached = lambda: root.over  # noqa: E731 - from now on
        return met

    async def _watch_host(self, root: Root) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            if not root.shutdown.begun:
                root.request_stop("the host was cancelled")

    async def _close(self, root: Root) -> BaseException | None:
        """The tree has ended: end what serves it. Returns a cancellation that came meanwhile."""
        assert self._group is not None
        assert self._from_thread is not None
        if self._signals is not None:
            self._signals.hold()
        if self._watchdog is not None:
            self._watchdog.unwatch()
        self._guards.close()
        if self._storage is not None:
            report = root.report()
            self._storage.request_close(clean=not (report.abandoned or report.stuck or report.unknown))
        self._group.cancel_scope.cancel()
        try:
            await self._group.__aexit__(None, None, None)
        except root.services.loop.cancelled as error:
            return error
        finally:
            # After the group: what a thread has asked for may be done, and on its way to it.
            self._from_thread.close()
            self._events.close()
            self._dead_letters.close()
        return None

    # -------------------------------------------------------------------------------------------- what the root tells

    def _stage_reached(self, stage: Stage) -> None:
        if self._storage is not None:
            self._storage.drain()
        watchdog = self._watchdog
        if watchdog is None:
            return
        if stage is Stage.REQUESTED and self._final_deadline is not None:
            watchdog.set_deadline(self._final_deadline)
        if stage is Stage.EXIT and (self._signals is not None or self._final_deadline is not None):
            watchdog.exit_now()

    def _tree_done(self) -> None:
        if self._body is not None and not self._body_asked:
            self._body.cancel()

    # ------------------------------------------------------------------------------------------ beside the event loop

    def guarded_by(self, watchdog: Watchdog, signals: Signals) -> None:
        """For Greenroom's own use: the process has these already, and keeps them longer than the block."""
        self._watchdog, self._signals = watchdog, signals

    def _begin_watching(self, loop: EventLoop, root: Root) -> None:
        wanted = self._own_signals or self._final_deadline is not None
        if self._watchdog is None and (
            wanted or loop.virtual_clock is None
        ):  # real seconds mean nothing in virtual time
            self._watchdog = watchdog = Watchdog()
            if self._own_signals:
                self._signals = self._guards.enter_context(Signals(watchdog))
            self._guards.enter_context(watchdog)
        if self._watchdog is not None:
            self._watchdog.watch(loop, blocked=self._loop_was_blocked, describe=root.report)
        if self._signals is not None:
            self._signals.deliver_to(loop, self._take_signal)

    def _take_signal(self, signal: OSSignal) -> None:
        root = self._running("a signal")
        self._signals_taken += 1
        # The first one asks for what may be under way already; it does not cut that short.
        if self._signals_taken > 1 or not root.shutdown.begun:
            root.request_stop(f"{signal.name} arrived")

    def _loop_was_blocked(self, path: str, message_type: str | None, seconds: float, stack: str) -> None:
        now = self._running("the watchdog").services.loop.now()
        self._events.publish(LoopBlocked(at=now, path=path, message_type=message_type, seconds=seconds, stack=stack))


Backend = Literal["asyncio", "trio"]
