"""Callbacks: answered once, before or after anybody waits (K05), by whoever has the token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from greenroom.persistence.callbacks import (
    AnswerCallback,
    AnswerDisposition,
    CallbackStatus,
    CancelCallback,
    CreateCallback,
    ExpireCallback,
    ExpiredCallbacks,
    ReadCallback,
    new_token,
    token_digest,
)
from greenroom.persistence.content import digest_of
from greenroom.persistence.observations import ListObservations, ObservationKind
from greenroom.persistence.transitions import RefusalReason
from tests.persistence.stores import done, owner, refused

if TYPE_CHECKING:
    from datetime import datetime

    from greenroom.persistence.callbacks import CallbackRecord
    from greenroom.persistence.store import Store
    from tests.persistence.stores import Database, Owner

TOKEN = token_digest("a token")


def creating(desk: Owner, expires_at: datetime | None = None) -> CreateCallback:
    return CreateCallback(
        address=desk.address,
        execution_id=desk.execution_id,
        generation=desk.generation,
        token_digest=TOKEN,
        name="payment",
        expires_at=expires_at,
    )


def answering(answer: bytes, token: str = TOKEN) -> AnswerCallback:
    return AnswerCallback(token_digest=token, answer=answer, digest=digest_of(answer))


async def record_of(store: Store) -> CallbackRecord:
    record = await store.read(ReadCallback(token_digest=TOKEN))
    assert record is not None
    return record


def test_tokens_are_long_and_never_the_same() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(token) >= 43 for token in tokens)


async def test_a_callback_is_open_until_it_is_answered(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await done(store, creating(desk))
        assert (await record_of(store)).status is CallbackStatus.OPEN
        assert (await done(store, answering(b"paid"))).disposition is AnswerDisposition.ACCEPTED
        record = await record_of(store)
        assert (record.status, record.answer, record.name) == (CallbackStatus.ANSWERED, b"paid", "payment")


async def test_a_second_answer_is_a_duplicate_or_a_conflict_and_is_kept(database: Database) -> None:
    async with database.open() as store:
        await done(store, creating(await owner(store)))
        await done(store, answering(b"paid"))
        assert (await done(store, answering(b"paid"))).disposition is AnswerDisposition.DUPLICATE
        assert (await done(store, answering(b"refused"))).disposition is AnswerDisposition.CONFLICT
        assert (await record_of(store)).answer == b"paid"
        seen = await store.read(ListObservations(address="desk"))
        assert [(one.kind, one.body) for one in seen] == [
            (ObservationKind.CONFLICT, b"refused"),
            (ObservationKind.DUPLICATE, None),
        ]


async def test_a_wrong_token_opens_nothing_and_tells_nothing(database: Database) -> None:
    async with database.open() as store:
        await done(store, creating(await owner(store)))
        wrong = answering(b"paid", token_digest("another token"))
        assert await refused(store, wrong) is RefusalReason.UNKNOWN_TOKEN
        assert await store.read(ReadCallback(token_digest=token_digest("another token"))) is None
        for kind in (ExpireCallback, CancelCallback):
            assert await refused(store, kind(token_digest="wrong")) is RefusalReason.UNKNOWN_TOKEN


async def test_an_answer_after_the_end_is_late_whether_or_not_the_sweep_came_first(database: Database) -> None:
    async with database.open() as store:
        await done(store, creating(await owner(store), expires_at=database.time.at(60)))
        database.time.pass_time(60)
        assert (await done(store, answering(b"paid"))).disposition is AnswerDisposition.LATE
        assert (await record_of(store)).status is CallbackStatus.EXPIRED
        assert (await done(store, answering(b"paid"))).disposition is AnswerDisposition.LATE
        seen = await store.read(ListObservations(kind=ObservationKind.LATE))
        assert [one.body for one in seen] == [b"paid", b"paid"]


async def test_a_callback_is_expired_when_its_time_has_passed_and_not_before(database: Database) -> None:
    async with database.open() as store:
        await done(store, creating(await owner(store), expires_at=database.time.at(60)))
        assert await refused(store, ExpireCallback(token_digest=TOKEN)) is RefusalReason.NOT_PENDING
        assert await store.read(ExpiredCallbacks()) == ()
        database.time.pass_time(61)
        (record,) = await store.read(ExpiredCallbacks())
        assert record.token_digest == TOKEN
        assert (await done(store, ExpireCallback(token_digest=TOKEN))).status is CallbackStatus.EXPIRED
        assert await store.read(ExpiredCallbacks()) == ()


async def test_a_callback_without_an_end_does_not_expire(database: Database) -> None:
    async with database.open() as store:
        await done(store, creating(await owner(store)))
        database.time.pass_time(1e9)
        assert await store.read(ExpiredCallbacks()) == ()
        assert await refused(store, ExpireCallback(token_digest=TOKEN)) is RefusalReason.NOT_PENDING


async def test_an_answer_to_a_cancelled_callback_is_late(database: Database) -> None:
    async with database.open() as store:
        await done(store, creating(await owner(store)))
        assert (await done(store, CancelCallback(token_digest=TOKEN))).status is CallbackStatus.CANCELLED
        assert (await done(store, answering(b"paid"))).disposition is AnswerDisposition.LATE
        assert await refused(store, CancelCallback(token_digest=TOKEN)) is RefusalReason.NOT_PENDING


@pytest.mark.parametrize("kind", [ExpireCallback, CancelCallback])
async def test_an_answered_callback_neither_expires_nor_is_cancelled(
    database: Database, kind: type[ExpireCallback | CancelCallback]
) -> None:
    async with database.open() as store:
        await done(store, creating(await owner(store), expires_at=database.time.at(60)))
        await done(store, answering(b"paid"))
        database.time.pass_time(61)
        assert await refused(store, kind(token_digest=TOKEN)) is RefusalReason.ALREADY_ANSWERED


async def test_a_token_opens_one_callback(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await done(store, creating(desk))
        assert await refused(store, creating(desk)) is RefusalReason.CONFLICT


async def test_only_the_owner_opens_a_callback_for_its_address(database: Database) -> None:
    async with database.open() as store:
        stale = await owner(store)
        await owner(store)
        assert await refused(store, creating(stale)) is RefusalReason.STALE_GENERATION
        assert await store.read(ReadCallback(token_digest=TOKEN)) is None


async def test_k05_an_answer_is_found_whether_it_comes_before_the_wait_or_after(database: Database) -> None:
    async with database.open() as store:
        await done(store, creating(await owner(store)))
        with store.wakeups() as early:
            await done(store, answering(b"paid"))
            wakeup = await early.wait()
            assert wakeup is not None
            assert "desk" in wakeup.addresses
        with store.wakeups():  # whoever comes later looks before it waits
            assert (await record_of(store)).answer == b"paid"
