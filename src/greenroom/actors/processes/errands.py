"""What a worker's actor wants of the rest of the tree, done for it on the event loop: messages to others, timers, watches.

Messages are put into their mailboxes at once, in the order they came over the wire; only waiting (for a reply, for room) is left to an
event-loop task of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from greenroom.actors.body_tasks import BodyTasks
from greenroom.actors.cell import Cell
from greenroom.actors.current import current_actor
from greenroom.actors.messages import Message, not_a_message
from greenroom.actors.processes.wire import Frame, Kind
from greenroom.actors.real_time import RealTime
from greenroom.actors.ref import Ref
from greenroom.actors.services import Services
from greenroom.errors import GreenroomError, MailboxFull, WouldDeadlock
from greenroom.logs import logger_named
from greenroom.mailbox import DeadLetterReason, Mailbox, MemoryMailbox
from greenroom.mailbox.parking import CancelScope

if TYPE_CHECKING:
    from datetime import datetime

    from greenroom.actors.life import ActorLife
    from greenroom.actors.processes.parcels import Parcels

logger = logger_named("greenroom.actors")


class Errands:
    """Serves one worker. For the event loop's thread."""

    def __init__(
        self,
        life: ActorLife,
        parcels: Parcels,
        tasks: BodyTasks,
        real_time: RealTime,
        send: Callable[[Kind, int, bytes], None],
    ) -> None:
        self._life = life
        self._parcels = parcels
        self._tasks = tasks
        self._real_time = real_time
        self._send = send
        self._waiting: dict[int, CancelScope] = {}

    def take(self, frame: Frame) -> None:
        """Do what a frame from the worker says."""
        if frame.kind is Kind.FORGET:
            scope = self._waiting.get(frame.number)
            if scope is not None:
                scope.cancel()
            return
        if frame.kind is Kind.STOP:
            self._life.messages.stop_self()
            return
        try:
            self._do(frame, *self._parcels.decode(frame.payload))
        except GreenroomError as error:
            if frame.kind in (Kind.ASK, Kind.SEND):
                self._send(Kind.REFUSAL, frame.number, self._parcels.pack_error(error))
            else:
                # The worker's code has gone on and cannot be told.
                logger.warning("%s wanted in vain to %s: %s", self._life.cell.path, frame.kind.name.lower(), error)

    def _do(self, frame: Frame, first: Any, *more: Any) -> None:
        context = self._life.context
        match frame.kind:
            case Kind.TELL:
                self._tell(first, *more)
            case Kind.SEND:
                self._put(frame.number, first, *more)
            case Kind.ASK:
                self._ask(frame.number, first, *more)
            case Kind.WATCH:
                context.watch(first)
            case Kind.UNWATCH:
                context.unwatch(first)
            case Kind.CANCEL:
                context.cancel(first)
            case Kind.AFTER | Kind.EVERY if self._life.alive:
                message, seconds, key = more
                (context.after if frame.kind is Kind.AFTER else context.every)(seconds, message, key=key)

    # ------------------------------------------------------------------------------------------- messages to others

    def _tell(self, ref: Ref, message: object) -> None:
        sender = self._life.cell
        mailbox = ref._cell.mailbox
        try:
            mailbox.put_nowait((_checked(message), sender, None))
        except MailboxFull:
            # `tell` did not wait to hear of it.
            self._life.services.dead_letters.publish(message, ref.path, sender.path, DeadLetterReason.DROPPED)

    def _put(self, number: int, ref: Ref, message: object, message_id: str | None, deliver_at: datetime | None) -> None:
        mailbox = ref._cell.mailbox
        checked = _checked(message)
        if mailbox.custody is not None or message_id is not None or deliver_at is not None:
            self._spawn(number, lambda: ref.send(checked, message_id=message_id, deliver_at=deliver_at))
            return
        envelope = (checked, self._life.cell, None)
        if mailbox.must_wait:
            if ref._cell is self._life.cell:
                raise WouldDeadlock(
                    f"{ref.path!r} would wait for itself: `send` for room in its own mailbox, which only it can make. "
                    "`tell` instead"
                )
            self._spawn(number, lambda: mailbox.put(envelope))
        else:
            mailbox.put_nowait(envelope)
            self._send(Kind.ANSWER, number, self._parcels.encode(None))

    def _ask(self, number: int, ref: Ref, message: object, timeout: float | None, message_id: str | None) -> None:
        services, cell = self._life.services, ref._cell
        checked = _checked(message)
        if cell.mailbox.custody is not None or message_id is not None or cell.mailbox.must_wait:
            self._spawn(number, lambda: ref.ask(checked, timeout=timeout, message_id=message_id))
            return
        reply = services.loop.slot()
        cell.mailbox.put_nowait((checked, self._life.cell, reply))
        if timeout is not None:
            services.asks.add(reply, timeout, cell.path, checked)

        async def answer() -> object:
            try:
                return await reply
            finally:
                if timeout is not None:
                    services.asks.forget(reply, timeout)

        self._spawn(number, answer)

    def _spawn(self, number: int, wait: Callable[[], Awaitable[object]]) -> None:
        async def work() -> None:
            current_actor.set(self._life.cell)
            try:
                with self._real_time.waiting():
                    await self._wait(number, wait)
            finally:
                del self._waiting[number]

        self._waiting[number] = self._tasks.start(work)

    async def _wait(self, number: int, wait: Callable[[], Awaitable[object]]) -> None:
        try:
            payload = self._parcels.encode(await wait())
        except Exception as error:  # noqa: BLE001 - it is the worker's, whatever it is
            self._send(Kind.REFUSAL, number, self._parcels.pack_error(error))
        else:
            self._send(Kind.ANSWER, number, payload)


def _checked(message: object) -> Message[Any]:
    if not isinstance(message, Message):
        raise not_a_message(message)
    return message


def find_ref(services: Services, path: str, incarnation: int) -> Ref:
    """The ref of (path, incarnation), as it came over the wire.

    An address that its supervisor has forgotten, though another may have its name by now, is one that has ended.
    """
    cell = services.directory.get(path)
    if cell is not None and cell.incarnation >= incarnation:
        return cell.ref
    mailbox = MemoryMailbox(path, Mailbox(), services.loop, services.dead_letters)
    mailbox.close("nothing in the tree has this path, or its supervisor has forgotten it")
    lost = Cell(path, mailbox, services)
    lost.incarnation = incarnation
    return lost.ref
