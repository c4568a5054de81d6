"""Callbacks: answered once, before or after anybody waits (K05), by whoever has the token."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.persistence.callbacks import (
    AnswerCallback,
    AnswerDisposition,
    CallbackMoved,
    CallbackStatus,
    CancelCallback,
    CreateCallback,
    ExpireCallback,
    ExpiredCallbacks,
    NewCallback,
    OpenCallbacks,
    ReadCallback,
    new_token,
    opens,
    split_token,
    with_secret,
)
from greenroom.persistence.content import digest_of
from greenroom.persistence.journal import CommitTurn
from greenroom.persistence.observations import ListObservations, ObservationKind
from greenroom.persistence.tasks import Ending, TaskOutcome
from greenroom.persistence.transitions import RefusalReason, Refused
from tests.persistence.stores import done, owner, refused
from tests.persistence.tasks_help import outcome, owned

if TYPE_CHECKING:
    from datetime import datetime

    from greenroom.persistence.callbacks import CallbackRecord
    from greenroom.persistence.store import Store
    from tests.persistence.stores import Database, Owner

ID = "desk|m1|payment"
TOKEN, DIGEST = new_token(ID)


def creating(desk: Owner, expires_at: datetime | None = None, digest: str = DIGEST) -> CreateCallback:
    return CreateCallback(
        address=desk.address,
        execution_id=desk.execution_id,
        generation=desk.generation,
        callback_id=ID,
        secret_digest=digest,
        name="payment",
        expires_at=expires_at,
    )


def answering(answer: bytes, token: str = TOKEN) -> AnswerCallback:
    parts = split_token(token)
    assert parts is not None
    callback_id, digest = parts
    return AnswerCallback(callback_id=callback_id, secret_digest=digest, answer=answer, digest=digest_of(answer))


async def record_of(store: Store) -> CallbackRecord:
    record = await store.read(ReadCallback(callback_id=ID))
    assert record is not None
    return record


def test_tokens_are_long_and_never_the_same() -> None:
    tokens = {new_token("a")[0] for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(token) >= 43 for token in tokens)


@given(st.text(min_size=1))
def test_a_token_tells_its_callback_and_the_digest_of_its_secret(callback_id: str) -> None:
    token, digest = new_token(callback_id)
    assert split_token(token) == (callback_id, digest)
    assert token.removeprefix(f"{callback_id}.") not in digest


@pytest.mark.parametrize("text", ["", ".", "no secret", "no secret.", ".no identity"])
def test_what_is_no_token_is_told_apart_before_the_store_is_asked(text: str) -> None:
    assert split_token(text) is None


@given(st.lists(st.sampled_from("abcd"), min_size=1), st.sampled_from("abcde"))
def test_each_secret_that_was_handed_out_opens_and_no_other_does(handed_out: list[str], tried: str) -> None:
    first, *more = handed_out
    assert opens(reduce(with_secret, more, first), tried) == (tried in handed_out)


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
        wrong, unknown = (
            await store.commit(answering(b"paid", f"{ID}.wrong")),
            await store.commit(answering(b"paid", "a.b")),
        )
        assert isinstance(wrong, Refused)
        assert wrong.reason is RefusalReason.UNKNOWN_TOKEN
        assert wrong == unknown
        assert (await record_of(store)).status is CallbackStatus.OPEN
        assert await store.read(ListObservations()) == ()


async def test_an_answered_callback_tells_a_wrong_token_nothing_either(database: Database) -> None:
    async with database.open() as store:
        await done(store, creating(await owner(store)))
        await done(store, answering(b"paid"))
        assert await refused(store, answering(b"paid", f"{ID}.wrong")) is RefusalReason.UNKNOWN_TOKEN


async def test_a_callback_that_is_not_there_neither_expires_nor_is_cancelled(database: Database) -> None:
    async with database.open() as store:
        assert await store.read(ReadCallback(callback_id="nothing")) is None
        for kind in (ExpireCallback, CancelCallback):
            assert await refused(store, kind(callback_id="nothing")) is RefusalReason.UNKNOWN_CALLBACK


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
        assert await refused(store, ExpireCallback(callback_id=ID)) is RefusalReason.NOT_PENDING
        assert await store.read(ExpiredCallbacks()) == ()
        database.time.pass_time(61)
        (record,) = await store.read(ExpiredCallbacks())
        assert record.callback_id == ID
        assert (await done(store, ExpireCallback(callback_id=ID))).status is CallbackStatus.EXPIRED
        assert await store.read(ExpiredCallbacks()) == ()


async def test_a_callback_without_an_end_does_not_expire(database: Database) -> None:
    async with database.open() as store:
        await done(store, creating(await owner(store)))
        database.time.pass_time(1e9)
        assert await store.read(ExpiredCallbacks()) == ()
        assert await refused(store, ExpireCallback(callback_id=ID)) is RefusalReason.NOT_PENDING


async def test_an_answer_to_a_cancelled_callback_is_late(database: Database) -> None:
    async with database.open() as store:
        await done(store, creating(await owner(store)))
        assert (await done(store, CancelCallback(callback_id=ID))).status is CallbackStatus.CANCELLED
        assert (await done(store, answering(b"paid"))).disposition is AnswerDisposition.LATE
        assert await refused(store, CancelCallback(callback_id=ID)) is RefusalReason.NOT_PENDING


@pytest.mark.parametrize("kind", [ExpireCallback, CancelCallback])
async def test_an_answered_callback_neither_expires_nor_is_cancelled(
    database: Database, kind: type[ExpireCallback | CancelCallback]
) -> None:
    async with database.open() as store:
        await done(store, creating(await owner(store), expires_at=database.time.at(60)))
        await done(store, answering(b"paid"))
        database.time.pass_time(61)
        assert await refused(store, kind(callback_id=ID)) is RefusalReason.ALREADY_ANSWERED


async def test_a_handler_that_runs_again_hands_out_another_token_and_the_old_one_stays_good(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        first = await done(store, creating(desk, expires_at=database.time.at(60)))
        token, digest = new_token(ID)
        again = await done(store, creating(desk, expires_at=database.time.at(600), digest=digest))
        assert first == again == CallbackMoved(CallbackStatus.OPEN)
        record = await record_of(store)
        assert record.expires_at == database.time.at(60)  # time that has passed is not given back (I6)
        assert (await done(store, answering(b"paid", TOKEN))).disposition is AnswerDisposition.ACCEPTED
        assert (await done(store, answering(b"paid", token))).disposition is AnswerDisposition.DUPLICATE


async def test_whoever_opens_a_callback_again_that_has_its_answer_is_told_so(database: Database) -> None:
    async with database.open() as store:
        desk = await owner(store)
        await done(store, creating(desk))
        await done(store, answering(b"paid"))
        token, digest = new_token(ID)
        assert await done(store, creating(desk, digest=digest)) == CallbackMoved(CallbackStatus.ANSWERED)
        assert (await record_of(store)).answer == b"paid"
        assert await refused(store, answering(b"paid", token)) is RefusalReason.UNKNOWN_TOKEN  # nobody got that one


async def test_an_identity_is_one_addresss(database: Database) -> None:
    async with database.open() as store:
        await done(store, creating(await owner(store)))
        other = await owner(store, "counter")
        assert await refused(store, creating(other)) is RefusalReason.CONFLICT
        assert (await record_of(store)).address == "desk"


async def test_only_the_owner_opens_a_callback_for_its_address(database: Database) -> None:
    async with database.open() as store:
        stale = await owner(store)
        await owner(store)
        assert await refused(store, creating(stale)) is RefusalReason.STALE_GENERATION
        assert await store.read(ReadCallback(callback_id=ID)) is None


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


# ------------------------------------------------------------------------------------------------ opened with a turn


def new_callback(callback_id: str, **options: Any) -> NewCallback:
    return NewCallback(callback_id=callback_id, secret_digest="d", name="payment", **options)


async def test_a_turn_opens_callbacks_together_with_the_rows_that_say_so(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        at = database.time.at(0)
        later = database.time.at(60)
        callbacks = (new_callback("c1"), new_callback("c2", expires_at=later))
        assert (await task.commit(0, outcome(1, at), opens=callbacks)).seq == 1
        assert await store.read(OpenCallbacks(address=task.address)) == ("c1", "c2")
        record = await store.read(ReadCallback(callback_id="c2"))
        assert record is not None
        assert (record.name, record.status, record.created_at, record.expires_at) == (
            "payment",
            CallbackStatus.OPEN,
            at,
            later,
        )


async def test_a_turn_that_is_refused_opens_nothing(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        turn = task.turn(7, outcome(8, database.time.at(0)), opens=(new_callback("c1"),))
        assert await refused(store, turn) is RefusalReason.CONFLICT
        assert await store.read(ReadCallback(callback_id="c1")) is None


async def test_a_turn_whose_callback_has_the_identity_of_another_is_refused_as_a_whole(database: Database) -> None:
    async with database.open() as store:
        task, other = await owned(store, "t1"), await owned(store, "t2")
        await other.commit(0, opens=(new_callback("taken"),))
        for callbacks in ((new_callback("c1"), new_callback("taken")), (new_callback("taken"),)):
            turn = task.turn(0, outcome(1, database.time.at(0)), opens=callbacks)
            assert await refused(store, turn) is RefusalReason.CONFLICT
        assert await task.journal() == ()
        assert await store.read(OpenCallbacks(address=task.address)) == ()


async def test_a_callback_that_a_turn_has_opened_can_be_closed_by_the_end_of_the_same_turn(database: Database) -> None:
    async with database.open() as store:
        task = await owned(store)
        ending = Ending(outcome=TaskOutcome.SUCCEEDED, callbacks=("c1",))
        await task.commit(0, opens=(new_callback("c1"),), ending=ending)
        record = await store.read(ReadCallback(callback_id="c1"))
        assert record is not None
        assert record.status is CallbackStatus.CANCELLED


def test_no_two_callbacks_of_a_turn_have_one_identity() -> None:
    with pytest.raises(ValueError, match="each callback has an identity of its own"):
        CommitTurn(
            address="task:t1",
            execution_id="e1",
            generation=1,
            after=0,
            opens=(new_callback("c1"), new_callback("c1")),
        )
