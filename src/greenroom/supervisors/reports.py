"""What supervisors report: one value for the log and for the stream of events.

Source: OTP supervisor and progress reports.
"""

from __future__ import annotations

import logging
from typing import Any, Literal

from attrs import frozen

from greenroom.actors import Event, Exit, Ref, Services, State
from greenroom.errors import LeaseLost
from greenroom.logs import logger_named
from greenroom.supervisors.options import Restart, Shutdown
from greenroom.supervisors.specs import Child, SupervisorSpec

logger = logger_named("greenroom.supervisor")

Context = Literal["progress", "child_terminated", "start_error", "shutdown", "shutdown_error"]

_LEVELS: dict[str, int] = {
    "progress": logging.INFO,
    "child_terminated": logging.ERROR,
    "start_error": logging.ERROR,
    "shutdown": logging.ERROR,
    "shutdown_error": logging.ERROR,
}


@frozen(kw_only=True)
class ChildRecord:
    """A child in a report. Its arguments are left out on purpose: reports never show contents."""

    name: str
    path: str
    incarnation: int
    factory: str
    restart: Restart
    significant: bool
    shutdown: Shutdown
    kind: Literal["worker", "supervisor"]
    count: int = 1
    """How many children this speaks for, in a bulk stop of dynamic children."""


@frozen(kw_only=True)
class SupervisorReport(Event):
    """A supervisor's report; `path` is the supervisor's.

    Contexts: `progress` a good start; `child_terminated` a child ended by fault (a permanent one by any end of its own);
    `start_error` a start or restart failed; `shutdown` it gave up (`reason` says why); `shutdown_error` a stop that was asked for
    ended otherwise than it should.
    """

    context: Context
    reason: str
    offender: ChildRecord
    exit: Exit | None = None


@frozen(kw_only=True)
class RestartDelayed(Event):
    """A restart waits for its backoff."""

    delay: float
    """Seconds."""
    failures: int
    """Restarts in a row before this one."""


@frozen(kw_only=True)
class RestartWaiting(Event):
    """A restart waits: old incarnations that it must replace may still run."""

    waits_for: tuple[str, ...]
    """Their paths."""


@frozen(kw_only=True)
class ChildInfo:
    """One row of `which_children`."""

    name: str
    ref: Ref
    state: State
    kind: Literal["worker", "supervisor"]
    incarnation: int
    restarts: int


@frozen(kw_only=True)
class ChildCounts:
    """`count_children` (OTP `supervisor:count_children/1`). Of a `DynamicSupervisor`, `specs` is 1."""

    specs: int
    active: int
    supervisors: int
    workers: int


def record(spec: Child | SupervisorSpec, name: str, path: str, incarnation: int, count: int = 1) -> ChildRecord:
    """Describe a child for a report."""
    factory: Any = spec.factory if isinstance(spec, Child) else type(spec)
    while hasattr(factory, "func"):
        factory = factory.func
    return ChildRecord(
        name=name,
        path=path,
        incarnation=incarnation,
        factory=f"{getattr(factory, '__module__', '?')}:{getattr(factory, '__qualname__', type(factory).__qualname__)}",
        restart=spec.restart.value,
        significant=spec.significant,
        shutdown=spec.shutdown,
        kind="worker" if isinstance(spec, Child) else "supervisor",
        count=count,
    )


def publish(services: Services, report: SupervisorReport) -> None:
    """Log a report and show it to the readers of events."""
    level = _LEVELS[report.context]
    if report.exit is not None and isinstance(report.exit.cause, LeaseLost):
        level = min(level, logging.WARNING)  # no fault of the child's: what it did is taken up again
    if logger.isEnabledFor(level):
        cause = report.exit.cause if report.exit is not None and level >= logging.ERROR else None
        logger.log(
            level,
            "%s: %s %s (%s, incarnation %d)",
            report.context,
            report.offender.path,
            report.reason,
            report.offender.restart,
            report.offender.incarnation,
            extra={"report": report},
            exc_info=(type(cause), cause, cause.__traceback__) if cause is not None else None,
        )
    services.events.publish(report)


def announce(services: Services, event: RestartDelayed | RestartWaiting) -> None:
    """Log that a restart is put off, and show it to the readers of events."""
    if isinstance(event, RestartDelayed):
        said = f"restart of {event.path} in {event.delay:.3g} s, after {event.failures} in a row"
        logger.info("%s", said, extra={"event": event})
    else:
        said = f"restart of {event.path} waits: {', '.join(event.waits_for)} may still run"
        logger.warning("%s", said, extra={"event": event})
    services.events.publish(event)


def is_wanted(services: Services, context: Context) -> bool:
    """Would anybody see a report of this kind? Starts are too frequent to describe for nobody."""
    return services.events.listened_to or logger.isEnabledFor(_LEVELS[context])
