"""A tree's shutdown: how far it is, and, as a value, what it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import IntEnum

from attrs import frozen

from greenroom.actors import Event, State
from greenroom.runtime.snapshot import TreeNode


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
    """How everything in the tree ended since the shutdown began, by path. Complete before the tree's last nursery can end.

    A task is `cancelled`, only a process is `killed`; a thread may be `abandoned`; what is `stuck` swallows its cancellation and
    still runs; `failed` ended by an exception of its own; `unknown` is what had not come to any of these when the report was made.
    """

    stopped: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    killed: tuple[str, ...] = ()
    abandoned: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    brutal: tuple[str, ...] = ()
    """Those of the cancelled and killed whose own `shutdown` is "kill" or 0: it was meant, and the stop is clean all the same."""
    seconds: float = 0.0
    """From the first stop request."""
    stage: Stage = Stage.NONE
    """The last stage that was reached."""

    @property
    def clean(self) -> bool:
        """Everything stopped as it was meant to."""
        forced = {*self.cancelled, *self.killed}.difference(self.brutal)
        return not (forced or self.abandoned or self.stuck or self.failed or self.unknown)

    def __str__(self) -> str:
        parts = [f"{len(self.stopped)} stopped on request"]
        for what in ("cancelled", "killed", "abandoned", "stuck", "failed", "unknown"):
            paths: tuple[str, ...] = getattr(self, what)
            if paths:
                parts.append(f"{what}: {', '.join(paths)}")
        return f"shutdown in {self.seconds:.1f} s (stage {self.stage.name.lower()}): " + "; ".join(parts)


class Shutdown:
    """The shutdown of one tree, while it goes on."""

    def __init__(self) -> None:
        self.stage = Stage.NONE
        self._began = 0.0
        self._ended: dict[str, str] = {}
        self._brutal: set[str] = set()
        self._lingering: Counter[str] = Counter()
        """Abandoned threads that may still run, by path; also from before the shutdown."""

    @property
    def begun(self) -> bool:
        """Has it begun?"""
        return self.stage is not Stage.NONE

    def advance(self, now: float) -> Stage:
        """Begin, or move one stage on."""
        if not self.begun:
            self._began = now
        self.stage = Stage(min(self.stage + 1, Stage.EXIT))
        return self.stage

    def note_end(self, path: str, how: str, *, brutal: bool) -> None:
        """An incarnation has ended; `how` is a field of the report. Of one path the last end counts.

        `"stuck"` is for the activation of a task, which is no node of the tree: it goes on, and ends otherwise when it does end.
        """
        if how == "abandoned":
            self._lingering[path] += 1
        if not self.begun:
            return
        self._ended.pop(path, None)
        self._ended[path] = how
        if brutal:
            self._brutal.add(path)

    def note_thread_ended(self, path: str) -> None:
        """An abandoned thread has ended after all."""
        self._lingering[path] -= 1

    def report(self, nodes: Iterable[TreeNode], now: float) -> ShutdownReport:
        """What is to say by now. `nodes`: what is in the tree just now."""
        running = {node.path: node.state for node in nodes if node.kind == "worker" and node.state in _RUNNING}

        def ended(how: str) -> tuple[str, ...]:
            return tuple(path for path, kind in self._ended.items() if kind == how and path not in running)

        cancelled, killed = ended("cancelled"), ended("killed")
        return ShutdownReport(
            stopped=ended("stopped"),
            cancelled=cancelled,
            killed=killed,
            abandoned=tuple(dict.fromkeys((*ended("abandoned"), *+self._lingering))),
            stuck=(*ended("stuck"), *(path for path, state in running.items() if state is State.STUCK)),
            failed=ended("failed"),
            unknown=tuple(path for path, state in running.items() if state is not State.STUCK),
            brutal=tuple(path for path in (*cancelled, *killed) if path in self._brutal),
            seconds=now - self._began if self.begun else 0.0,
            stage=self.stage,
        )


_RUNNING = frozenset({State.STARTING, State.RUNNING, State.STOPPING, State.STUCK})
