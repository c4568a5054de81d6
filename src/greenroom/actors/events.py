"""What happens in a running tree, as values: `async for event in runtime.events()`."""

from __future__ import annotations

from attrs import frozen

from greenroom.actors.messages import Exit


@frozen(kw_only=True)
class Event:
    """Something that happened in the life of a tree."""

    at: float
    """Seconds of the event loop's clock."""
    path: str
    """Path of the actor or supervisor it happened to."""


@frozen(kw_only=True)
class ActorStarted(Event):
    """An incarnation has started: its `on_start` has returned (a supervisor: all its children have started)."""

    incarnation: int


@frozen(kw_only=True)
class ProcessStarted(Event):
    """A process child's worker runs. Its actor has yet to start: see `ActorStarted`."""

    incarnation: int
    pid: int


@frozen(kw_only=True)
class ActorEnded(Event):
    """An incarnation has really ended: nothing of it runs any more."""

    incarnation: int
    exit: Exit


@frozen(kw_only=True)
class ActorStuck(Event):
    """An incarnation swallows its cancellation: it cannot be ended, only waited for. Repeated while it lasts."""

    incarnation: int
    message_type: str | None
    """Type of the message in hand; None between messages."""
    age: float
    """Seconds since it was told to stop."""
    stack: str


@frozen(kw_only=True)
class ActorAbandoned(Event):
    """A thread did not stop in time; it was left alone and may still run."""

    incarnation: int
    thread: str


@frozen(kw_only=True)
class SlowHandler(Event):
    """A handler has been running for longer than `slow_handler` seconds. Reported once for each message."""

    incarnation: int
    message_type: str
    age: float
    stack: str
