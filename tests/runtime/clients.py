"""Clients of a database of the conformance suite, and messages for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from attrs import frozen

import greenroom as gr
from greenroom.codec import Codec
from greenroom.persistence import Committer
from greenroom.runtime.client import Client
from greenroom.runtime.durable.opening import StoreSource
from tests.persistence.stores import Database, Owner, owner


@frozen
class Add(gr.Message[int]):
    number: int


@frozen
class Note(gr.Message[None]):
    text: str


_codec = Codec()
_codec.register(Add, Note)


def encoded(value: object) -> bytes:
    """A value as the store has it."""
    return _codec.encode(value)


def client_of(database: Database, **options: Any) -> Client:
    """A client on the database's steered clock."""
    return Client(StoreSource(database.url, clock=database.time.store_clock, **options))


@asynccontextmanager
async def desk_and_client(database: Database, **options: Any) -> AsyncIterator[tuple[Owner, Client]]:
    """The owner of the address `service/desk`, in a store of its own, and a client, as if each were in a process of its own."""
    async with database.open() as store:
        desk = await owner(store, "service/desk", **options)
        async with client_of(database) as client:
            yield desk, client


async def all_of(listing: AsyncIterator[Any]) -> list[Any]:
    """What a listing shows."""
    return [each async for each in listing]


def store_of(client: Client) -> Committer:
    """The client's own store, to be asked for what it cannot show."""
    return client._store
