"""Log lines for machines and people: `key=value` pairs, one line for each record, report or event (the form is logfmt)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import traceback
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from types import ModuleType
from typing import Final

import anyio
import attrs
import outcome
import trio

import greenroom as gr
from greenroom import actors, cli, mailbox, persistence, runtime, supervisors
from greenroom.actors import text_of

logger = logging.getLogger("greenroom.events")

_BARE: Final = re.compile(r"[^\s\"=\\]+")
_WORD_START: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def _folder(package: ModuleType) -> str:
    return os.path.join(os.path.dirname(str(package.__file__)), "")


_MACHINERY: Final = tuple(
    map(_folder, (actors, mailbox, supervisors, persistence, runtime, cli, anyio, trio, outcome, asyncio))
)
"""Where an error comes through, and is not made: a place in there helps nobody to find it."""

_FRAME: Final = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')

LEVELS: Final[Mapping[type[gr.Event], int]] = {
    # these are in the log already, in the words of whoever publishes them
    gr.ActorStarted: logging.DEBUG,
    gr.ActorEnded: logging.DEBUG,
    gr.ActorStuck: logging.DEBUG,
    gr.ActorAbandoned: logging.DEBUG,
    gr.ProcessStarted: logging.DEBUG,
    gr.SlowHandler: logging.DEBUG,
    gr.StopRequested: logging.DEBUG,
    gr.RestartDelayed: logging.DEBUG,
    gr.RestartWaiting: logging.DEBUG,
    runtime.SweepFailed: logging.DEBUG,
    gr.Standstill: logging.DEBUG,
    gr.TaskStalled: logging.DEBUG,
    gr.PoolUnserved: logging.DEBUG,
    gr.JournalLong: logging.DEBUG,
    gr.MomentSkipped: logging.DEBUG,
    # and this one only while it lasts: the event says for how long it was
    gr.LoopBlocked: logging.WARNING,
}
"""A `SupervisorReport` has no level here: its supervisor logs it whole."""


def logfmt(fields: Mapping[str, object]) -> str:
    """Write pairs on one line; a value that is not plain is quoted as JSON, None and what is empty is left out."""
    return " ".join(f"{key}={_value(value)}" for key, value in fields.items() if value not in (None, "", (), []))


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, (tuple, list)):
        value = ",".join(str(each) for each in value)
    text = str(value)
    if _BARE.fullmatch(text) and text.isprintable():
        return text
    # JSON leaves some line ends of Unicode as they are; a log line has one line
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in quoted)


def event_fields(event: gr.Event) -> dict[str, object]:
    """Tell an event in pairs: what happened, to whom, then its own fields in their order."""
    if isinstance(event, gr.SupervisorReport):
        return _report_fields(event)
    told: dict[str, object] = {"event": _WORD_START.sub("_", type(event).__name__).lower(), "path": event.path}
    for field in attrs.fields(type(event)):
        value = getattr(event, field.name)
        if field.name in ("at", "path"):
            continue
        if isinstance(value, gr.Exit):
            told.update(_exit_fields(value))
        elif field.name == "stack":
            told["where"] = place(value)
        else:
            told[field.name] = getattr(value, "name", value)
    return told


def _report_fields(report: gr.SupervisorReport) -> dict[str, object]:
    offender = report.offender
    exit = report.exit if report.context != "progress" else None
    # the reason of a crash is mostly the crash itself, which follows
    told = () if exit is None else (str(exit), None if exit.cause is None else text_of(exit.cause))
    return {
        "event": report.context,
        "supervisor": report.path,
        "child": offender.path,
        "incarnation": offender.incarnation,
        "restart": offender.restart,
        "reason": report.reason if report.reason not in told else None,
        **(_exit_fields(exit) if exit is not None else {}),
    }


def _exit_fields(exit: gr.Exit) -> dict[str, object]:
    return {"exit": exit.kind, **(error_fields(exit.cause) if exit.cause is not None else {})}


def error_fields(error: BaseException) -> dict[str, object]:
    """Tell an error in pairs: itself, where it was raised, and what it came from."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_MACHINERY)]
    causes: list[str] = []
    cause = error.__cause__
    while cause is not None and len(causes) < 10:
        causes.append(f"{type(cause).__name__}: {text_of(cause)}")
        cause = cause.__cause__
    return {
        "error": f"{type(error).__name__}: {text_of(error)}",
        "where": f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else None,
        "cause": " <- ".join(causes),
    }


def place(stack: str) -> str:
    """The innermost place of a formatted stack that is worth naming, or nothing."""
    frames = list(_FRAME.finditer(stack))
    worth = [frame for frame in frames if not frame["file"].startswith(_MACHINERY)] or frames
    return f"{worth[-1]['file']}:{worth[-1]['line']} in {worth[-1]['function']}" if worth else ""


class Formatter(logging.Formatter):
    """Formats any record as one line of pairs; traces of errors below it only if asked for.

    Args:
        traces: write the whole traceback of an error, indented, below its line.
    """

    def __init__(self, *, traces: bool = False) -> None:
        super().__init__()
        self._traces = traces

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields: dict[str, object] = {"time": moment, "level": record.levelname.lower(), "logger": record.name}
        event = getattr(record, "event", None) or getattr(record, "report", None)
        if isinstance(event, gr.Event):
            fields.update(event_fields(event))
        else:
            fields["message"] = record.getMessage().partition("\n")[0]
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and "error" not in fields:
            if fields.get("message") == text_of(error):
                del fields["message"]  # it follows
            fields.update(error_fields(error))
        line = logfmt(fields)
        if self._traces and error is not None:
            trace = "".join(traceback.format_exception(error)).rstrip("\n")
            line += "\n" + "\n".join(f"    {each}" for each in trace.splitlines())
        return line


async def log_events(events: AsyncIterator[gr.Event]) -> None:
    """Log each event that the supervisors do not log themselves, until the stream ends."""
    async for event in events:
        log_event(event)


def log_event(event: gr.Event) -> None:
    """Log one event; a `SupervisorReport` has been logged by its supervisor."""
    if not isinstance(event, gr.SupervisorReport):
        level = next((LEVELS[kind] for kind in type(event).__mro__ if kind in LEVELS), logging.INFO)
        logger.log(level, "%s", event.path, extra={"event": event})
