"""`Cell`: an address in the tree. It stays while incarnations come and go, and holds what survives a restart."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from greenroom.actors.messages import Exit
from greenroom.actors.own_thread import OwnThread
from greenroom.actors.ref import Ref
from greenroom.actors.services import Services
from greenroom.mailbox import MemoryMailbox

if TYPE_CHECKING:
    from greenroom.actors.context import Context
    from greenroom.actors.unit import Unit


class State(Enum):
    """What an address is doing."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    RESTARTING = "restarting"
    """Between two incarnations: a restart failed and is tried again, or waits for its backoff or for the old incarnation's end."""
    STANDBY = "standby"
    """Its messages are in the store, and another process handles them just now, or it waits for an operator."""
    DOWN = "down"
    STUCK = "stuck"
    ABANDONED = "abandoned"


class Administration(Protocol):
    """A supervisor's side of the calls on its ref."""

    async def call(self, name: str, *args: object) -> object: ...
    def route(self, key: object) -> Ref: ...


class Life(Protocol):
    """One incarnation of whatever stands at an address, as its supervisor drives it. All members are for the loop's thread.

    After `cancel()` or `kill()` a life settles in bounded time: it has ended, or it is stuck.
    """

    incarnation: int
    exit: Exit | None
    """How it ended; None while anything of it may still run."""
    settled: bool
    """Ended, or known to be stuck or abandoned: its supervisor need not wait for it any longer."""
    lingering: bool
    """It has ended as `abandoned` and its thread may still run; the owner is told again when that is over."""

    def request_stop(self) -> None:
        """Stage 1: stop after the message in hand."""

    def cancel(self) -> None:
        """Stage 2: cancellation now; `on_stop` gets the kill time once."""

    def kill(self) -> None:
        """Stage 3: as `cancel()`, without `on_stop`."""


class Cell:
    """An address: path, mailbox, watchers, and the life that is behind it just now."""

    __slots__ = (
        "_context",
        "administration",
        "exit",
        "former",
        "incarnation",
        "last_error",
        "life",
        "mailbox",
        "path",
        "ref",
        "services",
        "state",
        "unit",
        "watchers",
    )  # fmt: skip

    def __init__(self, path: str, mailbox: MemoryMailbox, services: Services) -> None:
        self.path = path
        self.mailbox = mailbox
        self.services = services
        self.state = State.DOWN
        self.incarnation = 0
        self.life: Life | None = None
        self.exit: Exit | None = None
        """How the last incarnation ended."""
        self.last_error: str | None = None
        self.administration: Administration | None = None
        self.former: dict[str, Cell] | None = None
        """On a supervisor's address, while it is not up: the addresses of the children that its spec names. Its next incarnation
        takes them over, so that a ref is good again once its path is."""
        self.watchers: dict[Context, None] | None = None
        """Which incarnations watch the present (or next) one here."""
        self.unit: Unit | None = None
        """What the handler in hand of a durable actor has sent and set so far."""
        self._context: Context | None = None
        self.ref = Ref(self)

    def take_context(self) -> Context | None:
        """The context for an actor under construction; given to the first one only."""
        context, self._context = self._context, None
        return context

    def offer_context(self, context: Context | None) -> None:
        """An actor is about to be constructed (None: construction is over)."""
        self._context = context

    @property
    def ended(self) -> bool:
        """True when nothing runs here and nothing is about to: messages become dead letters."""
        return self.mailbox.closed

    def add_watcher(self, watcher: Context) -> None:
        """Tell `watcher` when the present (or next) incarnation has ended; at once when this address has ended already."""
        if self.ended:
            watcher.target_ended(self, self.exit or Exit("normal"))
            return
        if self.watchers is None:
            self.watchers = {}
        self.watchers[watcher] = None

    def remove_watcher(self, watcher: Context) -> None:
        """Forget a watcher."""
        if self.watchers is not None:
            self.watchers.pop(watcher, None)

    def tell_watchers(self, exit: Exit) -> None:
        """The incarnation has ended: each watcher is told, once."""
        watchers, self.watchers = self.watchers, None
        for watcher in watchers or ():
            watcher.target_ended(self, exit)

    # ------------------------------------------------------------------------------------------ who may call

    @property
    def is_restarting(self) -> bool:
        """Between two incarnations, the start of the second included."""
        return self.state is State.RESTARTING or (self.state is State.STARTING and self.incarnation > 1)

    def in_own_loop(self) -> bool:
        """Is the calling event-loop task the message loop of the actor at this address?"""
        task = getattr(self.life, "task", None)
        if task is None:
            return False
        thread = self._own_thread
        current = self.services.loop.current_task()
        return task is current or (thread is not None and thread.caller is current)

    def in_own_handler(self) -> bool:
        """The same, or a concurrent handler of it: does the actor's end wait for the calling event-loop task?"""
        messages = getattr(self.life, "messages", None)
        return self.in_own_loop() or (messages is not None and messages.handles_in(self.services.loop.current_task()))

    def is_stopped_by(self, supervisor: Cell) -> bool:
        """Does the calling task belong to an actor whose end `supervisor`, its own or one further up, has asked for and awaits?"""
        told = getattr(self.life, "told_to_stop", False)
        above = self.services is supervisor.services and self.path.startswith(f"{supervisor.path}/")
        return bool(told) and above and self.in_own_handler()

    @property
    def _own_thread(self) -> OwnThread | None:
        body = getattr(self.life, "body", None)
        return body if isinstance(body, OwnThread) else None

    def calling_from(self, thread: int) -> AbstractContextManager[None]:
        """Around a call to the event loop from this thread: the actor waits for it if the thread is the actor's own."""
        own = self._own_thread
        return own.calling() if own is not None and own.thread == thread else nullcontext()

    def starts_under(self, supervisor: Cell) -> bool:
        """Is this address being started, and does `supervisor` wait for that, directly or through supervisors that start?"""
        # A runtime may run in an actor of another, whose tree may have the same names.
        cell: Cell | None = self if supervisor.services is self.services else None
        while cell is not None and cell.state is State.STARTING:
            parent = cell.path.rpartition("/")[0]
            if parent == supervisor.path:
                return True
            cell = self.services.directory.get(parent)
        return False
