"""A child's place in its supervisor: the spec, the address, the life that is there now, and what restarts need to remember."""

from __future__ import annotations

from enum import Enum
from typing import Literal

from greenroom.actors import Cell, Exit, Life, Services, State, Timer
from greenroom.errors import BadSpec
from greenroom.mailbox import Mailbox, MemoryMailbox
from greenroom.supervisors.options import RestartType
from greenroom.supervisors.reports import ChildInfo, ChildRecord, record
from greenroom.supervisors.restarts import ChildView, History
from greenroom.supervisors.specs import WITH_A_STORE, Child, SupervisorSpec
from greenroom.supervisors.stray import StrayMailbox


class Afterwards(Enum):
    """What becomes of a child that was stopped, once nothing of it runs any more."""

    DOWN = "down"
    """It stays down until somebody starts it; its mailbox is closed."""
    FORGET = "forget"
    """Its spec goes, too."""
    RESTART = "restart"
    """A restart of its siblings has stopped it, and will start it again; messages go on queueing."""


class Member:
    """One child of a running supervisor.

    Invariants: `life` is None exactly when nothing of the child may still run, as far as the supervisor has taken note.
    Restarting means `life` is None and either `pending` is this child's own restart, or a sibling's restart covers it.
    """

    __slots__ = (
        "afterwards",
        "cell",
        "failures",
        "history",
        "info",
        "life",
        "more",
        "name",
        "pending",
        "spec",
        "started",
        "started_at",
        "timer",
    )

    def __init__(
        self,
        spec: Child | SupervisorSpec,
        parent: str,
        services: Services,
        name: str | None = None,
        more: tuple[object, ...] = (),
        former: Cell | None = None,
    ) -> None:
        self.spec = spec
        self.name = name if name is not None else spec.name
        """Its own name: dynamic children share one spec and are named by number."""
        self.more = more
        """A dynamic child's own arguments, after those of the spec."""
        path = f"{parent}/{self.name}"
        if former is not None and isinstance(former.mailbox, StrayMailbox) is not isinstance(spec, Child):
            self.cell = former
        elif isinstance(spec, Child):
            self.cell = Cell(path, _mailbox(path, spec, services), services)
        else:
            self.cell = Cell(path, StrayMailbox(path, services.loop, services.dead_letters), services)
        self.life: Life | None = None
        self.started = False
        self.info: object = None
        self.started_at = 0.0
        self.afterwards: Afterwards | None = None
        """Set while the life that is here was stopped, or failed to start, and does not end (stuck, abandoned): nobody waits for
        it any longer, and its end will not be an end of its own."""
        self.failures = 0
        """Restarts in a row, for the backoff."""
        self.history: History = ()
        """Moments of restarts, for the child's own intensity."""
        self.pending: object = None
        """Identity of the restart that is queued, delayed or held; None when there is none, or it was called off."""
        self.timer: Timer | None = None
        services.directory.add(self.cell)

    @property
    def kind(self) -> Literal["worker", "supervisor"]:
        return "worker" if isinstance(self.spec, Child) else "supervisor"

    @property
    def restarts(self) -> int:
        """Incarnations after the first."""
        return max(0, self.cell.incarnation - 1)

    @property
    def temporary(self) -> bool:
        return self.spec.restart is RestartType.TEMPORARY

    @property
    def replaces_abandoned(self) -> bool:
        """May a new incarnation start while an abandoned thread of the last one runs?"""
        return isinstance(self.spec, Child) and self.spec.replace_abandoned

    @property
    def restarting(self) -> bool:
        return self.cell.state is State.RESTARTING

    @property
    def runs(self) -> bool:
        """Something of it runs."""
        return self.life is not None and self.life.exit is None

    def prepare(self) -> None:
        """Make the address ready for a new incarnation."""
        assert self.life is None, "an incarnation is started only when nothing of the last one runs"
        self.call_off()
        self.started = False
        self.info = None
        if self.cell.mailbox.closed:
            self.cell.mailbox.reopen()

    def down(self, why: str) -> None:
        """Nothing runs and nothing is about to: the address refuses messages until it is started again."""
        self.life = None
        self.afterwards = None
        self.call_off()
        self.cell.state = State.DOWN
        self.cell.life = None
        self.cell.mailbox.close(why)
        # Whoever began to watch between two incarnations waits for one that will not come.
        self.cell.tell_watchers(self.cell.exit or Exit("normal"))

    def expect_restart(self) -> None:
        """Between incarnations: messages queue."""
        self.life = None
        self.afterwards = None
        self.cell.life = None
        self.cell.state = State.RESTARTING
        if self.cell.mailbox.closed:
            self.cell.mailbox.reopen()

    def call_off(self) -> None:
        """No queued or delayed restart of this child is valid any more."""
        self.pending = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def view(self) -> ChildView:
        return ChildView(
            self.name,
            self.spec.restart,
            self.spec.significant,
            running=self.life is not None,
            restarting=self.restarting,
        )

    def record(self, count: int = 1) -> ChildRecord:
        return record(self.spec, self.name, self.cell.path, self.cell.incarnation, count)

    def describe(self) -> ChildInfo:
        return ChildInfo(
            name=self.name,
            ref=self.cell.ref,
            state=self.cell.state,
            kind=self.kind,
            incarnation=self.cell.incarnation,
            restarts=self.restarts,
        )


def _mailbox(path: str, spec: Child, services: Services) -> MemoryMailbox:
    if isinstance(spec.mailbox, Mailbox):
        return MemoryMailbox(path, spec.mailbox, services.loop, services.dead_letters)
    if services.storage is None:
        raise BadSpec(f"{path!r} keeps its messages in a store, and this runtime has none: {WITH_A_STORE}")
    return services.storage.mailbox(path, spec.mailbox, durable=spec.durable)
