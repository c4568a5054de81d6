"""The commands and their options; what they do is in the modules `service` and `review`. Those about a store are in `store`."""

from __future__ import annotations

import enum
import importlib.metadata
from pathlib import Path
from typing import Annotated

import typer

from greenroom.cli import store, task
from greenroom.demo.tree import READERS, TIME_LIMIT

app = typer.Typer(
    name="greenroom",
    help="Long-lived services made of supervised actors.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Backend(enum.StrEnum):
    ASYNCIO = "asyncio"
    TRIO = "trio"


class Level(enum.StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"greenroom {importlib.metadata.version('greenroom')}")
        raise typer.Exit


@app.callback()
def greenroom(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Long-lived services made of supervised actors."""


BackendOption = Annotated[Backend, typer.Option(help="The event loop to run on.")]


@app.command()
def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:TREE",
            help="A supervisor, or a function without arguments that makes one; MODULE may lie in the current folder.",
        ),
    ],
    backend: BackendOption = Backend.ASYNCIO,
    uvloop: Annotated[bool, typer.Option("--uvloop", help="With asyncio: run on uvloop, if it is installed.")] = False,
    url: store.UrlOption = None,
    live: Annotated[
        bool, typer.Option("--live", help="Draw the tree in the terminal instead of writing log lines.")
    ] = False,
    final_deadline: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="From the first stop request until the process is ended by force (status 70)."
        ),
    ] = 60.0,
    level: Annotated[Level, typer.Option("--log-level", help="The least level of the log lines.")] = Level.INFO,
    traces: Annotated[bool, typer.Option("--traces", help="Write the traceback of each error below its line.")] = False,
) -> None:
    """Run a tree as a service, until Ctrl-C, SIGTERM or its own end.

    A first signal starts the ordered shutdown; each further one moves it a stage on: cancelled, forced, ended.

    Log lines go to the standard error stream, one for each report and event, as key=value pairs.

    Exit status: 0 after a clean stop, 1 when the tree gave up or did not start, 2 when there is no such tree or store, 3 when
    something had to be cancelled, killed or abandoned, 70 after an end by force.
    """
    from greenroom.cli import service

    raise typer.Exit(
        service.run(
            target,
            backend=backend.value,
            uvloop=uvloop,
            store=url,
            live=live,
            final_deadline=final_deadline,
            level=level.name,
            traces=traces,
        )
    )


@app.command()
def demo(
    folder: Annotated[Path, typer.Argument(readable=False, help="The folder to review.")] = Path(),
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the report goes.", show_default="FOLDER/.greenroom"),
    ] = None,
    chaos: Annotated[bool, typer.Option("--chaos", help="Crash random actors on the way, and see them heal.")] = False,
    seed: Annotated[
        int | None,
        typer.Option(metavar="N", help="With --chaos: whom it strikes and when.", show_default="a new one"),
    ] = None,
    kill: Annotated[
        bool, typer.Option("--kill", help="Kill the service midway, as kill -9 does, and take its review up again.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Take up the review that was begun here and did not come to its end.")
    ] = False,
    backend: BackendOption = Backend.ASYNCIO,
    readers: Annotated[
        int, typer.Option(metavar="N", min=1, max=64, help="How many readers share the files.")
    ] = READERS,
    time_limit: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, help="What one large file may take before its reader is killed."),
    ] = TIME_LIMIT,
) -> None:
    """Review a folder with a supervised service, and write report.md and report.json.

    Python files are parsed for their functions, Markdown for headings and dead links, JSON and TOML for validity. A file
    that crashes its reader is read again by another; one that crashes two is listed with its error.

    The review is a durable task; its journal is in a store beside the report, review.db. A review that was stopped or
    killed is taken up with --resume: what is on record is not read again. Without it, a review begins anew.

    Exit status: 0 when the report is written, 1 when the tree gave up, 2 when the folder cannot be read, the report not be
    written, or there is nothing to resume, 130 when the review was stopped before its end (Ctrl-C, SIGTERM).
    """
    from greenroom.cli import review, wanted

    request = wanted.Wanted(
        folder=folder,
        out=out,
        chaos=chaos,
        seed=seed,
        resume=resume,
        backend=backend.value,
        readers=readers,
        time_limit=time_limit,
    )
    raise typer.Exit(review.review(request, kill=kill))


app.add_typer(store.store)
app.add_typer(store.mailbox)
app.command(epilog=store.STATUSES)(store.executions)
task.add_to(app)
