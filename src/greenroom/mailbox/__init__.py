"""Mailboxes: ordered, bounded queues of one actor each, what happens when they overflow, and dead letters."""

from greenroom.mailbox.broadcast import Broadcast, Subscription
from greenroom.mailbox.dead_letters import DeadLetter, DeadLetterReason, DeadLetters
from greenroom.mailbox.memory import Envelope, MailboxStatistics, MemoryMailbox, Notice, Sender, message_type
from greenroom.mailbox.options import DEFAULT_CAPACITY, Mailbox, Overflow, is_seconds, is_whole
from greenroom.mailbox.parking import Backend, EventLoop, Slot, current_loop
from greenroom.mailbox.persistent import Custody, PersistentMailbox, PersistentQueue, Receipt, StoredMessage

__all__ = [
    "DEFAULT_CAPACITY",
    "Backend",
    "Broadcast",
    "Custody",
    "DeadLetter",
    "DeadLetterReason",
    "DeadLetters",
    "Envelope",
    "EventLoop",
    "Mailbox",
    "MailboxStatistics",
    "MemoryMailbox",
    "Notice",
    "Overflow",
    "PersistentMailbox",
    "PersistentQueue",
    "Receipt",
    "Sender",
    "Slot",
    "StoredMessage",
    "Subscription",
    "current_loop",
    "is_seconds",
    "is_whole",
    "message_type",
]
