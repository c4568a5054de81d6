"""`Ref`: how everybody outside an actor reaches it. An address: it outlives incarnations, and the class behind it."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import anyio

from greenroom.actors.current import current_actor
from greenroom.actors.messages import Message, not_a_message
from greenroom.actors.unit import open_unit
from greenroom.errors import ActorDown, AskTimeout, MailboxFull, NotASupervisor, WouldDeadlock, WrongThread
from greenroom.mailbox import DeadLetterReason, Envelope, Receipt, message_type

if TYPE_CHECKING:
    from datetime import datetime

    from greenroom.actors.cell import Cell

R = TypeVar("R")


class Ref:
    """The address of an actor or a supervisor.

    Got from `runtime.ref(path)`, `context.ref`, `start_child` or a message. Equal only to itself; usable on the event loop's
    thread (`runtime.from_thread` elsewhere).
    """

    __slots__ = ("_cell", "_mailbox")

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._mailbox = cell.mailbox

    @property
    def path(self) -> str:
        """The names from the top supervisor down, joined by `/`."""
        return self._cell.path

    @property
    def incarnation(self) -> int:
        """Which incarnation stands here now (or stood last), counted from 1; 0 before the first start."""
        return self._cell.incarnation

    def __repr__(self) -> str:
        return f"<Ref {self._cell.path}>"

    # ----------------------------------------------------------------------------------------------- messages

    def tell(self, message: Message[Any]) -> None:
        """Queue a message and go on; never waits.

        To an actor that has ended it becomes a dead letter. While the actor is restarting it is queued.

        Raises:
            MailboxFull: there is no room, under the policy `reject`; the message was not taken.
            NotAMessage: it does not derive from `Message`.
            TellRefused: the recipient has a persistent mailbox; `send` tells when it is durable.
            WrongThread: called on another thread than the event loop's.
        """
        if not isinstance(message, Message):
            raise not_a_message(message)
        # What follows is `put_nowait` while there is room, in place: the call would cost as much as what it does.
        mailbox = self._mailbox
        if get_ident() != mailbox.thread:
            raise WrongThread
        queue = mailbox.queue
        sender = current_actor.get()
        if sender is not None and sender.unit is not None and mailbox.custody is None:
            unit = open_unit(sender)
            if unit is not None:  # a durable actor's handler: what it sends leaves with its commit
                unit.afterwards.append(lambda: self._tell_late(message, sender))
                return
        if len(queue) >= mailbox.limit:
            mailbox.put_nowait((message, sender, None))
            return
        queue.append((message, sender, None))
        parked = mailbox.parked
        if parked is not None:
            mailbox.parked = None
            if not parked.done():
                parked.set_result(None)

    async def send(
        self, message: Message[Any], *, message_id: str | None = None, deliver_at: datetime | None = None
    ) -> Receipt | None:
        """Queue a message; in memory, under the policy `reject`, wait for room. A persistent mailbox gives a receipt, others None.

        To a persistent mailbox it returns when the message is durable. In a handler of a `DurableActor` the message leaves with the
        handler's commit, and None is returned at once.

        Cancelled while it waits: the message was not taken; in a persistent mailbox it may have been, and can be repeated under its
        `message_id`.

        Args:
            message_id: identity of the message at a persistent mailbox, for sending it again: a second one is a duplicate, with
                the receipt of the first, for as long as the first is on record (7 days after it was handled). None: a fresh one.
            deliver_at: an aware instant before which a persistent mailbox does not deliver it.

        Raises:
            ActorStopped: the recipient ended while this waited for room. (One that had ended before makes a dead letter.)
            WouldDeadlock: an actor's message loop would wait for room in its own mailbox.
            MailboxFull: the persistent mailbox has no room; the message was not taken.
            NotEncodable, PayloadTooLarge: it cannot be stored.
            StoreUnavailable: the store did not answer; its `unknown` tells whether the message may have been taken.
            ValueError: `message_id` or `deliver_at` was given for a mailbox in memory.
        """
        if not isinstance(message, Message):
            raise not_a_message(message)
        if self._mailbox.custody is not None:
            sender = current_actor.get()
            return await self._mailbox.custody.send(message, sender, message_id=message_id, deliver_at=deliver_at)
        if message_id is not None or deliver_at is not None:
            raise ValueError(f"message_id and deliver_at need a persistent mailbox; that of {self.path!r} is in memory")
        sender = current_actor.get()
        unit = open_unit(sender)
        if unit is not None:
            unit.afterwards.append(lambda: self._tell_late(message, sender))
            return None
        await self._put((message, sender, None), "send")
        return None

    def _tell_late(self, message: Message[Any], sender: Cell | None) -> None:
        """What a durable actor's handler has told, now that it is committed. It is told at most once: no room is a dead letter."""
        try:
            self._mailbox.put_nowait((message, sender, None))
        except MailboxFull:
            path = sender.path if sender is not None else None
            self._cell.services.dead_letters.publish(message, self.path, path, DeadLetterReason.DROPPED)

    async def ask(
        self,
        message: Message[R],
        *,
        timeout: float | None = 5.0,
        message_id: str | None = None,
        when_down: Literal["wait", "fail"] = "wait",
    ) -> R:
        """Send a message and wait for its reply.

        Args:
            timeout: seconds, waiting for room included; None waits for ever.
            message_id: at a persistent mailbox, the identity of the question: asked again under it, the kept reply is returned.
            when_down: while the recipient is restarting, `"wait"` in its mailbox or `"fail"` at once with `ActorDown`.

        Raises at once what happened:
            Rejected: the handler's own exception.
            ActorCrashed: the recipient crashed or was killed with this message in hand; the cause is chained.
            ActorStopped: it has ended, or ended before it came to this message.
            UnhandledMessage: it has no handler for this type.
            MailboxFull: its overflow policy dropped the message.
            WouldDeadlock: an actor's message loop asked itself.
            AskTimeout: in the end. The recipient is not told and may still do the work; a late reply is dropped.
            NotAccepted, DeadLettered: of a persistent mailbox; and what `send` raises there.
            ValueError: `timeout` is negative, or `when_down` is another word.
        """
        if not isinstance(message, Message):
            raise not_a_message(message)
        cell = self._cell
        services = cell.services
        sender = current_actor.get()
        if sender is cell:
            self._refuse_own_loop("ask")
        if when_down != "wait":
            self._refuse_when_down(message, when_down)
        if self._mailbox.custody is not None:
            if timeout is not None and not timeout >= 0:
                raise _bad_timeout(timeout)
            return await self._mailbox.custody.ask(message, sender, message_id=message_id, timeout=timeout)  # type: ignore[no-any-return]
        if message_id is not None:
            raise ValueError(f"message_id needs a persistent mailbox; that of {self.path!r} is in memory")
        if sender is not None and sender.unit is not None:
            open_unit(sender)  # refuses control code
        reply = services.loop.slot()
        envelope: Envelope = (message, sender, reply)
        if timeout is None:
            await self._put(envelope, "ask")
            return await reply  # type: ignore[no-any-return]
        if not timeout >= 0:
            raise _bad_timeout(timeout)
        left = timeout
        asks = services.asks
        mailbox = self._mailbox
        if len(mailbox.queue) < mailbox.limit:
            mailbox.put_nowait(envelope)
        else:  # it may have to wait for room, or be refused at once
            started = services.loop.now()
            with anyio.move_on_after(timeout) as scope:
                await self._put(envelope, "ask")
            if scope.cancelled_caught:
                raise AskTimeout(cell.path, message_type(message), timeout)
            left = max(0.0, timeout - (services.loop.now() - started))
        asks.add(reply, left, cell.path, message, timeout)
        try:
            return await reply  # type: ignore[no-any-return]
        finally:
            asks.forget(reply, left)

    def _refuse_when_down(self, message: Message[Any], when_down: str) -> None:
        if when_down != "fail":
            raise ValueError(f"when_down={when_down!r}: choose 'wait' or 'fail'")
        if self._cell.is_restarting:
            raise ActorDown(self.path, message_type(message))

    async def _put(self, envelope: Envelope, call: str) -> None:
        mailbox = self._mailbox
        if envelope[1] is not self._cell or not self._cell.in_own_loop():
            await mailbox.put(envelope)
            return
        await mailbox.let_others_run()
        if mailbox.must_wait:
            self._refuse_own_loop(call)
        mailbox.put_nowait(envelope)

    def _refuse_own_loop(self, call: str) -> None:
        """An actor's message loop must not wait for itself. Its nursery's tasks and concurrent handlers may."""
        if self._cell.in_own_loop():
            raise WouldDeadlock(
                f"{self.path!r} would wait for itself: `{call}` from its own handler can never be served. "
                "Call the method, `tell` instead, or do it in `context.nursery`"
            )

    def partition(self, key: object) -> Ref:
        """On a `PartitionSupervisor`: the partition that this key belongs to (an int by modulo, else by a stable hash).

        Raises `NotASupervisor` elsewhere; `BadSpec` for a key that is not an int, str or bytes.
        """
        administration = self._cell.administration
        if administration is None:
            raise NotASupervisor(self.path, "partition")
        return administration.route(key)

    # ----------------------------------------------------------------------------------- administration

    async def _administer(self, call: str, *args: object) -> Any:
        administration = self._cell.administration
        if administration is None:
            raise NotASupervisor(self.path, call)
        self._cell.services.loop.check_thread()
        caller = current_actor.get()
        if caller is not None and caller.starts_under(self._cell) and caller.in_own_loop():
            raise WouldDeadlock(
                f"{caller.path!r} called `{call}` on {self.path!r} from its own start, which that supervisor is waiting for. "
                "Send yourself a message in `on_start` and call when it arrives"
            )
        if caller is not None and caller.is_stopped_by(self._cell):
            raise WouldDeadlock(
                f"{caller.path!r} called `{call}` on {self.path!r}, which is stopping it and waits for its end. "
                "What is to be done after it belongs to an actor that goes on"
            )
        return await administration.call(call, *args)

    async def start_child(self, *args: object) -> Any:
        """Start one more child: of a `Supervisor` from a `Child` (or another spec), of a `DynamicSupervisor` with these extra arguments.

        Returns the child's ref; `Started(ref, info)` when its `on_start` returned something; None when it raised `Ignore`.

        Raises:
            AlreadyStarted, AlreadyPresent, ChildStillEnding: the name is taken. BadSpec: not a spec. TooManyChildren: `max_children` are there.
            StartFailed: its start failed, cause chained; the spec is not kept. Never counted as a restart.
            ActorStopped: the supervisor is ending.
        """
        return await self._administer("start_child", *args)

    async def terminate_child(self, name: str | Ref) -> None:
        """Stop a child by its own shutdown rule. The spec is kept unless it is temporary (or dynamic). Fine when it is down already.

        Raises `ChildNotFound`; `ChildStillEnding` when it is stuck or abandoned: it may still run. `WouldDeadlock` in a handler of
        that child itself, or of one below it: the end waits for the handler. `context.stop()` and `raise gr.Stop` do not.
        """
        caller = current_actor.get()
        if caller is not None and caller.services is self._cell.services and caller.in_own_handler():
            path = name.path if isinstance(name, Ref) else f"{self.path}/{name}"
            if f"{caller.path}/".startswith(f"{path}/"):
                raise WouldDeadlock(
                    f"{caller.path!r} called `terminate_child` for {path!r} in its own handler, and that would wait for this handler. "
                    "To end by itself it calls `context.stop()`; other calls it makes in `context.nursery`"
                )
        await self._administer("terminate_child", name)

    async def restart_child(self, name: str) -> Any:
        """Start a child that is down; returns as `start_child`. Never counted.

        Raises `ChildNotFound`, `ChildRunning`, `ChildRestarting`, `ChildStillEnding`, or `StartFailed` (it stays down then).
        """
        return await self._administer("restart_child", name)

    async def delete_child(self, name: str) -> None:
        """Forget the spec of a child that is down. Raises `ChildNotFound`, `ChildRunning`, `ChildRestarting`, `ChildStillEnding`."""
        await self._administer("delete_child", name)

    async def replace_childspec(self, child: Any) -> None:
        """Give a child of that name another spec, used at its next start; the running incarnation is left alone.

        Raises `ChildNotFound`, `BadSpec`.
        """
        await self._administer("replace_childspec", child)

    async def which_children(self) -> list[Any]:
        """The children as `ChildInfo`, the latest started first."""
        return list(await self._administer("which_children"))

    async def count_children(self) -> Any:
        """How many there are, as `ChildCounts`."""
        return await self._administer("count_children")

    async def get_childspec(self, name: str) -> Any:
        """A child's full spec, defaults filled in. Raises `ChildNotFound`."""
        return await self._administer("get_childspec", name)


def _bad_timeout(timeout: float) -> ValueError:
    return ValueError(f"timeout={timeout!r}: seconds, 0 or more, or None to wait for ever")
