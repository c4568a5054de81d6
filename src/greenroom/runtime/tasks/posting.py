"""What tasks say to actors (R26). It is recorded like every operation, so that a replay says nothing twice.

A message to an address in the store goes into its mailbox in the transaction in which it was sent (R25). One to an actor in memory is
told after that, at most once. A question is an operation in flight: to an address in the store it has an identity, and is asked again
under that one; an actor in memory is asked anew.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from greenroom.actors import Message, Ref, described
from greenroom.errors import ActorStopped, MailboxFull, StoreUnavailable
from greenroom.logs import logger_named
from greenroom.mailbox import PersistentMailbox
from greenroom.persistence import Disposition, Outgoing
from greenroom.runtime.durable.address import Address
from greenroom.runtime.replay import Effect, OperationDef
from greenroom.runtime.tasks.ids import message_id
from greenroom.runtime.tasks.journal import CANCEL
from greenroom.runtime.tasks.outcomes import outgoing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.runtime.replay import OperationCall
    from greenroom.runtime.tasks.run import Run
    from greenroom.runtime.tasks.turn import Turn

logger = logger_named("greenroom.tasks")

PAUSE = 0.2
"""Seconds before a question is put again that the store could not take."""


async def tell(run: Run, turn: Turn, call: OperationCall) -> None:
    """Let a message leave with the turn. Raises `PayloadTooLarge`."""
    codec, storage = run.activation.codec, run.storage
    message = codec.decode(call.params, source=f"the message of {call}")
    ref = _in_memory(run, call.name)
    if ref is not None:
        turn.afterwards += (partial(_tell_in_memory, ref, message),)
        return
    await storage.pools.open_if_pooled(call.name)
    identity = message_id(run.segment.task, call.id)
    turn.outgoing += (await outgoing(call.name, identity, message, codec, storage.stow),)


def _tell_in_memory(ref: Ref, message: Message[Any]) -> None:
    try:
        ref.tell(message)
    except MailboxFull as error:  # it was told, and is lost: at most once
        logger.error("%s", error)


def note_dispositions(address: str, sent: Sequence[Outgoing], became: Sequence[Disposition]) -> None:
    """Say which messages of a turn nobody will get. They are kept as observations."""
    for message, disposition in zip(sent, became, strict=False):  # that to the parent is told by itself
        if message.type == CANCEL or disposition in (Disposition.ACCEPTED, Disposition.DUPLICATE, Disposition.HELD):
            continue
        logger.error(
            "%s was sent by %s to %s and is %s; it is kept as an observation",
            message.type,
            address,
            message.recipient,
            disposition.value,
        )


def asking(run: Run, call: OperationCall) -> OperationDef[..., Any]:
    """A question as an operation."""
    return OperationDef(name=call.name, function=partial(_ask, run, call), effect=Effect.SAFE)


async def _ask(run: Run, call: OperationCall, message: Message[Any]) -> Any:
    storage, timeout = run.storage, call.target
    identity = message_id(run.segment.task, call.id)
    while True:
        try:
            ref = _in_memory(run, call.name)
            if ref is not None:
                return await ref.ask(message, timeout=timeout)
            address = Address(storage, call.name, PersistentMailbox(), pooled=True)
            return await address.ask(message, None, message_id=identity, timeout=timeout)
        except StoreUnavailable as error:  # no event of the task
            logger.warning("%s asks %s again: %s", run.activation.address, call.name, described(error))
            await anyio.sleep(PAUSE)
        except ActorStopped:
            if not (run.activation.stopping or storage.draining):
                raise
            await (
                anyio.sleep_forever()
            )  # the tree is stopping, not that actor alone: it is asked again by whoever goes on


def _in_memory(run: Run, path: str) -> Ref | None:
    """The actor of that path in this tree, if its messages are in memory."""
    cell = run.storage.services.directory.get(path)
    return None if cell is None or cell.mailbox.custody is not None else cell.ref
