"""Durable actors that do what a script says, by the name in their message. The script is the test's, and outlives them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from typing import Any

import anyio.to_thread
from attrs import frozen

import greenroom as gr
from greenroom.persistence import (
    AddressRecord,
    Committer,
    DelayedMessages,
    ListMessages,
    MessageRecord,
    ReadAddress,
)
from greenroom.persistence.urls import parse_url
from tests.persistence.postgres.help import elsewhere, session


@frozen
class Log:
    """What a puppet was told to do, in order."""

    lines: tuple[str, ...] = ()


@frozen
class Do(gr.Message[Any]):
    """Note this down, and do what the script has under it. The reply is what that returns."""

    what: str


@frozen
class Look(gr.Message[tuple[str, ...]]):
    """The reply is the log."""


Script = Mapping[str, Callable[["Puppet"], Awaitable[object]]]


class Puppet(gr.DurableActor[Log]):
    def __init__(self, script: Script) -> None:
        self.script = script
        self.state = Log()

    @gr.handles
    async def do(self, message: Do) -> Any:
        self.state = Log((*self.state.lines, message.what))
        step = self.script.get(message.what)
        return None if step is None else await step(self)

    @gr.handles
    async def look(self, message: Look) -> tuple[str, ...]:
        return self.state.lines


class Listener(gr.Actor):
    """An actor in memory. Notes what it is told in a list that outlives it."""

    def __init__(self, heard: list[str]) -> None:
        self.heard = heard

    @gr.handles
    async def do(self, message: Do) -> Any:
        self.heard.append(message.what)
        return len(self.heard)


async def eventually(reached: Callable[[], bool]) -> None:
    """Wait for what two runtimes do on one database: virtual time passes for both, and real time, in which they hear of each other."""
    while not reached():
        await anyio.sleep(0.05)
        await anyio.to_thread.run_sync(time.sleep, 0.002)


async def from_elsewhere(question: Awaitable[Any]) -> Any:
    """The answer to an ask that comes by way of the database."""
    answers: list[Any] = []

    async def ask() -> None:
        answers.append(await question)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await eventually(lambda: bool(answers))
    return answers[0]


POOL = "service/pool"


def pool(script: Script | None = None, **options: Any) -> gr.DurableActors:
    """The pool `service/pool` of puppets."""
    return gr.DurableActors("pool", Puppet, script or {}, **options)


def residents(runtime: gr.Runtime, path: str = POOL) -> list[str]:
    """The keys of the pool's actors that are in memory."""
    node = runtime.tree().find(path)
    assert node is not None
    return sorted(child.name for child in node.children)


def sleeping(seconds: float) -> Callable[[Puppet], Awaitable[None]]:
    """A step that takes its time."""

    async def step(puppet: Puppet) -> None:
        await anyio.sleep(seconds)

    return step


async def record_of(store: Committer, address: str) -> AddressRecord:
    record = await store.read(ReadAddress(address=address))
    assert record is not None, f"there is no address {address!r}"
    return record


async def mail_of(store: Committer, address: str) -> tuple[MessageRecord, ...]:
    """Every message on record of an address, delayed ones last."""
    listed = await store.read(ListMessages(address=address, limit=10_000))
    return (*listed, *await store.read(DelayedMessages(address=address)))


def tamper(url: str, sql: str, *values: Any) -> None:
    """Change a database behind the store's back. `sql` has `?` for each value; it is committed when this returns."""
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(parse_url(url).path)) as connection:
            connection.execute(sql, values)
            connection.commit()
        return
    numbered = "".join(f"{part}${number}" for number, part in enumerate(sql.split("?"), 1)).removesuffix(
        f"${len(values) + 1}"
    )

    async def change() -> None:
        async with session(url) as connection:
            await connection.execute(numbered, *values)

    elsewhere(change())
