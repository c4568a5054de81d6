"""The event loop's side of a process child. The mailbox stays here, and the worker is given one message at a time.

The worker is an interpreter of its own (`worker_process` starts it, `worker` runs in it), so nothing that the actor's code does can
hold this process up, and it can be ended for real: request, SIGTERM, SIGKILL, each to the whole process group. Every end of it is
found out by waiting for the process, never by what the wire says, and becomes the actor's exit with its true reason.

Requests and their answers are tied by numbers. An answer that nobody waits for (its asker has timed out, its message was cancelled) is
dropped, and one of an old incarnation cannot even arrive: each has a wire of its own.
"""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio

from greenroom.actors.bodies import Perform, Unserved
from greenroom.actors.body_tasks import BodyTasks
from greenroom.actors.events import ProcessStarted
from greenroom.actors.handlers import Handler
from greenroom.actors.messages import Exit
from greenroom.actors.processes.errands import Errands, find_ref
from greenroom.actors.processes.parcels import Assignment, Parcels
from greenroom.actors.processes.parent_wire import ParentWire
from greenroom.actors.processes.references import taken_apart
from greenroom.actors.processes.wire import LONGEST, Frame, Kind
from greenroom.actors.processes.worker_process import WorkerEnd, WorkerProcess, preamble
from greenroom.actors.real_time import RealTime
from greenroom.errors import NotEncodable, RemoteError, Undecodable, UnhandledMessage, WorkerDied
from greenroom.logs import logger_named
from greenroom.mailbox import DeadLetterReason, Slot, message_type

if TYPE_CHECKING:
    from greenroom.actors.life import ActorLife

logger = logger_named("greenroom.actors")

UNHEARD = 1.0
"""Seconds that a worker may live without its end of the wire."""
LAST_WAIT = 5.0
"""Seconds from SIGKILL until the life counts as stuck: a process that the kernel cannot end."""


class Unhandled(Exception):
    """The worker's actor has no handler for the message."""


class Undeliverable(Exception):
    """The message did not get into the worker, or its reply not out of it; why is the cause."""


class ProcessBody:
    """One incarnation of an actor in a process of its own."""

    offers_nursery = False
    must_finish = True
    has_on_stop = True

    def __init__(
        self, factory: Callable[..., Any], args: tuple[object, ...], life: ActorLife, memory_limit: int | None
    ) -> None:
        self.target = self
        self.table: dict[type, Perform] = {}
        self.concurrent: dict[type, Handler] = {}
        self.grace = life.services.settings.kill_time + LAST_WAIT
        self._factory = factory
        self._args = args
        self._life = life
        self._loop = life.loop
        self._path = life.cell.path
        self._memory_limit = memory_limit
        self._parcels = Parcels(lambda path, incarnation: find_ref(life.services, path, incarnation))
        life.mailbox.examine_by(self._parcels.encode)
        self._real_time = RealTime(life.loop.virtual_clock)
        self._tasks = BodyTasks(life.loop, life.spawn)
        self._errands = Errands(life, self._parcels, self._tasks, self._real_time, self._send)
        self._worker: WorkerProcess | None = None
        self._wire: ParentWire | None = None
        self._pending: dict[int, Slot] = {}
        self._last_number = 0
        self._in_hand: int | None = None
        """What the worker works at, whether or not anybody waits for it here."""
        self._handled_types: tuple[str, ...] = ()
        self._gone = anyio.Event()
        self._end: WorkerEnd | None = None
        self._died: WorkerDied | None = None
        """It ended, or was told to end, by somebody else."""
        self._signalled = False
        self._finishing = False
        self._finish_error: BaseException | None = None
        self._kill = False
        self._killed = False
        self._insisted = False
        """Its `on_stop` had to be ended, by us."""

    # --------------------------------------------------------------------------------------------------- for the life

    async def start(self) -> object:
        await self._loop.checkpoint()  # a life that was ended before it began starts no process
        call = taken_apart(self._factory, self._args)
        self._parcels.teach(self._factory)
        assignment = Assignment(
            self._path,
            self._life.incarnation,
            self._loop.backend,
            self._memory_limit,
            logging.getLogger().getEffectiveLevel(),
            self._parcels.encode(call),
        )
        with self._real_time.working():
            self._worker = worker = WorkerProcess(self._path, self._note_end)
            self._wire = ParentWire(worker.socket, self._loop, self._tasks, self._take, self._lost_wire)
            self._life.services.events.publish(
                ProcessStarted(at=self._loop.now(), path=self._path, incarnation=self._life.incarnation, pid=worker.pid)
            )
            logger.debug("%s: incarnation %d is process %d", self._path, self._life.incarnation, worker.pid)
            self._wire.write(preamble())
            info, self._handled_types = self._parcels.decode(
                await self._request(Kind.ASSIGN, self._parcels.encode(assignment))
            )
        return info

    def resolve(self, message: type) -> Perform | None:
        # The worker knows which handlers there are, and says so when there is none.
        self.table[message] = ProcessBody.perform
        return ProcessBody.perform

    def handled_types(self) -> tuple[str, ...]:
        return self._handled_types

    async def perform(self, message: object) -> object:
        """Have the worker handle a message. Raises what the handler raised, `RemoteError` for most."""
        hand = self._life.messages.hand
        reply = hand[2] if hand is not None else None
        wanted = self._life.messages.persistent or (reply is not None and not reply.done())
        try:
            # It was examined when it was sent; what a timer or a watch brings was not.
            request = self._packed(message)
            with self._real_time.working():
                answer = await self._request(Kind.ASKED if wanted else Kind.TOLD, request)
            return self._unpacked(answer) if wanted else None
        except Undeliverable as error:
            self._answer_with(message, error.__cause__ or error, DeadLetterReason.UNDELIVERABLE)
        except Unhandled:
            unhandled = UnhandledMessage(self._path, message_type(message), self._handled_types)
            self._answer_with(message, unhandled, DeadLetterReason.UNHANDLED)
        return None

    def _packed(self, message: object) -> bytes:
        try:
            payload = self._parcels.encode(message)
            if len(payload) <= LONGEST:
                return payload
            raise NotEncodable(message_type(message), (f"it is {len(payload)} bytes long; {LONGEST} are the most",))
        except NotEncodable as error:
            raise Undeliverable from error

    def _unpacked(self, answer: bytes) -> object:
        try:
            return self._parcels.decode(answer)
        except Undecodable as error:
            raise Undeliverable from error

    def _answer_with(self, message: object, error: BaseException, reason: DeadLetterReason) -> None:
        """The message was not handled, though the actor lives: tell the asker, or make it a dead letter."""
        envelope = self._life.messages.take_in_hand(message)
        if envelope is None:
            if self._life.messages.persistent:
                raise Unserved from error
            return
        _, sender, reply = envelope
        if reply is None:
            self._life.services.dead_letters.publish(message, self._path, sender.path if sender else None, reason)
            if reason is DeadLetterReason.UNDELIVERABLE:
                logger.warning("%s did not get a %s: %s", self._path, message_type(message), error)
        elif not reply.done():
            reply.set_exception(error)

    # --------------------------------------------------------------------------------------------------------- the end

    def kill_process(self) -> None:
        """SIGKILL to the whole process group, now."""
        self._kill = True
        if self._worker is not None and self._end is None:
            self._killed = True
            self._worker.signal_group(signal.SIGKILL)

    async def finish(self, exit: Exit, *, polite: bool) -> Exit | None:
        worker = self._worker
        if worker is None:
            return None
        self._finishing = True
        cancelled = exit.kind == "killed"
        with self._real_time.working():
            if self._end is None:
                self._ask_to_end(exit, polite, cancelled)
            try:
                await self._gone.wait()
            except self._loop.cancelled:
                # Taken note of by what follows; the life's scopes are left after it.
                with self._loop.cancel_scope() as shield:
                    shield.shield = True
                    await self._insist(worker, had_its_chance=cancelled)
            with self._loop.cancel_scope() as shield:
                shield.shield = True
                await self._tasks.end()
            worker.close()
        return self._judge(exit, polite) if polite or cancelled else None

    def _ask_to_end(self, exit: Exit, polite: bool, cancelled: bool) -> None:
        """Take the step of the ladder that the life has reached."""
        assert self._worker is not None
        interrupts = cancelled and self._in_hand is not None
        if polite:
            self._last_number += 1
            self._send(Kind.FINISH, self._last_number, self._parcels.encode((exit, interrupts)))
        if self._kill or not (polite or cancelled):  # the latter: its start has failed, and it has said why
            self.kill_process()
        elif interrupts:
            self._worker.signal_group(signal.SIGTERM)

    async def _insist(self, worker: WorkerProcess, *, had_its_chance: bool) -> None:
        """It has not ended in time: SIGTERM and the kill time if it has not had those, then SIGKILL."""
        if not (had_its_chance or self._kill):
            self._insisted = True
            worker.signal_group(signal.SIGTERM)
            with anyio.move_on_after(self._life.services.settings.kill_time):
                await self._gone.wait()
        if self._end is None:
            self.kill_process()
            await self._gone.wait()

    def _judge(self, exit: Exit, polite: bool) -> Exit | None:
        """The true exit, now that the worker has been waited for; None: the one that was asked for."""
        end = self._end
        assert end is not None
        if self._died is not None:
            return Exit("killed" if end.by_signal or self._signalled or exit.kind == "killed" else "error", self._died)
        if self._finish_error is not None and not self._killed:
            if exit.clean:
                raise self._finish_error
            return None
        if exit.kind == "error" or (end.status == 0 and not self._insisted):
            return None
        if self._killed:
            why = "was killed by SIGKILL" + (": it had not ended when it was told to" if polite else "")
        elif self._insisted and end.status == 0:
            why = "was told to end by SIGTERM: its on_stop had not ended in time"
        else:
            why = str(end)
        forced = end.by_signal or self._insisted or exit.kind == "killed"
        return Exit("killed" if forced else "error", WorkerDied(self._path, why))

    # -------------------------------------------------------------------------------------------------------- requests

    async def _request(self, kind: Kind, payload: bytes) -> bytes:
        assert self._worker is not None
        if self._end is not None:
            raise self._died or WorkerDied(self._path, str(self._end))
        self._last_number += 1
        number = self._in_hand = self._last_number
        self._worker.look_at_memory()
        self._send(kind, number, payload)
        slot = self._pending[number] = self._loop.slot()
        try:
            answer: bytes = await slot
            return answer
        finally:
            del self._pending[number]

    def _send(self, kind: Kind, number: int, payload: bytes) -> None:
        """Queue a frame."""
        frame = Frame(kind, number, payload).pack()
        if self._wire is not None and self._end is None:
            self._wire.write(frame)

    def _take(self, frame: Frame) -> None:
        """A frame from the worker."""
        if frame.kind >= Kind.TELL:
            self._errands.take(frame)
            return
        if frame.number == self._in_hand:
            self._in_hand = None
        if frame.kind is Kind.SIGNALLED:
            self._take_signal(frame)
            return
        error: BaseException | None = None
        if frame.kind is Kind.UNHANDLED:
            error = Unhandled()
        elif frame.kind is Kind.UNDELIVERABLE:
            error = Undeliverable()
            error.__cause__ = self._opened(frame.payload)
        elif frame.kind is Kind.RAISED:
            error = self._as_raised(self._opened(frame.payload))
        slot = self._pending.get(frame.number)
        if slot is None:
            if self._finishing and error is not None and frame.number == self._last_number:
                self._finish_error = error
        elif not slot.done():
            if error is None:
                slot.set_result(frame.payload)
            else:
                slot.set_exception(error)

    def _opened(self, payload: bytes) -> BaseException:
        try:
            return self._parcels.unpack_error(payload)
        except Exception as error:  # noqa: BLE001 - Undecodable, or what importing its class raises: the request fails by it
            return error

    def _as_raised(self, error: BaseException) -> BaseException:
        if isinstance(error, RemoteError) and error.type_name == "SystemExit":
            died = WorkerDied(self._path, f"ended itself by sys.exit({', '.join(error.arguments)})")
            died.__cause__ = error
            return died
        return error

    def _take_signal(self, frame: Frame) -> None:
        """An OS signal has told the worker to end. Unless it was ours, that is how the actor ends."""
        if self._finishing or self._killed:
            return
        self._signalled = True
        self._died = WorkerDied(self._path, f"was told to end by {frame.payload.decode()}")
        self._fail_all(self._died)

    def _fail_all(self, died: WorkerDied) -> None:
        """Whoever waits for the worker learns of its end; when nobody does, it is the actor's exit."""
        waiting = [slot for slot in self._pending.values() if not slot.done()]
        for slot in waiting:
            slot.set_exception(died)
        if not waiting:
            self._life.fail(died)

    # --------------------------------------------------------------------------------------------- the worker has ended

    def _note_end(self, end: WorkerEnd) -> None:
        """On the thread that waits for the worker."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            self._loop.post(lambda: self._take_end(end))

    def _take_end(self, end: WorkerEnd) -> None:
        assert self._wire is not None
        self._wire.drain()
        self._end = end
        self._gone.set()
        if not self._finishing:
            self._died = self._died or WorkerDied(self._path, str(end))
            self._fail_all(self._died)

    def _lost_wire(self) -> None:
        """Most likely the worker is just ending. If it is not: no wire, no actor."""
        self._life.services.timers.after(UNHEARD, self._end_unheard)

    def _end_unheard(self) -> None:
        if self._end is None and not self._finishing and self._worker is not None:
            self._died = WorkerDied(self._path, "was killed by SIGKILL: it had closed its end of the wire")
            self._worker.signal_group(signal.SIGKILL)
