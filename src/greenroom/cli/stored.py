"""What the commands about a store do: `greenroom store`, `greenroom mailbox`, `greenroom executions`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import anyio
import attrs
import msgspec

from greenroom.cli.output import Output, complain, seconds_between
from greenroom.cli.values import BadValue
from greenroom.errors import (
    BadCursor,
    BadStoreUrl,
    GreenroomError,
    InvalidMessageId,
    InvalidTaskId,
    NoSuchPool,
    NoSuchStore,
    NoSuchTask,
    StoreRefused,
)
from greenroom.persistence import check_store, find_store, migrate_store, open_store, place_of, prune
from greenroom.runtime.client import Client
from greenroom.runtime.durable.opening import StoreSource
from greenroom.runtime.stored import AddressInfo, MessageInfo

T = TypeVar("T")

DONE: Final = 0
FAILED: Final = 1
"""Exit status when the store does not answer, is not as it should be, or turns down what was asked for."""
WRONG: Final = 2
"""Exit status when there is nothing of the name that was given."""

BOUND: Final = 10.0
"""Seconds that a command waits for a store that is there and does not answer."""

ROUND: Final = 1000
"""Rows that are forgotten, or counted, in one transaction."""

CONTENTS: Final = ("body", "undecodable", "content", "reply", "error")
"""Fields of a message that are private unless they are asked for."""


NAMED_WRONGLY: Final = (
    BadCursor,
    BadStoreUrl,
    BadValue,
    InvalidMessageId,
    InvalidTaskId,
    NoSuchPool,
    NoSuchStore,
    NoSuchTask,
)
"""What is raised for something that cannot be, or is not there."""


def run(command: str, url: str | None, work: Callable[[str], Awaitable[int | None]]) -> int:
    """Do a command's work on the store of a URL; whatever goes wrong is one line. Returns the exit status."""
    if url is None:
        complain(command, "no store is named: give --store URL, or set GREENROOM_STORE")
        return WRONG
    try:
        return anyio.run(work, url) or DONE
    except GreenroomError as error:
        complain(command, str(error))
        unknown = isinstance(error, StoreRefused) and error.reason.startswith("unknown_")
        return WRONG if unknown or isinstance(error, NAMED_WRONGLY) else FAILED


def run_client(command: str, url: str | None, work: Callable[[Client], Awaitable[int | None]]) -> int:
    """The same with a client of that store."""

    async def with_client(url: str) -> int | None:
        async with Client(StoreSource(url, bound=BOUND)) as client:
            return await work(client)

    return run(command, url, with_client)


# ------------------------------------------------------------------------------------------------------ the store


def migrate(url: str | None, out: Output) -> int:
    """Bring a store up to date, or make it."""

    async def work(url: str) -> None:
        report = await migrate_store(url)
        out.say(f"{place_of(url)} is up to date: version {report.state.version}")
        out.record({"place": place_of(url), "version": report.state.version})

    return run("store migrate", url, work)


def check(url: str | None, out: Output) -> int:
    """Say whether this code can work with a store as it is, and what an acknowledgement there promises."""

    async def work(url: str) -> int | None:
        await find_store(url)
        report = await check_store(url)
        problems = [f"migration {number} is missing: run `greenroom store migrate`" for number in report.missing]
        problems += report.differences
        if report.state.oldest_code > report.code:
            problems.append(f"it needs code {report.state.oldest_code} or later: install a newer greenroom")
        durability: str | None = None
        if not problems:  # opening it checks what it promises, and would bring an older one up to date
            async with Client(StoreSource(url, bound=BOUND)) as client:
                durability = client.durability
        out.say(f"{place_of(url)}: version {report.state.version}, this code is {report.code}")
        for problem in problems:
            out.say(problem)
        if durability is not None:
            out.say(f"durability {durability}")
        out.record(
            {
                "place": place_of(url),
                "version": report.state.version,
                "code": report.code,
                "problems": problems,
                "durability": durability,
            }
        )
        return FAILED if problems else DONE

    return run("store check", url, work)


def forget(url: str | None, out: Output, *, dry_run: bool) -> int:
    """Forget what retention no longer keeps."""

    async def work(url: str) -> None:
        await find_store(url)
        async with open_store(url, bound=BOUND) as store:
            counts = await prune(store, limit=ROUND, dry_run=dry_run)
        rows = []
        for kind, count in counts.items():
            more = dry_run and count >= ROUND
            rows.append((kind.value, f"{count:,}{' or more' if more else ''}"))
            out.record({"kind": kind.value, "count": count, "more": more, "forgotten": not dry_run})
        out.table({"kind": "left", "would be forgotten" if dry_run else "forgotten": "right"}, rows)

    return run("store prune", url, work)


def path(url: str | None, out: Output) -> int:
    """Say where a store is."""

    async def work(url: str) -> None:
        out.say(place_of(url))
        out.record({"place": place_of(url)})

    return run("store path", url, work)


# ----------------------------------------------------------------------------------------------------- executions


def executions(url: str | None, out: Output, *, ended: bool) -> int:
    """List activations of worker processes."""

    async def work(client: Client) -> None:
        found = await client.executions(ended=ended)
        now = await client.now()
        out.say(headline(client, found, "no execution is in work" if not ended else "no execution is on record"))
        for each in found:
            out.record(attrs.asdict(each) | {"durability": client.durability})
        out.table(
            {
                "execution": "left",
                "host": "left",
                "pid": "right",
                "state": "left",
                "alive": "left",
                "lease left": "right",
                "started": "right",
            },
            [
                (
                    each.execution_id,
                    each.host,
                    str(each.pid),
                    each.state,
                    "yes" if each.alive else "no",
                    f"{each.seconds_left:.0f}s",
                    f"{seconds_between(each.started_at, now)} ago",
                )
                for each in found
            ],
        )

    return run_client("executions", url, work)


# ------------------------------------------------------------------------------------------------------ mailboxes


def list_mailboxes(url: str | None, out: Output, *, everything: bool, parked: bool) -> int:
    """List addresses."""

    async def work(client: Client) -> None:
        found = [each async for each in client.addresses(parked=parked) if everything or parked or _needs_a_look(each)]
        out.say(headline(client, found, "nothing waits, is dead or is parked"))
        for each in found:
            out.record(attrs.asdict(each) | {"durability": client.durability})
        out.table(
            {
                "address": "left",
                "kind": "left",
                "queued": "right",
                "ready": "right",
                "delayed": "right",
                "dead": "right",
                "parked": "left",
                "owner": "left",
            },
            [
                (
                    each.address,
                    each.kind,
                    _queued(each),
                    f"{each.ready:,}",
                    f"{each.delayed:,}",
                    f"{each.dead:,}",
                    each.parked or "",
                    each.owner or "",
                )
                for each in found
            ],
        )

    return run_client("mailbox list", url, work)


def _needs_a_look(info: AddressInfo) -> bool:
    return bool(info.queued or info.ready or info.delayed or info.held or info.dead or info.parked)


def _queued(info: AddressInfo) -> str:
    return f"{info.queued:,}" if info.capacity is None else f"{info.queued:,}/{info.capacity:,}"


def show_mailbox(url: str | None, out: Output, address: str, *, everything: bool, limit: int, bodies: bool) -> int:
    """Show one address and its messages."""

    async def work(client: Client) -> None:
        info = await client.address(address)
        if info is None:
            raise StoreRefused(
                "unknown_address",
                f"there is no address {address!r}: `greenroom mailbox list --all` shows those that there are",
            )
        found = await _first(_messages(client, address, everything=everything), limit + 1)
        out.say(headline(client))
        for line in told(attrs.asdict(info), except_for=()):
            out.say(line)
        _table_of_messages(out, found[:limit], await client.now())
        for each in found[:limit]:
            out.record(_plain(each, bodies=bodies))
            if bodies:
                out.say(f"message {each.message_id}:")
                out.text(_json_text(each.content))
        if len(found) > limit:
            out.say(f"and more: --limit N shows more than {limit:,}")

    return run_client("mailbox show", url, work)


async def _messages(client: Client, address: str, *, everything: bool) -> AsyncIterator[MessageInfo]:
    """What is not over: dead letters, what waits, what is delayed. Or everything on record."""
    lists = [client.messages(address)] if everything else [client.dead_letters(address), client.waiting(address)]
    for each in (*lists, client.delayed(address)):
        async for message in each:
            yield message


async def _first(items: AsyncIterator[T], limit: int) -> list[T]:
    found: list[T] = []
    async for item in items:
        found.append(item)
        if len(found) == limit:
            break
    return found


def show_message(url: str | None, out: Output, address: str, message_id: str, *, bodies: bool) -> int:
    """Show one message."""

    async def work(client: Client) -> None:
        found = await client.message(address, message_id)
        if found is None:
            raise StoreRefused("unknown_message", f"{address!r} has no message {message_id!r} on record")
        out.record(_plain(found, bodies=bodies))
        for line in told(attrs.asdict(found, recurse=False), except_for=CONTENTS):
            out.say(line)
        if bodies:
            out.say("body:")
            out.text(_json_text(found.content))
            if found.status == "handled" and found.error is None:
                out.say("reply:")
                out.text(_json_text(msgspec.json.encode(found.reply, enc_hook=str)))
            if found.error is not None:
                out.say("error:")
                out.text(_error_text(found.error))

    return run_client("mailbox show", url, work)


SETTLING: Final[Mapping[str, tuple[Callable[[Client, str, str], Awaitable[None]], str]]] = {
    "requeue": (Client.requeue, "requeued"),
    "drop": (Client.drop, "dropped"),
}


def settle(command: str, url: str | None, out: Output, address: str, message_ids: Sequence[str]) -> int:
    """Do the same to each of these dead letters, one after another, up to the first where it is refused."""
    call, done = SETTLING[command]

    async def work(client: Client) -> None:
        for message_id in message_ids:
            await call(client, address, message_id)
            out.say(f"{done} {message_id}")
            out.record({"address": address, "message_id": message_id, "done": done})

    return run_client(f"mailbox {command}", url, work)


def unpark(url: str | None, out: Output, address: str) -> int:
    """Let an address run again."""

    async def work(client: Client) -> None:
        await client.unpark(address)
        out.say(f"unparked {address}")
        out.record({"address": address, "done": "unparked"})

    return run_client("mailbox unpark", url, work)


# ---------------------------------------------------------------------------------------------------------- words


def headline(client: Client, found: Sequence[object] | None = None, nothing: str = "") -> str:
    told = f"{client.name}, durability {client.durability}"
    return told if found is None or found else f"{told}: {nothing}"


def told(values: Mapping[str, Any], *, except_for: Sequence[str]) -> list[str]:
    """A value in lines, one for each field that says something."""
    return [
        f"{name.replace('_', ' ')}: {value}"
        for name, value in values.items()
        if name not in except_for and value is not None
    ]


def _table_of_messages(out: Output, messages: Sequence[MessageInfo], now: datetime) -> None:
    out.table(
        {
            "place": "right",
            "message": "left",
            "status": "left",
            "type": "left",
            "deliveries": "right",
            "age": "right",
            "why dead": "left",
        },
        [
            (
                "" if each.seq is None else str(each.seq),
                each.message_id,
                each.status,
                each.type.rpartition(":")[2],
                str(each.deliveries),
                seconds_between(each.accepted_at, now),
                each.reason or "",
            )
            for each in messages
        ],
    )


def _plain(message: MessageInfo, *, bodies: bool) -> dict[str, Any]:
    """A message as an object for programs."""
    values = attrs.asdict(message, recurse=False, filter=lambda field, _: field.name not in CONTENTS)
    if bodies:
        values["body"] = _json_of(message.content)
        values["reply"] = message.reply
        values["error"] = None if message.error is None else _error_text(message.error)
    return values


def _json_of(content: bytes) -> Any:
    """What JSON says; the bytes in text where it is none."""
    try:
        return msgspec.json.decode(content)
    except msgspec.MsgspecError:
        return content.decode("utf-8", "backslashreplace")


def _json_text(content: bytes) -> str:
    try:
        return msgspec.json.format(content, indent=2).decode()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return content.decode("utf-8", "backslashreplace")


def _error_text(error: object) -> str:
    """An error with what it brought along: where it was raised."""
    return "\n".join((str(error), *getattr(error, "__notes__", ())))
