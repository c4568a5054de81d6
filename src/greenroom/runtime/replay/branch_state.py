"""What the machine knows of a branch, of the nursery it was started in, and of what it waits for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import Context
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import define

from greenroom.runtime.replay.paths import BranchPath, CallId, path_text
from greenroom.runtime.replay.timers import Timer

if TYPE_CHECKING:
    from greenroom.mailbox import Slot
    from greenroom.runtime.replay.scopes import Scope


class OperationKind(Enum):
    """What is to be done for an operation: who drives the engine knows how."""

    RUN = "run"
    """Invoke the function of its target."""
    SUBMIT = "submit"
    """Make a child task in the pool of this name. The outcome is the child's id, and commits with the child."""
    CALLBACK = "callback"
    """Open a callback of this name. The outcome is its identity."""
    TELL = "tell"
    """Send a message to the address of this name. The outcome commits with it."""
    ASK = "ask"
    """Send a message to the address of this name, and wait for the reply, which is the outcome."""


@define(eq=False, kw_only=True)
class OperationCall:
    """An operation that was called and has no outcome yet."""

    id: CallId
    branch: BranchState
    kind: OperationKind
    name: str
    params: bytes
    """Encoded, as they were at the call."""
    target: Any
    """What today's code would run: nothing of it is recorded."""
    admitted: bool = False
    """It was still open at the end of the row in which it was called (T3). From then on only its own row ends it."""
    admitted_by: int = 0
    """That row; 0 for the beginning."""
    cancel_requested: bool = False
    timer: None = None

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name!r}"


@define(eq=False, kw_only=True)
class Sleeping:
    timer: Timer

    def __str__(self) -> str:
        return f"sleep until {self.timer.due.isoformat()}"


@define(eq=False, kw_only=True)
class Receiving:
    """Waits for a signal of one of several types."""

    branch: BranchState
    types: tuple[str, ...]
    timeout: float | None
    shown: str
    timer: Timer | None = None

    def __str__(self) -> str:
        return self.shown


@define(eq=False, kw_only=True)
class Asking:
    """Waits for the answer under a key."""

    branch: BranchState
    key: str
    timeout: float | None
    shown: str
    timer: Timer | None = None

    def __str__(self) -> str:
        return self.shown


@define(eq=False, kw_only=True)
class Joining:
    """Waits at the end of a nursery's block for the branches in it."""

    nursery: NurseryState
    timer: None = None

    def __str__(self) -> str:
        return f"the branches of {self.nursery}"


Wait: TypeAlias = OperationCall | Sleeping | Receiving | Asking | Joining


class BranchState:
    """One branch. It is blocked while it has a `wait`, has a turn ahead of it or in hand while it has none, and then has ended."""

    __slots__ = (
        "_main",
        "accepted",
        "body",
        "calls",
        "context",
        "draws",
        "ended",
        "error",
        "label",
        "message_id",
        "nursery",
        "path",
        "refused",
        "scope",
        "scopes",
        "slot",
        "value",
        "wait",
    )

    def __init__(
        self,
        path: BranchPath,
        nursery: NurseryState | None,
        main: Callable[[], Awaitable[object]],
        context: Context,
    ) -> None:
        self.path = path
        self.label = path_text(path)
        self.nursery = nursery
        self.scope: Scope | None = None if nursery is None else nursery.scope
        """The innermost scope it is in."""
        self.scopes: list[Scope] = []
        """Those that it has entered itself and not left, the innermost last."""
        self._main: Callable[[], Awaitable[object]] | None = main
        self.context = context
        self.body: object = None
        """The event-loop task that its code runs in, while it does."""
        self.calls = 0
        self.draws = 0
        self.refused = 0
        """Calls that raised at once because it is cancelled."""
        self.wait: Wait | None = None
        self.value: Any = None
        """For its next turn; its result when it has ended."""
        self.error: BaseException | None = None
        self.ended = False
        self.message_id: str | None = None
        """Of the signal that it handles."""
        self.accepted = False
        """It has not rejected that, and waits for something."""
        self.slot: Slot | None = None
        """Where its event-loop task is parked."""

    def begin(self) -> Awaitable[object]:
        """Begin its code. Once."""
        main, self._main = self._main, None
        assert main is not None
        return main()

    def enter(self, scope: Scope) -> Scope:
        self.scope = scope
        self.scopes.append(scope)
        return scope


class NurseryState:
    """A nursery of control code. Its branches are in `scope.members` until they end."""

    __slots__ = ("body_ended", "ended", "failures", "saw_cancelled", "scope", "starts")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.starts = 0
        self.body_ended = False
        self.ended = False
        """Body and branches have."""
        self.failures: list[Exception] = []
        """The body's first, then those of branches in the order of their ends."""
        self.saw_cancelled = False
        """`Cancelled` came out of a branch."""

    def __str__(self) -> str:
        return str(self.scope)
