"""The commands about durable tasks and their options; what they do is in the module `tasked`."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Final

import typer

from greenroom.cli import tasked
from greenroom.cli.output import Output
from greenroom.cli.store import JsonOption, UrlOption

STATUSES: Final = (
    "Exit status: 0 when it was done, 1 when the store does not answer or turns it down, 2 when there is no such store, pool, task or "
    "operation, or something that was given cannot be."
)

TaskArgument = Annotated[str, typer.Argument(metavar="TASK_ID", help="The id of the task.")]
ReasonArgument = Annotated[str, typer.Argument(metavar="REASON", help="Why, for people.")]
TypeOption = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="MODULE:CLASS",
        help='The class of which the JSON gives the fields; it is imported, also from the current folder. The JSON may name it itself, as "$".',
    ),
]
BodyOption = Annotated[
    bool, typer.Option("--body", help="Show contents, too; they are private unless they are asked for.")
]


class Condition(enum.StrEnum):
    RUNNABLE = "runnable"
    RUNNING = "running"
    WAITING = "waiting"
    TERMINAL = "terminal"


class Decision(enum.StrEnum):
    REPEAT = "repeat"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


def submit(
    pool: Annotated[str, typer.Argument(metavar="PATH", help="The path of the pool of agents: service/reviewers.")],
    request: Annotated[str, typer.Argument(metavar="JSON", help="What is asked for.")],
    url: UrlOption = None,
    type_name: TypeOption = None,
    task_id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="TASK_ID", help="Its id: submitted again under it, the same request is the same task."
        ),
    ] = None,
    group: Annotated[str, typer.Option(metavar="GROUP", help="Whose it is: groups have their turns.")] = "",
    priority: Annotated[int, typer.Option(metavar="N", help="Higher first.")] = 0,
    json: JsonOption = False,
) -> None:
    """Submit a task to a pool of agents. It is performed by a service that runs the pool, now or when there is one.

    Example: `greenroom submit service/reviewers '{"topic": "whales"}' --type reviews:Review`
    """
    raise typer.Exit(
        tasked.submit(
            url, Output(json=json), pool, request, type_name=type_name, task_id=task_id, group=group, priority=priority
        )
    )


def tasks(
    url: UrlOption = None,
    pool: Annotated[str | None, typer.Option(metavar="PATH", help="Only those of this pool.")] = None,
    condition: Annotated[Condition | None, typer.Option(help="Only those in this condition.")] = None,
    parked: Annotated[bool, typer.Option("--parked", help="Only those that wait for an operator.")] = False,
    after: Annotated[str, typer.Option(metavar="TASK_ID", help="Only those behind this one.")] = "",
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="How many to show.")] = 100,
    json: JsonOption = False,
) -> None:
    """List tasks, in the order of their ids; ended ones too, until retention forgets them."""
    raise typer.Exit(
        tasked.list_tasks(
            url,
            Output(json=json),
            pool=pool,
            condition=None if condition is None else condition.value,
            parked=parked,
            after=after,
            limit=limit,
        )
    )


def schedules(url: UrlOption = None, json: JsonOption = False) -> None:
    """List schedules: what each submits and when, its next moment, and the task that it has submitted last.

    One that is overdue is run by nobody, or the queue of its pool is full.
    """
    raise typer.Exit(tasked.list_schedules(url, Output(json=json)))


def show(task_id: TaskArgument, url: UrlOption = None, body: BodyOption = False, json: JsonOption = False) -> None:
    """Show a task: first, in one line, why it is not moving."""
    raise typer.Exit(tasked.show(url, Output(json=json), task_id, bodies=body))


def events(
    task_id: TaskArgument,
    url: UrlOption = None,
    after: Annotated[int, typer.Option(metavar="CURSOR", min=0, help="Only those behind this cursor.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more, until the task has ended.")] = False,
    body: BodyOption = False,
    json: JsonOption = False,
) -> None:
    """Show what is on record of a task, in order: outcomes of operations, signals, times, commands."""
    raise typer.Exit(tasked.events(url, Output(json=json), task_id, after=after, follow=follow, bodies=body))


def signal(
    task_id: TaskArgument,
    message: Annotated[str, typer.Argument(metavar="JSON", help="The message.")],
    url: UrlOption = None,
    type_name: TypeOption = None,
    message_id: Annotated[
        str | None,
        typer.Option("--id", metavar="MESSAGE_ID", help="Its id: sent again under it, the message counts once."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Send a message to a task, durably. Status 1 when it came too late, or another message has its id."""
    raise typer.Exit(
        tasked.signal(url, Output(json=json), task_id, message, type_name=type_name, message_id=message_id)
    )


def release(
    task_id: TaskArgument,
    url: UrlOption = None,
    operation: Annotated[
        str | None, typer.Option(metavar="CALL", help="Decide about this unresolved operation: root#3.")
    ] = None,
    decision: Annotated[
        Decision | None,
        typer.Option(
            help="repeat: send it again, under the same key. succeeded: it happened. failed: it did not, and is not sent again."
        ),
    ] = None,
    result: Annotated[
        str | None, typer.Option(metavar="JSON", help="What the operation that succeeded came to.")
    ] = None,
    type_name: TypeOption = None,
    by: Annotated[str | None, typer.Option(metavar="NAME", help="Who says so.", show_default="your user name")] = None,
    json: JsonOption = False,
) -> None:
    """Let a task go on that waits for an operator: when its cause is mended, or by a decision about an operation of which nobody knows whether it happened."""
    raise typer.Exit(
        tasked.release(
            url,
            Output(json=json),
            task_id,
            operation=operation,
            decision=None if decision is None else decision.value,
            result=result,
            type_name=type_name,
            by=by,
        )
    )


def cancel(task_id: TaskArgument, reason: ReasonArgument, url: UrlOption = None, json: JsonOption = False) -> None:
    """Tell a task to stop: it cleans up, and ends. That takes a service that runs it; `terminate` does not."""
    raise typer.Exit(tasked.cancel(url, Output(json=json), task_id, reason))


def terminate(task_id: TaskArgument, reason: ReasonArgument, url: UrlOption = None, json: JsonOption = False) -> None:
    """End a task now, and its children, whether anybody runs it or not. It does not get to clean up."""
    raise typer.Exit(tasked.terminate(url, Output(json=json), task_id, reason))


def new_attempt(
    task_id: TaskArgument,
    reason: ReasonArgument,
    url: UrlOption = None,
    from_operation: Annotated[
        str | None,
        typer.Option("--from", metavar="CALL", help="Keep what came before this operation: root#3, or its name."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Pursue a task once more that has ended."""
    raise typer.Exit(tasked.new_attempt(url, Output(json=json), task_id, reason, from_operation=from_operation))


def export(
    task_id: TaskArgument,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Where it goes.", show_default="the standard output")
    ] = None,
    url: UrlOption = None,
) -> None:
    """Write a task's journal as JSON, with all contents: for `greenroom.testing.replay`."""
    raise typer.Exit(tasked.export(url, task_id, file))


def add_to(app: typer.Typer) -> None:
    """Make them commands of this program."""
    for command in (submit, tasks, schedules, show, events, signal, release, cancel, terminate, export):
        app.command(epilog=STATUSES)(command)
    app.command("new-attempt", epilog=STATUSES)(new_attempt)
