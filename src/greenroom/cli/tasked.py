"""What the commands about durable tasks do: `greenroom submit`, `tasks`, `show`, `events`, `signal`, `release` and their like."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs
import msgspec

from greenroom.cli.output import Output, complain, seconds_between
from greenroom.cli.stored import DONE, FAILED, WRONG, headline, run_client, told
from greenroom.cli.values import BadValue, value_of
from greenroom.persistence import Condition
from greenroom.runtime.tasks.saved import content_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from greenroom.runtime.client import Client
    from greenroom.runtime.tasks.events import JournalEvent
    from greenroom.runtime.tasks.handle import TaskHandle
    from greenroom.runtime.tasks.operator import OperatorDecision
    from greenroom.runtime.tasks.scheduled import ScheduleInfo
    from greenroom.runtime.tasks.status import TaskStatus

NO_TYPE: Final = 'a signal is received by its class: give --type MODULE:CLASS, or name it in the JSON as "$"'


def submit(
    url: str | None,
    out: Output,
    pool: str,
    request: str,
    *,
    type_name: str | None,
    task_id: str | None,
    group: str,
    priority: int,
) -> int:
    """Submit a task."""

    async def work(client: Client) -> None:
        value = value_of(request, type_name, "the request")
        handle = await client.submit(pool, value, task_id=task_id, group=group, priority=priority)
        out.say(f"submitted {handle.id}")
        out.record({"task_id": handle.id, "pool": pool, "done": "submitted"})

    return run_client("submit", url, work)


def list_tasks(
    url: str | None, out: Output, *, pool: str | None, condition: str | None, parked: bool, after: str, limit: int
) -> int:
    """List tasks."""

    async def work(client: Client) -> None:
        wanted = None if condition is None else Condition(condition)
        found: list[TaskStatus] = []
        more = False
        async for status in client.tasks(pool=pool, condition=wanted, parked=parked, after=after):
            more = len(found) == limit
            if more:
                break
            found.append(status)
        out.say(headline(client, found, "there is no such task"))
        for status in found:
            out.record(_plain(status))
        out.table(
            {
                "task": "left",
                "pool": "left",
                "condition": "left",
                "outcome": "left",
                "attempt": "right",
                "age": "right",
                "phase": "left",
                "waits for": "left",
            },
            [
                (
                    status.task_id,
                    status.pool,
                    status.condition.value,
                    _word(status.outcome) or "",
                    str(status.attempt),
                    seconds_between(status.submitted_at, status.at),
                    status.phase or "",
                    f"an operator ({status.parked.value})" if status.parked else "; ".join(status.waits),
                )
                for status in found
            ],
        )
        if more:
            out.say(f"and more: --after {found[-1].task_id} shows those behind")

    return run_client("tasks", url, work)


def list_schedules(url: str | None, out: Output) -> int:
    """List schedules."""

    async def work(client: Client) -> None:
        found = [schedule async for schedule in client.schedules()]
        out.say(headline(client, found, "no schedule was ever started on it"))
        for schedule in found:
            out.record({**attrs.asdict(schedule), "overdue": schedule.overdue})
        out.table(
            {"schedule": "left", "submits": "left", "to": "left", "when": "left", "next": "left", "last task": "left"},
            [
                (
                    schedule.path,
                    (schedule.request_type or "").rpartition(":")[2],
                    schedule.pool or "",
                    _when(schedule),
                    _next(schedule),
                    schedule.last_task or "",
                )
                for schedule in found
            ],
        )

    return run_client("schedules", url, work)


def _when(schedule: ScheduleInfo) -> str:
    """The rule of a schedule, for people."""
    if schedule.every is not None:
        return f"every {schedule.every:g}s"
    return "" if schedule.cron is None else f"{schedule.cron} {schedule.time_zone or 'UTC'}"


def _next(schedule: ScheduleInfo) -> str:
    if schedule.next_moment is None:
        return ""
    overdue = f", overdue for {seconds_between(schedule.next_moment, schedule.at)}" if schedule.overdue else ""
    return f"{schedule.next_moment.isoformat(timespec='seconds').replace('+00:00', 'Z')}{overdue}"


def show(url: str | None, out: Output, task_id: str, *, bodies: bool) -> int:
    """Show one task."""

    async def work(client: Client) -> None:
        handle = client.task(task_id)
        status, why, unresolved = await handle.status(), await handle.explain(), await handle.unresolved()
        values = _plain(status)
        record = {**values, "why": why, "unresolved": [attrs.asdict(operation) for operation in unresolved]}
        if bodies:
            record |= await _contents(handle)
        out.record(record)
        out.say(f"{task_id}: {why}")
        for line in told(values, except_for=("task_id", "waits")):
            out.say(line)
        for line in status.waits:
            out.say(f"waits for {line}")
        out.table(
            {
                "unresolved operation": "left",
                "name": "left",
                "effect": "left",
                "sent": "right",
                "decided before": "left",
                "key": "left",
            },
            [
                (each.call, each.name, each.effect, str(each.sent), _decisions(each.decisions), each.key)
                for each in unresolved
            ],
        )
        if bodies:
            for name in ("request", "result"):
                if record[name] is not None:
                    out.say(f"{name}:")
                    out.text(msgspec.json.format(msgspec.json.encode(record[name]), indent=2).decode())

    return run_client("show", url, work)


def _decisions(decisions: Iterable[OperatorDecision]) -> str:
    return ", ".join(map(str, decisions))


async def _contents(handle: TaskHandle[Any]) -> dict[str, Any]:
    saved = await handle.export()
    contents = {"request": content_of(saved.request), "result": content_of(saved.result)}
    return {name: None if data is None else msgspec.Raw(data) for name, data in contents.items()}


def events(url: str | None, out: Output, task_id: str, *, after: int, follow: bool, bodies: bool) -> int:
    """Show what is on record of a task, and with `follow` what is added."""

    async def work(client: Client) -> None:
        async for event in client.task(task_id).events(after=after, follow=follow):
            values = attrs.asdict(event, recurse=False)
            value = values.pop("value")
            if bodies:
                values["value"] = value
            out.record(values)
            out.say(_line(event))
            if bodies and value is not None:
                out.text(f"    {value!r}")
            sys.stdout.flush()

    return run_client("events", url, work)


def _line(event: JournalEvent) -> str:
    words = (
        str(event.cursor),
        "" if event.at is None else event.at.isoformat(timespec="milliseconds"),
        event.kind,
        event.call,
        event.name,
        event.type,
        event.status,
        event.detail,
        event.decisions and f"decided: {_decisions(event.decisions)}",
    )
    return "  ".join(word for word in words if word)


def signal(
    url: str | None, out: Output, task_id: str, message: str, *, type_name: str | None, message_id: str | None
) -> int:
    """Send a message to a task."""

    async def work(client: Client) -> int:
        value = value_of(message, type_name, "the message")
        if not attrs.has(type(value)):
            raise BadValue(NO_TYPE)
        receipt = await client.task(task_id).signal(value, message_id=message_id)
        out.say(f"{receipt.disposition} {receipt.message_id}")
        out.record({"task_id": task_id, "message_id": receipt.message_id, "disposition": receipt.disposition})
        if receipt.disposition == "unmatched":
            complain("signal", f"there is no task {task_id!r}")
            return WRONG
        return FAILED if receipt.disposition in ("late", "conflict") else DONE

    return run_client("signal", url, work)


def release(
    url: str | None,
    out: Output,
    task_id: str,
    *,
    operation: str | None,
    decision: str | None,
    result: str | None,
    type_name: str | None,
    by: str | None,
) -> int:
    """Let a task go on, or decide about one of its operations."""

    async def work(client: Client) -> None:
        handle = client.task(task_id)
        if operation is None and decision is None and result is None:
            await handle.release()
            out.say(f"released {task_id}")
            out.record({"task_id": task_id, "done": "released"})
            return
        if operation is None or decision is None:
            raise BadValue("a decision is about an operation: give --operation CALL and --decision")
        if result is not None and decision != "succeeded":
            raise BadValue("only an operation that succeeded has a result")
        value = None if result is None else value_of(result, type_name, "the result")
        released = await handle.decide(operation, decision, by=by or getpass.getuser(), result=value)  # type: ignore[arg-type]  # the option knows its words
        out.say(f"decided {operation}: {decision}{f', released {task_id}' if released else ''}")
        out.record({"task_id": task_id, "operation": operation, "decision": decision, "released": released})

    return run_client("release", url, work)


def cancel(url: str | None, out: Output, task_id: str, reason: str) -> int:
    """Tell a task to stop."""
    return _steer("cancel", url, out, task_id, lambda handle: handle.cancel(reason), "told to stop")


def terminate(url: str | None, out: Output, task_id: str, reason: str) -> int:
    """End a task."""
    return _steer("terminate", url, out, task_id, lambda handle: handle.terminate(reason), "terminated")


def _steer(
    command: str,
    url: str | None,
    out: Output,
    task_id: str,
    steer: Callable[[TaskHandle[Any]], Awaitable[None]],
    done: str,
) -> int:
    async def work(client: Client) -> None:
        handle = client.task(task_id)
        await steer(handle)
        out.say(f"{done} {task_id}")
        out.record({"task_id": task_id, "done": done, **_plain(await handle.status())})

    return run_client(command, url, work)


def new_attempt(url: str | None, out: Output, task_id: str, reason: str, *, from_operation: str | None) -> int:
    """Pursue a task once more."""

    async def work(client: Client) -> None:
        attempt = await client.task(task_id).new_attempt(reason, from_operation=from_operation)
        out.say(f"attempt {attempt} of {task_id} begins")
        out.record({"task_id": task_id, "attempt": attempt})

    return run_client("new-attempt", url, work)


def export(url: str | None, task_id: str, file: Path | None) -> int:
    """Write a task's journal."""

    async def work(client: Client) -> int:
        data = (await client.task(task_id).export()).to_json()
        if file is None:
            sys.stdout.write(data.decode())
            return DONE
        try:
            await anyio.Path(file).write_bytes(data)
        except OSError as error:
            complain("export", f"{file} cannot be written: {error.strerror}")
            return WRONG
        return DONE

    return run_client("export", url, work)


def _plain(status: TaskStatus) -> dict[str, Any]:
    """A status as an object for programs."""
    values = attrs.asdict(status)
    return {
        name: _word(value) if name in ("condition", "outcome", "parked") else value for name, value in values.items()
    }


def _word(member: Any) -> str | None:
    return None if member is None else str(member.value)
