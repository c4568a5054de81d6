"""The in-memory mailbox: a deque, a wake-up, and a bound.

The hot path is `Ref.tell`, which appends to `queue` itself while there is room, and the actor's loop, which takes from it: together
they decide what a message costs. Three tricks keep them short. `limit` is the smaller of the bound and the high-water mark, so one
comparison serves the bound, the statistics and the closed state (limit -1). What never counts against the bound (timer ticks,
`Terminated`) is queued as a `Notice` in an ordinary envelope: no actor handles that class, so it is found where unknown messages
are. And `attention` is the one flag that the receiver looks at between messages: somebody waits for room, or a stop was requested.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from attrs import frozen

from greenroom.errors import ActorStopped, MailboxFull, WrongThread
from greenroom.mailbox.dead_letters import DeadLetterReason, DeadLetters
from greenroom.mailbox.options import Mailbox
from greenroom.mailbox.parking import EventLoop, Slot

if TYPE_CHECKING:
    from greenroom.mailbox.persistent import Custody

_UNBOUNDED = 1 << 62
_CLOSED = -1

IN_A_ROW = 64
"""Messages that `put` takes without letting others run."""


class Sender(Protocol):
    """Whoever sends: an address in the tree."""

    @property
    def path(self) -> str: ...


Envelope: TypeAlias = tuple[object, Sender | None, Slot | None]
"""(message, who sent it, where the reply goes when somebody asked)."""


class Notice:
    """Something queued that never counts against the bound and may have lost its meaning by the time it is taken."""

    __slots__ = ("_valid", "message")

    def __init__(self, message: object, valid: Callable[[], bool]) -> None:
        self.message = message
        self._valid = valid

    def open(self) -> Envelope | None:
        """The envelope, or None when the notice is void: its timer was cancelled, its receiver restarted."""
        return (self.message, None, None) if self._valid() else None


@frozen
class MailboxStatistics:
    """A mailbox at one moment; counts are messages."""

    depth: int
    """How many wait, those included that were taken out and wait for a place at a concurrent handler."""
    capacity: int | None
    high_water: int
    """The most that ever waited at once; `Terminated` and timer ticks are included."""
    dropped: int
    waiting_senders: int


def message_type(message: object) -> str:
    """A message as errors and reports show it: its type by its short name; its repr where the class says `__loggable__ = True`."""
    cls = type(message)
    stands_for = getattr(cls, "loggable_type", None)
    if stands_for is not None:
        return str(stands_for(message))
    if getattr(cls, "__loggable__", False) is True:
        try:
            shown = repr(message)
        except Exception:  # noqa: BLE001 - somebody's repr must not break the report that shows it
            shown = ""
        if shown:
            return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
    return cls.__qualname__.rpartition("<locals>.")[2]


_LONGEST = 200
"""Characters of a repr that a report shows."""


def _forsake(reply: Slot | None) -> None:
    """Nobody will await this reply: what is in it, or will be, is not for asyncio to complain about."""
    if isinstance(reply, asyncio.Future) and not reply.cancel() and not reply.cancelled():
        reply.exception()


class MemoryMailbox:
    """The mailbox of one address. Used on the loop's thread only.

    Invariant: while `waiting` holds a sender, there is no room for a message from outside.
    """

    __slots__ = (
        "_capacity", "_closed", "_dead_letters", "_examine", "_held", "_high_water", "_in_a_row", "_loop", "_options",
        "attention", "dropped", "limit", "parked", "path", "queue", "thread", "waiting",
    )  # fmt: skip

    custody: Custody | None = None
    """The store's side, of a persistent mailbox."""

    def __init__(self, path: str, options: Mailbox, loop: EventLoop, dead_letters: DeadLetters) -> None:
        self.path = path
        self.queue: deque[Envelope] = deque()
        self.waiting: deque[tuple[Slot, Envelope]] | None = None
        self.attention = False
        """Look up between two messages: a sender waits for room, or the receiver is to stop."""
        self.dropped = 0
        self._options = options
        self._capacity = _UNBOUNDED if options.capacity is None else options.capacity
        self._held = 0
        self._high_water = 0
        self._in_a_row = 0
        self.limit = 0
        self.parked: Slot | None = None
        self._closed: str | None = None
        """Why it is closed; None while it is open."""
        self._examine: Callable[[object], object] | None = None
        self._loop = loop
        self.thread = loop.thread
        self._dead_letters = dead_letters

    # ------------------------------------------------------------------------------------------------ sending

    def put_nowait(self, envelope: Envelope) -> None:
        """Queue a message, or let the overflow policy decide. Raises `MailboxFull`, `WrongThread`.

        To a closed mailbox: a dead letter, and `ActorStopped` for a waiting asker.
        """
        if threading.get_ident() != self.thread:
            raise WrongThread
        if len(self.queue) >= self.limit and not self._make_room(envelope):
            return
        self.queue.append(envelope)
        if self.parked is not None:
            self._wake()

    async def put(self, envelope: Envelope) -> None:
        """Queue a message; under `reject`, wait for room. Senders get room in the order they came.

        Raises `ActorStopped` when the mailbox closes first. Cancelled: the message was not taken.
        """
        if not self.must_wait:
            await self.let_others_run()
        if not self.must_wait:
            self.put_nowait(envelope)
            return
        self._loop.check_thread()
        if self._examine is not None:
            self._examine(envelope[0])
        slot = self._loop.slot()
        if self.waiting is None:
            self.waiting = deque()
        entry = (slot, envelope)
        self.waiting.append(entry)
        self.attention = True
        try:
            await slot
        except BaseException:
            if self.waiting and entry in self.waiting:
                self.waiting.remove(entry)
            else:  # a native asyncio cancellation may come when room was given already
                self.take_back(envelope)
                _forsake(envelope[2])
            raise

    def take_back(self, envelope: Envelope) -> None:
        """Remove a message, should it be queued. A void notice takes its place: only the receiver shortens the queue."""
        for index, item in enumerate(self.queue):
            if item is envelope:
                self.queue[index] = (Notice(None, lambda: False), None, None)
                self._capacity += 1
                self._update_limit()
                self.admit_waiting()
                return

    async def let_others_run(self) -> None:
        """Now and then a checkpoint: whoever sends in a loop must stay cancellable. Call it before a message is taken, not after."""
        self._in_a_row += 1
        if self._in_a_row >= IN_A_ROW:
            self._in_a_row = 0
            self._loop.check_thread()
            await self._loop.checkpoint()

    def put_notice(self, notice: Notice) -> None:
        """Queue a tick or a notice at the tail, whatever the bound. Dropped when the mailbox is closed."""
        if self._closed is not None:
            return
        self.queue.append((notice, None, None))
        self._capacity += 1
        self._high_water = max(self._high_water, len(self.queue))
        self._update_limit()
        if self.parked is not None:
            self._wake()

    def _make_room(self, envelope: Envelope) -> bool:
        """The slow half of `put_nowait`: True when the message may be appended."""
        depth = len(self.queue)
        if self._closed is not None:
            self._refuse(envelope)
            return False
        if self._examine is not None:
            self._examine(envelope[0])
        if depth < self._capacity:
            self._high_water = max(self._high_water, depth + 1)
            self._update_limit()
            return True
        policy = self._options.overflow
        if policy == "reject":
            raise MailboxFull(self.path, self._options.capacity, message_type(envelope[0]))
        if policy == "drop_new":
            self._drop(envelope)
            return False
        for index, item in enumerate(self.queue):
            if not isinstance(item[0], Notice):
                del self.queue[index]
                self._drop(item)
                return True
        self._drop(envelope)  # everything queued is deferred or exempt: there is no older one to drop
        return False

    def _drop(self, envelope: Envelope) -> None:
        message, sender, reply = envelope
        self.dropped += 1
        self._dead_letters.publish(message, self.path, sender.path if sender else None, DeadLetterReason.DROPPED)
        if reply is not None and not reply.done():
            reply.set_exception(MailboxFull(self.path, self._options.capacity, message_type(message)))

    def _refuse(self, envelope: Envelope) -> None:
        message, sender, reply = envelope
        if reply is None:
            self._dead_letters.publish(message, self.path, sender.path if sender else None, DeadLetterReason.ENDED)
        elif not reply.done():
            why = self._closed or "it has ended"
            reply.set_exception(ActorStopped(self.path, message_type(message), why))

    def _update_limit(self) -> None:
        # A mailbox that examines has never room enough for what is put in without a look.
        self.limit = min(self._capacity, self._high_water) if self._examine is None else _CLOSED

    def examine_by(self, examine: Callable[[object], object] | None) -> None:
        """Have each message examined before it is taken: what `examine` raises, its sender gets. None: no more."""
        if examine is self._examine:
            return
        self._examine = examine
        if self._closed is None:
            self._update_limit()

    # ---------------------------------------------------------------------------------------------- receiving

    def _wake(self) -> None:
        slot, self.parked = self.parked, None
        if slot is not None and not slot.done():
            slot.set_result(None)

    async def wait(self) -> None:
        """Park the receiver until something is queued or `look_up()` is called. One receiver at a time."""
        slot = self.parked = self._loop.slot()
        try:
            await slot
        finally:
            self.parked = None

    def open_notice(self, notice: Notice) -> Envelope | None:
        """Account for a notice taken from the queue; its envelope, or None when it is void."""
        self._capacity -= 1
        self._update_limit()
        return notice.open()

    def admit_waiting(self) -> None:
        """Give room that has come free to the senders that wait for it, first come first served."""
        waiting = self.waiting
        while waiting and len(self.queue) < self._capacity:
            slot, envelope = waiting.popleft()
            if not slot.done():
                self._admit(envelope)
                slot.set_result(None)
        if waiting:
            self.attention = True

    def _admit(self, envelope: Envelope) -> None:
        """Queue a message for which there is room, and which has been examined."""
        self.queue.append(envelope)
        self._high_water = max(self._high_water, len(self.queue))
        self._update_limit()
        if self.parked is not None:
            self._wake()

    def look_up(self) -> None:
        """Wake the receiver, though nothing was queued, and make it look up: a stop request passes the queue."""
        self.attention = True
        self._wake()

    def put_back(self, envelopes: Iterable[Envelope]) -> None:
        """Return messages to the head of the queue, in their order. They were accepted once: the bound does not apply.

        When some of them were held, follow with `hold(-n)`.
        """
        self.queue.extendleft(reversed(tuple(envelopes)))
        self._high_water = max(self._high_water, len(self.queue))
        self._update_limit()
        if self.parked is not None:
            self._wake()

    @property
    def must_wait(self) -> bool:
        """True when a sender has to wait for room."""
        return len(self.queue) >= self._capacity and self._closed is None and self._options.overflow == "reject"

    def hold(self, count: int) -> None:
        """Count messages taken out but not yet handled (`count` > 0), or give their room back (`count` < 0)."""
        self._held += count
        self._capacity -= count
        self._update_limit()
        if count < 0:
            self.admit_waiting()

    # ------------------------------------------------------------------------------------------------ the end

    def close(self, why: str) -> None:
        """The address has ended: what is queued, and what comes from now on, becomes dead letters; asks raise `ActorStopped`."""
        self._closed = why
        self.limit = _CLOSED
        for item in self.queue:
            if isinstance(item[0], Notice):
                self._capacity -= 1
            else:
                self._refuse(item)
        self.queue.clear()
        waiting, self.waiting = self.waiting, None
        for slot, (message, _, _) in waiting or ():
            if not slot.done():
                slot.set_exception(ActorStopped(self.path, message_type(message), why))

    def reopen(self) -> None:
        """A new incarnation starts at an address that had ended."""
        self._closed = None
        self._update_limit()

    @property
    def closed(self) -> bool:
        return self._closed is not None

    def statistics(self) -> MailboxStatistics:
        """A frozen snapshot."""
        return MailboxStatistics(
            depth=len(self.queue) + self._held,
            capacity=self._options.capacity,
            high_water=self._high_water,
            dropped=self.dropped,
            waiting_senders=len(self.waiting or ()),
        )
