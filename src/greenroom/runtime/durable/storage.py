"""`Storage`: a running tree's hold on its store. One for each runtime that has one.

It is an execution in the store, with a lease; it knows which addresses are owned here, and carries what happens in the store to whoever
waits for it: wake-ups to owners, replies to askers, room to those on standby. It lives beside the tree, and longer: it ends when nothing
of the tree runs any more.

When its lease is lost, everything that it owned is broken off (R20: no fault of theirs), and it registers as a new execution, under
which the addresses are claimed again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from greenroom.actors import ActorLife, MessageLoop, Ref, described
from greenroom.actors.exits import lone
from greenroom.errors import LeaseLost, StoreUnavailable
from greenroom.logs import logger_named
from greenroom.mailbox import EventLoop, MemoryMailbox, PersistentMailbox, StoredMessage
from greenroom.persistence import (
    INLINE_LIMIT,
    AddressKind,
    AnswerTo,
    Committer,
    DrainExecution,
    Durability,
    Execution,
    Payload,
    Refused,
    StoreNow,
    Subscription,
    Transition,
    fetch,
    start_execution,
    stow,
    system_clock,
)
from greenroom.runtime.durable.callbacks import CallbackWaits
from greenroom.runtime.durable.custody import Custody
from greenroom.runtime.durable.delivery_loop import DeliveryLoop
from greenroom.runtime.durable.leftovers import Leftovers
from greenroom.runtime.durable.opening import StoreSource
from greenroom.runtime.durable.payloads import Payloads
from greenroom.runtime.durable.pool import Pools
from greenroom.runtime.durable.relay import Destination
from greenroom.runtime.durable.replies import Replies
from greenroom.runtime.durable.sweep import Sweep
from greenroom.runtime.tasks.desk import Desk

if TYPE_CHECKING:
    from greenroom.actors import Services
    from greenroom.persistence.pending import Pending

logger = logger_named("greenroom.storage")

P = TypeVar("P")
T = TypeVar("T")

PAUSE = 0.2
"""Seconds before something that the store could not take is tried again; its own bound has passed by then."""


class Storage:
    """See the module. For the event loop's thread."""

    def __init__(
        self,
        source: StoreSource,
        loop: EventLoop,
        services: Callable[[], Services],
        find: Callable[[str], Ref],
        destinations: Mapping[str, Destination],
        *,
        failed: Callable[[BaseException], object],
    ) -> None:
        self.store: Committer
        self._failed = failed
        self.source = source
        self.loop = loop
        self._services = services
        self.payloads = Payloads(find)
        self.execution: Execution | None = None
        """None while it has none: its lease was lost, and a new one is not registered yet."""
        self.fenced: set[str] = set()
        """Executions of this process whose leases were lost: it lives all the same."""
        self.draining = False
        self.closing = False
        self._clean = True
        self._opened = loop.slot()
        self._close_asked = anyio.Event()
        self.owned: dict[str, Custody] = {}
        self.owed: dict[str, list[int]] = {}
        """By address: places of messages whose delivery was counted, and then broken off by the loss of a lease."""
        self.standing_by: dict[str, Custody] = {}
        """Those who wait to own their address."""
        self.replies = Replies(self)
        self.callbacks = CallbackWaits(self)
        self.pools = Pools(self)
        self.tasks = Desk(self)
        self.holders: set[str] = set()
        """Addresses served here whose messages wait for room at their recipients, as far as is known."""
        self.leftovers = Leftovers(self)
        self._sweep = Sweep(self, destinations)
        self._group: TaskGroup | None = None
        self._clock = source.clock_for(loop) or system_clock()

    @property
    def services(self) -> Services:
        return self._services()

    @property
    def durability(self) -> Durability:
        """What an acknowledgement promises."""
        return self.store.durability

    def now(self) -> datetime:
        """The time by which it is judged when to look at delayed mail; the store's own decides."""
        return datetime.fromtimestamp(self._clock.now() / 1e6, UTC)

    def in_seconds(self, seconds: float) -> datetime:
        return self.now() + timedelta(seconds=seconds)

    def deadline_of(self, moment: datetime) -> float:
        """A moment to come by the loop's clock; now for one that is past."""
        return self.loop.now() + max(0.0, (moment - self.now()).total_seconds())

    # ---------------------------------------------------------------------------------- what the tree asks (services)

    def mailbox(self, path: str, options: PersistentMailbox, *, durable: bool) -> MemoryMailbox:
        """The mailbox of a child whose messages are in the store."""
        kind = AddressKind.ACTOR if durable else AddressKind.MAILBOX
        return Custody(self, path, kind, options, pooled=self.pools.of(path) is not None).queue

    def message_loop(self, life: ActorLife, *, drain: bool) -> MessageLoop:
        """The message loop of an incarnation that has such a mailbox."""
        return DeliveryLoop(life, drain=drain)

    # ------------------------------------------------------------------------------------------------- its own tasks

    async def run(self) -> None:
        """Open the store, become an execution, and serve the tree until `request_close`. Shielded from then on: it outlives the tree.

        What fails before that is told by `opened`, later to `failed`.
        """
        try:
            async with AsyncExitStack() as opening:
                self.store = await opening.enter_async_context(self.source.open(self.loop))
                await self.register()
                stack = opening.pop_all()
        except Exception as error:  # noqa: BLE001 - it is raised where somebody waits for it
            if not self._opened.done():
                self._opened.set_exception(error)
            return
        # Until now the runtime that is being entered could be cancelled with this; from now on only `request_close` ends it, which
        # whoever gives up waiting for `opened` calls. A registration that was on its way when the cancellation came leads here, too.
        with anyio.CancelScope(shield=True):
            async with stack:
                if not self._opened.done():
                    self._opened.set_result(None)
                try:
                    await self._serve()
                except Exception as error:  # noqa: BLE001 - whatever it is: nothing durable is possible without it, the tree has to end
                    self._end_of(lone(error))

    async def opened(self) -> None:
        """Wait until it serves. Raises `BadStoreUrl`, `IncompatibleStore`, `StoreUnavailable`."""
        await self._opened

    async def _serve(self) -> None:
        async with anyio.create_task_group() as group:
            self._group = group
            group.start_soon(self._sweep.run)
            group.start_soon(self._close_when_asked)
            try:
                with self.store.wakeups() as wakeups:
                    await self._pass_on(wakeups)
                await self.store.read(StoreNow())  # its thread has ended: this raises, and says of what
            finally:
                self._group = None  # nothing is begun in a group that is being left
                self.replies.close("this runtime has ended")

    def _end_of(self, error: BaseException) -> None:
        logger.error("the store failed: %s", described(error), exc_info=error)
        if self.execution is not None:
            self.execution.fence.close("the store failed")
            self.execution.abandon()
            self.execution = None
        self._group = None
        self._failed(error)

    def spawn(self, main: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run an event-loop task beside the tree; what it raises ends the tree. False when the storage has ended."""
        if self._group is None:
            return False
        self._group.start_soon(main)
        return True

    async def register(self) -> None:
        """Become an execution. Raises `StoreUnavailable`."""
        execution = await start_execution(
            self.store,
            on_lost=lambda: self.lease_lost(execution),
            lease=self.source.lease_for(self.loop),
            clock=self.source.clock_for(self.loop),
        )
        self.execution = execution
        for custody in self.standing_by.values():
            custody.queue.look_up()
        self.tasks.look()
        self._sweep.hurry()

    def living(self) -> Execution | None:
        """The execution, if its lease holds by the clock of this machine. One whose lease does not is given up by this look."""
        execution = self.execution
        if execution is not None and not execution.fence.is_open:
            self.lease_lost(execution)
        return self.execution

    def lease_lost(self, execution: Execution) -> None:
        """The lease of this execution is gone: what it owned is broken off, and it is followed by a new one."""
        if self.execution is not execution:
            return
        self.execution = None
        self.fenced.add(execution.id)
        execution.fence.close("it was not renewed in time")
        execution.abandon()
        error = LeaseLost(execution.id, "what it was doing is broken off, and taken up again by whoever owns it next")
        logger.error("%s", error)
        for custody in tuple(self.owned.values()):
            custody.lost(error)
        self.tasks.lease_lost()
        if not self.closing:
            self.spawn(self._register_again)

    async def _register_again(self) -> None:
        while self.execution is None and not self.closing and not self.draining:
            try:
                await self.register()
            except StoreUnavailable as error:
                logger.warning("a new execution could not be registered, trying again: %s", error)
                await anyio.sleep(PAUSE)

    def drain(self) -> None:
        """The tree is stopping: nothing new is claimed."""
        if not self.draining:
            self.draining = True
            self.spawn(self._drain)

    async def _drain(self) -> None:
        execution = self.execution
        if execution is not None and self.store.alive:
            try:
                await self.store.commit(DrainExecution(execution_id=execution.id))
            except StoreUnavailable as error:  # it claims nothing anyway; the row only tells others
                logger.warning("%s", error)

    def request_close(self, *, clean: bool) -> None:
        """Nothing of the tree runs any more: end the execution. Not `clean`: something may, and its lease is left to lapse (P7)."""
        self._clean = clean
        self.closing = True
        self._close_asked.set()

    async def _close_when_asked(self) -> None:
        await self._close_asked.wait()
        await self.leftovers.all_settled()
        execution, self.execution = self.execution, None
        if execution is not None and self._clean:
            try:
                await execution.end()
            except StoreUnavailable as error:
                logger.warning("the execution could not be ended, its lease lapses: %s", error)
        elif execution is not None:
            execution.abandon()
            logger.warning("something may still run: the lease of execution %s is left to lapse", execution.id)
        group, self._group = self._group, None
        if group is not None:  # otherwise the store has failed meanwhile
            group.cancel_scope.cancel()

    # -------------------------------------------------------------------------------------------------- committing

    async def commit_surely(
        self, transition: Transition[T], go_on: Callable[[], object] = lambda: None, *, begun: Pending | None = None
    ) -> T | Refused:
        """Commit though the store may be away for long.

        Args:
            go_on: asked before each further try; raises when it is not wanted any more.
            begun: what `Committer.begin` has given for it: the first try.

        Raises `StoreUnavailable` when the store is gone for good.
        """
        try:
            if begun is not None:
                return await self.store.answer(begun)  # type: ignore[no-any-return]
            return await self.store.commit(transition)
        except StoreUnavailable as error:
            return await self.commit_again(transition, error, go_on)

    async def commit_again(
        self, transition: Transition[T], error: StoreUnavailable, go_on: Callable[[], object]
    ) -> T | Refused:
        """Go on with what the store could not take, as `commit_surely` does."""
        while True:
            if not self.store.alive:
                raise error
            logger.warning("%s, trying again", error)
            await anyio.sleep(PAUSE)
            go_on()
            if error.unknown:
                answer = await self.surely(self.store.read, AnswerTo(transition_id=transition.transition_id))
                if answer is not None:
                    return answer  # type: ignore[no-any-return]
            try:
                return await self.store.commit(transition)
            except StoreUnavailable as another:
                error = another

    async def surely(self, ask: Callable[[P], Coroutine[Any, Any, T]], what: P) -> T:
        """Ask the store for what may be asked twice, though it may be away for long.

        Raises `StoreUnavailable` when the store is gone for good.
        """
        while True:
            try:
                return await ask(what)
            except StoreUnavailable as error:
                if not self.store.alive:
                    raise
                logger.warning("%s, trying again", error)
            await anyio.sleep(PAUSE)

    async def stow(self, data: bytes, *, name: str) -> Payload:
        """As `greenroom.persistence.stow`, though the store may be away for long."""
        if len(data) <= INLINE_LIMIT:
            return data
        return await self.surely(partial(stow, self.store, name=name), data)

    async def fetch(self, payload: Payload) -> bytes:
        """As `greenroom.persistence.fetch`, though the store may be away for long."""
        if isinstance(payload, bytes):
            return payload
        return await self.surely(partial(fetch, self.store), payload)

    # -------------------------------------------------------------------------------------------------- wake-ups

    async def _pass_on(self, wakeups: Subscription) -> None:
        """Carry each wake-up to whom it concerns."""
        while (wakeup := await wakeups.wait()) is not None:
            for address in wakeup.due:
                custody = self.owned.get(address)
                if custody is not None:
                    custody.look_at_due()
                else:
                    self.woken(address)
            for address in wakeup.addresses:
                self.woken(address)
            self.callbacks.look(None if wakeup.elsewhere else wakeup.addresses)
            if wakeup.elsewhere:
                self.replies.look()
                self.tasks.look()
                await self._look_elsewhere()

    async def _look_elsewhere(self) -> None:
        try:
            await self._sweep.look_for_missed()
        except StoreUnavailable as error:  # the sweep will
            logger.warning("%s", error)
        self._sweep.hurry()

    def woken(self, address: str) -> None:
        """Something waits at this address."""
        custody = self.owned.get(address)
        if custody is not None:
            custody.look()
        elif address in self.standing_by:
            self.standing_by[address].queue.look_up()
        elif not self.tasks.woken(address):
            self.pools.activate(address)

    def arrived(self, address: str, message: StoredMessage) -> None:
        """A message was accepted here."""
        custody = self.owned.get(address)
        if custody is not None:
            custody.arrived(message)
        else:
            self.pools.activate(address)

    def due(self, address: str, moment: datetime) -> None:
        """Delayed mail of this address comes due at that moment."""
        custody = self.owned.get(address)
        if custody is not None:
            custody.due_at(moment)
        else:
            self.due_to_nobody(address, self.deadline_of(moment))

    def due_to_nobody(self, address: str, deadline: float) -> None:
        """The same, by the loop's clock, of an address that nobody owns here."""
        if self.loop.virtual_clock is not None:  # in real time the sweep is soon enough, and needs no memory
            self.services.timers.at(deadline, lambda: self.woken(address))

    def holds(self, address: str) -> None:
        """Messages of an address have no room at their recipients: see to them whenever there may be some."""
        self.holders.add(address)
        self._sweep.flush()

    def made_room(self) -> None:
        """There is room for a message more at some address here."""
        if self.holders:
            self._sweep.flush()

    def hurry(self) -> None:
        """Something has come that the sweep looks for: do not wait for its round."""
        self._sweep.hurry()

    def hurry_in(self, seconds: float) -> None:
        """The same after a while."""
        if self.loop.virtual_clock is not None:  # in real time the sweep's next round is soon enough
            self.services.timers.after(
                seconds + 0.001, self.hurry
            )  # surely after it, in the store's whole microseconds
