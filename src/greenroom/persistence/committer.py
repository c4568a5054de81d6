"""The loop's side of a store: it submits to the store thread, waits, and keeps the bound (R8).

It is no event-loop task and nobody's child, so that no cancellation reaches a batch. A caller that is cancelled before its
transition is sealed withdraws it: it never happens. After that the caller waits on, shielded, gets the answer, and meets its
cancellation at its next checkpoint. A native `asyncio.Task.cancel()` pierces every shield; then the transition stands, and
its answer can be looked up by `AnswerTo`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import anyio

from greenroom.errors import GreenroomError, StoreClosed, StoreUnavailable, WrongThread
from greenroom.mailbox.parking import EventLoop, Slot
from greenroom.persistence.driver import Driver, Durability, Hold, News, Renewer
from greenroom.persistence.pending import Pending, Request, Stop
from greenroom.persistence.store_thread import StoreThread
from greenroom.persistence.transitions import Query, Refused, Transition
from greenroom.persistence.wakeups import Subscription

T = TypeVar("T")


class Committer:
    """A store over a driver. Made, opened and closed by `open_store`.

    Args:
        bound: seconds that a request may wait for its answer.
    """

    def __init__(self, driver: Driver, loop: EventLoop, *, bound: float) -> None:
        self._driver = driver
        self._loop = loop
        self._bound = bound
        self._subscribers: set[Subscription] = set()
        self._thread = StoreThread(
            driver, bound=bound, post=loop.post, receiver=self, watched=lambda: bool(self._subscribers)
        )
        self._guard = Guard(min(1.0, bound / 8), lambda: loop.post(self._keep_bound))
        self._waiting: dict[Pending, None] = {}
        """In the order of submission."""
        self._closed = True
        self._end: str | None = None
        """Why the store thread has ended."""
        self._opening: Slot | None = None
        self._open_error: GreenroomError | None = None
        self._hold: Any = None
        """Invariant: a virtual clock is held exactly while something waits."""

    @property
    def name(self) -> str:
        """The database, for people."""
        return self._driver.name

    @property
    def durability(self) -> Durability:
        """What an acknowledgement promises."""
        return self._driver.durability

    @property
    def alive(self) -> bool:
        """May waiting for the store be worth while? False when it is closed, or its thread has died."""
        return not self._closed and self._end is None

    async def commit(self, transition: Transition[T]) -> T | Refused:
        """Apply a transition. Returns when it is durable, in the sense of `durability`, or refused.

        Raises:
            StoreUnavailable: no answer within the bound; its `unknown` tells whether it may have been applied.
            TransitionFailed: the database refused it by an error of its own.
            StoreClosed: outside of the store's block.
        Cancelled before it is sealed into a batch: it never happens. Later: the answer is returned and the cancellation
        comes at the next checkpoint, except for a native `asyncio.Task.cancel()`; the transition stands then.
        """
        answer: T | Refused = await self.answer(self.submit(transition))
        return answer

    def begin(self, transition: Transition[Any], told: Callable[[], object]) -> Pending:
        """Submit a transition without waiting.

        Args:
            told: called on the loop's thread when it is settled, unless somebody waits for it by `answer`. Must not raise.
        Raises:
            StoreUnavailable, StoreClosed: it was not submitted.
        """
        self._check_open()
        entry = Pending(transition, told)
        self._enter(entry)
        return entry

    async def answer(self, entry: Pending) -> Any:
        """Wait for the answer to what was submitted, in place of who was to be told. As `commit` from then on."""
        if not entry.settled:
            try:
                await self.settled(entry)
            except self._loop.cancelled:
                if not await self.see_through(entry):
                    raise
        return entry.result()

    async def withdraw(self, entry: Pending) -> None:
        """See to it that nothing more comes of what was begun: it never happens, or this returns when it is settled. Cancel-safe by a shield."""
        if entry.claim():
            self._forget(entry)
        elif not entry.settled:
            await self._until_settled(entry)

    async def read(self, query: Query[T]) -> T:
        """Answer a query from what is committed, everything that this store has acknowledged included.

        Raises:
            StoreUnavailable, TransitionFailed, StoreClosed: as `commit`.
        """
        entry = self.submit(query)
        try:
            await self.settled(entry)
        except self._loop.cancelled:
            entry.claim()
            self._forget(entry)
            raise
        answer: T = entry.result()
        return answer

    def wakeups(self) -> Subscription:
        """Hints of what happens from now on. Close the subscription after use."""
        self._check_open()
        subscription = Subscription(self._loop, self._subscribers)
        self._thread.nudge()
        return subscription

    def renewer(self) -> Renewer:
        """What a lease is renewed with, in a thread of its own."""
        return self._driver.renewer()

    def hold(self, execution_id: str) -> Hold | None:
        """What proves an execution alive, where the database can use a proof. Blocks shortly: call it in a worker thread."""
        return self._driver.hold(execution_id)

    # ------------------------------------------------------------------------------------------- opening and closing

    async def open(self) -> None:
        """Start the store thread and wait until it has opened the database.

        Raises:
            StoreUnavailable, IncompatibleStore.
        """
        self._opening = self._loop.slot()
        self._keep_time()
        self._thread.start()
        try:
            await self._opening
        except self._loop.cancelled:
            self._thread.submit(self._stop_request())
            raise
        finally:
            self._opening = None
            self._keep_time()
        if self._open_error is not None:
            raise self._open_error
        self._closed = False

    async def close(self) -> None:
        """Let what was submitted be committed, end the store thread, close the database. Bounded; cancel-safe by a shield."""
        if self._closed:
            return
        self._closed = True
        for subscription in tuple(self._subscribers):
            subscription.close()
        if self._end is None:
            entry = self._stop_request()
            self._enter(entry)
            with self._loop.cancel_scope() as scope:
                scope.shield = True
                await self.settled(entry)  # by its end, or when the bound is over: a stuck thread is left behind
        self._guard.stop()

    def _stop_request(self) -> Pending:
        return Pending(Stop())

    # ------------------------------------------------------------------------------------------------------- waiting

    def _check_open(self) -> None:
        if threading.get_ident() != self._loop.thread:
            raise WrongThread
        if self._closed:
            raise StoreClosed(self.name)
        if self._end is not None:
            raise StoreUnavailable(self.name, self._end)

    def submit(self, request: Request) -> Pending:
        """Hand something over. Who has many messages to commit does what `commit` does in place, for a coroutine less is felt there."""
        self._check_open()
        entry = Pending(request)
        self._enter(entry)
        return entry

    def _enter(self, entry: Pending) -> None:
        if not self._waiting:
            self._guard.arm()
        self._waiting[entry] = None
        if self._loop.virtual_clock is not None:
            self._keep_time()
        self._thread.submit(entry)

    def _forget(self, entry: Pending) -> None:
        self._waiting.pop(entry, None)
        if not self._waiting and self._hold is not None:
            self._keep_time()

    def _keep_time(self) -> None:
        """Virtual time must not jump while the store works, which it does in real time."""
        clock = self._loop.virtual_clock
        busy = bool(self._waiting) or self._opening is not None
        if clock is not None and busy != (self._hold is not None):
            if busy:
                self._hold = clock.hold()
                self._hold.__enter__()
            else:
                hold, self._hold = self._hold, None
                hold.__exit__(None, None, None)

    def settled(self, entry: Pending) -> Slot:
        """What is to be awaited until it is."""
        slot = entry.slot = self._loop.slot()
        return slot

    async def see_through(self, entry: Pending) -> bool:
        """Its caller has been cancelled. False: let the cancellation through. True: it is settled, go on to its result."""
        if entry.claim():
            self._forget(entry)
            return False
        if self._is_native_cancel():
            return False
        if not entry.settled:
            await self._until_settled(entry)
        return True

    async def _until_settled(self, entry: Pending) -> None:
        with self._loop.cancel_scope() as scope:
            scope.shield = True
            await self.settled(entry)

    def _is_native_cancel(self) -> bool:
        # No cancelled scope is around us, so this came from Task.cancel(): asyncio's own tools rely on it getting through.
        return self._loop.backend == "asyncio" and anyio.current_effective_deadline() != -math.inf

    def _keep_bound(self) -> None:
        """On the loop's thread, now and then while anything waits: the last resort when the store thread does not answer."""
        now = time.monotonic()
        # The thread itself knows better what has happened: let it speak first.
        grace = 0.5 + self._bound / 10
        for entry in tuple(self._waiting):
            age = now - entry.submitted
            if age < self._bound:
                break
            if isinstance(entry.request, Stop):  # stays in the queue, so that the thread ends should it ever come back
                self._settle(entry, None, None)
            elif entry.claim():
                self._settle(entry, None, StoreUnavailable(self.name, f"it was busy for {age:.1f} s"))
            elif age >= self._bound + grace:
                why = f"the store thread has not answered for {age:.1f} s"
                unknown = isinstance(entry.request, Transition)
                error = StoreUnavailable(self.name, why, unknown=unknown, transition_id=entry.transition_id)
                self._settle(entry, None, error)
        if not self._waiting:
            self._guard.disarm()

    def _settle(self, entry: Pending, answer: Any, error: GreenroomError | None) -> None:
        self._forget(entry)
        entry.settle(answer, error)

    # --------------------------------------------------------------------------------- called by the store thread's posts

    def opened(self, error: GreenroomError | None) -> None:
        self._open_error = error
        if self._opening is not None and not self._opening.done():
            self._opening.set_result(None)

    def answered(self, entries: Sequence[Pending], answers: Sequence[Any], woken: frozenset[str]) -> None:
        waiting = self._waiting
        for entry, answer in zip(entries, answers, strict=True):
            waiting.pop(entry, None)
            entry.settle(answer, None)
        if self._hold is not None and not waiting:
            self._keep_time()
        if woken:
            for subscription in tuple(self._subscribers):
                subscription.notify(woken)

    def failed(self, entries: Sequence[Pending], errors: Sequence[GreenroomError]) -> None:
        for entry, error in zip(entries, errors, strict=True):
            self._settle(entry, None, error)

    def news(self, news: News) -> None:
        for subscription in tuple(self._subscribers):
            subscription.notify(due=news.due, elsewhere=news.elsewhere)

    def ended(self, error: BaseException | None) -> None:
        if error is None:
            self._end = "it was closed"
        else:
            self._end = f"the store thread has died: {type(error).__name__}: {error}"
            if self._opening is not None:
                self.opened(StoreUnavailable(self.name, self._end))
        for entry in tuple(self._waiting):
            if isinstance(entry.request, Stop):
                self._settle(entry, None, None)
                continue
            unknown = not entry.claim() and isinstance(entry.request, Transition)
            failure = StoreUnavailable(self.name, self._end, unknown=unknown, transition_id=entry.transition_id)
            failure.__cause__ = error
            self._settle(entry, None, failure)
        for subscription in tuple(self._subscribers):
            subscription.close()


class Guard:
    """A thread that calls back now and then while it is armed. Its time is real: so is the database's."""

    def __init__(self, period: float, call: Callable[[], object]) -> None:
        self.period = period
        self._call = call
        self._armed = False
        self._stopped = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def arm(self) -> None:
        if not self._armed:
            self._armed = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._main, name="greenroom-store guard", daemon=True)
                self._thread.start()
            self._wake.set()

    def disarm(self) -> None:
        self._armed = False

    def stop(self) -> None:
        self._armed = False
        self._stopped.set()
        self._wake.set()

    def _main(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            while self._armed and not self._stopped.wait(self.period):
                try:
                    self._call()
                except RuntimeError:  # both loops' way to say that they have ended
                    return
            if self._stopped.is_set():
                return
