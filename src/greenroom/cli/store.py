"""The commands about a store and their options; what they do is in the module `stored`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from greenroom.cli import stored
from greenroom.cli.output import Output

STATUSES: Final = (
    "Exit status: 0 when it was done, 1 when the store does not answer, is not as it should be or turns it down, "
    "2 when there is no such store, address or message."
)

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        envvar="GREENROOM_STORE",
        help="The store that services share: sqlite:///file.db, or postgresql://user@host/database.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs: one JSON object a line.")]
AddressArgument = Annotated[str, typer.Argument(metavar="ADDRESS", help="The path of the actor in its tree.")]
MessagesArgument = Annotated[list[str], typer.Argument(metavar="MESSAGE_ID...", help="Dead letters of that address.")]

store = typer.Typer(name="store", help="Look after the database itself.", no_args_is_help=True)
mailbox = typer.Typer(
    name="mailbox", help="Look at durable addresses, and settle what waits for an operator.", no_args_is_help=True
)


@store.command(epilog=STATUSES)
def migrate(url: UrlOption = None, json: JsonOption = False) -> None:
    """Bring the store up to date, or make it.

    A runtime does so by itself with SQLite, and with an empty PostgreSQL schema. One on PostgreSQL that holds data is changed
    by this command alone.
    """
    raise typer.Exit(stored.migrate(url, Output(json=json)))


@store.command(epilog=STATUSES)
def check(url: UrlOption = None, json: JsonOption = False) -> None:
    """Compare the schema with what it should be, and say what an acknowledgement promises. Status 1: something is wrong."""
    raise typer.Exit(stored.check(url, Output(json=json)))


@store.command(epilog=STATUSES)
def prune(
    url: UrlOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be forgotten.")] = False,
    json: JsonOption = False,
) -> None:
    """Forget what was settled long ago, in small transactions. Runtimes do so by themselves, now and then."""
    raise typer.Exit(stored.forget(url, Output(json=json), dry_run=dry_run))


@store.command(epilog=STATUSES)
def path(url: UrlOption = None, json: JsonOption = False) -> None:
    """Say where the store is: its file, or its URL without the password. It need not be there."""
    raise typer.Exit(stored.path(url, Output(json=json)))


def executions(
    url: UrlOption = None,
    ended: Annotated[
        bool, typer.Option("--ended", help="Also those that have ended, while they are on record.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the worker processes that share a store: who is alive, and for how long its lease lasts.

    One that is not alive has died in its work: others take over what it owned.
    """
    raise typer.Exit(stored.executions(url, Output(json=json), ended=ended))


@mailbox.command("list", epilog=STATUSES)
def list_(
    url: UrlOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Also addresses where there is nothing to see.")] = False,
    parked: Annotated[bool, typer.Option("--parked", help="Only those that wait for an operator.")] = False,
    json: JsonOption = False,
) -> None:
    """List the addresses where something waits, is dead or is parked."""
    raise typer.Exit(stored.list_mailboxes(url, Output(json=json), everything=everything, parked=parked))


@mailbox.command(epilog=STATUSES)
def show(
    address: AddressArgument,
    message_id: Annotated[str | None, typer.Argument(metavar="MESSAGE_ID", help="Show this one message.")] = None,
    url: UrlOption = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All messages on record, also those that were handled.")
    ] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="How many messages to show.")] = 100,
    body: Annotated[
        bool, typer.Option("--body", help="Show contents as JSON, too; they are private unless they are asked for.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show an address and its messages: dead letters, those that wait, those that are delayed. Or one message."""
    out = Output(json=json)
    if message_id is None:
        raise typer.Exit(stored.show_mailbox(url, out, address, everything=everything, limit=limit, bodies=body))
    raise typer.Exit(stored.show_message(url, out, address, message_id, bodies=body))


@mailbox.command(epilog=STATUSES)
def requeue(
    address: AddressArgument, message_ids: MessagesArgument, url: UrlOption = None, json: JsonOption = False
) -> None:
    """Put dead letters back at the end of their mailbox, to be delivered as if for the first time."""
    raise typer.Exit(stored.settle("requeue", url, Output(json=json), address, message_ids))


@mailbox.command(epilog=STATUSES)
def drop(
    address: AddressArgument, message_ids: MessagesArgument, url: UrlOption = None, json: JsonOption = False
) -> None:
    """Let dead letters never be delivered."""
    raise typer.Exit(stored.settle("drop", url, Output(json=json), address, message_ids))


@mailbox.command(epilog=STATUSES)
def unpark(address: AddressArgument, url: UrlOption = None, json: JsonOption = False) -> None:
    """Let an address run again that waits for an operator, when its cause has been mended."""
    raise typer.Exit(stored.unpark(url, Output(json=json), address))
