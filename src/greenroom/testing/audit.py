"""Comparing the tables with a ledger: do the invariants of acceptance hold (I1 to I5)?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.errors import Failure
from greenroom.persistence import (
    DelayedMessages,
    ListAddresses,
    ListMessages,
    MessageStatus,
    Prunable,
    ReadAddress,
    ReadOutbox,
)
from greenroom.persistence.journal import ReadJournal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from datetime import datetime

    from greenroom.persistence import AddressRecord, MessageRecord, Query, Store
    from greenroom.testing.ledger import Ledger

PAGE = 500

Messages = dict[tuple[str, str], "MessageRecord"]
"""By address and identity."""


class InvariantBroken(Failure):
    """The store's tables are not what its acknowledgements promised.

    Fields: `findings`, one sentence for each, with the invariant's number in front.
    """

    def __init__(self, findings: tuple[str, ...]) -> None:
        self.findings = findings
        super().__init__("\n".join(("the store has broken its promises:", *(f"  {finding}" for finding in findings))))


async def audit(store: Store, ledger: Ledger) -> None:
    """Compare all that is in a store with what was committed to it, while nobody writes.

    Raises:
        InvariantBroken: they differ, or something was committed that never may be.
    """
    addresses = {record.address: record async for record in _pages(store, _list_addresses, lambda last: last.address)}
    messages: Messages = {}
    outbox: set[tuple[str, str]] = set()
    for address in addresses:
        async for message in _pages(store, _list_messages(address), lambda last: last.seq):
            messages[address, message.message_id] = message
        async for message in _pages(store, _list_delayed(address), lambda last: (last.deliver_at, last.message_id)):
            messages[address, message.message_id] = message
        async for row in _pages(store, _list_outbox(address), lambda last: last.ordinal):
            outbox.add((address, row.message_id))
        full = await store.read(ReadAddress(address=address))
        assert full is not None  # it was listed, and nobody writes
        addresses[address] = full
    findings = (
        *ledger.contradictions,
        *_twice(ledger),
        *_lost(ledger, addresses, messages, outbox),
        *_made_up(ledger, messages, outbox),
        *_settled(ledger, messages),
        *_owned(ledger, addresses),
        *(f"I1: the task {address!r} was accepted and is not there" for address in ledger.tasks - addresses.keys()),
        *[finding async for finding in _journals(store, ledger)],
    )
    if findings:
        raise InvariantBroken(findings)


async def _pages(store: Store, page: Callable[[Any], Query[Any]], key: Callable[[Any], Any]) -> AsyncIterator[Any]:
    after = None
    while rows := await store.read(page(after)):
        for row in rows:
            yield row
        after = key(rows[-1])


def _list_addresses(after: str | None) -> ListAddresses:
    return ListAddresses(after=after or "", limit=PAGE)


def _list_messages(address: str) -> Callable[[int | None], ListMessages]:
    return lambda after: ListMessages(address=address, after=after or 0, limit=PAGE)


def _list_delayed(address: str) -> Callable[[tuple[datetime, str] | None], DelayedMessages]:
    return lambda after: DelayedMessages(address=address, after=after, limit=PAGE)


def _list_outbox(address: str) -> Callable[[int | None], ReadOutbox]:
    return lambda after: ReadOutbox(address=address, after=after or 0, limit=PAGE)


def _twice(ledger: Ledger) -> Iterator[str]:
    """What was applied more than once."""
    if Prunable.MESSAGES not in ledger.pruned:
        for (address, message_id), count in ledger.accepted.items():
            if count > 1:
                yield f"I5: the message {message_id!r} was accepted {count} times at {address!r}"
    for (address, seq), count in ledger.settled.items():
        if count > 1:
            yield f"I5: place {seq} of {address!r} was settled {count} times"
    for (address, message_id), count in ledger.outside.items():
        if count > 1:
            yield f"I5: {address!r} handed the message {message_id!r} to the outbox {count} times"


def _lost(
    ledger: Ledger, addresses: Mapping[str, AddressRecord], messages: Messages, outbox: set[tuple[str, str]]
) -> Iterator[str]:
    """What was acknowledged and is not there, or is not as it was."""
    holding = any(record.held for record in addresses.values())
    if Prunable.MESSAGES not in ledger.pruned:
        for identity, (type, body) in ledger.bodies.items():
            found = messages.get(identity)
            if found is None:
                if not (holding and identity in ledger.held):
                    yield f"I1: the message {identity[1]!r} was accepted at {identity[0]!r} and is not there"
            elif (found.type, found.body) != (type, body):
                yield f"I1: the message {identity[1]!r} at {identity[0]!r} is not what was accepted"
    if Prunable.OUTBOX not in ledger.pruned:
        for address, message_id in ledger.outside.keys() - outbox:
            yield f"I3: {address!r} handed the message {message_id!r} to the outbox, and it is not there"
    for address, state in ledger.states.items():
        record = addresses.get(address)
        kept = None if record is None else (record.state, record.state_type, record.state_version)
        if kept != (state.payload, state.type, state.version):
            yield f"I3: the state of {address!r} is not the one that was committed with the last handled message"


def _made_up(ledger: Ledger, messages: Messages, outbox: set[tuple[str, str]]) -> Iterator[str]:
    """What is there, and nobody was told that it is: a part of something that was not committed whole."""
    for address, message_id in messages.keys() - ledger.accepted.keys() - ledger.timers:
        yield f"I3: the message {message_id!r} is at {address!r}, and nothing that was committed put it there"
    for address, message_id in outbox - ledger.outside.keys():
        yield f"I3: the message {message_id!r} of {address!r} is in the outbox, and nothing that was committed put it there"


def _settled(ledger: Ledger, messages: Messages) -> Iterator[str]:
    """Is each message marked as it was handled?"""
    for (address, message_id), message in messages.items():
        if message.seq is None:
            continue
        finish = ledger.finished.get((address, message.seq))
        handled = finish is not None or message.seq <= ledger.consumed.get(address, 0)
        if (message.status is MessageStatus.HANDLED) != handled:
            yield (
                f"I5: the message {message_id!r} at {address!r} is {message.status.value}, and was "
                f"{'' if handled else 'not '}handled"
            )
        elif finish is not None and (message.reply, message.error) != (finish.reply, finish.error):
            yield f"I3: the reply to the message {message_id!r} at {address!r} is not the one that was committed"
        if message.deliveries != ledger.begun[address, message.seq]:
            yield (
                f"I1: {message.deliveries} deliveries of the message {message_id!r} at {address!r} are on record, and "
                f"{ledger.begun[address, message.seq]} were begun"
            )


def _owned(ledger: Ledger, addresses: Mapping[str, AddressRecord]) -> Iterator[str]:
    """Does each address belong to whom it was given?"""
    for address, record in addresses.items():
        if record.generation != ledger.generations.get(address, 0):
            yield (
                f"I4: {address!r} is at generation {record.generation}, and the last that was given is "
                f"{ledger.generations.get(address, 0)}"
            )
        owner = ledger.owners.get(address)
        if record.owner is not None and (owner is None or owner[0] != record.owner):
            yield f"I4: {address!r} belongs to the execution {record.owner}, to which it was not given"


async def _journals(store: Store, ledger: Ledger) -> AsyncIterator[str]:
    """Is each journal what was committed to it, row by row?"""
    for (address, attempt, segment), written in ledger.journals.items():
        found = await store.read(ReadJournal(address=address, attempt=attempt, segment=segment, limit=len(written) + 1))
        if list(found) != written:
            yield f"I1: the journal of {address!r} (attempt {attempt}, segment {segment}) is not what was committed to it"
