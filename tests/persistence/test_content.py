"""Payloads and the content store (R31): small ones lie in their rows, large ones under their digest, larger ones nowhere."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from greenroom.errors import PayloadTooLarge, Undecodable
from greenroom.persistence.addresses import ReadAddress, StateWrite
from greenroom.persistence.content import (
    HARD_LIMIT,
    INLINE_LIMIT,
    Content,
    PutContent,
    ReadContent,
    digest_of,
    fetch,
    message_digest,
    stow,
)
from greenroom.persistence.messages import AcceptMessage, ReadMessage
from greenroom.persistence.retention import Prunable, Prune, Pruned
from tests.persistence.stores import done, message, owner

if TYPE_CHECKING:
    from tests.persistence.stores import Database

LARGE = bytes(range(256)) * 4096  # 1 MiB, four pieces


async def test_a_payload_up_to_the_inline_limit_stays_as_it_is(database: Database) -> None:
    async with database.open() as store:
        small = b"x" * INLINE_LIMIT
        assert await stow(store, small) is small


async def test_a_larger_payload_is_kept_under_its_digest_and_fetched_again(database: Database) -> None:
    async with database.open() as store:
        for data in (b"x" * (INLINE_LIMIT + 1), LARGE):
            payload = await stow(store, data)
            assert payload == Content(digest_of(data), len(data))
            assert await fetch(store, payload) == data


async def test_the_largest_payload_there_may_be_is_kept(database: Database) -> None:
    async with database.open() as store:
        data = b"y" * HARD_LIMIT
        assert await fetch(store, await stow(store, data)) == data


async def test_above_the_hard_limit_a_payload_is_refused_by_its_name_and_size(database: Database) -> None:
    async with database.open() as store:
        with pytest.raises(PayloadTooLarge, match=r"the reply of Add has 16,777,217 bytes; the limit is 16,777,216"):
            await stow(store, b"z" * (HARD_LIMIT + 1), name="the reply of Add")
        with pytest.raises(PayloadTooLarge):
            PutContent(data=b"z" * (HARD_LIMIT + 1))
        assert database.tables()["content"] == []


def test_a_payload_that_belongs_into_the_content_store_is_refused_inline() -> None:
    with pytest.raises(PayloadTooLarge, match=r"body has 65,537 bytes.*await stow"):
        message("desk", "m1", b"x" * (INLINE_LIMIT + 1))
    with pytest.raises(PayloadTooLarge, match="payload"):
        StateWrite(payload=b"x" * (INLINE_LIMIT + 1), type="S", version=1)


async def test_the_same_bytes_are_kept_once(database: Database) -> None:
    async with database.open() as store:
        await stow(store, LARGE)
        rows = len(database.tables()["content"])
        await stow(store, LARGE)
        assert len(database.tables()["content"]) == rows == 4


async def test_messages_states_and_replies_may_be_content(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        body = await stow(store, LARGE + b"1")
        state = await stow(store, LARGE + b"2")
        reply = await stow(store, LARGE + b"3")
        await done(
            store,
            AcceptMessage(address="desk", message_id="m1", type="T", body=body, digest=message_digest("T", LARGE)),
        )
        (record,) = await desk.records()
        assert await fetch(store, record.body) == LARGE + b"1"
        await desk.handle(1, state=StateWrite(payload=state, type="S", version=1), reply=reply)
        address = await store.read(ReadAddress(address="desk"))
        assert address is not None
        assert address.state == state
        answered = await store.read(ReadMessage(address="desk", message_id="m1"))
        assert answered is not None
        assert answered.reply is not None
        assert await fetch(store, answered.reply) == LARGE + b"3"


async def test_content_that_is_not_there_reads_as_none(database: Database) -> None:
    async with database.open() as store:
        assert await store.read(ReadContent(digest="nothing")) is None
        with pytest.raises(Undecodable, match=r"the content nothing .*it is gone"):
            await fetch(store, Content("nothing", 70_000))


async def test_r31_content_is_collected_when_it_is_old_and_no_row_names_it(database: Database) -> None:
    async with database.open() as store:
        await owner(store)
        named = await stow(store, LARGE)
        await stow(store, LARGE + b"!")
        await done(
            store,
            AcceptMessage(address="desk", message_id="m1", type="T", body=named, digest=message_digest("T", LARGE)),
        )
        prune = Prune(kind=Prunable.CONTENT, age=timedelta(days=1))
        assert await done(store, prune) == Pruned(0, None)
        database.time.pass_time(86401)
        again = Prune(kind=Prunable.CONTENT, age=timedelta(days=1))
        assert await done(store, again) == Pruned(1, None)
        assert await fetch(store, named) == LARGE
        assert await store.read(ReadContent(digest=digest_of(LARGE + b"!"))) is None


async def test_r31_keeping_content_again_spares_it_from_collection(database: Database) -> None:
    async with database.open() as store:
        await stow(store, LARGE)
        database.time.pass_time(86400)
        await stow(store, LARGE)
        database.time.pass_time(86400 / 2)
        assert await done(store, Prune(kind=Prunable.CONTENT, age=timedelta(days=1))) == Pruned(0, None)
