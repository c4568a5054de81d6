"""The persistent mailbox: what was accepted into it is in the store, and is handed out from there until it has been handled.

What a child says (`PersistentMailbox`), what a sender gets (`Receipt`), and `PersistentQueue`, which stands in the place of the
in-memory mailbox of an address: the deque holds messages that were fetched from the store, and ticks and notices, which never are in
it. Everything that needs the store goes through `Custody`, which the runtime gives: this package knows of no database.
"""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import datetime
from typing import Any, Literal, Protocol

from attrs import evolve, frozen

from greenroom.errors import BadSpec, TellRefused
from greenroom.mailbox.dead_letters import DeadLetters
from greenroom.mailbox.memory import Envelope, MailboxStatistics, MemoryMailbox, Sender, message_type
from greenroom.mailbox.options import DEFAULT_CAPACITY, Mailbox, is_whole
from greenroom.mailbox.parking import EventLoop

MAX_DELIVERIES = 5


@frozen
class PersistentMailbox:
    """A mailbox in the runtime's store: what was accepted survives the process, and is redelivered until it has been handled.

    `await ref.send(message)` returns a `Receipt` when the message is durable. A delivery is counted, durably, before the handler
    runs, so that a message that kills the process is counted too.

    Args:
        capacity: messages (int > 0) that may wait; None is unbounded. A `send` beyond it raises `MailboxFull`.
        max_deliveries: deliveries (int > 0) of one message after which it becomes a dead letter in the store, to be requeued or dropped
            by an operator.

    Raises `BadSpec` for a number below 1.
    """

    capacity: int | None = DEFAULT_CAPACITY
    max_deliveries: int = MAX_DELIVERIES

    def __attrs_post_init__(self) -> None:
        if self.capacity is not None and not is_whole(self.capacity, least=1):
            raise BadSpec(
                f"PersistentMailbox(capacity={self.capacity!r}): a capacity is a whole number of messages above 0, "
                "or None for unbounded"
            )
        if not is_whole(self.max_deliveries, least=1):
            raise BadSpec(
                f"PersistentMailbox(max_deliveries={self.max_deliveries!r}): a whole number of deliveries above 0"
            )


@frozen
class Receipt:
    """What became of a durable message that was sent.

    `accepted`: it is durable, and will be handled. `duplicate`: the same message had been accepted under this id before; this one
    changed nothing. `conflict`: another message has this id; this one was not taken. `late`: the recipient has ended for good.
    `unmatched`: nothing has that address. The last three are kept for a while, to be looked up. `delivered`: the recipient has it.
    """

    message_id: str
    disposition: Literal["accepted", "delivered", "duplicate", "late", "unmatched", "conflict"]


class StoredMessage:
    """A message as it was fetched from the store, on its way to a handler."""

    __slots__ = ("begun", "content", "deliveries", "message_id", "payload", "sender", "seq", "timer", "type")

    def __init__(
        self,
        seq: int,
        message_id: str,
        type: str,
        payload: Any,
        sender: str | None = None,
        timer: str | None = None,
        content: Any = None,
    ) -> None:
        self.seq = seq
        """Its place in the mailbox."""
        self.message_id = message_id
        self.type = type
        """What the store calls its class."""
        self.payload = payload
        """Its content, as the store has it; empty where the message itself is here."""
        self.sender = sender
        self.timer = timer
        self.content = content
        """The message itself, where it was sent here and can be no other than what decoding would give; None: decode it."""
        self.deliveries = 0
        """How often its delivery has begun, this one included; 0 while it waits."""
        self.begun = False
        """Its delivery is counted already."""

    def loggable_type(self) -> str:
        """Its type for people: the short name of its class."""
        return self.type.rpartition(":")[2].rpartition("<locals>.")[2]


class Custody(Protocol):
    """The store's side of one address. All that waits for the store is here."""

    def send(
        self, message: Any, sender: Sender | None, *, message_id: str | None, deliver_at: datetime | None
    ) -> Coroutine[Any, Any, Receipt | None]:
        """Accept a message, durably. None: it leaves with the commit of the handler that sends it. To be awaited at once."""

    async def ask(self, message: Any, sender: Sender | None, *, message_id: str | None, timeout: float | None) -> Any:
        """Accept a message and wait for the reply to it."""

    def adopt(self, actor: Any) -> None:
        """An actor has been made for the address: see that it can be served, and give a durable one its state."""

    async def callback(self, name: str, message_id: str | None, *, timeout: float | None) -> Any:
        """Open a callback for the address, within the handling of a message where there is one."""

    def let_go(self, why: str) -> None:
        """The address has ended here: own it no more."""


class PersistentQueue(MemoryMailbox):
    """The mailbox of an address whose messages are in the store. Only what was fetched for the actor is in its deque."""

    __slots__ = ("custody", "options")

    def __init__(
        self, path: str, options: PersistentMailbox, loop: EventLoop, dead_letters: DeadLetters, custody: Custody
    ) -> None:
        super().__init__(path, Mailbox(capacity=None), loop, dead_letters)
        self.custody = custody
        self.options = options

    def put_nowait(self, envelope: Envelope) -> None:
        """Refused: nothing that has not been committed may count as accepted."""
        raise TellRefused(self.path, message_type(envelope[0]))

    def put_stored(self, message: StoredMessage) -> None:
        """Queue a message that was fetched from the store."""
        self.queue.append((message, None, None))
        if self.parked is not None:
            self._wake()

    def forget_stored(self) -> None:
        """Drop what was fetched: it is in the store, and will be fetched again."""
        kept = [item for item in self.queue if not isinstance(item[0], StoredMessage)]
        self.queue.clear()
        self.queue.extend(kept)

    def statistics(self) -> MailboxStatistics:
        """What is in memory of it, under the capacity of the whole mailbox."""
        return evolve(super().statistics(), capacity=self.options.capacity)

    @property
    def depth(self) -> int:
        """How many were fetched and wait, those included that wait for a place at a concurrent handler."""
        return len(self.queue) + self._held

    def next_stored(self) -> StoredMessage | None:
        """The next to be handed out, if it is a message from the store."""
        head = self.queue[0][0] if self.queue else None
        return head if isinstance(head, StoredMessage) else None

    def close(self, why: str) -> None:
        """The address has ended here. What is in the store stays there."""
        self.forget_stored()
        super().close(why)
        custody = self.custody
        assert custody is not None
        custody.let_go(why)

    def _update_limit(self) -> None:
        self.limit = -1  # there is never room for what only is in memory
