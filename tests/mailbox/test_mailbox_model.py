"""A mailbox against a plain model of it, under whatever senders, receivers and supervisors may do, in any order."""

from __future__ import annotations

from typing import Any

import attrs
import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from greenroom.errors import ActorStopped, MailboxFull
from greenroom.mailbox import DeadLetter, DeadLetterReason, Envelope, Mailbox, Notice, Overflow
from tests.mailbox.helpers import Driven, HandSlot, mailbox_by_hand


@attrs.define(eq=False)
class Sent:
    """A message, or a notice, and what the model expects of it."""

    number: int
    ask: bool = False
    notice: bool = False
    valid: bool = True
    reply: HandSlot | None = None
    sender: Driven | None = None
    """The `put` that brought it, while that waits for room."""
    refused: type[Exception] | None = None
    """What its asker was told."""

    @property
    def envelope(self) -> Envelope:
        return (self, None, self.reply)


several = st.lists(st.booleans(), min_size=1, max_size=3)
"""Messages that are sent in a row; true for those that are asked."""


class MailboxMachine(RuleBasedStateMachine):
    """The model: lists, and the rules of the documentation in their plainest form."""

    @initialize(
        capacity=st.one_of(st.none(), st.integers(1, 4)),
        overflow=st.sampled_from(["reject", "drop_new", "drop_oldest"]),
    )
    def begin(self, capacity: int | None, overflow: Overflow) -> None:
        self.capacity, self.overflow = capacity, overflow
        self.mailbox, dead_letters = mailbox_by_hand(Mailbox(capacity=capacity, overflow=overflow))
        self.letters = dead_letters.subscribe()
        self.receiver: Driven | None = None
        self.count = 0
        self.queued: list[Sent] = []
        self.waiting: list[Sent] = []
        self.taken: list[Sent] = []
        self.held = 0
        self.closed = False
        self.dropped = 0
        self.most = 0
        self.expected: list[tuple[Sent, DeadLetterReason]] = []
        self.asked: list[Sent] = []

    # ------------------------------------------------------------------------------------------------- the model

    @property
    def room(self) -> bool:
        messages = sum(not sent.notice for sent in self.queued)
        return self.capacity is None or messages + self.held < self.capacity

    def new(self, **fields: Any) -> Sent:
        self.count += 1
        sent = Sent(self.count, **fields)
        if sent.ask:
            sent.reply = HandSlot()
            self.asked.append(sent)
        return sent

    def append(self, sent: Sent) -> None:
        self.queued.append(sent)
        self.most = max(self.most, len(self.queued))

    def dead(self, sent: Sent, reason: DeadLetterReason) -> None:
        if reason is DeadLetterReason.DROPPED:
            self.dropped += 1
            sent.refused = MailboxFull
            self.expected.append((sent, reason))
        elif sent.ask:
            sent.refused = ActorStopped
        else:
            self.expected.append((sent, reason))

    def accept(self, sent: Sent) -> bool:
        """A message that does not wait; False when `reject` refuses it."""
        if self.closed:
            self.dead(sent, DeadLetterReason.ENDED)
        elif self.room:
            self.append(sent)
        elif self.overflow == "reject":
            return False
        elif self.overflow == "drop_new":
            self.dead(sent, DeadLetterReason.DROPPED)
        else:
            oldest = next((one for one in self.queued if not one.notice), None)
            self.dead(oldest if oldest is not None else sent, DeadLetterReason.DROPPED)
            if oldest is not None:
                self.queued.remove(oldest)
                self.append(sent)
        return True

    def admit(self) -> None:
        """Room goes to who waits, first come first served."""
        while self.waiting and self.room:
            sent = self.waiting.pop(0)
            self.append(sent)
            assert sent.sender is not None
            assert sent.sender.slot is not None
            assert sent.sender.slot.done(), "a sender that waits was not given the room that is free"
            sent.sender.step()
            assert sent.sender.ended
            assert sent.sender.error is None

    # ----------------------------------------------------------------------------------------------------- sending

    @rule(asks=several)
    def put_nowait(self, asks: list[bool]) -> None:
        for ask in asks:
            sent = self.new(ask=ask)
            try:
                self.mailbox.put_nowait(sent.envelope)
            except MailboxFull:
                assert not self.accept(sent), "a message was refused though the model had room"
                self.asked = [one for one in self.asked if one is not sent]
            else:
                assert self.accept(sent), "a message was taken though the model had no room"

    @rule(asks=several)
    def put(self, asks: list[bool]) -> None:
        for ask in asks:
            sent = self.new(ask=ask)
            driven = Driven(self.mailbox.put(sent.envelope))
            if self.accept(sent):
                assert driven.ended
                assert driven.error is None
            else:
                assert not driven.ended, "a sender did not wait though there was no room"
                sent.sender = driven
                self.waiting.append(sent)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel_a_sender(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(self.waiting))
        assert sent.sender is not None
        sent.sender.cancel()
        assert sent.sender.ended
        self.waiting.remove(sent)
        self.asked = [one for one in self.asked if one is not sent]

    @rule(valid=st.booleans())
    def put_notice(self, valid: bool) -> None:
        sent = self.new(notice=True, valid=valid)
        self.mailbox.put_notice(Notice(sent, lambda: sent.valid))
        if not self.closed:
            self.append(sent)

    # --------------------------------------------------------------------------------------------------- receiving

    @precondition(lambda self: self.queued)
    @rule()
    def take(self) -> None:
        """As the message loop does it."""
        message, _, reply = self.mailbox.queue.popleft()
        expected = self.queued.pop(0)
        if isinstance(message, Notice):
            opened = self.mailbox.open_notice(message)
            assert opened == ((expected, None, None) if expected.valid else None)
        else:
            assert message is expected
            assert reply is expected.reply
            self.taken.append(expected)
        self.mailbox.admit_waiting()
        self.admit()

    @precondition(lambda self: len(self.taken) > self.held)
    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, len(self.taken) - self.held))
        returned, self.taken = self.taken[-number:], self.taken[:-number]
        if self.closed:
            self.taken += returned
            return
        self.mailbox.put_back(sent.envelope for sent in returned)
        self.queued[:0] = returned
        self.most = max(self.most, len(self.queued))

    @precondition(lambda self: len(self.taken) > self.held and not self.closed)
    @rule()
    def hold(self) -> None:
        self.mailbox.hold(1)
        self.held += 1

    @precondition(lambda self: self.held and not self.closed)
    @rule(data=st.data())
    def hold_no_longer(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, self.held))
        self.mailbox.hold(-number)
        self.held -= number
        self.admit()

    @precondition(lambda self: self.receiver is None and not self.queued)
    @rule()
    def wait(self) -> None:
        self.receiver = Driven(self.mailbox.wait())
        assert not self.receiver.ended

    @precondition(lambda self: self.receiver is not None)
    @rule()
    def look_up(self) -> None:
        self.mailbox.look_up()
        self.resume_receiver()
        assert self.receiver is None

    def resume_receiver(self) -> None:
        if self.receiver is not None and self.receiver.slot is not None and self.receiver.slot.done():
            self.receiver.step()
            assert self.receiver.ended
            self.receiver = None

    # ----------------------------------------------------------------------------------------------------- the end

    @precondition(lambda self: not self.closed and not self.held and self.count % 5 == 0)
    @rule()
    def close(self) -> None:
        self.mailbox.close("the model says so")
        self.closed = True
        for sent in self.queued:
            if not sent.notice:
                self.dead(sent, DeadLetterReason.ENDED)
        self.queued.clear()
        for sent in self.waiting:
            assert sent.sender is not None
            sent.sender.step()
            assert isinstance(sent.sender.error, ActorStopped)
            self.asked = [one for one in self.asked if one is not sent]
        self.waiting.clear()

    @precondition(lambda self: self.closed)
    @rule()
    def reopen(self) -> None:
        self.mailbox.reopen()
        self.closed = False

    # -------------------------------------------------------------------------------------------------- invariants

    @invariant()
    def the_queue_is_the_models(self) -> None:
        found = [item[0].message if isinstance(item[0], Notice) else item[0] for item in self.mailbox.queue]
        assert found == self.queued

    @invariant()
    def the_fast_way_in_is_open_only_when_there_is_room(self) -> None:
        if len(self.mailbox.queue) < self.mailbox.limit:
            assert self.room
            assert not self.closed
            assert not self.waiting, "a message would overtake a sender that waits"

    @invariant()
    def a_sender_must_wait_exactly_when_there_is_no_room(self) -> None:
        assert self.mailbox.must_wait is (self.overflow == "reject" and not self.room and not self.closed)

    @invariant()
    def nobody_waits_while_there_is_room(self) -> None:
        assert not (self.waiting and self.room)

    @invariant()
    def statistics_are_the_models(self) -> None:
        statistics = self.mailbox.statistics()
        assert statistics.depth == len(self.queued) + self.held
        assert statistics.capacity == self.capacity
        assert statistics.high_water == self.most
        assert statistics.dropped == self.dropped
        assert statistics.waiting_senders == len(self.waiting)

    @invariant()
    def dead_letters_are_the_models(self) -> None:
        expected = [DeadLetter(sent, "app/a", None, reason) for sent, reason in self.expected]
        assert self.letters.pending() == expected
        self.expected.clear()

    @invariant()
    def askers_are_told_what_happened_and_only_that(self) -> None:
        for sent in self.asked:
            assert sent.reply is not None
            if sent.refused is None:
                assert not sent.reply.done()
            else:
                assert isinstance(sent.reply.error, sent.refused)

    @invariant()
    def the_receiver_sleeps_only_on_an_empty_mailbox(self) -> None:
        self.resume_receiver()
        assert self.receiver is None or not self.queued


TestMailbox = MailboxMachine.TestCase
TestMailbox.settings = settings(max_examples=150, stateful_step_count=40)
