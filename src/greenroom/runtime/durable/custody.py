"""`Custody`: an address in the store as its owner's side knows it.

`claim` at the start of each incarnation; then messages are fetched ahead, a page at a time, and each is begun (its delivery is
counted), handled, and finished, in one commit with the beginning of the next. What was accepted in this process is handed to an owner in
this process without reading it again, as long as nothing can have come between.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any

import attrs

from greenroom.actors import Actor, DurableActor, state_type
from greenroom.errors import DeadLettered as DeadLetterError
from greenroom.errors import LeaseLost, StoreUnavailable
from greenroom.logs import logger_named
from greenroom.mailbox import DeadLetterReason, PersistentMailbox, PersistentQueue, Slot, StoredMessage
from greenroom.persistence import (
    AddressKind,
    AdmitDue,
    BeginDelivery,
    BuryMessage,
    ClaimAddress,
    Claimed,
    CloseAddress,
    DeadLettered,
    Delivery,
    FinishDelivery,
    Handled,
    MessageRecord,
    NextMessages,
    OwnerWrite,
    ParkAddress,
    ParkReason,
    RefusalReason,
    Refused,
    ReleaseAddress,
    UndoDelivery,
)
from greenroom.runtime.durable.address import Address
from greenroom.runtime.durable.replies import Reply
from greenroom.runtime.durable.states import StateUnusable, StoredState

if TYPE_CHECKING:
    from greenroom.runtime.callback import Callback
    from greenroom.runtime.durable.delivery_loop import DeliveryLoop
    from greenroom.runtime.durable.storage import Storage

logger = logger_named("greenroom.storage")

PAGE = 64
"""Messages that are fetched at once."""

AHEAD = 1000
"""Messages that are taken as they arrive, before any is handled. What comes then stays in the store until there is room here."""

STANDBY = 5.0
"""Seconds after which an address that another owns is asked for again, whatever was heard of it."""

LOST = {
    RefusalReason.STALE_GENERATION,
    RefusalReason.NOT_OWNER,
    RefusalReason.LEASE_EXPIRED,
    RefusalReason.PARKED,
    RefusalReason.UNKNOWN_EXECUTION,
}
"""Refusals that say that the address is somebody else's now."""


class Custody(Address):
    """See the module. For the event loop's thread."""

    def __init__(
        self, storage: Storage, address: str, kind: AddressKind, options: PersistentMailbox, *, pooled: bool = False
    ) -> None:
        super().__init__(storage, address, options, pooled=pooled)
        self.kind = kind
        self.queue = PersistentQueue(address, options, storage.loop, storage.services.dead_letters, self)
        self._loop: DeliveryLoop | None = None
        self.execution_id = ""
        self.generation = 0
        """Under which it is owned here; 0 when it is not."""
        self.state: StoredState | None = None
        self._claimed: Claimed | None = None
        self._seen = 0
        """Every waiting message up to here was fetched."""
        self.more = False
        """There may be more behind it."""
        self._look = False
        self._admit = False
        self._fetching = False
        self._early: list[StoredMessage] = []
        self._due: Any = None
        self.left_mail = False
        """It was let go with messages in hand that it had fetched."""
        self.progressed: Callable[[], object] | None = None
        """Called when a message has been dealt with."""
        self._room: Slot | None = None
        """While messages that it has sent wait for room at their recipients: gets a result when that may have changed."""

    # ----------------------------------------------------------------------------------------------------- claiming

    async def claim(self, loop: DeliveryLoop) -> bool:
        """Become the owner of the address, for one incarnation. False: it was told to stop, or it is not for this one to wait."""
        leftovers = self.storage.leftovers
        await leftovers.settled(self.address)  # what the last incarnation left is under its generation
        while not loop.stopping:
            execution = self.storage.living()
            seconds: float | None = None
            if execution is not None and not self.storage.draining:
                claim = ClaimAddress(
                    address=self.address, kind=self.kind, execution_id=execution.id, capacity=self.options.capacity
                )
                answer = await self.storage.commit_surely(claim)
                if isinstance(answer, Claimed):
                    self._own(loop, execution.id, answer)
                    await leftovers.settled(self.address)
                    if self.kind is AddressKind.ACTOR:
                        self.state = await StoredState.of(self.storage, self.address, answer)
                    return True
                if answer.reason in (RefusalReason.LEASE_EXPIRED, RefusalReason.UNKNOWN_EXECUTION):
                    self.storage.lease_lost(execution)
                logger.info("%s waits to be owned here: %s", self.address, answer.detail)
                seconds = answer.seconds
            if self.pooled:
                return False
            loop.stand_by()
            await self._wait(min(STANDBY, seconds or STANDBY))
        return False

    async def _wait(self, seconds: float) -> None:
        timer = self.storage.services.timers.after(seconds, self.queue.look_up)
        self.storage.standing_by[self.address] = self
        try:
            await self.queue.wait()
        finally:
            del self.storage.standing_by[self.address]
            timer.cancel()

    def _own(self, loop: DeliveryLoop, execution_id: str, claimed: Claimed) -> None:
        self._loop = loop
        self.execution_id, self.generation = execution_id, claimed.generation
        self._claimed = claimed
        self.queue.forget_stored()  # not before: what was accepted since may have been put in
        self._seen = claimed.handled_seq
        self.more = self._admit = True
        self.storage.owned[self.address] = self
        if claimed.held:
            self.storage.holds(self.address)
        for seq in self.storage.owed.pop(self.address, ()):
            self._take_back(seq)

    def adopt(self, actor: Actor) -> None:
        """See that an actor's messages can be stored, and give a durable one its state.

        Raises `NotEncodable`, `StateUnusable`; `TypeError` for an actor of another kind than the address.
        """
        payloads = self.storage.payloads
        if isinstance(actor, DurableActor) is not (self.kind is AddressKind.ACTOR):
            raise TypeError(
                f"{self.address!r} was specified {'for a durable actor' if self.kind is AddressKind.ACTOR else 'by a factory'} that "
                f"does not show its kind, and got a {type(actor).__qualname__}: give gr.Child the class itself, or a functools.partial of it"
            )
        # One that is no attrs class cannot be sent; what derives from it can.
        payloads.register(*filter(attrs.has, type(actor).__handlers__))
        if isinstance(actor, DurableActor):
            assert self.state is not None
            payloads.learn(state_type(type(actor)))
            self.state.give(actor, payloads)

    async def park(self, unusable: StateUnusable) -> None:
        """Let nobody run the address until an operator says so. Raises `LeaseLost`."""
        logger.error("%s is parked (%s): %s", self.address, unusable.reason.value, unusable.detail)
        await self.own_commit(ParkAddress(**self._mine(), reason=unusable.reason, detail=unusable.detail))
        self._disown()

    # -------------------------------------------------------------------------------------------- letting go of it

    def let_go(self, why: str) -> None:
        """The address has ended here. Its mail stays; when its actor has ended by itself for good, what comes later is late."""
        if not self.generation:
            return
        assert self._loop is not None
        life = self._loop.life
        if life.lingering or life.exit is None:
            self._disown()  # what is stuck or abandoned may still run: to others the address is taken, while the lease lasts (P7)
            return
        write = CloseAddress if life.exit.kind == "normal" and not self.pooled else ReleaseAddress
        transition = write(**self._mine())
        due = self._due
        self._disown()
        if due is not None and self.pooled:
            self.storage.due_to_nobody(self.address, due.deadline)
        self.storage.leftovers.add(self.address, transition)

    def park_later(self, reason: ParkReason, detail: str) -> None:
        """Its actor ends, and nobody is to run it until an operator says so."""
        if self.generation:
            logger.error("%s is parked (%s): %s", self.address, reason.value, detail)
            transition = ParkAddress(**self._mine(), reason=reason, detail=detail)
            self._disown()
            self.storage.leftovers.add(self.address, transition)

    @property
    def is_idle(self) -> bool:
        """Nothing that is known of waits to be handled, and nothing is being fetched."""
        return not (self.queue.queue or self._fetching or self._look or self.more)

    def lost(self, error: LeaseLost) -> None:
        """The lease under which it was owned is gone."""
        loop = self._loop
        self._disown()
        if loop is not None and loop.life.alive:
            loop.life.break_off(error)

    def _disown(self) -> None:
        self.generation = 0
        if self._due is not None:
            self._due.cancel()
        if self.storage.owned.get(self.address) is self:
            del self.storage.owned[self.address]
            self.storage.replies.look_for(self.address)

    def _mine(self) -> dict[str, Any]:
        return {"address": self.address, "execution_id": self.execution_id, "generation": self.generation}

    def undo(self, message: StoredMessage) -> None:
        """Take the count of a delivery back that was broken off and was not the message's fault."""
        if message.begun:
            message.begun = False
            self._take_back(message.seq)

    def _take_back(self, seq: int) -> None:
        if self.generation:
            self.storage.leftovers.add(self.address, UndoDelivery(**self._mine(), seq=seq))
        else:  # only an owner may; whoever has lost its lease may become the owner again
            self.storage.owed.setdefault(self.address, []).append(seq)

    # ------------------------------------------------------------------------------------------------------ fetching

    def arrived(self, message: StoredMessage) -> None:
        """A message was accepted in this process: take it as it is, unless something may have come before it."""
        if self._fetching:
            self._early.append(message)  # what is being read may hold it, or what comes before it
        elif self.more or self.queue.depth >= AHEAD:
            self.more = True
            self.ran_dry()
        elif message.seq == self._seen + 1:
            self._seen = message.seq
            self.queue.put_stored(message)
        elif message.seq > self._seen:
            self.look()

    def due_at(self, moment: datetime) -> None:
        """Delayed mail of this address comes due at that moment."""
        if not self.generation:
            return
        deadline = self.storage.deadline_of(moment)
        if self._due is not None and not self._due.cancelled and self._due.deadline <= deadline:
            return
        if self._due is not None:
            self._due.cancel()
        self._due = self.storage.services.timers.at(deadline, self.look_at_due)

    def look_at_due(self) -> None:
        """Delayed mail may have come due."""
        self._due = None
        self._admit = True
        self.look()

    def look(self) -> None:
        """There may be something to fetch, or to go on with."""
        self.look_for_room()
        if self.generation:
            self._look = True
            if not self._fetching:
                self._fetching = self.storage.spawn(self._fetch)

    async def _fetch(self) -> None:
        try:
            while self._look and self.generation:
                self._look = False
                await self._fetch_page()
        except StoreUnavailable as error:
            logger.warning("%s: no more messages can be fetched: %s", self.address, error)
        finally:
            self._fetching = False
        self._take_early()

    async def _fetch_page(self) -> None:
        storage, generation = self.storage, self.generation
        if self._admit:
            self._admit = False
            admitted = await storage.surely(storage.store.commit, AdmitDue(address=self.address))
            if not isinstance(admitted, Refused) and admitted.next_due is not None and self.generation == generation:
                self.due_at(admitted.next_due)
        if self.queue.depth >= PAGE:
            self.more = True  # enough is here; the loop asks again when it has come through
            return
        page = await storage.surely(
            storage.store.read, NextMessages(address=self.address, after=self._seen, limit=PAGE)
        )
        if self.generation != generation:
            return
        for record in page:
            self._seen = max(self._seen, record.seq or 0)
            self.queue.put_stored(_stored(record))
        self.more = len(page) == PAGE

    def _take_early(self) -> None:
        """What arrived while a page was read goes behind it, as far as there is no gap."""
        early, self._early = self._early, []
        if self.more:
            return  # all of it will be fetched, behind what comes before it
        for message in sorted(early, key=lambda message: message.seq):
            self.arrived(message)

    def ran_dry(self) -> None:
        """Little of what was fetched is left."""
        if self.more and self.queue.depth < PAGE:
            self.look()

    async def content(self, message: StoredMessage) -> Any:
        """The message itself. Raises `Undecodable`."""
        data = await self.storage.fetch(message.payload)
        return self.storage.payloads.decode(data, f"message {message.seq} ({message.message_id!r}) of {self.address!r}")

    # ----------------------------------------------------------------------------------------------------- handling

    async def begin(self, message: StoredMessage) -> bool:
        """Count the delivery of a message. False: it is not to be handled (a dead letter by now, dealt with, or time to stop).

        Raises `LeaseLost` when the address is not owned here any more.
        """
        while not message.begun:
            self.check_fence()
            self._room = (
                self.storage.loop.slot()
            )  # before the question, so that room that comes meanwhile is not missed
            answer = await self.own_commit(
                BeginDelivery(**self._mine(), seq=message.seq, max_deliveries=self.options.max_deliveries)
            )
            if isinstance(answer, Delivery):
                self._begun(message, answer)
            elif isinstance(answer, DeadLettered):
                self._is_dead(message, f"it was delivered {answer.deliveries} times and not handled")
                return False
            elif answer.reason is RefusalReason.HELD_BACK:
                self.storage.holds(self.address)
                await self._room
                if self._loop is None or not self._loop.goes_on:
                    return False
            elif answer.reason is RefusalReason.NOT_PENDING:
                return False
            else:
                raise self.is_lost(answer.detail)
        self.check_fence()
        return True

    def look_for_room(self) -> None:
        """What held its next message back may be over."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _begun(self, message: StoredMessage, delivery: Delivery) -> None:
        message.begun, message.deliveries = True, delivery.deliveries

    def check_fence(self) -> None:
        """Raise `LeaseLost` unless effects may be made as the owner of the address."""
        execution = self.storage.living()
        if execution is None or execution.id != self.execution_id:
            raise self.is_lost("its lease was lost")

    async def bury(self, message: StoredMessage, why: str) -> None:
        """Make a dead letter of a message that cannot be handled at all. Raises `LeaseLost`."""
        answer = await self.own_commit(BuryMessage(**self._mine(), seq=message.seq, reason=why))
        if isinstance(answer, Refused) and answer.reason is not RefusalReason.NOT_PENDING:
            raise self.is_lost(answer.detail)
        self._is_dead(message, why)

    def _is_dead(self, message: StoredMessage, why: str) -> None:
        self._has_progressed()
        short = message.loggable_type()
        logger.error("dead letter in the store: %s (id %s) of %s: %s", short, message.message_id, self.address, why)
        self.storage.services.dead_letters.publish(message, self.address, message.sender, DeadLetterReason.DELIVERIES)
        error = DeadLetterError(self.address, message.message_id, short, why)
        self.storage.replies.settle(self.address, message.message_id, Reply(error=error))

    async def finish(self, message: StoredMessage, *, with_next: bool, **fields: Any) -> Handled:
        """Commit that a message was handled, with all that belongs to it, and begin the next one if there is one.

        Args:
            fields: of the `FinishDelivery`.
        Raises:
            LeaseLost.
        """
        following = self.queue.next_stored() if with_next else None
        if not self.generation:
            raise self.is_lost("its lease was lost")
        transition = FinishDelivery(
            address=self.address,
            execution_id=self.execution_id,
            generation=self.generation,
            seq=message.seq,
            next_seq=following.seq if following is not None and not following.begun else None,
            max_deliveries=self.options.max_deliveries,
            **fields,
        )
        # `own_commit`, in place: every message passes here.
        store = self.storage.store
        try:
            entry = store.submit(transition)
            try:
                await store.settled(entry)
            except self.storage.loop.cancelled:
                if not await store.see_through(entry):
                    raise
            answer = entry.result()
        except StoreUnavailable as error:
            answer = await self.storage.commit_again(transition, error, self.check_fence)
        message.begun = False
        if isinstance(answer, Refused):
            raise self.is_lost(answer.detail)
        self._has_progressed()
        if following is not None:
            if answer.next is not None:
                self._begun(following, answer.next)
            elif answer.next_dead is not None:
                self.queue.queue.popleft()
                self._is_dead(following, f"it was delivered {answer.next_dead.deliveries} times and not handled")
        handled: Handled = answer
        return handled

    def _has_progressed(self) -> None:
        """A message has been dealt with, and there is room for another."""
        if self.progressed is not None:
            self.progressed()
        if self.storage.holders:
            self.storage.made_room()

    def own_commit(self, transition: OwnerWrite[Any]) -> Coroutine[Any, Any, Any]:
        """Commit what only the owner may. An owner that has lost its lease meanwhile does not try again."""
        if not self.generation:
            raise self.is_lost("its lease was lost")
        return self.storage.commit_surely(transition, self.check_fence)

    def is_lost(self, why: str) -> LeaseLost:
        self._disown()
        return LeaseLost(self.execution_id, f"{self.address!r} is not owned here any more: {why}")

    # ----------------------------------------------------------------------------------------------------- callbacks

    async def callback(self, name: str, message_id: str | None, *, timeout: float | None) -> Callback:
        """As `Context.callback`."""
        return await self.storage.callbacks.open(self, name, message_id, timeout=timeout)

    @property
    def owner(self) -> dict[str, Any]:
        """What an owner's write carries. Raises `LeaseLost`."""
        if not self.generation:
            raise self.is_lost("its lease was lost")
        return self._mine()


def _stored(record: MessageRecord) -> StoredMessage:
    return StoredMessage(record.seq or 0, record.message_id, record.type, record.body, record.sender, record.timer)
