"""What a shutdown did, as a value."""

from __future__ import annotations

from enum import IntEnum

from attrs import frozen

from greenroom.actors import Event


class Stage(IntEnum):
    """How far a shutdown has escalated."""

    NONE = 0
    REQUESTED = 1
    """Ordered: each supervisor stops its children in reverse order, each within its shutdown time."""
    CANCELLED = 2
    """Everything is cancelled at once; `on_stop` is bounded by the kill time."""
    FORCED = 3
    """No more `on_stop`: processes are killed, threads abandoned."""
    EXIT = 4
    """Nothing is left but the end of the process."""


@frozen(kw_only=True)
class StopRequested(Event):
    """A shutdown has begun, or moves one stage on."""

    stage: Stage
    why: str


@frozen(kw_only=True)
class ShutdownReport:
    """How everything in the tree ended, by path. Complete before the tree's last nursery can end.

    A task is `cancelled`, only a process is `killed`; a thread may be `abandoned`; what is `stuck` swallows its cancellation and
    still runs; `unknown` is what had not come to any of these when the report was written.
    """

    stopped: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    killed: tuple[str, ...] = ()
    abandoned: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    seconds: float = 0.0
    """From the first stop request."""
    stage: Stage = Stage.NONE
    """The last stage that was reached."""

    @property
    def clean(self) -> bool:
        """Everything stopped when it was asked to."""
        return not (self.cancelled or self.killed or self.abandoned or self.stuck or self.unknown)

    def __str__(self) -> str:
        parts = [f"{len(self.stopped)} stopped on request"]
        for what in ("cancelled", "killed", "abandoned", "stuck", "unknown"):
            paths: tuple[str, ...] = getattr(self, what)
            if paths:
                parts.append(f"{what}: {', '.join(paths)}")
        return f"shutdown in {self.seconds:.1f} s (stage {self.stage.name.lower()}): " + "; ".join(parts)
