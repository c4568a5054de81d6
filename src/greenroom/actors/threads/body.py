"""The event loop's side of a thread child. The mailbox stays here, and the thread is given one message at a time.

Nothing can interrupt a thread. At a stop it is asked to end after the message in hand; at a cancellation it is given the kill time,
and then it is left alone: the exit is `abandoned`, what it says from then on is not listened to, and the supervisor is told when it
has ended after all. `pykka_bridge` is what runs on the thread.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pykka
from pykka._envelope import Envelope as PykkaEnvelope

from greenroom.actors.bodies import Perform, Unserved
from greenroom.actors.exits import Contained
from greenroom.actors.handlers import Handler
from greenroom.actors.messages import Exit, Rejected, Stop
from greenroom.actors.real_time import RealTime
from greenroom.actors.threads.context import ThreadContext
from greenroom.actors.threads.pykka_bridge import Delivery, Line, Reply, Stage
from greenroom.logs import logger_named
from greenroom.mailbox import Slot

if TYPE_CHECKING:
    from greenroom.actors.life import ActorLife


logger = logger_named("greenroom.actors")


class ThreadBody:
    """One incarnation of an actor on a thread: a `gr.Actor` with plain `def` handlers, or an existing `pykka.ThreadingActor`.

    The thread is our own daemon, named after the child. What it says is posted to the event loop (`Receiver`); no thread waits for a
    reply, and nothing of its answers is taken once the life is over.

    A Pykka class is used as it is: its messages come to `on_receive`, what that returns is the reply, and `on_start`, `on_stop` and
    `on_failure` are called when Pykka calls them. A failing ask goes to the asker and spares the actor, unless `ask_failure` is
    `"crash"`; a failing tell crashes it. Its own `stop()` is a normal exit. Messages through Pykka's own refs and proxies go to its
    own inbox: they pass our mailbox, its bound, its order and its statistics by.
    """

    offers_nursery = False
    grace = 0.1
    must_finish = True
    has_on_stop = True
    target = None

    def __init__(
        self, factory: Callable[..., object], args: tuple[object, ...], life: ActorLife, ask_failure: str | None
    ) -> None:
        self.table: dict[type, Perform] = {}
        self.concurrent: dict[type, Handler] = {}
        self.caller: object = None
        """The event-loop task that makes a call on behalf of the thread, which waits for it."""
        self._make = partial(factory, *args)
        self._life = life
        self._loop = life.loop
        self._crash_on_ask = ask_failure == "crash"
        self._line = Line(life.loop.post, self)
        self._context = ThreadContext(life, life.context)
        self._thread: threading.Thread | None = None
        self._slot: Slot | None = None
        """Where the life waits for the thread."""
        self._starting = False
        self._delivery: Delivery | None = None
        """What the thread was given and has not answered."""
        self._finishing = False
        self._failed = False
        """A failure has been told; it ends the thread, and later ones are consequences."""
        self._last_failure: BaseException | None = None
        """Out of the finish."""
        self._over = False
        """The thread has ended."""
        self._left = False
        """The thread was abandoned."""
        self._real_time = RealTime(self._loop.virtual_clock)
        self._working = False
        self._work = ExitStack()

    # ------------------------------------------------------------------------------------------------- for the life

    async def start(self) -> object:
        cell = self._life.cell
        self._thread = threading.Thread(
            target=self._line.perform,
            args=(self._make, cell, self._context),
            name=f"greenroom {cell.path} #{self._life.incarnation}",
            daemon=True,
        )
        self._starting = True
        self._note_work()
        try:
            self._thread.start()
        except RuntimeError:  # the system has no thread left
            self._over = True
            self._note_work()
            raise
        info = await self._word()
        performer = self._line.performer
        if isinstance(performer, Stage):
            for message, handler in type(performer.actor).__handlers__.items():
                self.table[message] = partial(self._handle, partial(handler.function, performer.actor))
        return info

    def resolve(self, message: type) -> Perform | None:
        performer = self._line.performer
        if performer is None or isinstance(performer, Stage):
            return None
        if getattr(performer.on_receive, "__func__", None) is pykka.ThreadingActor.on_receive:
            return None  # not overridden: it would only log the message, whole
        perform = self.table[message] = partial(self._receive, performer.on_receive)
        return perform

    def handled_types(self) -> tuple[str, ...]:
        return tuple(sorted(message.__qualname__.rpartition("<locals>.")[2] for message in self.table))

    async def finish(self, exit: Exit, *, polite: bool) -> Exit | None:
        if self._thread is None or self._over:
            return None
        self._finishing = True
        self._note_work()
        self._line.leave(exit if polite else None)
        try:
            await self._word()
        except self._loop.cancelled:
            # The kill time has passed, or nobody wants to wait for it. Also for a cancellation that is not ours: a thread that
            # may still run is never left without a word.
            self._abandon()
            return Exit("abandoned", exit.cause)
        if self._last_failure is not None:
            raise contained(self._last_failure)
        return None

    def _abandon(self) -> None:
        assert self._thread is not None
        self._left = True
        self._delivery = None
        self._note_work()
        self._line.leave(None)
        logger.warning(
            "%s did not stop in time: its thread %r is left alone and may still run",
            self._life.cell.path,
            self._thread.name,
        )
        self._life.abandoned(self._thread.name)

    # ------------------------------------------------------------------------------------------------- one message

    async def _handle(self, perform: Callable[[Any], object], _target: object, message: object) -> object:
        """Have the thread run a handler of ours."""
        return await self._deliver(Delivery(message, perform, by_future=True))

    async def _receive(self, on_receive: Callable[[Any], object], _target: object, message: object) -> object:
        """Have the thread run a Pykka class's `on_receive`."""
        hand = self._life.messages.hand
        reply = hand[2] if hand is not None else None
        spared = reply is not None and not self._crash_on_ask
        try:
            return await self._deliver(Delivery(message, on_receive, by_future=spared))
        except (Rejected, Stop, Contained):
            raise  # these mean the same in every actor
        except Exception as error:
            if not spared or reply is None:
                raise
            if not reply.done():
                reply.set_exception(error)
            return None

    async def _deliver(self, delivery: Delivery) -> object:
        performer = self._line.performer
        assert performer is not None, "the actor has started"
        self._delivery = delivery
        self._note_work()
        reply = Reply(self._line, delivery) if delivery.by_future else None
        performer.actor_inbox.put(PykkaEnvelope(delivery, reply))
        return await self._word()

    async def _word(self) -> object:
        """Wait for what the thread says next: a value is returned, an exception raised."""
        slot = self._slot = self._loop.slot()
        value, error = await slot
        if error is not None:
            raise contained(error)
        return value

    def _pass_on(self, value: object, error: BaseException | None = None) -> None:
        if self._slot is not None and not self._slot.done():  # it is done, too, when the waiting was cancelled
            self._slot.set_result((value, error))

    # -------------------------------------------------------------------------------------- what the thread has said

    def take_started(self, info: object) -> None:
        """The actor has been made and its `on_start` has returned."""
        if self._starting and not self._finishing:
            self._starting = False
            self._note_work()
            self._pass_on(info)

    def take_answer(self, delivery: Delivery, value: object, error: BaseException | None) -> None:
        """The message has been handled."""
        if delivery is not self._delivery:
            return  # abandoned, or failed meanwhile: too late
        self._delivery = None
        self._note_work()
        if not self._finishing:
            self._pass_on(value, error)

    def take_failure(self, error: BaseException) -> None:
        """The start, a message or the finish has failed, and the thread is about to end."""
        if self._left:
            return
        if self._finishing:
            self._last_failure = self._last_failure or error
            return
        if self._failed:
            return
        self._failed = True
        in_hand = self._starting or (self._delivery is not None and self._delivery.begun)
        self._starting = False
        if in_hand:
            self._delivery = None
            self._note_work()
            self._pass_on(None, error)
        else:  # it failed at something that came by Pykka's own refs
            self._life.fail(contained(error))
            self._give_back()

    def take_end(self) -> None:
        """The thread has ended. Nothing of the actor's code runs any more."""
        self._over = True
        started, self._starting = not self._starting, False
        self._note_work()
        if self._left:
            self._life.thread_ended()
        elif self._finishing:
            self._pass_on(None)
        elif not started:
            self._pass_on(None, RuntimeError(f"{self._life.cell.path!r} stopped itself in its on_start"))
        elif not self._failed:  # Pykka's own `stop`
            self._life.messages.stop_self()
            self._give_back()

    def _give_back(self) -> None:
        """The thread ends without having turned to the message it was given: that one goes back to the mailbox."""
        delivery, self._delivery = self._delivery, None
        self._note_work()
        if delivery is None:
            return
        envelope = self._life.messages.take_in_hand(delivery.message)
        if envelope is not None:
            self._life.mailbox.put_back([envelope])
        kept = envelope is None and self._life.messages.persistent
        self._pass_on(None, Unserved() if kept else None)

    # -------------------------------------------------------------------------------------------- the thread at work

    @property
    def thread(self) -> int | None:
        """Identity of the thread, as by `threading.get_ident()`."""
        return self._thread.ident if self._thread is not None else None

    def stack(self) -> str:
        """Where the thread is just now; empty when there is none."""
        frame = sys._current_frames().get(self.thread or 0) if not self._over else None
        return "".join(traceback.format_stack(frame)) if frame is not None else ""

    @contextmanager
    def calling(self) -> Iterator[None]:
        """On the event loop, around a call that the thread waits for: it is made in the actor's name, and the thread is idle."""
        self.caller = self._loop.current_task()
        try:
            with self._real_time.waiting():
                yield
        finally:
            self.caller = None

    def _note_work(self) -> None:
        """Virtual time stands still exactly while the thread works."""
        works = (self._starting or self._delivery is not None or self._finishing) and not self._over and not self._left
        if works is not self._working:
            self._working = works
            if works:
                self._work.enter_context(self._real_time.working())
            else:
                self._work.close()


def contained(error: BaseException) -> BaseException:
    """As the event loop may raise it: SystemExit and the like are the exit of this child, not orders to the loop."""
    return error if isinstance(error, Exception) else Contained(error)
