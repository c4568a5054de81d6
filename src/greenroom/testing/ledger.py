"""A ledger of what stores have committed, kept outside of the database and without any unique key of its own.

It counts what each transition did: an identity that was applied twice counts 2, whatever the database makes of it. `audit`
compares it with the tables. Both speak of the invariants:

I1  what was acknowledged is found;
I2  only the owner writes to an address;
I3  a handled message's reply, state and messages came to be together with its mark, or none of them;
I4  a generation has one owner;
I5  what was accepted once is handled once, for the record.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from attrs import define, field

from greenroom.persistence import (
    AcceptMessage,
    AnswerCallback,
    AnswerDisposition,
    BeginDelivery,
    ClaimAddress,
    Claimed,
    CloseAddress,
    DeadLettered,
    DeliverAnswer,
    Delivery,
    Disposition,
    EndExecution,
    FinishDelivery,
    Handled,
    LostReleased,
    OwnerWrite,
    ParkAddress,
    Prunable,
    Prune,
    Pruned,
    Receipt,
    Refused,
    ReleaseAddress,
    ReleaseLost,
    SetTimer,
    StateWrite,
    UndoDelivery,
)
from greenroom.persistence.callbacks import ANSWER, CallbackAnswered
from greenroom.persistence.journal import CommitTurn, EntryKind, JournalEntry, TurnCommitted
from greenroom.persistence.tasks import (
    AttemptBegun,
    ClaimedTask,
    ClaimTask,
    NewAttempt,
    ReleaseTask,
    Submission,
    SubmitTask,
    Submitted,
    TerminateTask,
)
from greenroom.testing.wrapped_driver import WrappedDriver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.persistence import Driver, Outgoing, Payload, Transition
    from greenroom.persistence.driver import Applied

Place = tuple[str, int]
"""An address, and a place in its mailbox."""

Segment = tuple[str, int, int]
"""A task, its attempt, and a segment of that."""

KEPT = frozenset({Disposition.ACCEPTED, Disposition.HELD})


@define(eq=False)
class Ledger:
    """What all executions of one database have committed, from its beginning. Written in store threads."""

    contradictions: list[str] = field(factory=list)
    """What must never be committed, and was."""
    accepted: Counter[tuple[str, str]] = field(factory=Counter)
    """By address and message: how often it was accepted there."""
    bodies: dict[tuple[str, str], tuple[str, Payload]] = field(factory=dict)
    timers: set[tuple[str, str]] = field(factory=set)
    """Delayed messages of an address to itself. They may be taken back."""
    held: set[tuple[str, str]] = field(factory=set)
    """Messages that had to wait for room at their recipients."""
    outside: Counter[tuple[str, str]] = field(factory=Counter)
    """By sender and message: how often it was handed to the outbox."""
    begun: Counter[Place] = field(factory=Counter)
    finished: dict[Place, FinishDelivery] = field(factory=dict)
    settled: Counter[Place] = field(factory=Counter)
    """How often it was handled, or made a dead letter."""
    owners: dict[str, tuple[str, int]] = field(factory=dict)
    """By address: the execution that owns it, and its generation."""
    generations: dict[str, int] = field(factory=dict)
    states: dict[str, StateWrite] = field(factory=dict)
    tasks: set[str] = field(factory=set)
    """Addresses of tasks that were accepted."""
    over: set[str] = field(factory=set)
    """Of those: the ones that have ended. What comes there is late."""
    segments: dict[str, Segment] = field(factory=dict)
    """By task: the one that its owner writes to."""
    journals: dict[Segment, list[JournalEntry]] = field(factory=dict)
    consumed: dict[str, int] = field(factory=dict)
    """By task: messages up to this place have got their rows."""
    answers: dict[str, Payload] = field(factory=dict)
    """Of callbacks."""
    pruned: set[Prunable] = field(factory=set)
    """Kinds of which something was forgotten, by order."""
    _batches: set[str] = field(factory=set)

    def wrap(self, driver: Driver) -> Driver:
        """For `open_store(driver=…)`: around the driver itself, inside of whatever makes mistakes on purpose."""
        return RecordedDriver(driver, self)

    def committed(self, batch_id: str, items: Sequence[Transition[Any]], answers: Sequence[Any]) -> None:
        """A batch was applied."""
        self._batches.add(batch_id)
        for item, answer in zip(items, answers, strict=True):
            if not isinstance(answer, Refused):
                self._enter(item, answer)

    def recovered(self, batch_id: str, items: Sequence[Transition[Any]], answers: Sequence[Any]) -> None:
        """A batch turned out to have been applied."""
        if batch_id not in self._batches:
            self.committed(batch_id, items, answers)

    def _enter(self, item: Transition[Any], answer: Any) -> None:
        if isinstance(item, OwnerWrite):
            self._check_owner(item)
        match item, answer:
            case ClaimAddress(), Claimed():
                self._claim(item, answer.generation)
            case ClaimTask(), ClaimedTask():
                self._claim(item, answer.task.generation)
            case SubmitTask(), Submitted(disposition=Submission.ACCEPTED):
                self.tasks.add(item.task.address)
            case CommitTurn(), TurnCommitted():
                self._turn(item, answer)
            case TerminateTask(), _:
                self.generations[item.address] = self.generations.get(item.address, 0) + 1
                self.owners.pop(item.address, None)
                self.over.add(item.address)
                if item.to_parent is not None and item.to_parent.recipient not in self.over:
                    self._send(item.to_parent)
            case NewAttempt(), AttemptBegun(attempt=attempt):
                self.over.discard(item.address)
                self.segments[item.address] = item.address, attempt, 1
            case ReleaseAddress() | ReleaseTask() | CloseAddress() | ParkAddress(), _:
                self.owners.pop(item.address, None)
            case EndExecution(), _:
                self._disown(item.execution_id)
            case ReleaseLost(), LostReleased(more=False):
                self._disown(item.execution_id)
            case AcceptMessage(), Receipt(disposition=Disposition.ACCEPTED):
                self._accept(item.address, item.message_id, item.type, item.body)
            case AnswerCallback(), CallbackAnswered(disposition=AnswerDisposition.ACCEPTED):
                self.answers[item.callback_id] = item.answer
            case DeliverAnswer(), Receipt(disposition=Disposition.ACCEPTED):
                self._accept(item.address, item.callback_id, ANSWER, self.answers[item.callback_id])
            case FinishDelivery(), Handled():
                self._finish(item, answer)
            case BeginDelivery(), Delivery(seq=seq):
                self.begun[item.address, seq] += 1
            case UndoDelivery(), Delivery(seq=seq):
                self.begun[item.address, seq] -= 1
            case OwnerWrite(), DeadLettered(seq=seq):
                self.settled[item.address, seq] += 1
            case Prune(dry_run=False), Pruned(count=count) if count:
                self.pruned.add(item.kind)
            case _:
                return  # it changes nothing that is accounted for here

    def _check_owner(self, item: OwnerWrite[Any]) -> None:
        if self.owners.get(item.address) != (item.execution_id, item.generation):
            self.contradictions.append(
                f"I2: {type(item).__name__} at {item.address!r} was accepted from the execution {item.execution_id} under "
                f"generation {item.generation}, and the owner is {self.owners.get(item.address)}"
            )

    def _claim(self, item: ClaimAddress | ClaimTask, generation: int) -> None:
        if generation <= self.generations.get(item.address, 0):
            self.contradictions.append(
                f"I4: {item.address!r} was given away under generation {generation}, after "
                f"{self.generations[item.address]}"
            )
        self.generations[item.address] = generation
        self.owners[item.address] = item.execution_id, generation

    def _turn(self, item: CommitTurn, answer: TurnCommitted) -> None:
        segment = self.segments.setdefault(item.address, (item.address, 1, 1))
        journal = self.journals.setdefault(segment, [])
        ended = {entry.call for entry in journal if entry.kind is EntryKind.OUTCOME}
        for entry in item.rows:
            if entry.kind is EntryKind.OUTCOME and entry.call in ended:
                self.contradictions.append(f"I2: {entry.call} of {segment} has got two outcomes")
        journal.extend(item.rows)
        if item.consumed_seq is not None:
            self.consumed[item.address] = item.consumed_seq
        for message, disposition in zip(item.sent, answer.outgoing, strict=True):
            if disposition in KEPT:
                self._send(message)
            if disposition is Disposition.HELD:
                self.held.add((message.recipient, message.message_id))
        self.tasks.update(task.address for task in item.submits)
        if item.continue_as is not None:
            address, attempt, number = segment
            self.segments[address] = following = address, attempt, number + 1
            self.journals[following] = list(item.continue_as.handed_over)
        if item.ending is not None:
            self.owners.pop(item.address, None)
            self.over.add(item.address)

    def _send(self, message: Outgoing) -> None:
        self._accept(message.recipient, message.message_id, message.type, message.body)

    def _disown(self, execution_id: str) -> None:
        self.owners = {address: owner for address, owner in self.owners.items() if owner[0] != execution_id}

    def _accept(self, address: str, message_id: str, type: str, body: Payload) -> None:
        self.accepted[address, message_id] += 1
        self.bodies[address, message_id] = type, body

    def _finish(self, item: FinishDelivery, answer: Handled) -> None:
        place = item.address, item.seq
        self.settled[place] += 1
        self.finished[place] = item
        if item.state is not None:
            self.states[item.address] = item.state
        for message, disposition in zip(item.outgoing, answer.outgoing, strict=True):
            if disposition in KEPT:
                self._send(message)
            if disposition is Disposition.HELD:
                self.held.add((message.recipient, message.message_id))
        for timer in item.timers:
            if isinstance(timer, SetTimer):
                self.timers.add((item.address, timer.message_id))
        for outgoing in item.outside:
            self.outside[item.address, outgoing.message_id] += 1
        if answer.next is not None:
            self.begun[item.address, answer.next.seq] += 1
        if answer.next_dead is not None:
            self.settled[item.address, answer.next_dead.seq] += 1


class RecordedDriver(WrappedDriver):
    """Enters what it commits into a ledger."""

    def __init__(self, inner: Driver, ledger: Ledger) -> None:
        super().__init__(inner)
        self._ledger = ledger

    async def apply(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        applied = await self.inner.apply(batch_id, items)
        self._ledger.committed(batch_id, items, applied.answers)
        return applied

    async def recover(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied | None:
        applied = await self.inner.recover(batch_id, items)
        if applied is not None:
            self._ledger.recovered(batch_id, items, applied.answers)
        return applied
