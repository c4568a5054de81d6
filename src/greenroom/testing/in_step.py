"""Stores in step with the event loop, so that the same run of a scenario asks the same of them in the same order.

What is asked of all stores under one `Conductor` is kept in one queue, in the order of asking. Whenever every event-loop task waits,
the first is handed to its store's thread; the next one comes when that is done, and all that it set off on the loop. So no two
store threads ever work at once, and no two transitions share a commit. A store thread that sleeps (see `Stepper.sleep`) lets others
go on meanwhile. What happened elsewhere is not told, for that would come by real time: it is found by whoever looks, as when no hint
comes through.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from attrs import define

from greenroom.errors import Misuse
from greenroom.mailbox import current_loop
from greenroom.persistence.driver import News
from greenroom.testing.attendants import Attendants
from greenroom.testing.wrapped_driver import WrappedDriver

if TYPE_CHECKING:
    from types import TracebackType

    from greenroom.persistence import Driver
    from greenroom.persistence.driver import Inbox

LOOK_EVERY: Final = 1.0
"""Real seconds between looks whether there is a loop still, for a thread that waits for it."""

PATIENCE: Final = 10.0
"""Real seconds in which a thread that was told to end has ended."""


class Stopped(Exception):
    """Ends a store thread that is to do nothing more. Callers see `StoreUnavailable`."""


@define(eq=False)
class Step:
    """Something that a store thread is to do when its turn has come."""

    stepper: Stepper
    inbox: SteppingInbox
    begin: Callable[[], object]


class Conductor:
    """Lets the stores of an event loop do one thing at a time, for the length of an `async with` block, under a virtual clock."""

    def __init__(self) -> None:
        self._queue: deque[Step] = deque()
        self._asleep: set[SteppingInbox] = set()
        self._current: SteppingInbox | None = None
        self._asked = anyio.Event()
        self._done = anyio.Event()
        self._attendants = Attendants()

    async def __aenter__(self) -> Conductor:
        self._loop = current_loop()
        if self._loop.virtual_clock is None:
            raise Misuse(
                "a store can keep in step with the event loop only under a VirtualClock: start the run with it"
            )
        await self._attendants.__aenter__()
        self._attendants.start(self._conduct)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._attendants.__aexit__(kind, error, trace)

    async def _conduct(self) -> None:
        clock = self._loop.virtual_clock
        while True:
            if self._first is None:
                self._asked = anyio.Event()
                await self._asked.wait()
            with clock.hold():  # or time might pass before what was answered has had its effect
                await clock.wait_idle()
                step = self._first
                if step is not None:
                    self._queue.remove(step)
                    await self._take(step)
                    await clock.wait_idle()
                    step.stepper.rested()

    @property
    def _first(self) -> Step | None:
        """The first step of a store thread that does not sleep."""
        return next((step for step in self._queue if step.inbox not in self._asleep), None)

    async def _take(self, step: Step) -> None:
        self._current = step.inbox
        self._done = anyio.Event()
        step.begin()
        await self._done.wait()
        self._current = None
        step.inbox.join_if_ending()

    # ------------------------------------------------------------------------------------------------- for its steppers

    def post(self, function: Callable[[], object]) -> None:
        """Run a function on the loop soon. From any thread."""
        self._loop.post(function)

    def ask(self, step: Step) -> None:
        """On the loop's thread."""
        self._queue.append(step)
        self._asked.set()

    def forget(self, stepper: Stepper) -> None:
        """Take no further step of it. On the loop's thread."""
        self._queue = deque(step for step in self._queue if step.stepper is not stepper)

    def done(self, inbox: SteppingInbox) -> None:
        """A store thread has done what it was to do, sleeps, or has ended. From any thread."""
        self.post(partial(self._was_done, inbox))

    def _was_done(self, inbox: SteppingInbox) -> None:
        if self._current is inbox:
            self._done.set()

    def let_sleep(self, seconds: float, step: Step) -> None:
        """Take no step of this store before so much time has passed on the loop's clock, then first this one. On the loop's thread."""
        self._asleep.add(step.inbox)
        self._attendants.start(partial(self._sleep, seconds, step))

    async def _sleep(self, seconds: float, step: Step) -> None:
        with self._loop.virtual_clock.lift_hold():  # its store holds it
            await anyio.sleep(seconds)
        self._asleep.discard(step.inbox)
        if not step.stepper.stopped:
            self._queue.appendleft(step)
            self._asked.set()


class Stepper:
    """Keeps the stores of one execution in step, for the length of an `async with` block.

    Args:
        rested: called on the loop's thread whenever a step of them is over and every event-loop task waits.
        conductor: of all stores of the loop. None: there are no others.
    """

    def __init__(self, rested: Callable[[], object], conductor: Conductor | None = None) -> None:
        self.rested = rested
        self._own = None if conductor else Conductor()
        self._conductor = conductor or self._own or Conductor()
        self._inboxes: dict[SteppingInbox, None] = {}
        self._here = threading.local()
        self.stopped = False

    async def __aenter__(self) -> Stepper:
        if self._own is not None:
            await self._own.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._own is not None:
            await self._own.__aexit__(kind, error, trace)

    def post(self, function: Callable[[], object]) -> None:
        """Run a function on the loop soon. From any thread."""
        self._conductor.post(function)

    def stop(self) -> None:
        """Let no store do anything more, and wait for the ends of their threads. On the loop's thread."""
        self.stopped = True
        self._conductor.forget(self)
        for inbox in self._inboxes:
            inbox.end()

    # -------------------------------------------------------------------------------------------------- for its inboxes

    def ask(self, inbox: SteppingInbox, begin: Callable[[], object]) -> None:
        """On the loop's thread."""
        self._inboxes[inbox] = None
        if self.stopped:
            begin()
        else:
            self._conductor.ask(Step(self, inbox, begin))

    def done(self, inbox: SteppingInbox) -> None:
        """From its store thread."""
        self._conductor.done(inbox)

    def enter(self, inbox: SteppingInbox) -> None:
        """This is its store thread."""
        self._here.inbox = inbox

    def sleep(self, seconds: float) -> None:
        """In a store thread that takes a step: block for a time on the loop's clock, while others go on. Raises `Stopped`."""
        inbox: SteppingInbox = self._here.inbox
        woken = threading.Event()
        inbox.sleeps = woken
        self.post(partial(self._conductor.let_sleep, seconds, Step(self, inbox, woken.set)))
        self.done(inbox)
        while not woken.wait(LOOK_EVERY):
            self.post(_nothing)  # which raises when there is no loop any more
        inbox.sleeps = None
        if self.stopped:
            raise Stopped("it was stopped as it slept")


def _nothing() -> None:
    """Posted to find out whether the loop is there."""


class SteppingInbox:
    """Gives the store thread one item at a time, when its turn has come. Made on the loop's thread."""

    def __init__(self, inner: Inbox, stepper: Stepper) -> None:
        self._inner = inner
        self._stepper = stepper
        self._turn_to_open = threading.Event()
        self._busy = False
        """The store thread works at what it was handed."""
        self._ending = False
        self._thread: threading.Thread | None = None
        self.sleeps: threading.Event | None = None
        stepper.ask(self, self._turn_to_open.set)

    def put(self, item: object) -> None:
        if item is None:
            self._inner.put(None)  # it only makes the thread look up
        else:
            self._stepper.ask(self, partial(self._inner.put, item))

    def end(self) -> None:
        """Make the store thread end, wherever it is. On the loop's thread."""
        self._turn_to_open.set()
        self._inner.put(Stopped("it was stopped"))
        if self.sleeps is not None:
            self.sleeps.set()
        if self._thread is not None:
            self._thread.join(PATIENCE)

    def join_if_ending(self) -> None:
        """What a thread does at its end comes back by real time. On the loop's thread."""
        if self._ending and self._thread is not None:
            self._thread.join(PATIENCE)

    # ----------------------------------------------------------------------------------------------- in the store thread

    def open(self) -> None:
        """Wait for the turn to open the database."""
        if self._thread is None:
            self._thread = threading.current_thread()
            self._stepper.enter(self)
            self._turn_to_open.wait()
            self._busy = True

    async def get(self, timeout: float | None) -> object | None:
        self.finished()
        item = await self._inner.get(None)
        if isinstance(item, Stopped):
            raise item
        self._busy = item is not None
        return item

    def get_nowait(self) -> object | None:
        return None

    def finished(self) -> None:
        if self._busy:
            self._busy = False
            self._stepper.done(self)

    def close(self) -> None:
        self._ending = True
        self.finished()


class SteppingDriver(WrappedDriver):
    """A driver whose store thread keeps in step."""

    def __init__(self, inner: Driver, stepper: Stepper) -> None:
        super().__init__(inner)
        self._stepping = SteppingInbox(inner.inbox, stepper)

    @property
    def inbox(self) -> Any:
        return self._stepping

    async def open(self) -> None:
        self._stepping.open()
        await self.inner.open()

    async def news(self) -> News:
        return News()

    async def close(self) -> None:
        self._stepping.close()
        await self.inner.close()
