"""Stores with something in them, and the commands that look at them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
from typer.testing import CliRunner, Result

from greenroom.cli.main import app
from greenroom.persistence import Committer, ParkAddress, ParkReason, open_store, system_clock
from tests.persistence.stores import Owner, SteeredClock, done, message, owner, register

DESK = "service/desk"
SECRET = b'{"$":"shop.orders:Order","card":"a secret"}'


def greenroom(*arguments: str, **options: Any) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(app, arguments, **options)


def complaint(result: Result) -> str:
    """The one line that a command says when something is wrong; nothing else is said."""
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


def objects(result: Result) -> list[Any]:
    """What a command tells programs."""
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


def with_store(url: str, work: Callable[[Committer], Awaitable[object]], *, days_ago: float = 0) -> None:
    """Do something in a store, making it if need be."""
    clock = None
    if days_ago:
        past = datetime.now(UTC) - timedelta(days=days_ago)
        clock = SteeredClock(start=past, boot_id=system_clock().boot_id).store_clock

    async def main() -> None:
        async with open_store(url, clock=clock) as store:
            await work(store)

    anyio.run(main)


async def live(store: Committer, execution_id: str = "e1") -> None:
    """Register an execution of this machine's present boot."""
    await done(store, register(execution_id, boot_id=system_clock().boot_id))


async def furnish(store: Committer) -> Owner:
    """A desk with a handled message (`m1`), a dead letter (`m2`), one that waits (`m3`) and one that is delayed (`m4`); an idle
    hall; a parked attic."""
    await live(store)
    desk = await owner(store, DESK, capacity=10)
    for message_id in ("m1", "m2", "m3"):
        await done(store, message(DESK, message_id, SECRET, type="shop.orders:Order"))
    await desk.handle(1, reply=b'{"total":5}')
    await done(store, desk.bury(2, "it was delivered 5 times and not handled"))
    later = datetime.now(UTC) + timedelta(days=1)
    await done(store, message(DESK, "m4", SECRET, type="shop.orders:Order", deliver_at=later))
    await owner(store, "service/hall")
    attic = await owner(store, "service/attic")
    await done(
        store,
        ParkAddress(
            address=attic.address,
            execution_id=attic.execution_id,
            generation=attic.generation,
            reason=ParkReason.UNDECODABLE,
            detail="its state is of version 3",
        ),
    )
    return desk
