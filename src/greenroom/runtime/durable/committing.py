"""What the handler of a durable actor has done, as one transaction, and what is left to do when that is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field

from greenroom.actors import DurableActor, Held, HeldTimer, Published, Unit
from greenroom.logs import logger_named
from greenroom.persistence import CancelTimer, Disposition, Handled, Outgoing, SetTimer, ToOutside, outgoing_id

if TYPE_CHECKING:
    from greenroom.runtime.durable.custody import Custody
    from greenroom.runtime.durable.payloads import Encoded

logger = logger_named("greenroom.storage")


@define(eq=False)
class Commit:
    """The fields of a `FinishDelivery`, and who has to be told when it is done."""

    custody: Custody
    unit: Unit
    fields: dict[str, Any] = field(factory=dict)
    state: tuple[bytes, int] | None = None

    def done(self, handled: Handled) -> None:
        """It is committed: remember the state, look at what was set, and send what goes to actors in memory."""
        if self.state is not None:
            assert self.custody.state is not None
            self.custody.state.committed(*self.state)
        for sent, disposition in zip(self.unit.messages, handled.outgoing, strict=True):
            if disposition not in (Disposition.ACCEPTED, Disposition.DUPLICATE, Disposition.HELD):
                logger.error(
                    "%s was sent by %s to %s and is %s; it is kept as an observation",
                    sent.message.type,
                    self.custody.address,
                    sent.recipient,
                    disposition.value,
                )
        storage = self.custody.storage
        if Disposition.HELD in handled.outgoing:
            storage.holds(self.custody.address)
        for outgoing in self.fields.get("outgoing", ()):
            if outgoing.deliver_at is not None:
                storage.due(outgoing.recipient, outgoing.deliver_at)
        for timer in self.fields.get("timers", ()):
            if isinstance(timer, SetTimer):
                self.custody.due_at(timer.deliver_at)
        if self.fields.get("outside"):
            storage.hurry()
        for tell in self.unit.afterwards:
            tell()


async def commit_of(custody: Custody, unit: Unit, target: Any) -> Commit:
    """All that belongs to one handled message, large payloads brought to the content store.

    Raises `NotEncodable`, `PayloadTooLarge`.
    """
    assert custody.state is not None
    assert isinstance(target, DurableActor)
    storage = custody.storage
    fields: dict[str, Any] = {}
    state = None
    data = custody.state.changed(target, storage.payloads)
    if data is not None:
        fields["state"] = await custody.state.write(storage, target, data)
        state = (data, type(target).state_version)
    if unit.messages:
        fields["outgoing"] = tuple([await _outgoing(custody, unit, n, held) for n, held in enumerate(unit.messages)])
    if unit.timers:
        fields["timers"] = tuple([await _timer(custody, unit, n, held) for n, held in enumerate(unit.timers)])
    if unit.published:
        fields["outside"] = tuple([await _outside(custody, unit, n, held) for n, held in enumerate(unit.published)])
    return Commit(custody, unit, fields, state)


async def _outgoing(custody: Custody, unit: Unit, number: int, held: Held) -> Outgoing:
    encoded: Encoded = held.message
    await custody.storage.pools.open_if_pooled(held.recipient)
    return Outgoing(
        recipient=held.recipient,
        message_id=held.message_id or outgoing_id(custody.address, unit.message_id, number),
        type=encoded.type,
        body=await custody.storage.stow(encoded.body, name=f"a message to {held.recipient!r}"),
        digest=encoded.digest,
        deliver_at=held.deliver_at,
    )


async def _timer(custody: Custody, unit: Unit, number: int, held: HeldTimer) -> SetTimer | CancelTimer:
    if held.message is None:
        return CancelTimer(key=held.key or "")
    encoded = custody.storage.payloads.encode(held.message)
    message_id = f"{outgoing_id(custody.address, unit.message_id, number)}|timer"
    return SetTimer(
        key=held.key or message_id,
        message_id=message_id,
        type=encoded.type,
        body=await custody.storage.stow(encoded.body, name=f"a timer of {custody.address!r}"),
        digest=encoded.digest,
        deliver_at=custody.storage.in_seconds(held.delay),
    )


async def _outside(custody: Custody, unit: Unit, number: int, held: Published) -> ToOutside:
    encoded = custody.storage.payloads.encode(held.message)
    return ToOutside(
        destination=held.destination,
        message_id=f"{outgoing_id(custody.address, unit.message_id, number)}|outside",
        type=encoded.type,
        body=await custody.storage.stow(encoded.body, name=f"a message to {held.destination!r}"),
    )
