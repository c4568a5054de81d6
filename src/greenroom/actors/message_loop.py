"""The message loop of one incarnation: takes messages from the mailbox and gives each to its handler.

One message at a time, in order; concurrent handlers are passed to the actor's nursery. What a handler raises is told to the asker
here, and ends the loop unless the actor survives it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from attrs import define, field

from greenroom.actors.bodies import Perform
from greenroom.actors.handlers import Handler
from greenroom.actors.messages import Exit, Rejected, Stop
from greenroom.errors import ActorCrashed, ActorStopped, UnhandledMessage
from greenroom.mailbox import DeadLetterReason, Envelope, Notice, message_type

if TYPE_CHECKING:
    from greenroom.actors.life import ActorLife

BATCH = 64
"""Messages handled in a row before a real checkpoint: a flooded actor must stay cancellable, and let others run."""


@define(eq=False)
class Gate:
    """A concurrent handler: how many of it run, and what waits for a place."""

    handler: Handler
    running: int = 0
    deferred: deque[tuple[int, Envelope]] = field(factory=deque)
    """With their order of arrival among all that is deferred."""


class MessageLoop:
    """What is in hand, what is under way beside it, and whether it is time to stop."""

    __slots__ = (
        "_concurrent",
        "_deferrals",
        "_gates",
        "_life",
        "_mailbox",
        "drain",
        "hand",
        "own_exit",
        "reported_slow",
        "since",
        "stopping",
    )

    def __init__(self, life: ActorLife, *, drain: bool) -> None:
        self._life = life
        self._mailbox = life.mailbox
        self.drain = drain
        """At a stop on request, handle what is queued first."""
        self.stopping = False
        self.own_exit: Exit | None = None
        """The actor ends by its own will, like this."""
        self.hand: Envelope | None = None
        """The message in hand, while its handler is suspended. None when it was stashed."""
        self.since = 0.0
        """When it was taken in hand, by the stopwatch."""
        self.reported_slow: Envelope | None = None
        self._gates: dict[type, Gate] | None = None
        self._concurrent: dict[int, Envelope] = _NONE
        self._deferrals = 0

    def stop(self) -> None:
        """End after the message in hand; what is queued stays (or is handled first, with `drain`)."""
        self.stopping = True
        self._mailbox.look_up()

    def stop_self(self, exit: Exit | None = None) -> None:
        """The actor ends by its own will, after the message in hand."""
        if self.own_exit is None:
            self.own_exit = exit or Exit("normal")
        self.stop()

    async def run(self) -> None:
        """Handle messages until it is time to stop; returns when nothing is in hand any more."""
        busy = self._life.services.busy
        try:
            if self._life.body.concurrent:
                self._gates = {message: Gate(handler) for message, handler in self._life.body.concurrent.items()}
                self._concurrent = {}
                self._life.nursery.open()
            await self._serve()
            while self._concurrent:
                await self._mailbox.wait()
        finally:
            busy.leave(self._life)

    async def _serve(self) -> None:
        """The hot path.

        Nothing but this loop shortens the queue, so a batch is counted once. All that is rare (a stop, senders that wait for room,
        ticks, types found along an MRO, concurrent handlers) hides behind two tests: `attention`, and a message class that is not
        in the table.
        """
        life, mailbox = self._life, self._mailbox
        table, target, busy = life.body.table, life.body.target, life.services.busy
        queue, take, stopwatch, make_slot = mailbox.queue, mailbox.queue.popleft, life.loop.stopwatch, life.loop.slot
        busy.enter(life)
        in_a_row = 0
        while True:
            if mailbox.attention and self._is_to_stop():
                return
            batch = min(len(queue), BATCH - in_a_row)
            for _ in range(batch):
                envelope = take()
                if mailbox.attention and self._is_to_stop_instead_of(envelope):
                    return
                message, _, reply = envelope
                handler = table.get(message.__class__)
                if handler is None:
                    found = self._find(envelope)
                    if found is None:
                        continue
                    envelope, handler = found
                    message = envelope[0]
                self.hand = envelope
                self.since = stopwatch()
                try:
                    result = await handler(target, message)
                except BaseException as error:
                    self.hand = None
                    if not self._survives(error, envelope):
                        raise
                    continue
                # When it is in hand no longer it was stashed, and its asker goes on waiting.
                if reply is not None and self.hand is envelope and not reply.done():
                    reply.set_result(result)
            self.hand = None
            in_a_row += batch
            if in_a_row == BATCH:
                in_a_row = 0
                await life.loop.checkpoint()
            elif not queue and not mailbox.attention:
                in_a_row = 0
                busy.leave(life)
                mailbox.parked = slot = make_slot()
                try:
                    await slot
                finally:
                    mailbox.parked = None
                busy.enter(life)

    def _is_to_stop(self) -> bool:
        """Between two batches, when something wants attention."""
        if self.stopping and not (self.drain and self._mailbox.queue and self.own_exit is None):
            return True
        self._give_attention()
        return False

    def _is_to_stop_instead_of(self, envelope: Envelope) -> bool:
        """The same with a message just taken: it goes back when it is time to stop."""
        if self.stopping and not (self.drain and self.own_exit is None):
            self._mailbox.queue.appendleft(envelope)
            return True
        self._give_attention()
        return False

    def _give_attention(self) -> None:
        mailbox = self._mailbox
        mailbox.admit_waiting()
        # Senders that wait while the queue is empty wait for deferred messages: looking again would be a busy loop.
        mailbox.attention = self.stopping or bool(mailbox.waiting and mailbox.queue)

    def _find(self, envelope: Envelope) -> tuple[Envelope, Perform] | None:
        """What to do with a message whose class is not in the table; None when it is dealt with."""
        message = envelope[0]
        if isinstance(message, Notice):
            opened = self._mailbox.open_notice(message)
            if opened is None:
                return None
            envelope, message = opened, opened[0]
        kind = type(message)
        table, gates = self._life.body.table, self._gates or _NO_GATES
        for base in kind.__mro__:
            if base in gates:
                self._pass_to_nursery(gates[base], envelope)
                return None
            if base in table:
                table[kind] = table[base]
                return envelope, table[base]
        handler = self._life.body.resolve(kind)
        if handler is None:
            self._unhandled(envelope)
            return None
        return envelope, handler

    # ---------------------------------------------------------------------------------- what becomes of a message

    def _survives(self, error: BaseException, envelope: Envelope) -> bool:
        """A handler raised. Tell the asker what happened; True when the actor goes on (or ends by its own will)."""
        message, _, reply = envelope
        path = self._life.cell.path
        waiting = reply if reply is not None and not reply.done() else None
        if isinstance(error, Rejected):
            if waiting is not None:
                waiting.set_exception(error)
            elif reply is None:
                self._dead_letter(envelope, DeadLetterReason.REJECTED)
            return True
        if isinstance(error, Stop):
            if waiting is not None:
                waiting.set_exception(ActorStopped(path, message_type(message), "it stopped itself instead"))
            self.stop_self(error.exit)
            return True
        if waiting is not None:
            stopped, cause = self._life.explain(error)
            crash = ActorCrashed(path, message_type(message), self._life.incarnation, "was stopped" if stopped else "")
            crash.__cause__ = cause
            waiting.set_exception(crash)
        return False

    def _unhandled(self, envelope: Envelope) -> None:
        message, _, reply = envelope
        if reply is None:
            self._dead_letter(envelope, DeadLetterReason.UNHANDLED)
        elif not reply.done():
            types = self._life.body.handled_types()
            reply.set_exception(UnhandledMessage(self._life.cell.path, message_type(message), types))

    def _dead_letter(self, envelope: Envelope, reason: DeadLetterReason) -> None:
        message, sender, _ = envelope
        path = sender.path if sender is not None else None
        self._life.services.dead_letters.publish(message, self._life.cell.path, path, reason)

    # ----------------------------------------------------------------------------------------- concurrent handlers

    def _pass_to_nursery(self, gate: Gate, envelope: Envelope) -> None:
        """Start a concurrent handler, or put its message aside until one of its places is free."""
        if gate.running < gate.handler.concurrency:
            self._start_concurrent(gate, envelope)
        else:
            self._deferrals += 1
            gate.deferred.append((self._deferrals, envelope))
            self._mailbox.hold(1)

    def _start_concurrent(self, gate: Gate, envelope: Envelope) -> None:
        gate.running += 1
        self._concurrent[id(envelope)] = envelope
        self.since = self._life.loop.stopwatch()
        self._life.nursery.start_soon(self._run_concurrent, gate, envelope)

    async def _run_concurrent(self, gate: Gate, envelope: Envelope) -> None:
        message, _, reply = envelope
        try:
            result = await gate.handler.function(self._life.body.target, message)
            if id(envelope) in self._concurrent and reply is not None and not reply.done():
                reply.set_result(result)
        except BaseException as error:
            if not self._survives(error, envelope):
                raise
        finally:
            self._concurrent.pop(id(envelope), None)
            gate.running -= 1
            if gate.deferred and not self._life.nursery.closed and (not self.stopping or self.drain):
                self._mailbox.hold(-1)
                self._start_concurrent(gate, gate.deferred.popleft()[1])
            elif self.stopping:
                self._mailbox.look_up()

    def take_deferred(self) -> list[Envelope]:
        """What still waits for a place, in order of arrival: it goes back to the mailbox when the incarnation ends."""
        if self._gates is None:
            return []
        deferred = sorted(entry for gate in self._gates.values() for entry in gate.deferred)
        self._mailbox.hold(-len(deferred))
        return [envelope for _, envelope in deferred]

    # ---------------------------------------------------------------------------------------------- what is in hand

    @property
    def in_hand(self) -> Envelope | None:
        """The message in hand; with concurrent handlers the oldest."""
        return self.hand or next(iter(self._concurrent.values()), None)

    @property
    def type_in_hand(self) -> str | None:
        """Its type, for reports, which never show contents."""
        envelope = self.in_hand
        return message_type(envelope[0]) if envelope is not None else None

    def take_in_hand(self, message: object) -> Envelope | None:
        """Take the envelope of a message in hand away from its handler; None when it is not in hand."""
        if self.hand is not None and self.hand[0] is message:
            envelope, self.hand = self.hand, None
            return envelope
        for key, envelope in self._concurrent.items():
            if envelope[0] is message:
                del self._concurrent[key]
                return envelope
        return None

    def return_to_hand(self, envelope: Envelope) -> None:
        """Undo `take_in_hand`."""
        if self._gates is not None and type(envelope[0]) in self._gates:
            self._concurrent[id(envelope)] = envelope
        else:
            self.hand = envelope


_NONE: dict[int, Envelope] = {}
_NO_GATES: dict[type, Gate] = {}
