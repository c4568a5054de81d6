"""A client sends and asks, and answers callbacks: accepted means durable, and nothing is ever lost without a word."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from attrs import frozen

import greenroom as gr
from greenroom.errors import AskTimeout, DeadLettered, NotAccepted, StoreRefused, UnknownToken
from greenroom.mailbox import Receipt
from greenroom.persistence import (
    CreateCallback,
    DropDead,
    ExpireCallback,
    MessageStatus,
    ReadAddress,
    ReadCallback,
    ReadMessage,
    RegisterPool,
    new_token,
)
from greenroom.persistence.content import INLINE_LIMIT
from greenroom.persistence.driver import NotReached, OutcomeUnknown
from greenroom.testing.wrapped_driver import WrappedDriver
from tests.persistence.stores import SqliteDatabase, done
from tests.runtime.clients import Add, Note, client_of, desk_and_client, encoded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from greenroom.persistence import Transition
    from greenroom.persistence.driver import Applied
    from tests.persistence.stores import Database, Owner

DESK = "service/desk"


# ------------------------------------------------------------------------------------------------------- sending


async def test_a_message_that_was_sent_waits_at_its_address(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        receipt = await client.send(DESK, Note("hello"), message_id="m1")
        assert receipt == Receipt("m1", "accepted")
        (record,) = await desk.records()
        assert (record.message_id, record.sender, record.body) == ("m1", None, encoded(Note("hello")))
        assert record.type == f"{Note.__module__}:Note"


async def test_messages_without_an_id_get_fresh_ones(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        receipts = [await client.send(DESK, Note("the same")) for _ in range(2)]
        assert [receipt.disposition for receipt in receipts] == ["accepted", "accepted"]
        assert await desk.waiting() == [receipt.message_id for receipt in receipts]


async def test_messages_of_one_client_keep_their_order(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        for number in range(10):
            await client.send(DESK, Add(number), message_id=f"m{number}")
        assert await desk.waiting() == [f"m{number}" for number in range(10)]


async def test_r25_the_same_message_again_is_a_duplicate_and_another_under_its_id_a_conflict(
    database: Database,
) -> None:
    async with desk_and_client(database) as (desk, client):
        await client.send(DESK, Note("one"), message_id="m1")
        assert (await client.send(DESK, Note("one"), message_id="m1")).disposition == "duplicate"
        assert (await client.send(DESK, Note("two"), message_id="m1")).disposition == "conflict"
        assert await desk.waiting() == ["m1"]


async def test_c14_a_message_to_nobody_is_unmatched_and_one_to_an_actor_that_has_ended_is_late(
    database: Database,
) -> None:
    async with desk_and_client(database) as (desk, client):
        assert (await client.send("service/nobody", Note("?"))).disposition == "unmatched"
        await done(desk.store, desk.close())
        assert (await client.send(DESK, Note("?"))).disposition == "late"


async def test_a_full_mailbox_refuses_and_says_its_capacity(database: Database) -> None:
    async with desk_and_client(database, capacity=1) as (desk, client):
        await client.send(DESK, Note("first"))
        with pytest.raises(gr.MailboxFull, match="full") as caught:
            await client.send(DESK, Note("second"))
        assert (caught.value.recipient, caught.value.capacity, caught.value.message_type) == (DESK, 1, "Note")
        assert len(await desk.waiting()) == 1


async def test_a_message_for_later_has_no_place_yet(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        await client.send(DESK, Note("later"), message_id="m1", deliver_at=database.time.at(60))
        assert await desk.waiting() == []
        record = await desk.store.read(ReadMessage(address=DESK, message_id="m1"))
        assert record is not None
        assert record.status is MessageStatus.DELAYED


async def test_an_instant_without_a_time_zone_is_refused(database: Database) -> None:
    async with desk_and_client(database) as (_, client):
        with pytest.raises(ValueError, match="time zone"):
            await client.send(DESK, Note("later"), deliver_at=datetime(2031, 1, 1))  # noqa: DTZ001 - the point of it


async def test_a_large_message_goes_by_the_content_store(database: Database) -> None:
    async with desk_and_client(database) as (_, client):
        large = Note("x" * (INLINE_LIMIT + 1))
        await client.send(DESK, large, message_id="m1")
        found = await client.message(DESK, "m1")
        assert found is not None
        assert found.body == large


async def test_a_message_that_is_too_large_is_refused_by_its_name(database: Database) -> None:
    async with desk_and_client(database) as (_, client):
        with pytest.raises(gr.PayloadTooLarge, match="a Note to 'service/desk' has"):
            await client.send(DESK, Note("x" * (17 * 1024 * 1024)))


async def test_only_messages_can_be_sent(database: Database) -> None:
    async with desk_and_client(database) as (_, client):
        with pytest.raises(gr.NotAMessage):
            await client.send(DESK, "hello")  # type: ignore[arg-type]


async def test_what_could_not_come_back_is_refused_before_it_is_stored(database: Database) -> None:
    @frozen
    class Local(gr.Message[None]):
        thing: object

    async with desk_and_client(database) as (desk, client):
        with pytest.raises(gr.NotEncodable):
            await client.send(DESK, Local(object()))
        assert await desk.waiting() == []


# --------------------------------------------------------------------------------------------------------- pools


async def test_an_address_of_a_pool_is_opened_by_whoever_sends_to_it_first(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        await done(desk.store, RegisterPool(pool="service/accounts", capacity=2))
        for number in range(2):
            assert (await client.send("service/accounts/alice", Add(number))).disposition == "accepted"
        with pytest.raises(gr.MailboxFull):
            await client.send("service/accounts/alice", Add(2))
        record = await desk.store.read(ReadAddress(address="service/accounts/alice"))
        assert record is not None
        assert (record.owner, record.queued, record.capacity, record.kind.value) == (None, 2, 2, "actor")


@pytest.mark.parametrize("address", ["service/accounts/", "service/accounts/a/b", "service/accounts", "accounts/alice"])
async def test_what_is_no_key_of_a_pool_is_unmatched(database: Database, address: str) -> None:
    async with desk_and_client(database) as (desk, client):
        await done(desk.store, RegisterPool(pool="service/accounts"))
        assert (await client.send(address, Add(1))).disposition == "unmatched"
        assert await client.address(address) is None


async def test_an_address_that_comes_later_is_found(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        assert (await client.send("service/accounts/alice", Add(1))).disposition == "unmatched"
        await done(desk.store, RegisterPool(pool="service/accounts"))
        assert (await client.send("service/accounts/alice", Add(1))).disposition == "accepted"


# -------------------------------------------------------------------------------------------------------- asking


async def comes(desk: Owner) -> int:
    """The place of the first message, once it is there."""
    with desk.store.wakeups() as news:
        while not (records := await desk.records()):
            with anyio.move_on_after(0.05):
                await news.wait()
    assert records[0].seq is not None
    return records[0].seq


async def serve(desk: Owner, **answer: Any) -> None:
    """Handle the first message that comes."""
    await desk.handle(await comes(desk), **answer)


async def test_an_ask_returns_the_reply_that_another_process_has_committed(database: Database) -> None:
    async with desk_and_client(database) as (desk, client), anyio.create_task_group() as group:
        group.start_soon(lambda: serve(desk, reply=encoded(7)))
        assert await client.ask(DESK, Add(3)) == 7


async def test_a_reply_may_be_nothing(database: Database) -> None:
    async with desk_and_client(database) as (desk, client), anyio.create_task_group() as group:
        group.start_soon(lambda: serve(desk, reply=encoded(None)))
        assert await client.ask(DESK, Note("hello")) is None  # type: ignore[func-returns-value]


async def test_r25_asked_again_under_its_id_a_question_gets_the_kept_reply(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: serve(desk, reply=encoded(7)))
            first = await client.ask(DESK, Add(3), message_id="q1")
        assert await client.ask(DESK, Add(3), message_id="q1") == first == 7
        assert await desk.waiting() == []


async def test_a_rejection_is_raised_for_who_asks(database: Database) -> None:
    async with desk_and_client(database) as (desk, client), anyio.create_task_group() as group:
        group.start_soon(lambda: serve(desk, error=encoded(gr.Rejected("not on a Sunday"))))
        with pytest.raises(gr.Rejected, match="not on a Sunday") as caught:
            await client.ask(DESK, Add(3))
        assert isinstance(caught.value.__cause__, gr.RemoteError)


async def test_a_question_that_becomes_a_dead_letter_says_why(database: Database) -> None:
    async def bury() -> None:
        await done(desk.store, desk.bury(await comes(desk), "it cannot be decoded"))

    async with desk_and_client(database) as (desk, client):
        async with anyio.create_task_group() as group:
            group.start_soon(bury)
            with pytest.raises(DeadLettered, match="it cannot be decoded") as caught:
                await client.ask(DESK, Add(3), message_id="q1")
        assert (caught.value.recipient, caught.value.message_id) == (DESK, "q1")
        await done(desk.store, DropDead(address=DESK, message_id="q1"))
        with pytest.raises(DeadLettered):
            await client.ask(DESK, Add(3), message_id="q1")


async def test_a_question_that_is_not_accepted_says_why_at_once(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        with pytest.raises(NotAccepted, match="nothing has that address"):
            await client.ask("service/nobody", Add(1), timeout=None)
        await client.send(DESK, Add(1), message_id="q1")
        with pytest.raises(NotAccepted, match="another message"):
            await client.ask(DESK, Add(2), message_id="q1", timeout=None)
        await done(desk.store, desk.close())
        with pytest.raises(NotAccepted, match="ended for good"):
            await client.ask(DESK, Add(3), timeout=None)


async def test_a_question_without_a_reply_in_time_stays_accepted_and_can_be_asked_again(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        started = anyio.current_time()
        with pytest.raises(AskTimeout, match=r"within 3 s") as caught:
            await client.ask(DESK, Add(3), timeout=3)
        assert anyio.current_time() == pytest.approx(started + 3)
        (message_id,) = await desk.waiting()
        assert caught.value.__notes__ == [f"its reply is kept: ask again with message_id={message_id!r}"]
        await serve(desk, reply=encoded(9))
        assert await client.ask(DESK, Add(3), message_id=message_id) == 9


async def test_a_time_limit_below_nothing_is_refused(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        with pytest.raises(ValueError, match="timeout=-1"):
            await client.ask(DESK, Add(3), timeout=-1)
        assert await desk.waiting() == []


async def test_k18_a_reply_that_cannot_be_decoded_is_never_a_guess(database: Database) -> None:
    async with desk_and_client(database) as (desk, client), anyio.create_task_group() as group:
        group.start_soon(lambda: serve(desk, reply=b'{"$":"nowhere.loaded:Reply","n":1}'))
        with pytest.raises(gr.Undecodable, match=r"the reply to the message 'q1'"):
            await client.ask(DESK, Add(3), message_id="q1")


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
async def test_a_client_that_gave_up_waiting_can_go_on(database: Database, how: str) -> None:
    async with desk_and_client(database) as (_, client):
        with anyio.move_on_after(1) as scope:
            if how == "cancelled":
                await client.ask(DESK, Add(3), timeout=None)
            else:
                with pytest.raises(AskTimeout):
                    await client.ask(DESK, Add(3), timeout=0.5)
        assert scope.cancelled_caught == (how == "cancelled")
        assert (await client.send(DESK, Add(4))).disposition == "accepted"


async def test_a_question_whose_message_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    async def forget() -> None:
        await comes(desk)
        with closing(sqlite3.connect(database.path)) as connection, connection:
            connection.execute("DELETE FROM messages")

    database = SqliteDatabase(tmp_path / "store.db")
    async with desk_and_client(database) as (desk, client), anyio.create_task_group() as group:
        group.start_soon(forget)
        with pytest.raises(StoreRefused, match="no message 'q1' on record any more") as caught:
            await client.ask(DESK, Add(3), message_id="q1", timeout=None)
        assert caught.value.reason == "unknown_message"


# ----------------------------------------------------------------------------------------------- unknown outcomes


class Losing(WrappedDriver):
    """The connection breaks at each commit, and is not had again."""

    async def apply(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied:
        await self.inner.apply(batch_id, items)
        raise OutcomeUnknown("it broke")

    async def recover(self, batch_id: str, items: Sequence[Transition[Any]]) -> Applied | None:
        raise NotReached("it stays away")


@pytest.mark.real_time
async def test_r05_a_message_whose_fate_is_unknown_can_be_sent_again_by_the_id_that_the_error_names(
    database: Database,
) -> None:
    async with desk_and_client(database) as (desk, client):
        async with client_of(database, driver=Losing, bound=0.2) as losing:
            with pytest.raises(gr.StoreUnavailable) as caught:
                await losing.send(DESK, Note("hello"))
        assert caught.value.unknown
        (message_id,) = await desk.waiting()
        assert caught.value.__notes__ == [f"send the message again with message_id={message_id!r}: it counts once"]
        assert (await client.send(DESK, Note("hello"), message_id=message_id)).disposition == "duplicate"


# ----------------------------------------------------------------------------------------------------- callbacks


async def opened(desk: Owner, *, expires_at: datetime | None = None) -> str:
    """Open a callback of the desk; returns its token."""
    token, digest = new_token("payment-1")
    await done(
        desk.store,
        CreateCallback(
            address=desk.address,
            execution_id=desk.execution_id,
            generation=desk.generation,
            callback_id="payment-1",
            secret_digest=digest,
            name="payment",
            expires_at=expires_at,
        ),
    )
    return token


async def test_k05_a_callback_is_answered_once_by_whoever_has_its_token(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        token = await opened(desk)
        assert await client.answer(token, {"paid": 5}) == "accepted"
        assert await client.answer(token, {"paid": 5}) == "duplicate"
        assert await client.answer(token, {"paid": 6}) == "conflict"
        record = await desk.store.read(ReadCallback(callback_id="payment-1"))
        assert record is not None
        assert record.answer == encoded({"paid": 5})


async def test_an_answer_after_the_end_is_late(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        token = await opened(desk, expires_at=database.time.at(60))
        database.time.pass_time(61)
        await done(desk.store, ExpireCallback(callback_id="payment-1"))
        assert await client.answer(token, "paid") == "late"


async def test_a_token_that_opens_nothing_does_not_tell_what_is_wrong_with_it(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        token = await opened(desk)
        told = set()
        for wrong in (
            "",
            "no token",
            "payment-1.",
            ".secret",
            "payment-1.guessed",
            "payment-2." + token.partition(".")[2],
        ):
            with pytest.raises(UnknownToken) as caught:
                await client.answer(wrong, "paid")
            told.add(str(caught.value))
        assert len(told) == 1
        assert await client.answer(token, "paid") == "accepted"


async def test_a_large_answer_goes_by_the_content_store(database: Database) -> None:
    async with desk_and_client(database) as (desk, client):
        token = await opened(desk)
        assert await client.answer(token, "x" * (INLINE_LIMIT + 1)) == "accepted"
        assert await client.answer(token, "x" * (INLINE_LIMIT + 1)) == "duplicate"
