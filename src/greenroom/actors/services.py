"""What everything in one running tree shares: handed down from the runtime, never global."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Protocol

from attrs import define, frozen

from greenroom.actors.busy import BusyLives
from greenroom.actors.events import Event
from greenroom.actors.timers import AskDeadlines, Timers
from greenroom.errors import BadSpec, NoSuchActor
from greenroom.mailbox import Broadcast, DeadLetters, EventLoop, MemoryMailbox, PersistentMailbox, is_seconds

if TYPE_CHECKING:
    from greenroom.actors.cell import Cell
    from greenroom.actors.life import ActorLife
    from greenroom.actors.message_loop import MessageLoop
    from greenroom.actors.ref import Ref
    from greenroom.runtime import Runtime


def _positive(name: str, value: float) -> None:
    if not is_seconds(value):
        raise BadSpec(f"{name}={value!r}: a number of seconds above 0")


@frozen(kw_only=True)
class Settings:
    """Times that hold for a whole tree, in seconds. Raises `BadSpec` for anything not above 0."""

    kill_time: float = 2.0
    """From cancellation to `stuck`; `on_stop` gets it once when it has not begun."""
    slow_handler: float = 30.0
    """A handler that runs longer is reported."""
    stuck_report: float = 5.0
    """How often a stuck child is named, and its cancellation tried again."""

    def __attrs_post_init__(self) -> None:
        _positive("kill_time", self.kill_time)
        _positive("slow_handler", self.slow_handler)
        _positive("stuck_report", self.stuck_report)


class Directory:
    """Paths to addresses. Paths are the names: a second child of one name is refused by its supervisor."""

    def __init__(self) -> None:
        self._cells: dict[str, Cell] = {}

    def add(self, cell: Cell) -> None:
        self._cells[cell.path] = cell

    def remove(self, cell: Cell) -> None:
        if self._cells.get(cell.path) is cell:
            del self._cells[cell.path]

    def get(self, path: str) -> Cell | None:
        return self._cells.get(path)

    def find(self, path: str) -> Ref:
        """The ref of a path. Raises `NoSuchActor`, naming near misses."""
        cell = self._cells.get(path)
        if cell is None:
            raise NoSuchActor(path, tuple(difflib.get_close_matches(path, self._cells, n=2)))
        return cell.ref

    def __len__(self) -> int:
        return len(self._cells)


class Watch(Protocol):
    """Told about lives for the sake of reports; the runtime's side."""

    def life_ended(self, path: str, how: str) -> None:
        """A life has ended. `how` is a field of `ShutdownReport`."""

    def thread_ended(self, path: str) -> None:
        """A thread that was abandoned has ended after all."""

    def fatal(self, error: BaseException) -> None:
        """KeyboardInterrupt or SystemExit came out of a child: end the tree, non-zero."""


class Storage(Protocol):
    """The runtime's store, as addresses and lives see it."""

    def mailbox(self, path: str, options: PersistentMailbox, *, durable: bool) -> MemoryMailbox:
        """The mailbox of an address whose messages are in the store; `durable`: its actor's state is, too."""

    def message_loop(self, life: ActorLife, *, drain: bool) -> MessageLoop:
        """The message loop of an incarnation that has such a mailbox."""


@define(kw_only=True, eq=False)
class Services:
    """Shared by all of one runtime."""

    loop: EventLoop
    timers: Timers
    asks: AskDeadlines
    dead_letters: DeadLetters
    events: Broadcast[Event]
    directory: Directory
    settings: Settings
    watch: Watch
    runtime: Runtime
    busy: BusyLives
    storage: Storage | None = None
    """The store's side of addresses; None for a runtime without a store."""
