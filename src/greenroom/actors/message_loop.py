"""The message loop of one incarnation: takes messages from the mailbox and gives each to its handler.

One message at a time, in order; concurrent handlers are passed to the actor's nursery. What a handler raises is told to the asker
here, and ends the loop unless the actor survives it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from greenroom.actors.bodies import Perform
from greenroom.actors.concurrent import ConcurrentHandlers, Run
from greenroom.actors.exits import lone
from greenroom.actors.messages import Exit, Rejected, Stop
from greenroom.errors import ActorCrashed, ActorStopped, UnhandledMessage
from greenroom.mailbox import DeadLetterReason, Envelope, Notice, message_type

if TYPE_CHECKING:
    from greenroom.actors.life import ActorLife

BATCH = 64
"""Messages handled in a row before a real checkpoint: a flooded actor must stay cancellable, and let others run."""


NOT_BEGUN: Any = object()
"""What `begin` returns when it was told to stop before the actor was made."""


class MessageLoop:
    """What is in hand, what is under way beside it, and whether it is time to stop."""

    persistent = False
    """Its messages come out of the store."""
    durable = False
    """They are those of a durable actor."""

    __slots__ = (
        "_concurrent",
        "_life",
        "_mailbox",
        "_reported_slow",
        "drain",
        "hand",
        "own_exit",
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
        self._reported_slow: Envelope | None = None
        self._concurrent: ConcurrentHandlers | None = None

    def stop(self) -> None:
        """End after the message in hand; what is queued stays (or is handled first, with `drain`)."""
        self.stopping = True
        self._mailbox.look_up()

    def stop_self(self, exit: Exit | None = None) -> None:
        """The actor ends by its own will, after the message in hand."""
        if self.own_exit is None:
            self.own_exit = exit or Exit("normal")
        self.stop()

    def begin(self) -> Coroutine[Any, Any, object]:
        """Make the actor and run its `on_start`; the start info."""
        return self._life.body.start()

    def run(self) -> Coroutine[Any, Any, None]:
        """Handle messages until it is time to stop; the coroutine ends when nothing is in hand any more.

        Whoever runs it sees to `busy.leave`, however it ends.
        """
        return self._serve_beside_nursery() if self._life.body.concurrent else self._serve()

    async def _serve_beside_nursery(self) -> None:
        self._concurrent = concurrent = ConcurrentHandlers(self._life, self)
        self._life.nursery.open()
        await self._serve()
        while concurrent.runs:
            self._life.services.busy.leave(self._life)
            await self._mailbox.wait()
            await self._serve()  # with `drain`, what has been queued meanwhile

    async def _serve(self) -> None:
        """The hot path.

        Nothing but this loop shortens the queue, so a batch is counted once. All that is rare (a stop, senders that wait for room,
        ticks, types found along an MRO, concurrent handlers) hides behind two tests: `attention`, and a message class that is not
        in the table.
        """
        life, mailbox = self._life, self._mailbox
        table, target, busy = life.body.table, life.body.target, life.services.busy
        queue, take, stopwatch, make_slot = mailbox.queue, mailbox.queue.popleft, life.loop.stopwatch, life.loop.slot
        enter, leave = busy.enter, busy.leave
        enter(life)
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
                try:
                    handler = table.get(message.__class__)
                    if handler is None:
                        found = self._find(envelope)
                        if found is None:
                            continue
                        envelope, handler = found
                        message = envelope[0]
                    self.hand = envelope
                    self.since = stopwatch()
                    result = await handler(target, message)
                except BaseException as error:
                    if self.hand is not envelope:
                        self._life.context.forget_stashed(envelope)
                    self.hand = None
                    if not self.survives(error, envelope):
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
                leave(life)
                mailbox.parked = slot = make_slot()
                try:
                    await slot
                finally:
                    mailbox.parked = None
                enter(life)

    @property
    def goes_on(self) -> bool:
        """Handle what is queued?"""
        return not self.stopping or (self.drain and self.own_exit is None)

    def _is_to_stop(self) -> bool:
        """Between two batches, when something wants attention."""
        if self.stopping and not (self.goes_on and self._mailbox.queue):
            return True
        self._give_attention()
        return False

    def _is_to_stop_instead_of(self, envelope: Envelope) -> bool:
        """The same with a message just taken: it goes back when it is time to stop."""
        if not self.goes_on:
            self._mailbox.queue.appendleft(envelope)
            return True
        if type(envelope[0]) in self._life.body.table:  # otherwise it may have taken no room, or may go on taking it
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
        table, concurrent = self._life.body.table, self._concurrent
        for base in kind.__mro__:
            if concurrent is not None and base in concurrent.gates:
                concurrent.take(concurrent.gates[base], envelope)
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

    def survives(self, error: BaseException, envelope: Envelope) -> bool:
        """A handler raised. Tell the asker what happened; True when the actor goes on (or ends by its own will)."""
        error = lone(error)
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
                stopped_itself = ActorStopped(path, message_type(message), "it stopped itself instead")
                stopped_itself.__cause__ = error
                waiting.set_exception(stopped_itself)
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

    def take_deferred(self) -> list[Envelope]:
        """What waits for a place at a concurrent handler: it goes back to the mailbox when the incarnation ends."""
        return [] if self._concurrent is None else self._concurrent.take_deferred()

    def give_room_back(self) -> None:
        """The deferred messages are in the mailbox again, and count there."""
        if self._concurrent is not None:
            self._concurrent.give_room_back()

    # ---------------------------------------------------------------------------------------------- what is in hand

    @property
    def message_id_in_hand(self) -> str | None:
        """The identity of the message that the calling event-loop task has in hand; None where messages have none."""
        return None

    @property
    def _oldest(self) -> Run | None:
        runs = self._concurrent.runs if self._concurrent is not None else {}
        return next(iter(runs), None)

    @property
    def type_in_hand(self) -> str | None:
        """Type of the message in hand, for reports, which never show contents; with concurrent handlers the oldest."""
        if self.hand is not None:
            return message_type(self.hand[0])
        oldest = self._oldest
        return message_type(oldest.envelope[0]) if oldest is not None else None

    @property
    def in_hand_since(self) -> float:
        """When that one was taken in hand, by the stopwatch."""
        oldest = self._oldest if self.hand is None else None
        return oldest.since if oldest is not None else self.since

    def find_slow(self, before: float) -> Iterator[tuple[str, float, str]]:
        """What has been in hand since before that moment of the stopwatch and was not reported yet: type, since when, stack."""
        hand = self.hand
        if hand is not None and hand is not self._reported_slow and self.since <= before:
            self._reported_slow = hand
            yield message_type(hand[0]), self.since, self._life.stack()
        for run in self._concurrent.runs if self._concurrent is not None else ():
            if not run.reported_slow and run.since <= before:
                run.reported_slow = True
                yield message_type(run.envelope[0]), run.since, run.stack()

    def handles_in(self, task: object) -> bool:
        """Does a concurrent handler run in this event-loop task?"""
        return self._concurrent is not None and any(run.task is task for run in self._concurrent.runs)

    def is_in_hand(self, message: object) -> bool:
        """Is it in hand, and not stashed?"""
        in_loop = self.hand is not None and self.hand[0] is message
        return in_loop or (self._concurrent is not None and self._concurrent.find(message) is not None)

    def take_in_hand(self, message: object) -> Envelope | None:
        """Take the envelope of a message in hand away from its handler; None when it is not in hand."""
        run = self._concurrent.find(message) if self._concurrent is not None else None
        hand = self.hand
        if (
            hand is not None
            and hand[0] is message
            and (run is None or self._life.task is self._life.loop.current_task())
        ):
            self.hand = None
            return hand
        if run is None:
            return None
        run.stashed = True
        return run.envelope
