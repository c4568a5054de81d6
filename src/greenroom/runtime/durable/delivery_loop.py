"""The message loop of an actor whose messages are in the store.

It is the ordinary loop, and most of what it does is inherited; but what it takes from the queue are `StoredMessage`s, and to handle one
is to begin it, run the handler, and finish it. Only then may anybody believe that it was handled.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from greenroom.actors import NOT_BEGUN, MessageLoop, Unit
from greenroom.actors.bodies import Perform, Unserved
from greenroom.actors.concurrent import Gate
from greenroom.actors.exits import is_cancellation, lone
from greenroom.actors.messages import Rejected, Stop
from greenroom.errors import LeaseLost, StoreUnavailable, Undecodable
from greenroom.mailbox import Envelope, StoredMessage
from greenroom.persistence import AddressKind
from greenroom.runtime.durable.committing import commit_of
from greenroom.runtime.durable.replies import Reply, stopped_itself
from greenroom.runtime.durable.states import StateUnusable

if TYPE_CHECKING:
    from greenroom.actors import ActorLife
    from greenroom.runtime.durable.custody import Custody


class DeliveryLoop(MessageLoop):
    """See the module."""

    persistent = True

    __slots__ = ("_alone", "_custody", "_found_guilty", "durable", "life")

    def __init__(self, life: ActorLife, *, drain: bool) -> None:
        super().__init__(life, drain=drain)
        custody: Custody = life.mailbox.custody  # type: ignore[assignment]
        self.life = life
        self._custody = custody
        self.durable = custody.kind is AddressKind.ACTOR
        self._alone = True
        """No concurrent handlers: the next message is the next to be handled, and may be begun with the end of this one."""
        self._found_guilty = False
        """A message has crashed the actor: what others had in hand is broken off through no fault of theirs."""

    # -------------------------------------------------------------------------------------------------------- start

    def begin(self) -> Coroutine[Any, Any, object]:
        return self._begin()

    async def _begin(self) -> object:
        while True:
            try:
                if not await self._custody.claim(self):
                    return NOT_BEGUN
                info = await self._life.body.start()
            except StateUnusable as unusable:
                await self._custody.park(unusable)
                continue
            self._alone = not self._life.body.concurrent
            self._custody.look()
            return info

    def stand_by(self) -> None:
        """It has to wait until it may own its address."""
        self._life.stand_by()

    def stop(self) -> None:
        super().stop()
        self._custody.look_for_room()

    # --------------------------------------------------------------------------------------------------- one message

    def _find(self, envelope: Envelope) -> tuple[Envelope, Perform] | None:
        if isinstance(envelope[0], StoredMessage):
            return envelope, self._deliver
        return super()._find(envelope)

    def _deliver(self, target: Any, message: StoredMessage) -> Coroutine[Any, Any, None]:
        """Deal with one message that was fetched. To be awaited at once."""
        content = message.content
        if content is not None:
            handler = self._handler_of(type(content))
            if handler is not None and not isinstance(handler, Gate):
                return self._handle(handler, target, message, content)
        return self._deliver_any(target, message)

    async def _deliver_any(self, target: Any, message: StoredMessage) -> None:
        custody = self._custody
        try:
            content = message.content
            if content is None:
                content = await custody.content(message)
        except Undecodable as error:
            await custody.bury(message, f"it cannot be decoded: {error}")
        else:
            handler = self._handler_of(type(content))
            if handler is None:
                handled = ", ".join(self._life.body.handled_types()) or "nothing"
                await custody.bury(message, f"{custody.address!r} has no handler for it; it handles {handled}")
            elif isinstance(handler, Gate):
                self._hand_to(handler, message, content)
            else:
                await self._handle(handler, target, message, content)
                return
        self._see_to_more()

    def _see_to_more(self) -> None:
        if self._custody.queue.next_stored() is None:
            self._custody.ran_dry()

    def _handler_of(self, kind: type) -> Perform | Gate | None:
        """What handles messages of a class, or of the nearest of its bases."""
        table = self._life.body.table
        gates = self._concurrent.gates if self._concurrent is not None else {}
        for base in kind.__mro__:
            if base in table:
                return table[base]
            if base in gates:
                return gates[base]
        return self._life.body.resolve(kind)

    async def _handle(self, perform: Perform, target: Any, message: StoredMessage, content: Any) -> None:
        """Count the delivery, run the handler, and commit what came of it; or nothing, and raise what it raised."""
        try:
            if message.begun:  # with the end of the one before
                self._custody.check_fence()
            elif not await self._custody.begin(message):
                self._see_to_more()
                return
            unit = self._open_unit(message) if self.durable else None
            try:
                result = await perform(target, content)
            finally:
                if unit is not None:
                    self._life.cell.unit = None
            if unit is None and result is None:  # as most: nothing to commit but that it was handled
                await self._custody.finish(message, with_next=self._alone and self.goes_on)
                self._tell(message, None)
            else:
                await self._finish(message, unit, target, result)
        except BaseException as error:  # noqa: BLE001 - what is no answer is raised again there
            await self._failed(message, target, error)
        if self._custody.more:
            self._see_to_more()

    def _open_unit(self, message: StoredMessage) -> Unit:
        self._life.cell.unit = unit = Unit(self._life.loop.current_task(), message.message_id)
        return unit

    async def _finish(self, message: StoredMessage, unit: Unit | None, target: Any, result: Any) -> None:
        custody = self._custody
        fields: dict[str, Any] = {}
        if result is not None:
            data = custody.storage.payloads.encode_value(result)
            fields["reply"] = await custody.storage.stow(data, name=f"the reply of {custody.address!r}")
        with_next = self._alone and self.goes_on
        if unit is None:
            await custody.finish(message, with_next=with_next, **fields)
        else:
            commit = await commit_of(custody, unit, target)
            commit.done(await custody.finish(message, with_next=with_next, **fields, **commit.fields))
        self._tell(message, result)

    def _tell(self, message: StoredMessage, result: Any) -> None:
        """Whoever waits here for the reply gets it."""
        custody = self._custody
        replies = custody.storage.replies
        if replies.are_awaited(custody.address):
            replies.settle(custody.address, message.message_id, Reply(result))

    async def _failed(self, message: StoredMessage, target: Any, error: BaseException) -> None:
        """A handler raised: `Rejected` is an answer, and so is the will to stop. Raises anything else, with the message as it was."""
        error = lone(error)
        custody = self._custody
        if isinstance(error, Unserved):
            if error.__cause__ is None:
                custody.undo(message)
            else:
                await custody.bury(message, str(error.__cause__))
            return
        if isinstance(error, (Rejected, Stop)):
            if self.durable:
                assert custody.state is not None
                custody.state.restore(target, custody.storage.payloads)
            rejected = isinstance(error, Rejected)
            told = error if rejected else stopped_itself(custody.address, message.loggable_type())
            data = custody.storage.payloads.encode_value(told)
            kept = await custody.storage.stow(data, name=f"what {custody.address!r} answered")
            await custody.finish(message, with_next=rejected and self._alone and self.goes_on, error=kept)
            custody.storage.replies.settle(custody.address, message.message_id, Reply(error=told))
            if not rejected:
                raise error
            return
        cancelled = is_cancellation(error, self._life.loop.cancelled)
        stopped, cause = self._life.explain(error)
        blameless = isinstance(cause, (LeaseLost, StoreUnavailable)) or (cancelled and self._found_guilty)
        if stopped or blameless:
            custody.undo(message)
        self._found_guilty |= not cancelled
        raise error

    # ----------------------------------------------------------------------------------------- concurrent handlers

    def _hand_to(self, gate: Gate, message: StoredMessage, content: Any) -> None:
        """A concurrent handler takes it, in order, and finishes it in the actor's nursery.

        Its delivery is counted when there is a place for it: what only waits for one is not to blame when the process dies.
        """
        assert self._concurrent is not None
        handle = self._handle

        async def perform(target: Any, taken: StoredMessage) -> None:
            await handle(gate.handler.function, target, taken, content)

        self._concurrent.take(gate, (message, None, None), perform)

    # ------------------------------------------------------------------------------------------------------- the end

    def take_deferred(self) -> list[Envelope]:
        """Nothing goes back to the queue: what was not handled is in the store. Deliveries that had begun for nothing are taken back."""
        for message, _, _ in (*super().take_deferred(), *self._mailbox.queue):
            if isinstance(message, StoredMessage):
                self._custody.left_mail = True
                self._custody.undo(message)
        self.give_room_back()
        return []

    @property
    def message_id_in_hand(self) -> str | None:
        task = self._life.loop.current_task()
        runs = self._concurrent.runs if self._concurrent is not None else ()
        beside = (run.envelope for run in runs if run.task is task)
        hand = self.hand if self._life.cell.in_own_loop() else next(beside, None)
        message = hand[0] if hand is not None else None
        return message.message_id if isinstance(message, StoredMessage) else None
