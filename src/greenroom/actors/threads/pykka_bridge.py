"""The thread's side of a thread child: an actor of ours, or an existing Pykka class as it is, in Pykka's own actor loop.

The loop is Pykka's (`_actor_loop`), the thread is ours: a daemon, so that one which never comes back keeps no process alive. A
generated subclass of the actor's class turns Pykka's hooks into reports to the event loop:

* `_start_actor_loop` runs the loop on the thread it is called on, where Pykka would start one of its own;
* `_actor_loop_setup` reports the start, `_handle_failure` what Pykka would only log: a failed start, tell or `on_stop`;
* `_handle_receive` takes our messages, one at a time, and keeps `SystemExit`, `KeyboardInterrupt` and their like from Pykka's
  loop, which would stop every actor of the process (`ActorRegistry.stop_all`) for the sake of one.

These are private names of Pykka 4.5, and tests pin each. Everything here runs on the thread, `Line.leave` apart.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import pykka
from attrs import define, frozen
from pykka._envelope import Envelope

from greenroom.actors.actor import Actor, attach
from greenroom.actors.current import current_actor, offering
from greenroom.actors.messages import Exit, Rejected, Stop
from greenroom.errors import Misuse

if TYPE_CHECKING:
    from types import TracebackType

    from greenroom.actors.cell import Cell
    from greenroom.actors.context import Context

_SUPERVISED = "__greenroom_supervised__"


@define(eq=False)
class Delivery:
    """One of our messages on its way through the thread."""

    message: object
    perform: Callable[[Any], object]
    by_future: bool
    """Pykka's loop answers, by `Reply`, whether it succeeds or fails. Otherwise it fails by Pykka's rule for a tell."""
    begun: bool = False
    """Set when the thread turns to it. One that was not begun when the thread ended has not been handled."""


@frozen
class Finish:
    """The end is asked for: with an `on_stop` for this exit, or without one."""

    exit: Exit | None


class Receiver(Protocol):
    """The event loop's side. Called there, in the order in which the thread spoke."""

    def take_started(self, info: object) -> None: ...
    def take_answer(self, delivery: Delivery, value: object, error: BaseException | None) -> None: ...
    def take_failure(self, error: BaseException) -> None: ...
    def take_end(self) -> None: ...


class Line:
    """What one thread says to the event loop. Made anew for each incarnation; an abandoned one is not listened to any more."""

    def __init__(self, post: Callable[[Callable[[], object]], object], receiver: Receiver) -> None:
        self._post = post
        self._receiver = receiver
        self._leaving = False
        self.performer: Supervised | None = None
        """The Pykka actor, once it has been made."""
        self.exit: Exit | None = None
        """What `on_stop` is told."""

    def _say(self, word: Callable[[], object]) -> None:
        # The loop has ended (both loops say so by a RuntimeError): an abandoned thread came back too late to be heard.
        with contextlib.suppress(RuntimeError):
            self._post(word)

    def started(self, info: object) -> None:
        self._say(lambda: self._receiver.take_started(info))

    def answer(self, delivery: Delivery, value: object = None, error: BaseException | None = None) -> None:
        self._say(lambda: self._receiver.take_answer(delivery, value, error))

    def failed(self, error: BaseException) -> None:
        self._say(lambda: self._receiver.take_failure(error))

    def ended(self) -> None:
        self._say(self._receiver.take_end)

    def leave(self, exit: Exit | None) -> None:
        """From the event loop: end after the message in hand, with `on_stop` for this exit, or (None) without."""
        if exit is None:
            self._leaving = True
        performer = self.performer  # after the flag: `perform` sets this one and then looks at the flag
        if performer is None:
            return
        if exit is None:
            performer.actor_stopped.set()
        performer.actor_inbox.put(Envelope(Finish(exit)))

    def perform(self, make: Callable[[], object], cell: Cell, context: Context) -> None:
        """All that the thread does: make the actor and run its loop. Never raises."""
        current_actor.set(cell)
        try:
            with offering(context):
                actor = make()
            self.performer = _performer(actor, context, self)
            if not self._leaving:
                self.performer._start_actor_loop()
        except BaseException as error:  # noqa: BLE001
            # Whatever it is, it is this child's exit: it goes to the supervisor.
            self.failed(error)
        finally:
            if self.performer is not None:
                pykka.ActorRegistry.unregister(self.performer.actor_ref)
            self.ended()


class Reply(pykka.Future[Any]):
    """Where Pykka's loop puts the answer to one of our messages: on to the event loop. No thread waits for it."""

    def __init__(self, line: Line, delivery: Delivery) -> None:
        super().__init__()
        self._line = line
        self._delivery = delivery

    def set(self, value: Any = None) -> None:
        self._line.answer(self._delivery, value)

    def set_exception(self, exc_info: Any = None) -> None:
        if self._delivery.begun:  # otherwise the loop has ended before it came to it, which `ended` tells
            self._line.answer(self._delivery, error=(exc_info or sys.exc_info())[1])


class Supervised(pykka.ThreadingActor):
    """What is put before a Pykka class (see `adopt`): its hooks report to the event loop."""

    _greenroom: Line

    def _start_actor_loop(self) -> None:
        self._actor_loop()

    def _actor_loop_setup(self) -> None:
        super()._actor_loop_setup()
        if not self.actor_stopped.is_set():
            self._greenroom.started(self._start_info())

    def _start_info(self) -> object:
        return None

    def _handle_receive(self, message: Any) -> Any:
        delivery = message if isinstance(message, Delivery) else None
        try:
            if isinstance(message, Finish):
                return self._finish(message)
            if delivery is None:
                return super()._handle_receive(message)  # from Pykka's own refs
            delivery.begun = True
            value = delivery.perform(delivery.message)
        except Exception as error:
            if delivery is None or delivery.by_future or not isinstance(error, (Rejected, Stop)):
                raise  # by Pykka's rule: to the future, or else `_handle_failure` and `on_failure`
            self._greenroom.answer(delivery, error=error)
            return None
        except BaseException as error:  # noqa: BLE001
            self._contain(error, delivery)
            return None
        if not delivery.by_future:
            self._greenroom.answer(delivery, value)
        return value

    def _finish(self, finish: Finish) -> None:
        self._greenroom.exit = finish.exit
        if finish.exit is not None:
            self._stop()

    def _contain(self, error: BaseException, delivery: Delivery | None) -> None:
        """SystemExit or the like: the end of this actor, as in Pykka, but of no other."""
        self._greenroom.failed(error)
        self._stop()

    def _stop(self) -> None:
        try:
            super()._stop()
        except BaseException as error:  # noqa: BLE001
            # Pykka has dealt with Exceptions; this is a SystemExit out of `on_stop`, and must not reach its loop.
            self._greenroom.failed(error)

    def _handle_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pykka.ActorRegistry.unregister(self.actor_ref)
        self.actor_stopped.set()
        if exception_value is not None:
            self._greenroom.failed(exception_value)


class Stage(Supervised):
    """The Pykka actor in which a `gr.Actor` with plain `def` handlers runs. Not in Pykka's registry: nobody is to find it there."""

    def __init__(self, actor: Actor) -> None:
        super().__init__()
        self.actor = actor
        self._info: object = None

    def __str__(self) -> str:
        return type(self.actor).__qualname__

    def on_start(self) -> None:
        self._info = completed(self.actor.on_start(), f"{type(self.actor).__qualname__}.on_start")

    def on_stop(self) -> None:
        exit = self._greenroom.exit
        assert exit is not None, "only `Finish` ends a stage politely, and it brings the exit"
        completed(self.actor.on_stop(exit), f"{type(self.actor).__qualname__}.on_stop")

    def _start_info(self) -> object:
        return self._info

    def _contain(self, error: BaseException, delivery: Delivery | None) -> None:
        # The event loop decides, as for every failure of an actor of ours, and asks for `on_stop` with that exit.
        if delivery is not None:
            self._greenroom.answer(delivery, error=error)


def completed(result: object, hook: str) -> object:
    """What a hook returned; an `async def` is accepted as long as it never waits. Raises `Misuse` for one that does."""
    if not inspect.iscoroutine(result):
        return result
    way_out = (
        f"{hook} runs on a thread, where there is no event loop to await: write it as a plain `def`, or without `await`, "
        "and reach other actors by `self.context.runtime.from_thread`"
    )
    try:
        result.send(None)
    except StopIteration as stop:
        return stop.value
    except anyio.NoEventLoopError as error:
        raise Misuse(way_out) from error
    except RuntimeError as error:
        error.add_note(way_out)  # asyncio and trio say in plain RuntimeErrors that they are not running
        raise
    result.close()
    raise Misuse(way_out)


def _performer(actor: object, context: Context, line: Line) -> Supervised:
    """The Pykka actor for whatever a factory has made."""
    path = context.ref.path
    if isinstance(actor, Actor):
        cls = type(actor)
        if cls.__blocking__ is False:
            raise TypeError(
                f"{cls.__qualname__} has `async def` handlers: give {path!r} isolation='task' or 'process', or make them plain `def`"
            )
        attach(actor, context)
        stage = Stage(actor)
        stage._greenroom = line
        return stage
    if not isinstance(actor, pykka.ThreadingActor):
        raise TypeError(
            f"the factory of {path!r} made a {type(actor).__qualname__}; it has to make a gr.Actor or a pykka.ThreadingActor, "
            "not started (give the class, not its `start`)"
        )
    if getattr(actor, "_actor_ref", None) is None:
        raise TypeError(f"{type(actor).__qualname__}.__init__ did not call super().__init__(): Pykka needs it")
    supervised = adopt(actor, line)
    pykka.ActorRegistry.register(supervised.actor_ref)
    return supervised


def adopt(actor: pykka.ThreadingActor, line: Line) -> Supervised:
    """Put the hooks before an actor's own class.

    Done to the instance, not by constructing a subclass, so that a `functools.partial` or any other factory will do, and Pykka's
    `ActorRef` goes on naming the class that its users know.
    """
    cls = type(actor)
    subclass = cls.__dict__.get(_SUPERVISED)
    if subclass is None:
        names = {
            "__slots__": (),
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
        }
        subclass = types.new_class(cls.__name__, (Supervised, cls), exec_body=lambda body: body.update(names))
        setattr(cls, _SUPERVISED, subclass)  # kept where it goes when the class goes
    actor.__class__ = subclass
    assert isinstance(actor, Supervised)
    actor._greenroom = line
    return actor
