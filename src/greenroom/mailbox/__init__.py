"""Mailboxes: ordered, bounded queues of one actor each, what happens when they overflow, and dead letters."""

from greenroom.mailbox.broadcast import Broadcast, Subscription
from greenroom.mailbox.dead_letters import DeadLetter, DeadLetterReason, DeadLetters
from greenroom.mailbox.memory import Envelope, MailboxStatistics, MemoryMailbox, Notice, Sender, message_type
from greenroom.mailbox.options import DEFAULT_CAPACITY, Mailbox, Overflow, is_seconds, is_whole
from greenroom.mailbox.parking import Backend, EventLoop, Slot, current_loop

__all__ = [
    "DEFAULT_CAPACITY",
    "Backend",
    "Broadcast",
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
    "Sender",
    "Slot",
    "Subscription",
    "current_loop",
    "is_seconds",
    "is_whole",
    "message_type",
]
